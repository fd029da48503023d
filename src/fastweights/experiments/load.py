"""Models that were trained, from their run folders."""

from pathlib import Path
from typing import Any, NamedTuple

from torch import nn

from fastweights.core.arguments import checked
from fastweights.core.errors import InputError


class Trained(NamedTuple):
    """A model in evaluation mode, and what it was trained on.

    For a language model, `encode` and `decode` of its task are between text and tokens.
    """

    model: nn.Module
    task: Any


@checked
def load(run: str | Path, layer: Any = None, env: str | None = None) -> Trained:
    """The model of a run of `fastweights train` or `fastweights reproduce`, with the weights that validated best.

        model, text = fastweights.load("runs/char-lm-2026-08-01-120000")
        tokens = model.generate(text.encode("Dorothy")[None], length=100, top_p=0.9)
        print(text.decode(tokens[0]))

    Nothing is unpickled, and no code is run that the folder names: where the layer or the environment is your own code,
    name it.

    Args:
        run: The run folder.
        layer: The layer or layers of a run that has its own: what `make_layer` takes. Left out for all others.
        env: The environment of an agent that has its own: MODULE:NAME or PATH.py:NAME. Left out for all others.

    Raises:
        InputError: the folder is no run or is damaged, or its layer or environment must be given.
    """
    try:
        from fastweights.experiments.load_run import load_run
        from fastweights.experiments.trust import TrustedCode
        from fastweights.training.run_folder.run import Run
    except ModuleNotFoundError as error:
        raise InputError(f"{error.name} must be installed, got no such module. See fastweights[train].") from None
    return Trained(*load_run(Run.open(Path(run)), TrustedCode(layer, env)))
