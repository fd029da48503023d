"""The common settings of translators: an encoder, and a decoder with any layer."""

from dataclasses import dataclass
from typing import Any, Literal

from fastweights.recipes._sizes import check_sizes
from fastweights.training.settings.translation import Translation


@dataclass(frozen=True, kw_only=True)
class TranslatorRecipe(Translation):
    """A translator with any layer in the decoder, and softmax or linear attention to the source.

    Args:
        layer: Layer of the decoder: a name from "fastweights list layers", or a custom layer MODULE:NAME or
            PATH.py:NAME. Several names with commas alternate over the blocks.
        feature_map: Feature map of the layer, from "fastweights list feature-maps"; null for the default of the layer.
        encoder_feature_map: Feature map of linear attention in the encoder; null for softmax attention.
        cross_feature_map: Feature map of linear attention to the source; null for softmax attention.
        pieces: Size of the subword vocabulary, which both languages share.
        d_model: Size of the representation of a time step.
        num_layers: Number of blocks of the encoder, and of the decoder.
        num_heads: Number of heads per layer.
        d_ff: Width of the feed-forward networks.
        dropout: Dropout probability.
        norm: Position of LayerNorm: before ("pre") or after ("post") each layer.
    """

    layer: str = "linear-attention"
    feature_map: str | None = None
    encoder_feature_map: str | None = None
    cross_feature_map: str | None = None
    pieces: int = 4000
    d_model: int = 128
    num_layers: int = 2
    num_heads: int = 2
    d_ff: int = 512
    dropout: float = 0.2
    norm: Literal["pre", "post"] = "post"

    steps: int = 6000
    batch_size: int = 1024
    learning_rate: float = 2e-3
    warmup_steps: int = 1000
    evaluate_every: int = 500
    patience: int = 4

    def __post_init__(self) -> None:
        super().__post_init__()
        check_sizes(self)

    def training(self) -> Translation:
        """Settings of training."""
        return Translation.among(self)

    def model_options(self) -> dict[str, Any]:
        """Options of the model."""
        names = (
            "layer",
            "encoder_feature_map",
            "cross_feature_map",
            "d_model",
            "num_layers",
            "num_heads",
            "d_ff",
            "dropout",
            "norm",
        )
        options: dict[str, Any] = {} if self.feature_map is None else {"feature_map": self.feature_map}
        if self.layer == "softmax-attention":
            options["use_rope"] = False  # positions are added to its input, as in the encoder
        return {**{name: getattr(self, name) for name in names}, "options": options}


SMALLEST: dict[str, Any] = {
    **{"d_model": 32, "num_layers": 1, "num_heads": 2, "d_ff": 64, "steps": 20, "evaluate_every": 10, "pieces": 300},
    **{"batch_size": 512, "warmup_steps": 10, "num_beams": 2},
}
"""Settings of the preset "smoke"."""
