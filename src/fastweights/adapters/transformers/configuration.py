"""Configuration of the models."""

from typing import Any

from fastweights.adapters.transformers.version import check_version

check_version()

from transformers import AutoConfig, PretrainedConfig  # noqa: E402


class FastWeightConfig(PretrainedConfig):
    """Sizes and options of a model, under the names that transformers uses.

    Args:
        layer: Name of a layer, see `make_layer`, or several names that take turns. Code of your own, `MODULE:NAME`,
            must be imported before.
        vocab_size: Number of tokens, N.
        hidden_size: Model size, D.
        num_hidden_layers: Number of blocks.
        num_attention_heads: Number of heads per layer.
        intermediate_size: Width of the feed-forward networks; `4 * hidden_size` if None.
        dropout: Dropout probability.
        norm: Place of LayerNorm, from `fastweights list norms`.
        conv_size: Width of a causal convolution in front of every layer; 0 for none.
        layer_options: Options of the layers.
        tie_word_embeddings: Whether the output map shares the weights of the embedding.
        use_cache: Whether the model returns its state, outside of training.
        **others: Further settings of transformers, such as `num_labels` and `pad_token_id`.
    """

    model_type = "fastweights"
    keys_to_ignore_at_inference = ["past_key_values", "cache"]  # noqa: RUF012

    def __init__(
        self,
        layer: str | list[str] = "delta-net",
        vocab_size: int = 256,
        hidden_size: int = 128,
        num_hidden_layers: int = 4,
        num_attention_heads: int = 8,
        intermediate_size: int | None = None,
        dropout: float = 0.0,
        norm: str = "pre",
        conv_size: int = 0,
        layer_options: dict[str, Any] | None = None,
        tie_word_embeddings: bool = False,
        use_cache: bool = True,
        **others: Any,
    ) -> None:
        self.layer, self.layer_options, self.norm, self.conv_size = layer, layer_options or {}, norm, conv_size
        self.vocab_size, self.hidden_size, self.num_hidden_layers = vocab_size, hidden_size, num_hidden_layers
        self.num_attention_heads, self.intermediate_size = num_attention_heads, intermediate_size
        self.dropout, self.use_cache = dropout, use_cache
        super().__init__(tie_word_embeddings=tie_word_embeddings, **others)


AutoConfig.register(FastWeightConfig.model_type, FastWeightConfig)
