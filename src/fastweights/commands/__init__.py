"""Commands of the command line, one per file, found by name.

The docstring of a module is its `--help` text, and the first line its entry in the list of commands. `add(command)`
adds arguments to the parser, and `run(options)` returns the exit status. torch takes seconds to import, so `run`
imports all that needs it.
"""
