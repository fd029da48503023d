"""One step of one head and its gradient, lowered: what goes in, and what comes out, each by role."""

from collections.abc import Mapping
from dataclasses import dataclass

from fastweights.compiler.ir.nodes import Input, Value


@dataclass(frozen=True)
class Step:
    """From state, inputs and params to the new state and y; and from the gradients of these to those of what goes in.

    `gradients` are those of "state", "inputs" and "params". Names are those of the cell's fields.
    """

    state: Mapping[str, Input]
    inputs: Mapping[str, Input]
    params: Mapping[str, Input]
    d_state: Mapping[str, Input]
    d_y: Input
    new_state: Mapping[str, Value]
    y: Value
    gradients: Mapping[str, Mapping[str, Value]]

    @property
    def given(self) -> list[Input]:
        """What goes in: state, inputs, params, the gradients of the new state, and that of y."""
        records = (self.state, self.inputs, self.params, self.d_state)
        return [*(d for record in records for d in record.values()), self.d_y]

    @property
    def results(self) -> list[Value]:
        """What comes out: the new state, y, and the gradients of state, inputs and params."""
        back = [v for record in self.gradients.values() for v in record.values()]
        return [*self.new_state.values(), self.y, *back]


@dataclass(frozen=True)
class Forward:
    """A step without its gradient: `after` stands for the new state in all that is computed from it, and `lines` tells
    in which line of the cell every new state is made, and, last, y.

    A line that takes a tensor out of the gradient is `detached`: the values do not show it.
    """

    state: Mapping[str, Input]
    inputs: Mapping[str, Input]
    params: Mapping[str, Input]
    after: Mapping[str, Input]
    new_state: Mapping[str, Value]
    y: Value
    lines: tuple[str, ...]
    detached: str = ""
