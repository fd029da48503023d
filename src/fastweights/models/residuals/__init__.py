"""Residual connections around a sublayer F, one per file. A block has one for its layer and one for its feed-forward
network.

All have `read(x)`, the input of F, and `join(x, read, y)`, the result from x, the input of F and its output y.
"""
