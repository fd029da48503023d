"""The three ways over time: forward, again from a kept state for the way back, and backward; and what is kept between.

A way is what a kernel does with every step. That holds for every target; how it does it is the target's own.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TypeVar

from fastweights.compiler.ir.nodes import Definition, Input, Map, Reduce, Value, behind, loads, upstream, whole
from fastweights.compiler.ir.step import Step

T = TypeVar("T")


@dataclass(frozen=True)
class Phase:
    """What every step of one way does: from what is `carried` and what is `moving` with the steps it makes what the
    next step carries (`new`), what is `made` for itself, and what is `added` up over all steps."""

    carried: Mapping[str, Input]
    moving: Mapping[str, Definition]
    new: Mapping[str, Value]
    made: Mapping[str, Value]
    added: Mapping[str, Value]

    @property
    def results(self) -> list[Value]:
        """All that a step makes."""
        return [*self.new.values(), *self.made.values(), *self.added.values()]


@dataclass(frozen=True)
class Phases:
    """The ways over time of one step; slow weights are the same for all steps.

    Names say what a definition stands for: `state_W`, `in_k`, `param_R`, `kept_0`, `y`, and `d_` before a gradient.
    `fields` are those of the cell's "Inputs", "State" and "Params".
    """

    forward: Phase
    again: Phase
    backward: Phase
    params: Mapping[str, Input]
    fields: Mapping[str, Sequence[str]]

    @property
    def ways(self) -> dict[str, Phase]:
        """By name."""
        return {"forward": self.forward, "again": self.again, "backward": self.backward}


def phases(step: Step) -> Phases:
    """What the kernels of a step do: the way back reads, of a step, its state, its inputs and what was kept of it."""
    state, inputs = _named("state", step.state), _named("in", step.inputs)
    d_state, d_y = _named("d_state", step.d_state), {"d_y": step.d_y}
    kept = {f"kept_{n}": d for n, d in enumerate(_kept(step))}
    new, gradients = _named("state", step.new_state), step.gradients
    forward = Phase(state, inputs, new, {"y": step.y}, {})
    again = Phase(state, {**inputs, **d_y}, new, {name: whole(d) for name, d in kept.items()}, {})
    backward = Phase(
        carried=d_state,
        moving={**state, **inputs, **kept, **d_y},
        new=_named("d_state", gradients["state"]),
        made=_named("d_in", gradients["inputs"]),
        added=_named("d_param", gradients["params"]),
    )
    fields = {"Inputs": [*step.inputs], "State": [*step.state], "Params": [*step.params]}
    return Phases(forward, again, backward, _named("param", step.params), fields)


def _named(role: str, record: Mapping[str, T]) -> dict[str, T]:
    return {f"{role}_{name}": value for name, value in record.items()}


def _kept(step: Step) -> list[Definition]:
    """Small tensors of the step forward that its gradient reads, rather kept a chunk long than computed twice; and what
    the gradient reads off the state without the gradient of the next state, so that a pass over the state does both."""
    most = sum(d.size for d in step.state.values()) // 8
    forward = behind(step.new_state.values())
    found: dict[Definition, None] = {}
    seen: set[Definition] = set()
    queue = [d for kind in step.gradients.values() for value in kind.values() for d in loads(value.expression)]
    while queue:
        definition = queue.pop()
        if definition in seen:
            continue
        seen.add(definition)
        if _is_kept(definition, most) and (definition in forward or _is_early(definition, step)):
            found[definition] = None
        else:
            queue.extend(definition.operands())
    return sorted(found, key=lambda d: d.serial)


def _is_kept(definition: Definition, most: int) -> bool:
    """A small tensor; but a maximum is found again, since its gradient compares it with what it was chosen from, and
    what is put together in regions is put together again."""
    small = definition.size <= most or not definition.is_matrix
    extremum = isinstance(definition, Reduce) and definition.reduction != "sum"
    return small and isinstance(definition, Map | Reduce) and not extremum


def _is_early(definition: Definition, step: Step) -> bool:
    """A sum over a matrix of the state that does not wait for the gradient of the next state."""
    reads = any(d in step.state.values() and d.is_matrix for d in definition.operands())
    return isinstance(definition, Reduce) and reads and upstream([definition]).isdisjoint(step.d_state.values())
