"""Models: stacks of blocks over any layer."""
