"""The program of a kind of model: its step, and what the program needs besides."""

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from torch import nn


class StandaloneProgram(NamedTuple):
    """A program around one time step of a model.

    Args:
        main: The name of the C file of this folder with the main function.
        step: A module whose call is one time step.
        arguments: The arguments of one step by their names in C. The state is the one that is a tuple.
        outputs: The names of the results in C, without the state.
        text: The text in the weight file.
        usage: A command line that runs the program.
        chunk: The arguments of a call with several time steps, for programs that read them in chunks.
    """

    main: str
    step: nn.Module
    arguments: Mapping[str, Any]
    outputs: Sequence[str]
    text: bytes
    usage: str
    chunk: Mapping[str, Any] | None = None
