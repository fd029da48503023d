"""Initialisation of the language models of the papers."""

from functools import partial

from torch import nn

from fastweights.layers.base.initialise import change_initial


def init_small_(model: nn.Module, std: float = 0.02) -> None:
    """Initialises a model with small weights, in place, as in the language models of the papers.

        W ~ N(0, std^2), b = 0, gain ~ N(1, std^2)

    It changes embeddings, linear maps and LayerNorm. Each later `reset_parameters()` of these modules repeats it.
    Weights of other modules, such as slow weights inside a cell, are not changed.

    Source: the code of the language models of Schlag et al. 2021 (arXiv:2102.11174) and Irie et al. 2021
    (arXiv:2106.06295).

    Args:
        model: Model to initialise.
        std: Standard deviation of the weights.
    """
    for module in model.modules():
        if isinstance(module, nn.Linear | nn.Embedding | nn.LayerNorm):
            change_initial(module, partial(_draw, std=std))


def _draw(module: nn.Linear | nn.Embedding | nn.LayerNorm, std: float) -> None:
    nn.init.normal_(module.weight, mean=float(isinstance(module, nn.LayerNorm)), std=std)
    if not isinstance(module, nn.Embedding) and module.bias is not None:
        nn.init.zeros_(module.bias)
