"""Trained models, loaded from their run folders."""

from pathlib import Path
from typing import Any, NamedTuple

from torch import nn

from fastweights.core.arguments import checked
from fastweights.core.errors import InputError


class Trained(NamedTuple):
    """A trained model in evaluation mode, and its task.

    The task of a language model converts between text and tokens: `task.encode` and `task.decode`.
    """

    model: nn.Module
    task: Any


@checked
def load(run: str | Path, layer: Any = None, env: str | None = None) -> Trained:
    """Loads the model of a run of `fastweights train` or `fastweights reproduce`, with its best validation weights.

        model, text = fastweights.load("runs/char-lm-2026-08-01-120000")
        tokens = model.generate(text.encode("Dorothy")[None], length=100, top_p=0.9)
        print(text.decode(tokens[0]))

    Loading does not unpickle anything and does not execute code that the folder names. If the run has a custom layer or
    a custom environment, pass it as an argument.

    Args:
        run: Run folder.
        layer: The custom layer or layers of the run, as for `make_layer`; None for layers of the library.
        env: The custom environment of an agent, MODULE:NAME or PATH.py:NAME; None for environments of the library.

    Raises:
        InputError: The folder is not a run or is damaged, or its custom layer or environment is missing.
    """
    try:
        from fastweights.experiments.load_run import load_run
        from fastweights.experiments.trust import TrustedCode
        from fastweights.training.run_folder.run import Run
    except ModuleNotFoundError as error:
        raise InputError(f"{error.name} must be installed, got no such module. See fastweights[train].") from None
    return Trained(*load_run(Run.open(Path(run)), TrustedCode(layer, env)))
