"""Feature maps phi: one file a map, a module with `output_size` that maps the last axis of size `size`."""

from fastweights.feature_maps.dpfp import DPFP
from fastweights.feature_maps.elu import ELU
from fastweights.feature_maps.favor import Favor
from fastweights.feature_maps.gaussian_favor import GaussianFavor
from fastweights.feature_maps.identity import Identity
from fastweights.feature_maps.relu import ReLU
from fastweights.feature_maps.relu_favor import ReLUFavor
from fastweights.feature_maps.row_favor import RowFavor
from fastweights.feature_maps.scaled_favor import ScaledFavor
from fastweights.feature_maps.softmax import Softmax
from fastweights.feature_maps.tanh import Tanh

__all__ = [
    "DPFP",
    "ELU",
    "Favor",
    "GaussianFavor",
    "Identity",
    "ReLU",
    "ReLUFavor",
    "RowFavor",
    "ScaledFavor",
    "Softmax",
    "Tanh",
]
