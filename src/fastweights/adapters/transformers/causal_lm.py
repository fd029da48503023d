"""Any layer as a causal language model of transformers: importing this lets its Auto classes find it.

`save_pretrained`, `from_pretrained`, `generate`, pipelines and `Trainer` are those of transformers. What is carried
from token to token is the state of the model, of one size however long the text.
"""

from dataclasses import dataclass
from typing import Any, ClassVar

import torch
from torch import Tensor, nn

from fastweights.adapters.transformers.version import check_version
from fastweights.address import find_imported, is_address
from fastweights.errors import require
from fastweights.models import LanguageModel
from fastweights.models._embedding import Embedding

check_version()

from transformers import (  # noqa: E402
    AutoConfig,
    AutoModelForCausalLM,
    GenerationMixin,
    PretrainedConfig,
    PreTrainedModel,
)
from transformers.modeling_outputs import CausalLMOutputWithPast  # noqa: E402


class FastWeightConfig(PretrainedConfig):
    """The sizes of a model under the names that transformers has for them, and the rest as `LanguageModel` takes it.

    Args:
        layer: What `make_layer` takes by name, or several names that take turns; `layer_options` go to them. Code of
            your own, `MODULE:NAME`, must be imported.
        vocab_size: N.
        hidden_size: D.
        num_hidden_layers: Number of blocks.
        num_attention_heads: Memories a layer.
        intermediate_size: Width of the feed-forward networks; `4 * hidden_size` if None.
        dropout: Probability of dropping a unit.
        norm: Where LayerNorm stands, from `fastweights list norms`.
        convolution: Width of a causal convolution in front of every layer; 0 for none.
        layer_options: Options of the layers.
    """

    model_type = "fastweights"
    keys_to_ignore_at_inference = ["past_key_values"]  # noqa: RUF012

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
        convolution: int = 0,
        layer_options: dict[str, Any] | None = None,
        tie_word_embeddings: bool = False,
        use_cache: bool = True,
        **others: Any,
    ) -> None:
        self.layer, self.layer_options, self.norm, self.convolution = layer, layer_options or {}, norm, convolution
        self.vocab_size, self.hidden_size, self.num_hidden_layers = vocab_size, hidden_size, num_hidden_layers
        self.num_attention_heads, self.intermediate_size = num_attention_heads, intermediate_size
        self.dropout, self.use_cache = dropout, use_cache
        super().__init__(tie_word_embeddings=tie_word_embeddings, **others)


@dataclass
class StateCache:
    """The state of a model after `seen` tokens: what transformers calls `past_key_values`, and writes its marks on."""

    state: Any
    seen: int
    is_compileable: ClassVar[bool] = False

    def get_seq_length(self, layer_idx: int = 0) -> int:
        """How many tokens have been read."""
        return self.seen


class FastWeightForCausalLM(PreTrainedModel, GenerationMixin):
    """A `LanguageModel` with the interface of transformers."""

    config_class = FastWeightConfig
    base_model_prefix = "network"
    main_input_name = "input_ids"
    _is_stateful = True
    _tied_weights_keys = {"network.output.weight": "network.embedding.weight"}  # noqa: RUF012

    def __init__(self, config: FastWeightConfig) -> None:
        super().__init__(config)
        layers = tuple(map(_known, config.layer)) if isinstance(config.layer, list) else _known(config.layer)
        options = {name: _known(value) for name, value in config.layer_options.items()}
        self.network = LanguageModel(
            config.vocab_size,
            layers,
            config.hidden_size,
            config.num_hidden_layers,
            config.num_attention_heads,
            config.intermediate_size,
            config.dropout,
            config.norm,
            config.convolution,
            options,
            tied=config.tie_word_embeddings,
        )
        self.post_init()

    def forward(
        self,
        input_ids: Tensor,
        attention_mask: Tensor | None = None,
        past_key_values: StateCache | None = None,
        labels: Tensor | None = None,
        use_cache: bool | None = None,
        **others: Any,
    ) -> CausalLMOutputWithPast:
        """Logits `[B, T, N]` of input_ids `[B, T]`, and the state behind them.

        What `attention_mask` leaves out in front of a text has no influence on it; what it leaves out behind a text
        has none either, on the logits. With `labels`, the loss of every next token that is not -100.
        """
        T = input_ids.shape[1]
        state = None if past_key_values is None else past_key_values.state
        logits, state = self.network(input_ids, state, reset=_beginnings(attention_mask, T))
        loss = None if labels is None else self.loss_function(logits, labels, self.config.vocab_size, **others)
        keep = (self.config.use_cache and not self.training) if use_cache is None else use_cache
        seen = T + (0 if past_key_values is None else past_key_values.seen)
        cache: Any = StateCache(state, seen) if keep else None
        return CausalLMOutputWithPast(loss=loss, logits=logits, past_key_values=cache)

    def prepare_inputs_for_generation(
        self,
        input_ids: Tensor,
        past_key_values: StateCache | None = None,
        attention_mask: Tensor | None = None,
        use_cache: bool | None = True,
        **others: Any,
    ) -> dict[str, Any]:
        """The tokens that have not been read yet."""
        unread = input_ids if past_key_values is None else input_ids[:, past_key_values.seen :]
        given = {"past_key_values": past_key_values, "attention_mask": attention_mask, "use_cache": use_cache}
        return {"input_ids": unread, **given}

    def get_input_embeddings(self) -> nn.Module:
        """The embedding."""
        return self.network.embedding

    def set_input_embeddings(self, value: nn.Embedding) -> None:
        """Takes another embedding."""
        self.network.embedding = value

    def get_output_embeddings(self) -> nn.Module:
        """The last linear map."""
        return self.network.output

    def set_output_embeddings(self, new_embeddings: nn.Module) -> None:
        """Takes another last linear map."""
        self.network.output = new_embeddings

    def init_weights(self) -> None:
        """Ties weights that are shared. The constructors of the modules have initialised the weights already."""
        self.tie_weights(recompute_mapping=False)

    @torch.no_grad()
    def _init_weights(self, module: nn.Module) -> None:
        """Initialises the parameters and buffers of a module that a checkpoint lacks, and keeps those it contains.

        transformers marks the tensors that it has loaded with `_is_hf_initialized`.
        """
        own = dict([*module.named_parameters(recurse=False), *module.named_buffers(recurse=False)])
        loaded = {name: t.clone() for name, t in own.items() if getattr(t, "_is_hf_initialized", False)}
        if type(module) is nn.Embedding and all(part is not module for part in self.modules()):
            # transformers has made it, with more tokens than ours.
            Embedding.reset_parameters(module)  # type: ignore[arg-type]
        elif hasattr(module, "reset_parameters"):
            module.reset_parameters()  # type: ignore[operator]
        else:
            missing, kind = sorted(own.keys() - loaded.keys()), type(module).__name__
            require(not missing, "module", "one with reset_parameters(), which sets what the checkpoint lacks", kind)
        for name, value in loaded.items():
            getattr(module, name).copy_(value)

    @classmethod
    def _supports_default_dynamic_cache(cls) -> bool:
        return False

    def _reorder_cache(self, past_key_values: StateCache, beam_idx: Tensor) -> StateCache:
        return StateCache(past_key_values.state.members(beam_idx), past_key_values.seen)


def _known(value: Any) -> Any:
    """What a config says. It may be a stranger's: code that it names is run only if this process has imported it."""
    return find_imported(value) if isinstance(value, str) and is_address(value) else value


def _beginnings(attention_mask: Tensor | None, T: int) -> Tensor | None:
    """Where a text begins behind padding, bool `[B, T]` of the last T steps: there the state is the initial one."""
    if attention_mask is None:
        return None
    mask = attention_mask.bool()
    before = torch.nn.functional.pad(mask[:, :-1], (1, 0), value=True)
    begins: Tensor = (mask & ~before)[:, -T:]
    return begins if begins.any() else None


AutoConfig.register(FastWeightConfig.model_type, FastWeightConfig)
AutoModelForCausalLM.register(FastWeightConfig, FastWeightForCausalLM)
