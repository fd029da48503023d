"""The backends: one module per implementation of the scan over time.

Every module has these functions:

- `unsupported_reason(call, build)`: why the backend cannot run a call, empty if it can;
- `cost(call)`: the time that it takes, relative to a compiled kernel;
- `describe(call)`: details for `explain`;
- `run(call)`: y and the last state;
- `fast_path(call)`: a function that runs further calls of the same signature, or None.
"""
