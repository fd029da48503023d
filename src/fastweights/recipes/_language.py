"""The common settings of language models: a layer in blocks, trained on a stream."""

from dataclasses import dataclass
from typing import Any, Literal

from fastweights.core.errors import require
from fastweights.recipes._sizes import WIDEST, check_sizes
from fastweights.training.settings._training import require_numbers
from fastweights.training.settings.language_modelling import LanguageModelling


@dataclass(frozen=True, kw_only=True)
class LanguageRecipe(LanguageModelling):
    """A language model with any layer.

    Args:
        tokenizer: Tokenizer, from "fastweights list tokenizers".
        layer: Layer: a name from "fastweights list layers", or a custom layer MODULE:NAME or PATH.py:NAME. Several
            names with commas alternate over the blocks: "delta-net,softmax-attention".
        feature_map: Feature map, from "fastweights list feature-maps"; null for the default of the layer.
        qk_norm: Normalisation of keys and queries: "l2", "sum" or "none"; null for the default of the layer.
        conv_size: Width of the causal convolution in front of each layer, in time steps; 0 for none.
        d_model: Size of the representation of a time step.
        num_layers: Number of blocks.
        num_heads: Number of heads per layer.
        d_ff: Width of the feed-forward networks.
        dropout: Dropout probability.
        norm: Position of LayerNorm: before ("pre") or after ("post") each layer.
    """

    tokenizer: Literal["characters", "words", "bytes", "bpe"]
    layer: str = "delta-net"
    feature_map: str | None = None
    qk_norm: str | None = None
    conv_size: int = 0
    d_model: int
    num_layers: int
    num_heads: int
    d_ff: int
    dropout: float
    norm: Literal["pre", "post"] = "pre"

    def __post_init__(self) -> None:
        super().__post_init__()
        check_sizes(self)
        require_numbers(self, ("conv_size",), 0, WIDEST)
        require(self.conv_size != 1, "conv_size", "0 or at least 2", self.conv_size)

    def training(self) -> LanguageModelling:
        """Settings of training."""
        return LanguageModelling.among(self)

    def model_options(self) -> dict[str, Any]:
        """Options of the model."""
        names = ("layer", "d_model", "num_layers", "num_heads", "d_ff", "dropout", "norm", "conv_size")
        of_layer = {"feature_map": self.feature_map, "qk_norm": self.qk_norm}
        options = {name: value for name, value in of_layer.items() if value is not None}
        return {**{name: getattr(self, name) for name in names}, "options": options}


def with_unit_keys(layer: str, options: dict[str, Any]) -> dict[str, Any]:
    """The options of a model, with `qk_norm` "l2" if its layer has this option and it is not set."""
    # The names of options are in the layers, whose import loads torch.
    from fastweights.layers import layer_options

    if "qk_norm" not in layer_options(layer):
        return options
    return {**options, "options": {"qk_norm": "l2", **options["options"]}}
