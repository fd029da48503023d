"""Layers with one interface: `y, state = layer(x, state=None, reset=None, lengths=None, controls=None)`, x `[B, T, D]`.

Batch first in every state. A file is a layer; a rule or cell without one becomes a layer too, as `FastWeight` over its
cell.
"""

import inspect
from typing import Any

from torch import nn

from fastweights.catalogue import LAYERS, hyphens, names
from fastweights.cell import Cell
from fastweights.errors import require, require_name
from fastweights.layers._bidirectional import Bidirectional
from fastweights.layers._convolved import Convolved, behind_convolution
from fastweights.layers._fast_weight import FastWeight, takes_keys
from fastweights.layers._layer import Layer
from fastweights.layers._programmer import FastWeightProgrammer
from fastweights.layers._reset_every import ResetEvery

__all__ = [
    "Bidirectional",
    "Convolved",
    "FastWeight",
    "FastWeightProgrammer",
    "Layer",
    "ResetEvery",
    "behind_convolution",
    "layer_names",
    "layer_options",
    "make_layer",
]


def layer_names() -> list[str]:
    """Every name that `make_layer` takes."""
    return names("layers")


def layer_options(name: str) -> set[str]:
    """The options that the layer of this name takes, `heads` among them if it has any."""
    name = hyphens(name)
    require_name("layer", name, layer_names())
    if name in LAYERS.names():
        return set(inspect.signature(LAYERS.load(name)).parameters) - {"d_model"}
    options = set(inspect.signature(FastWeight).parameters) - {"d_model", "cell", "sizes", "constants"}
    return options if takes_keys(Cell.named(name)) else options - {"feature_map", "normaliser"}


def make_layer(name: str, d_model: int, heads: int, **options: Any) -> nn.Module:
    """A layer by name; `heads` is left out for a layer that has none.

    >>> type(make_layer("delta-net", d_model=32, heads=4)).__name__
    'DeltaNet'
    >>> make_layer("gated-delta", d_model=32, heads=4, feature_map="dpfp-2").cell.name
    'gated-delta'
    """
    taken = layer_options(name)
    for option, value in options.items():
        require(option in taken, option, f"left out for {name}, which has no such option", repr(value))
    if "heads" in taken:
        options = {"heads": heads, **options}
    if hyphens(name) not in LAYERS.names():
        return FastWeight(d_model, cell=Cell.named(name), **options)
    layer: nn.Module = LAYERS.load(name)(d_model, **options)
    return layer
