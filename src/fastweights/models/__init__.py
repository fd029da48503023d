"""Models: stacks of blocks over any layer."""

from fastweights.models.adaptive_softmax import AdaptiveSoftmax
from fastweights.models.agent import Agent
from fastweights.models.beam_search import beam_search
from fastweights.models.block import Block
from fastweights.models.block_model import BlockModel
from fastweights.models.blocks import Blocks
from fastweights.models.cross_attention import CrossAttention
from fastweights.models.dropout import Dropout
from fastweights.models.few_shot_network import FewShotNetwork
from fastweights.models.glimpse_network import GlimpseNetwork
from fastweights.models.initialisation import init_small_
from fastweights.models.language_model import LanguageModel
from fastweights.models.neuron_network import NeuronNetwork
from fastweights.models.recurrent_model import RecurrentModel
from fastweights.models.retrieval_model import RetrievalModel
from fastweights.models.sequence_classifier import SequenceClassifier
from fastweights.models.snail_network import SNAILNetwork
from fastweights.models.stack import Stack
from fastweights.models.symbol_model import SymbolModel
from fastweights.models.translator import Translator
from fastweights.models.word_dropout import WordDropout

__all__ = [
    "AdaptiveSoftmax",
    "Agent",
    "Block",
    "BlockModel",
    "Blocks",
    "CrossAttention",
    "Dropout",
    "FewShotNetwork",
    "GlimpseNetwork",
    "LanguageModel",
    "NeuronNetwork",
    "RecurrentModel",
    "RetrievalModel",
    "SNAILNetwork",
    "SequenceClassifier",
    "Stack",
    "SymbolModel",
    "Translator",
    "WordDropout",
    "beam_search",
    "init_small_",
]
