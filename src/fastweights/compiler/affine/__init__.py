"""The affine form of a step: if the new state is affine in the old one, chunks of time are matrix products."""
