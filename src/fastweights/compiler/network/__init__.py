"""Compiles one time step of a whole network: a traced module becomes one C++ function over named buffers."""
