"""Cells, one per file: a state and one step of one head. `Cell.from_name` also returns a memory for every rule."""

from fastweights.cells.adam import adam
from fastweights.cells.associative_lstm import associative_lstm
from fastweights.cells.atlas import atlas
from fastweights.cells.attention_delta import attention_delta
from fastweights.cells.backpropamine import backpropamine
from fastweights.cells.comba import comba
from fastweights.cells.delta_delta_net import delta_delta_net
from fastweights.cells.delta_lstm import delta_lstm
from fastweights.cells.delta_lstm_v1 import delta_lstm_v1
from fastweights.cells.delta_lstm_v2 import delta_lstm_v2
from fastweights.cells.delta_lstm_v3 import delta_lstm_v3
from fastweights.cells.delta_mlp import delta_mlp
from fastweights.cells.delta_product import delta_product
from fastweights.cells.delta_rnn import delta_rnn
from fastweights.cells.delta_rnn_v1 import delta_rnn_v1
from fastweights.cells.fast_weight_memory import fast_weight_memory
from fastweights.cells.fast_weight_rnn import fast_weight_rnn
from fastweights.cells.full_recurrent_delta_net import full_recurrent_delta_net
from fastweights.cells.gated_attention import gated_attention
from fastweights.cells.gated_slot_attention import gated_slot_attention
from fastweights.cells.half_attention_delta import half_attention_delta
from fastweights.cells.hgrn2 import hgrn2
from fastweights.cells.hope import hope
from fastweights.cells.hopfield_slots import hopfield_slots
from fastweights.cells.kalman_linear_attention import kalman_linear_attention
from fastweights.cells.linear_attention import linear_attention
from fastweights.cells.linear_recurrence import linear_recurrence
from fastweights.cells.log_linear_attention import log_linear_attention
from fastweights.cells.m2rnn import m2rnn
from fastweights.cells.mamba3 import mamba3
from fastweights.cells.memora import memora
from fastweights.cells.mesa import mesa
from fastweights.cells.mixture_of_memories import mixture_of_memories
from fastweights.cells.mlstm import mlstm
from fastweights.cells.moneta import moneta
from fastweights.cells.multi_level_fast_weight_rnn import multi_level_fast_weight_rnn
from fastweights.cells.muon import muon
from fastweights.cells.neural_turing_machine import neural_turing_machine
from fastweights.cells.neurons_and_synapses import neurons_and_synapses
from fastweights.cells.one_rate_srwm import one_rate_srwm
from fastweights.cells.power_retention import power_retention
from fastweights.cells.printed_delta_mlp import printed_delta_mlp
from fastweights.cells.product_key_memory import product_key_memory
from fastweights.cells.recurrent_delta_net import recurrent_delta_net
from fastweights.cells.recursive_least_squares import recursive_least_squares
from fastweights.cells.residual_delta import residual_delta
from fastweights.cells.rwkv4 import rwkv4
from fastweights.cells.rwkv6 import rwkv6
from fastweights.cells.rwkv7 import rwkv7
from fastweights.cells.selective_scan import selective_scan
from fastweights.cells.short_convolution import short_convolution
from fastweights.cells.slstm import slstm
from fastweights.cells.sr_delta_net import sr_delta_net
from fastweights.cells.srwm import srwm
from fastweights.cells.titans import titans
from fastweights.cells.ttt_mlp import ttt_mlp
from fastweights.cells.yaad import yaad
from fastweights.step_docstrings import describe_parameters

__all__ = [
    "adam",
    "associative_lstm",
    "atlas",
    "attention_delta",
    "backpropamine",
    "comba",
    "delta_delta_net",
    "delta_lstm",
    "delta_lstm_v1",
    "delta_lstm_v2",
    "delta_lstm_v3",
    "delta_mlp",
    "delta_product",
    "delta_rnn",
    "delta_rnn_v1",
    "fast_weight_memory",
    "fast_weight_rnn",
    "full_recurrent_delta_net",
    "gated_attention",
    "gated_slot_attention",
    "half_attention_delta",
    "hgrn2",
    "hope",
    "hopfield_slots",
    "kalman_linear_attention",
    "linear_attention",
    "linear_recurrence",
    "log_linear_attention",
    "m2rnn",
    "mamba3",
    "memora",
    "mesa",
    "mixture_of_memories",
    "mlstm",
    "moneta",
    "multi_level_fast_weight_rnn",
    "muon",
    "neural_turing_machine",
    "neurons_and_synapses",
    "one_rate_srwm",
    "power_retention",
    "printed_delta_mlp",
    "product_key_memory",
    "recurrent_delta_net",
    "recursive_least_squares",
    "residual_delta",
    "rwkv4",
    "rwkv6",
    "rwkv7",
    "selective_scan",
    "short_convolution",
    "slstm",
    "sr_delta_net",
    "srwm",
    "titans",
    "ttt_mlp",
    "yaad",
]

describe_parameters(globals()[name] for name in __all__)
