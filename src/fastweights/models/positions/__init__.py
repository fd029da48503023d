"""How a model tells where a step is: one file a way, each a layer of a stack that adds to x `[B, T, D]`."""
