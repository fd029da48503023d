"""The commands of the command line: a file each, found by its name.

The docstring of a module is what `--help` says, its first line in the list of all. `add(command)` adds arguments to the
parser, and `run(options)` returns the exit status. torch takes seconds to import: what needs it is imported in `run`.
"""
