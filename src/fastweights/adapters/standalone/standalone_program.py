"""The program of a kind of model: its calls, and what the program needs besides."""

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from fastweights.compiler.network.network_call import NetworkCall


class StandaloneProgram(NamedTuple):
    """A program around the calls of a model.

    Args:
        main: The name of the C file of this folder with the main function.
        calls: The calls by name: "step", one time step, and others. Call `name` becomes the function `network_name`.
        text: The text in the weight file.
        usage: A command line that runs the program.
        in_python: The command that does the same in Python.
        headers: The names of the headers of this folder that the C file includes.
    """

    main: str
    calls: Mapping[str, NetworkCall]
    text: bytes
    usage: str
    in_python: str
    headers: Sequence[str] = ("program.h",)
