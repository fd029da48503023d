"""Any layer as a sequence classifier of transformers.

The import registers the model with `AutoModelForSequenceClassification`. `from_pretrained` takes a classifier, or a
language model whose network it gives a new last map.
"""

from typing import Any

import torch
from torch import Tensor, nn

from fastweights.adapters.transformers.configuration import FastWeightConfig
from fastweights.adapters.transformers.packing import Packing
from fastweights.adapters.transformers.pretrained_model import FastWeightPreTrainedModel, refuse
from fastweights.adapters.transformers.state_cache import CACHE, StateCache, cache_of

# isort: split
from transformers import AutoModelForSequenceClassification
from transformers.modeling_outputs import SequenceClassifierOutputWithPast
from transformers.utils import can_return_tuple

__all__ = ["FastWeightConfig", "FastWeightForSequenceClassification"]


class FastWeightForSequenceClassification(FastWeightPreTrainedModel):
    """The blocks of a `LanguageModel`, and a linear map of the last token's hidden state to `num_labels` logits."""

    accepts_loss_kwargs = False
    _keys_to_ignore_on_load_unexpected = [r"network\.output\."]  # noqa: RUF012

    def __init__(self, config: FastWeightConfig) -> None:
        super().__init__(config)
        self.network.output = nn.Identity()
        self.score = nn.Linear(config.hidden_size, config.num_labels, bias=False)
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
        cache: StateCache | None = None,
        output_hidden_states: bool | None = None,
        **others: Any,
    ) -> SequenceClassifierOutputWithPast:
        """Logits of the classes, the loss and the state behind the batch.

        The logits are those of the last token that `attention_mask` keeps. Without a mask, they are those of the last
        token that is not the config's `pad_token_id`.

        Args:
            input_ids: Tokens, int `[B, T]`.
            attention_mask: 0 at positions that have no influence, in any place, `[B, T]`; or `[B, T_0 + T]` behind a
                cache of T_0 positions.
            position_ids: Places of the tokens in their sequences, int `[B, T]` or `[1, T]`. A sequence starts where
                they do not rise. They have no other effect.
            past_key_values: The cache of an earlier call, whose text this batch continues.
            inputs_embeds: Embeddings `[B, T, D]` in place of `input_ids`.
            labels: Classes, int `[B]`, or numbers for a regression, `[B]` or `[B, num_labels]`.
            use_cache: Whether to return the state. By default the config's `use_cache`, and False in training.
            cache: The same as `past_key_values`, as transformers calls it from 5.24.
            output_hidden_states: Whether to return the inputs of all blocks, and the output of the last one after
                LayerNorm.
            **others: `return_dict`, False for a tuple. `output_attentions`, `output_router_logits` and `is_causal`, if
                they change nothing.

        Returns:
            `logits` `[B, num_labels]`, `loss`, `cache` (`past_key_values` before transformers 5.24), `hidden_states`.

        Raises:
            InputError: an argument does not fit the others, or would have no effect.
        """
        refuse(others)
        reading = self.read(
            input_ids,
            inputs_embeds,
            attention_mask,
            Packing(position_ids),
            cache_of(past_key_values, cache),
            use_cache,
            output_hidden_states,
        )
        padding = getattr(self.config, "pad_token_id", None)
        hidden = reading.hidden[:, -1]  # that of the last token that the mask keeps
        if attention_mask is None and input_ids is not None and padding is not None:
            hidden = _last(reading.hidden, input_ids != padding)
        logits = self.score(hidden)
        loss = None
        if labels is not None:
            loss = self.loss_function(logits=logits, labels=labels, pooled_logits=logits, config=self.config)
        results: dict[str, Any] = {CACHE: reading.cache, "hidden_states": reading.hidden_states}
        return SequenceClassifierOutputWithPast(loss=loss, logits=logits, **results)


def _last(x: Tensor, mask: Tensor) -> Tensor:
    """x `[B, T, D]` at the last kept position of every row, `[B, D]`."""
    positions = torch.arange(x.shape[1], device=x.device)
    return x[torch.arange(len(x), device=x.device), (positions * mask).argmax(1)]


AutoModelForSequenceClassification.register(FastWeightConfig, FastWeightForSequenceClassification)
