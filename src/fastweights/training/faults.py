"""Location of the first NaN or infinite output of a model: the module and the time step."""

from collections.abc import Sequence
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils._pytree import tree_leaves

from fastweights.core.errors import invalid


def refuse(quantity: str, model: nn.Module, inputs: Sequence[Tensor], start: Any, steps: str, before: int = 0) -> None:
    """Raises `InputError`: `quantity` is not finite, with the module and the time step of the first fault.

    Args:
        what: The quantity that is not finite.
        model: An agent.
        inputs: Inputs of the agent: observations, rewards, actions and firsts, `[B, T, ...]` each.
        start: State of the agent before the first of these steps.
        steps: Name of the sequence of time steps, such as "rollout".
        before: Number of time steps before these inputs.
    """
    remedy = "Use a smaller learning_rate; then resume the run from its last checkpoint."
    raise invalid(
        quantity, "finite", f"NaN or infinity: {first_fault(model, inputs, start, before)} of the {steps}", remedy
    )


@torch.no_grad()
def first_fault(model: nn.Module, inputs: Sequence[Tensor], start: Any, before: int = 0) -> str:
    """The first module whose output is not finite, and the time step; arguments as for `refuse`."""
    faults: list[str] = []

    def look(name: str, module: nn.Module, arguments: Any, outputs: Any) -> None:
        if not all(bool(leaf.isfinite().all()) for leaf in tree_leaves(outputs) if isinstance(leaf, Tensor)):
            faults.append(f"module {name}" if name else "the model")

    # A model that Fabric wraps runs in its precision, and has the names of the module inside.
    parts = getattr(model, "module", model).named_modules()
    hooks = [part.register_forward_hook(partial(look, name)) for name, part in parts]
    state, steps = start, inputs[0].shape[1]
    try:
        for t in range(steps):
            *_, state = model(*(part[:, t : t + 1] for part in inputs), state)
            if faults:
                return f"the output of {faults[0]} is not finite from time step {before + t + 1}"
    finally:
        for hook in hooks:
            hook.remove()
    return f"every module is finite, but not a sum over the {steps} time steps"
