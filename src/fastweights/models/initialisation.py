"""How the papers' language models start."""

import torch
from torch import nn


@torch.no_grad()
def start_small(model: nn.Module, std: float = 0.02) -> None:
    """Embeddings and the weights of linear maps ~ N(0, std^2), biases 0, gains of LayerNorm ~ N(1, std^2); in place.

    Weights of other modules, such as the slow weights inside a cell, stay as they are.

    Source: language models of Schlag et al. 2021 and Irie et al. 2021 (code).
    """
    for module in model.modules():
        if isinstance(module, nn.Linear | nn.Embedding):
            nn.init.normal_(module.weight, std=std)
        if isinstance(module, nn.LayerNorm):
            nn.init.normal_(module.weight, mean=1.0, std=std)
        if isinstance(module, nn.Linear | nn.LayerNorm) and module.bias is not None:
            nn.init.zeros_(module.bias)
