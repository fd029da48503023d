"""Layers with one interface: `y, state = layer(x, state=None, reset=None)`, x `[B, T, D]`, batch first in every state.

A file is a layer; a rule or cell without one becomes a layer too, as `FastWeight` over its cell.
"""

from fastweights.layers._convolved import Convolved, behind_convolution
from fastweights.layers._fast_weight import FastWeight
from fastweights.layers._make import LayerKind, LayerKinds, layer_names, layer_options, make_layer, make_layers
from fastweights.layers._programmer import FastWeightProgrammer
from fastweights.layers._reset_every import ResetEvery

__all__ = [
    "Convolved",
    "FastWeight",
    "FastWeightProgrammer",
    "LayerKind",
    "LayerKinds",
    "ResetEvery",
    "behind_convolution",
    "layer_names",
    "layer_options",
    "make_layer",
    "make_layers",
]
