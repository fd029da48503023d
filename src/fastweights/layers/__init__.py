"""Layers with one interface: `y, state = layer(x, state, reset, lengths)`, with x and y `[B, T, D]`.

`make_layer` returns a layer by name. Each class is described on its own page. Any other rule or cell becomes a layer
through `FastWeight`.
"""

from fastweights.layers.associative_lstm import AssociativeLSTM
from fastweights.layers.base.factory import LayerKind, LayerKinds, layer_names, layer_options, make_layer, make_layers
from fastweights.layers.base.fast_weight import FastWeight
from fastweights.layers.base.layer import Layer
from fastweights.layers.delta_delta_net import DeltaDeltaNet
from fastweights.layers.delta_mlp import DeltaMLP
from fastweights.layers.delta_net import DeltaNet
from fastweights.layers.delta_rnn_v1 import DeltaRNNV1
from fastweights.layers.fake_srwm import FakeSRWM
from fastweights.layers.fast_weight_rnn import FastWeightRNN
from fastweights.layers.full_recurrent_delta_net import FullRecurrentDeltaNet
from fastweights.layers.irnn import IRNN
from fastweights.layers.linear_attention import LinearAttention
from fastweights.layers.lstm import LSTM
from fastweights.layers.multi_level_fast_weight_rnn import MultiLevelFastWeightRNN
from fastweights.layers.neurons_and_synapses import NeuronsAndSynapses
from fastweights.layers.no_carry_srwm import NoCarrySRWM
from fastweights.layers.one_rate_srwm import OneRateSRWM
from fastweights.layers.outer_product import OuterProduct
from fastweights.layers.performer import Performer
from fastweights.layers.printed_delta_mlp import PrintedDeltaMLP
from fastweights.layers.snail import SNAIL
from fastweights.layers.softmax_attention import SoftmaxAttention
from fastweights.layers.sr_delta_net import SRDeltaNet
from fastweights.layers.srwm import SRWM
from fastweights.layers.transformer_xl import TransformerXL
from fastweights.layers.wrappers.bidirectional import Bidirectional
from fastweights.layers.wrappers.periodic_reset import PeriodicReset
from fastweights.layers.wrappers.programmer import FastWeightProgrammer
from fastweights.layers.wrappers.short_convolution import WithShortConvolution, with_short_convolution

__all__ = [
    "IRNN",
    "LSTM",
    "SNAIL",
    "SRWM",
    "AssociativeLSTM",
    "Bidirectional",
    "DeltaDeltaNet",
    "DeltaMLP",
    "DeltaNet",
    "DeltaRNNV1",
    "FakeSRWM",
    "FastWeight",
    "FastWeightProgrammer",
    "FastWeightRNN",
    "FullRecurrentDeltaNet",
    "Layer",
    "LayerKind",
    "LayerKinds",
    "LinearAttention",
    "MultiLevelFastWeightRNN",
    "NeuronsAndSynapses",
    "NoCarrySRWM",
    "OneRateSRWM",
    "OuterProduct",
    "Performer",
    "PeriodicReset",
    "PrintedDeltaMLP",
    "SRDeltaNet",
    "SoftmaxAttention",
    "TransformerXL",
    "WithShortConvolution",
    "layer_names",
    "layer_options",
    "make_layer",
    "make_layers",
    "with_short_convolution",
]
