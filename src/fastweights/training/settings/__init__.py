"""How models are trained: a file for every loop of the same name in `loops`. Imports nothing heavy: flags are made of
them."""
