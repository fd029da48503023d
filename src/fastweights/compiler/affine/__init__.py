"""Whether the states of a step are affine in themselves, so that whole chunks of time are matrix products."""
