"""Arguments of a forward pass that the models do not have."""

from collections.abc import Mapping
from typing import Any

from torch import Tensor

from fastweights.core.errors import require

ONLY = {"output_attentions": False, "output_router_logits": False, "is_causal": True}
"""Arguments of transformers' models that have one possible value here."""


def refuse(arguments: Mapping[str, Any]) -> None:
    """Raises `InputError` for an argument that would have no effect, unless it asks for what the models do anyway."""
    for name, value in arguments.items():
        requirement = f"{ONLY[name]} or left out" if name in ONLY else "left out"
        shown = f"a tensor {list(value.shape)}" if isinstance(value, Tensor) else repr(value)
        require(value is None or value is ONLY.get(name), name, requirement, shown, "It has no meaning for this model.")
