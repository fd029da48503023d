"""The state of a model, as transformers carries a cache."""

from dataclasses import dataclass, fields
from typing import Any, ClassVar

from torch import Tensor

from fastweights.adapters.transformers.version import check_version
from fastweights.core.errors import require

check_version()

from transformers.modeling_outputs import CausalLMOutputWithPast  # noqa: E402

CACHE = "cache" if "cache" in {field.name for field in fields(CausalLMOutputWithPast)} else "past_key_values"
"""Name of the cache in calls and outputs: `cache` from transformers 5.24, `past_key_values` before."""


@dataclass
class StateCache:
    """The state of a model behind `seen` positions.

    Attributes:
        state: State of the network; its size does not depend on the length of the text.
        seen: Number of positions that were read, masked ones included.
    """

    state: Any
    seen: int
    is_compileable: ClassVar[bool] = False
    is_croppable: ClassVar[bool] = False
    is_linear: ClassVar[tuple[bool, ...]] = (False,)  # the sequence length is known, other than in their linear layers

    def get_seq_length(self, layer_idx: int = 0) -> int:
        """Number of positions that were read; the same for every layer."""
        return self.seen

    def reordered(self, beam_idx: Tensor) -> "StateCache":
        """The members of the batch that beam search continues with."""
        return StateCache(self.state.select(beam_idx), self.seen)


def cache_of(past_key_values: Any, cache: Any) -> StateCache | None:
    """The cache that a call was given under either name.

    Raises:
        InputError: there are two, or one of another kind.
    """
    require(past_key_values is None or cache is None, "cache", "left out with past_key_values", "both")
    either = past_key_values if cache is None else cache
    fits = either is None or isinstance(either, StateCache)
    require(fits, CACHE, "the cache of an earlier call of this model", type(either).__name__)
    state_cache: StateCache | None = either
    return state_cache
