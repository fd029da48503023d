"""The program of a kind of model: its calls, and the files and the text that the program needs in addition."""

from collections.abc import Mapping
from types import MappingProxyType
from typing import NamedTuple

from fastweights.compiler.network.network_call import NetworkCall


class ProgramPart(NamedTuple):
    """A part of a program that depends on the model, such as a tokenizer or an action space.

    Args:
        header: The C file of this folder that implements it.
        text: Its data in the weight file, as that file reads them.
    """

    header: str
    text: bytes


class StandaloneProgram(NamedTuple):
    """A program around the calls of a model.

    Args:
        main: The name of the C file of this folder with the main function.
        calls: The calls by name: "step", one time step, and others. Call `name` becomes the function `network_name`.
        text: The text in the weight file.
        usage: A command line that runs the program.
        in_python: The command that does the same in Python.
        parts: The C file of this folder for each further header that the main file includes.
    """

    main: str
    calls: Mapping[str, NetworkCall]
    text: bytes
    usage: str
    in_python: str
    parts: Mapping[str, str] = MappingProxyType({})
