"""The time steps of a recorded scan, one after the other."""

from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor

from fastweights.call.call import Problem
from fastweights.core.errors import require
from fastweights.dispatch import run_problem


def alone(problem: Problem, member: int) -> Problem:
    """The steps of one member without padding, with mapped inputs."""
    B, T, _ = problem.leading
    require(0 <= member < B, "member", f"one of the {B} of the batch", member)
    problem = problem.mapped
    end = T if problem.lengths is None else int(problem.lengths[member])
    require(end > 0, "member", "one with steps", "an empty one")
    return part_of(problem, slice(member, member + 1), slice(0, end))


def part_of(problem: Problem, members: slice, steps: slice) -> Problem:
    """Some members and some time steps of a problem without padding."""

    def cut(record: Any) -> Any:
        return None if record is None else type(record)(*(leaf[members] for leaf in record))

    return problem._replace(
        inputs=type(problem.inputs)(*(x[members, steps] for x in problem.inputs)),
        state=cut(problem.state),
        initial=cut(problem.initial),
        reset=None if problem.reset is None else problem.reset[members, steps],
        lengths=None,
        known={},
        found={},
    )


@torch.no_grad()
def steps_of(problem: Problem) -> Iterator[tuple[Any, Any, Tensor]]:
    """The state before and after every step, `[H, ...]` each, and what was read."""
    state = problem.state
    for t in range(problem.leading[1]):
        y, after = run_problem(part_of(problem, slice(None), slice(t, t + 1))._replace(state=state), "reference")
        yield [leaf[0] for leaf in state], [leaf[0] for leaf in after], y[0, 0]
        state = after
