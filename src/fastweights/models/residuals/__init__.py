"""How a sublayer F lies in a block: one file a residual connection, of which a block has one for its layer and one for
its feed-forward network.

All have `read(x)`, what F is given, and `join(x, read, y)`, what becomes of x, what F was given, and what it said.
"""
