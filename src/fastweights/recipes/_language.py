"""What language models have in common, whatever they read: a layer in blocks, and training on a stream."""

from dataclasses import dataclass
from typing import Any, Literal

from fastweights.core.errors import require
from fastweights.recipes._sizes import WIDEST, check_sizes
from fastweights.training.settings._training import require_numbers
from fastweights.training.settings.streamed import Streamed


@dataclass(frozen=True, kw_only=True)
class Language(Streamed):
    """A language model over any layer.

    Args:
        tokenizer: A name from "fastweights list tokenizers".
        layer: A name from "fastweights list layers", or your own: MODULE:NAME or PATH.py:NAME. Several with commas
            between them take turns over the blocks: "delta-net,softmax-attention".
        feature_map: A name from "fastweights list feature-maps"; the layer's own if null.
        normaliser: Of keys and queries: "l2", "sum" or "none"; null for the layer's own.
        convolution: Width of the causal convolution in front of every layer; 0 for none.
        d_model: Size of the representation.
        depth: Number of blocks.
        heads: Memories a layer.
        d_ff: Width of the feed-forward networks.
        dropout: Probability of dropping a unit.
        norm: LayerNorm before ("pre") or after ("post") every layer.
    """

    tokenizer: Literal["characters", "words", "bytes", "bpe"]
    layer: str = "delta-net"
    feature_map: str | None = None
    normaliser: str | None = None
    convolution: int = 0
    d_model: int
    depth: int
    heads: int
    d_ff: int
    dropout: float
    norm: Literal["pre", "post"] = "pre"

    def __post_init__(self) -> None:
        super().__post_init__()
        check_sizes(self)
        require_numbers(self, ("convolution",), 0, WIDEST)
        require(self.convolution != 1, "convolution", "0 or at least 2", self.convolution)

    def training(self) -> Streamed:
        """How to train."""
        return Streamed.among(self)

    def model_options(self) -> dict[str, Any]:
        """Of the model."""
        names = ("layer", "d_model", "depth", "heads", "d_ff", "dropout", "norm", "convolution")
        given = {"feature_map": self.feature_map, "normaliser": self.normaliser}
        options = {name: value for name, value in given.items() if value is not None}
        return {**{name: getattr(self, name) for name in names}, "options": options}


def with_unit_keys(layer: str, options: dict[str, Any]) -> dict[str, Any]:
    """Options of a model whose keys and queries have norm 1, where its layer has any and no other norm is given."""
    # torch is loaded by the layers, and only they know the names of their options.
    from fastweights.layers import layer_options

    if "normaliser" not in layer_options(layer):
        return options
    return {**options, "options": {"normaliser": "l2", **options["options"]}}
