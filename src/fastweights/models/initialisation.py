"""Initialisation of the language models of the papers."""

from functools import partial

from torch import nn

from fastweights.layers.base.initialise import change_initial


def start_small(model: nn.Module, std: float = 0.02) -> None:
    """Embeddings and the weights of linear maps ~ N(0, std^2), biases 0, gains of LayerNorm ~ N(1, std^2); in place.

    Each later `reset_parameters()` of these modules repeats it. Weights of other modules, such as the slow weights
    inside a cell, are not changed.

    Source: language models of Schlag et al. 2021 and Irie et al. 2021 (code).
    """
    for module in model.modules():
        if isinstance(module, nn.Linear | nn.Embedding | nn.LayerNorm):
            change_initial(module, partial(_draw, std=std))


def _draw(module: nn.Linear | nn.Embedding | nn.LayerNorm, std: float) -> None:
    nn.init.normal_(module.weight, mean=float(isinstance(module, nn.LayerNorm)), std=std)
    if not isinstance(module, nn.Embedding) and module.bias is not None:
        nn.init.zeros_(module.bias)
