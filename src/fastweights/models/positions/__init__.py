"""How a model tells where in a sequence a step is: one file a way, each a layer of a stack, that adds to x `[B, T, D]`."""
