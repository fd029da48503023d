"""Writes a trained model as a folder of C files: source, header, weights, a main program and instructions."""

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, cast, get_args

import torch
from torch import nn

from fastweights.adapters.standalone import agent, classifier, few_shot_network, language_model, translator
from fastweights.adapters.standalone.standalone_program import StandaloneProgram
from fastweights.compiler.ir.network import Precision
from fastweights.core.arguments import checked
from fastweights.core.errors import InputError, invalid, require_name
from fastweights.core.files import write_atomically
from fastweights.models import Agent, FewShotNetwork, LanguageModel, SequenceClassifier, Translator

PROGRAMS: Mapping[type[nn.Module], Callable[[Any, Any], StandaloneProgram]] = {
    LanguageModel: language_model.program,
    Agent: agent.program,
    SequenceClassifier: classifier.program,
    FewShotNetwork: few_shot_network.program,
    Translator: translator.program,
}
"""The program of every kind of model."""
FOLDER = Path(__file__).parent
BUILD = "g++ -O3 -march=native -Wno-psabi -std=gnu++17 -pthread -x c++ network.cpp main.c -o run"
README = """# {title}

One time step of the network is in `network.cpp`, its declarations are in `network.h`, and its weights are in
`network.weights`. `main.c` is a program that uses them, with its headers. None needs Python or PyTorch.

    {build}
    {usage}

GCC 12 or newer and Clang 13 or newer build the files for any little-endian CPU. Leave `-march=native` out to
build for another CPU. `./run` prints its options. The weights fit this `network.cpp` only. A file of another
network is an error.
"""


@checked
def write(model: nn.Module, task: Any, folder: str | Path, weights: str = "float32") -> list[Path]:
    """Writes a trained model as a program without Python.

    The files are `network.cpp`, `network.h`, `network.weights`, `program.h`, `main.c` and `README.md`, which has the
    build line. Programs that read texts have `tokenizer.h` in addition, and those of agents `actions.h`.

    Args:
        model: A model on a CPU, from `fastweights.load`.
        task: Its task, from `fastweights.load`.
        folder: Folder for the files.
        weights: How matrices are stored: "float32", "bfloat16" in half the memory, or "int8" in a quarter of it.

    Returns:
        The paths of the files.

    Raises:
        InputError: The model is of another kind, or one of its parts does not compile. The message names the part.
    """
    require_name("weights", weights, get_args(Precision))
    kind = next((PROGRAMS[kind] for kind in PROGRAMS if isinstance(model, kind)), None)
    if kind is None:
        kinds = ", ".join(kind.__name__ for kind in PROGRAMS)
        raise invalid("model", f"one of {kinds}", type(model).__name__, "Use fastweights.adapters.onnx.")
    files = _files(kind(model.eval(), task), cast(Precision, weights), type(model).__name__)
    for name, content in files.items():
        write_atomically(Path(folder, name), content)
    return [Path(folder, name) for name in files]


@torch.no_grad()
def _files(program: StandaloneProgram, precision: Precision, name: str) -> dict[str, bytes]:
    """The contents of the files by name."""
    from fastweights.compiler.errors import Unsupported
    from fastweights.compiler.network.export import export

    try:
        files = export(program.calls, program.text, precision)
    except Unsupported as error:
        remedy = f"Use {program.in_python} with Python, or train another model."
        raise InputError(f"model must be a model that compiles, got {name}: {error}. {remedy}") from None
    parts = {"program.h": "program.h", **program.parts, "main.c": f"{program.main}.c"}
    files |= {name: (FOLDER / part).read_bytes() for name, part in parts.items()}
    readme = README.format(title=name, build=BUILD, usage=program.usage)
    return {**files, "README.md": readme.encode()}
