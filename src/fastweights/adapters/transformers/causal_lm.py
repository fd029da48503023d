"""Any layer as a causal language model of transformers.

The import registers the model with `AutoModelForCausalLM`. `save_pretrained`, `from_pretrained`, `generate`, pipelines
and `Trainer` are those of transformers. The cache is the state of the model; its size does not depend on the length of
the text.
"""

from typing import Any, ClassVar

from torch import Tensor, nn

from fastweights.adapters.transformers.configuration import FastWeightConfig
from fastweights.adapters.transformers.packing import Packing
from fastweights.adapters.transformers.pretrained_model import FastWeightPreTrainedModel, refuse
from fastweights.adapters.transformers.state_cache import CACHE, StateCache, cache_of
from fastweights.core.errors import require

# isort: split
from transformers import AutoModelForCausalLM, GenerationMixin
from transformers.modeling_outputs import CausalLMOutputWithPast
from transformers.utils import can_return_tuple

__all__ = ["CACHE", "FastWeightConfig", "FastWeightForCausalLM", "StateCache"]


class FastWeightForCausalLM(FastWeightPreTrainedModel, GenerationMixin):
    """A `LanguageModel` with the interface of transformers."""

    accepts_loss_kwargs: ClassVar[bool] = True
    _tied_weights_keys = {"network.output.weight": "network.embedding.weight"}  # noqa: RUF012

    def __init__(self, config: FastWeightConfig) -> None:
        super().__init__(config)
        self.post_init()

    @can_return_tuple
    def forward(
        self,
        input_ids: Tensor | None = None,
        attention_mask: Tensor | None = None,
        position_ids: Tensor | None = None,
        past_key_values: StateCache | None = None,
        inputs_embeds: Tensor | None = None,
        labels: Tensor | None = None,
        use_cache: bool | None = None,
        logits_to_keep: int | Tensor = 0,
        cache: StateCache | None = None,
        output_hidden_states: bool | None = None,
        seq_idx: Tensor | None = None,
        cu_seq_lens_q: Tensor | None = None,
        cu_seq_lens_k: Tensor | None = None,
        max_length_q: int | None = None,
        max_length_k: int | None = None,
        num_items_in_batch: Tensor | int | None = None,
        **others: Any,
    ) -> CausalLMOutputWithPast:
        """Logits of the next token, the loss and the state behind the batch.

        PackedRows that are packed into one row do not see each other. `cu_seq_lens_q`, `seq_idx` or `position_ids` mark
        them, as `DataCollatorWithFlattening` does.

        Args:
            input_ids: Tokens, int `[B, T]`.
            attention_mask: 0 at positions that have no influence, in any place, `[B, T]`; or `[B, T_0 + T]` behind a
                cache of T_0 positions.
            position_ids: Places of the tokens in their sequences, int `[B, T]` or `[1, T]`. A sequence starts where
                they do not rise. They have no other effect.
            past_key_values: The cache of an earlier call, whose text this batch continues.
            inputs_embeds: Embeddings `[B, T, D]` in place of `input_ids`.
            labels: Tokens, int `[B, T]`, shifted here. The first token of a sequence, masked positions and -100 have
                no loss.
            use_cache: Whether to return the state. By default the config's `use_cache`, and False in training.
            logits_to_keep: Number of positions at the end that get logits, or their indices; 0 for all.
            cache: The same as `past_key_values`, as transformers calls it from 5.24.
            output_hidden_states: Whether to return the inputs of all blocks, and the output of the last one after
                LayerNorm.
            seq_idx: Number of every token's sequence, int `[B, T]` or `[1, T]`.
            cu_seq_lens_q: Ends of the sequences in a single row, int `[n + 1]`, from 0 to T.
            cu_seq_lens_k: The same as `cu_seq_lens_q`.
            max_length_q: Length of the longest sequence. It follows from `cu_seq_lens_q` and is not read.
            max_length_k: The same as `max_length_q`.
            num_items_in_batch: Divisor of the summed loss. By default the number of labels with a loss.
            **others: `return_dict`, False for a tuple. `shift_labels`, labels that are shifted already, in place of
                `labels`. `output_attentions`, `output_router_logits` and `is_causal`, if they change nothing.

        Returns:
            `logits` `[B, T, N]`, `loss`, `cache` (`past_key_values` before transformers 5.24), `hidden_states`. At a
            masked position the logits are those of the token before it.

        Raises:
            InputError: an argument does not fit the others, or would have no effect.
        """
        # In the signature, Trainer would take it for a column that every batch must have.
        shift_labels = others.pop("shift_labels", None)
        refuse(others)
        reading = self.read(
            input_ids,
            inputs_embeds,
            attention_mask,
            Packing(position_ids, seq_idx, cu_seq_lens_q, cu_seq_lens_k),
            cache_of(past_key_values, cache),
            use_cache,
            output_hidden_states,
        )
        logits = self.network.output(_last(reading.hidden, logits_to_keep))
        loss = None
        if labels is not None or shift_labels is not None:
            require(logits.shape[1] == reading.hidden.shape[1], "logits_to_keep", "0 for a loss", logits_to_keep)
            loss = self.loss_function(
                logits,
                None if labels is None else reading.layout.predicted(labels),
                self.config.vocab_size,
                num_items_in_batch=num_items_in_batch,
                shift_labels=None if shift_labels is None else reading.layout.unmasked(shift_labels),
            )
        results: dict[str, Any] = {CACHE: reading.cache, "hidden_states": reading.hidden_states}
        return CausalLMOutputWithPast(loss=loss, logits=logits, **results)

    def get_output_embeddings(self) -> nn.Module:
        """The last linear map."""
        return self.network.output

    def set_output_embeddings(self, new_embeddings: nn.Module) -> None:
        """Replaces the last linear map."""
        self.network.output = new_embeddings

    def _reorder_cache(self, past_key_values: StateCache, beam_idx: Tensor) -> StateCache:
        return past_key_values.reordered(beam_idx)


def _last(hidden: Tensor, logits_to_keep: int | Tensor) -> Tensor:
    """Hidden states `[B, ., D]` of the last positions, or of those with the given indices."""
    if isinstance(logits_to_keep, Tensor):
        return hidden[:, logits_to_keep]
    fits = isinstance(logits_to_keep, int) and logits_to_keep >= 0
    require(fits, "logits_to_keep", "a whole number of at least 0 or a tensor of indices", repr(logits_to_keep))
    return hidden[:, -logits_to_keep:]


AutoModelForCausalLM.register(FastWeightConfig, FastWeightForCausalLM)
