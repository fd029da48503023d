"""The time steps of a recorded scan, one after the other."""

from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor

from fastweights.call.scan_call import ScanCall
from fastweights.call.tensors import Tensors
from fastweights.core.errors import require
from fastweights.dispatch import run_call


def alone(call: ScanCall, member: int) -> ScanCall:
    """The time steps of one member without padding, with mapped inputs."""
    B, T, _ = call.plan.leading
    require(0 <= member < B, "member", f"one of the {B} of the batch", member)
    call = call.with_inner_cell()
    end = T if call.tensors.lengths is None else int(call.tensors.lengths[member])
    require(end > 0, "member", "a member with at least one time step", "an empty one")
    return part_of(call, slice(member, member + 1), slice(0, end))


def part_of(call: ScanCall, members: slice, steps: slice, state: Any = None) -> ScanCall:
    """The call of some members and some time steps without padding, from another `state` if one is given."""

    def cut(record: Any) -> Any:
        return None if record is None else type(record)(*(leaf[members] for leaf in record))

    inputs, first, params, reset, _, initial_state = call.tensors
    return call.replace(
        Tensors(
            inputs=type(inputs)(*(x[members, steps] for x in inputs)),
            state=cut(first) if state is None else state,
            params=params,
            reset=None if reset is None else reset[members, steps],
            initial_state=cut(initial_state),
        )
    )


@torch.no_grad()
def steps_of(call: ScanCall) -> Iterator[tuple[Any, Any, Tensor]]:
    """The state before and after every time step, `[H, ...]` each, and the output `[H, ...]`."""
    state = call.tensors.state
    for t in range(call.plan.leading[1]):
        y, after = run_call(part_of(call, slice(None), slice(t, t + 1), state), "reference")
        yield [leaf[0] for leaf in state], [leaf[0] for leaf in after], y[0, 0]
        state = after
