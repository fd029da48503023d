"""Models: stacks of blocks over any layer."""

from fastweights.models.adaptive_softmax import AdaptiveSoftmax
from fastweights.models.block import Block
from fastweights.models.block_model import BlockModel
from fastweights.models.glimpse_network import GlimpseNetwork
from fastweights.models.initialisation import start_small
from fastweights.models.language_model import LanguageModel
from fastweights.models.recurrent_model import RecurrentModel
from fastweights.models.retrieval_model import RetrievalModel
from fastweights.models.stack import Stack

__all__ = [
    "AdaptiveSoftmax",
    "Block",
    "BlockModel",
    "GlimpseNetwork",
    "LanguageModel",
    "RecurrentModel",
    "RetrievalModel",
    "Stack",
    "start_small",
]
