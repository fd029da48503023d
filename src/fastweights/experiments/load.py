"""Trained models, loaded from their run folders."""

from pathlib import Path
from typing import Any, NamedTuple

from torch import nn

from fastweights.core.arguments import checked
from fastweights.core.errors import InputError


class Trained(NamedTuple):
    """Trained model in evaluation mode, with its task.

    For a language model, `task.encode` and `task.decode` convert between text and tokens.

    Attributes:
        model: Model.
        task: Task that the model was trained on.
    """

    model: nn.Module
    task: Any


@checked
def load(run: str | Path, layer: Any = None, env: str | None = None) -> Trained:
    """Loads the model of a run folder, with the weights of the best validation result.

        model, text = fastweights.load("runs/char-lm-2026-08-01-120000")
        tokens = model.generate(text.encode("Dorothy")[None], max_new_tokens=100, top_p=0.9)
        print(text.decode(tokens[0]))

    Nothing is unpickled, and no code that the folder names is run. If the layer or the environment is custom code, pass
    it.

    Args:
        run: Run folder of `fastweights train` or `fastweights reproduce`.
        layer: Custom layer or layers of the run, as in `make_layer`. None: a layer of the library.
        env: Custom environment of an agent: MODULE:NAME or PATH.py:NAME. None: an environment of the library.

    Returns:
        The model in evaluation mode, and its task.

    Raises:
        InputError: the folder is no run or is damaged, or its layer or environment must be passed.
    """
    try:
        from fastweights.experiments.load_run import load_run
        from fastweights.experiments.trust import TrustedCode
        from fastweights.training.run_folder.run import Run
    except ModuleNotFoundError as error:
        raise InputError(f"{error.name} must be installed, got no such module. See fastweights[train].") from None
    return Trained(*load_run(Run.open(Path(run)), TrustedCode(layer, env)))
