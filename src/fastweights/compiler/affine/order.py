"""Orders the stages, so that each can be computed for all time steps at once."""

from collections.abc import Sequence

from fastweights.compiler.affine.form import Linear, Recurrent, Stage
from fastweights.compiler.affine.not_affine import NotAffine
from fastweights.compiler.ir.nodes import Input, Node, ancestors


def in_order(stages: Sequence[Stage]) -> list[Stage]:
    """The stages in an order in which each depends only on earlier ones. States with the same form are merged."""
    left, placed = list(stages), list[Stage]()
    while left:
        waiting = {d for stage in left for d in stage.read_inputs}
        ready = next((s for s in left if not _inputs_of(s) & waiting), None)
        if ready is None:
            names = " and ".join(p.state for s in left if isinstance(s, Linear) for p in s.parts)
            reason = f"the reads of {names} depend on each other"
            raise NotAffine(reason, states=_states_in_cycle(left))
        left.remove(ready)
        _put(placed, ready)
    return placed


def _states_in_cycle(stages: Sequence[Stage]) -> set[str]:
    """The states of the stages that depend on themselves through others."""
    needed = [_inputs_of(stage) for stage in stages]
    needs = [{n for n, other in enumerate(stages) if inputs & other.read_inputs} for inputs in needed]
    for _ in stages:
        needs = [numbers.union(*(needs[n] for n in numbers)) for numbers in needs]
    return {state for n, stage in enumerate(stages) if n in needs[n] for state in _states(stage)}


def _states(stage: Stage) -> list[str]:
    match stage:
        case Linear() | Recurrent():
            return [part.state for part in stage.parts]
    return [stage.state]


def _put(placed: list[Stage], stage: Stage) -> None:
    for n, other in enumerate(placed):
        known = {d for earlier in placed[n:] for d in earlier.read_inputs}
        if _can_merge(other, stage) and not _inputs_of(stage) & known:
            placed[n] = _merged(other, stage)  # type: ignore[arg-type]
            return
    placed.append(stage)


def _can_merge(one: Stage, other: Stage) -> bool:
    """Whether two stages can be rows of one matrix."""
    if not (isinstance(one, Linear) and isinstance(other, Linear)):
        return False
    if any(stage.across or stage.row_decay is not None or stage.is_coupled for stage in (one, other)):
        return False
    groups = [stage.parts[0].sizes(stage.parts[0].groups) for stage in (one, other)]
    same = groups[0] == groups[1] and one.decay == other.decay
    return same and [w[:2] for w in one.writes] == [w[:2] for w in other.writes]


def _merged(one: Linear, other: Linear) -> Linear:
    writes = [a._replace(values=a.values + b.values) for a, b in zip(one.writes, other.writes, strict=True)]
    return Linear(one.parts + other.parts, one.decay, None, tuple(writes), one.reads + other.reads)


def _inputs_of(stage: Stage) -> set[Node]:
    needed: set[Node] = {d for d in ancestors(stage.values) if isinstance(d, Input)}
    return needed - stage.read_inputs
