"""The three passes of a kernel over time, and the tensors that the recompute pass keeps for the backward pass.

The forward pass keeps the state at the start of every chunk of time steps (gradient checkpointing). For each chunk, the
recompute pass runs the time steps of the chunk again, and the backward pass then goes through them in reverse order.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TypeVar

from fastweights.compiler.ir.nodes import Input, Map, Node, Reduce, Value, ancestors, loads, upstream, whole
from fastweights.compiler.ir.step import Step

T = TypeVar("T")


@dataclass(frozen=True)
class Pass:
    """The work of one pass at every time step.

    A step reads the tensors in `carried`, which the previous step of the pass computed, and the tensors in `moving`,
    which differ from step to step. It computes the carried tensors of the next step (`new`), outputs for this step
    (`made`), and terms of sums over all steps (`added`).
    """

    carried: Mapping[str, Input]
    moving: Mapping[str, Node]
    new: Mapping[str, Value]
    made: Mapping[str, Value]
    added: Mapping[str, Value]

    @property
    def results(self) -> list[Value]:
        """All values that a step computes."""
        return [*self.new.values(), *self.made.values(), *self.added.values()]


@dataclass(frozen=True)
class Passes:
    """The three passes of one step. Every time step has the same params.

    The names of tensors are `state_W`, `in_k`, `param_R`, `kept_0` and `y`, with `d_` in front for a gradient.
    """

    step: Step
    forward: Pass
    recompute: Pass
    backward: Pass

    @property
    def params(self) -> dict[str, Input]:
        """The params, by name."""
        return _named("param", self.step.params)

    @property
    def fields(self) -> dict[str, Sequence[str]]:
        """The fields of the cell's "Inputs", "State" and "Params"."""
        return {"Inputs": [*self.step.inputs], "State": [*self.step.state], "Params": [*self.step.params]}

    @property
    def by_name(self) -> dict[str, Pass]:
        """The passes in the order in which they run."""
        return {"forward": self.forward, "recompute": self.recompute, "backward": self.backward}


def split(step: Step) -> Passes:
    """The forward, recompute and backward pass of a step."""
    state, inputs = _named("state", step.state), _named("in", step.inputs)
    d_state, d_y = _named("d_state", step.d_state), {"d_y": step.d_y}
    saved = {f"kept_{n}": d for n, d in enumerate(_saved_nodes(step))}
    new, gradients = _named("state", step.new_state), step.gradients
    forward = Pass(state, inputs, new, {"y": step.y}, {})
    recompute = Pass(state, {**inputs, **d_y}, new, {name: whole(d) for name, d in saved.items()}, {})
    backward = Pass(
        carried=d_state,
        moving={**state, **inputs, **saved, **d_y},
        new=_named("d_state", gradients["state"]),
        made=_named("d_in", gradients["inputs"]),
        added=_named("d_param", gradients["params"]),
    )
    return Passes(step, forward, recompute, backward)


def _named(prefix: str, record: Mapping[str, T]) -> dict[str, T]:
    return {f"{prefix}_{field}": value for field, value in record.items()}


def _saved_nodes(step: Step) -> list[Node]:
    """The tensors that the recompute pass keeps for the backward pass, in the order in which they are computed.

    These are the small tensors of the forward pass that the gradient reads. Keeping them for one chunk of time steps is
    cheaper than computing them twice. Sums over the state that do not need the gradient of the next state are kept too:
    the recompute pass then reads the state only once.
    """
    most = sum(d.size for d in step.state.values()) // 8
    forward = ancestors(step.new_state.values())
    saved: dict[Node, None] = {}
    visited: set[Node] = set()
    queue = [d for record in step.gradients.values() for value in record.values() for d in loads(value.expression)]
    while queue:
        node = queue.pop()
        if node in visited:
            continue
        visited.add(node)
        if _is_worth_keeping(node, most) and (node in forward or _is_early(node, step)):
            saved[node] = None
        else:
            queue.extend(node.operands())
    return sorted(saved, key=lambda d: d.serial)


def _is_worth_keeping(node: Node, most: int) -> bool:
    """Whether a tensor is small, and is neither a maximum, a minimum nor assembled.

    The gradient of a maximum compares the maximum with the numbers that it was chosen from, so both are recomputed.
    """
    small = node.size <= most or not node.is_matrix
    extremum = isinstance(node, Reduce) and node.reduction != "sum"
    return small and isinstance(node, Map | Reduce) and not extremum


def _is_early(node: Node, step: Step) -> bool:
    """Whether a tensor is a sum over a matrix of the state that does not need the gradient of the next state."""
    reads = any(d in step.state.values() and d.is_matrix for d in node.operands())
    return isinstance(node, Reduce) and reads and upstream([node]).isdisjoint(step.d_state.values())
