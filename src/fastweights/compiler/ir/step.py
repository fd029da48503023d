"""The lowered time step of one head, with its gradient or without."""

from collections.abc import Mapping
from dataclasses import dataclass

from fastweights.compiler.ir.nodes import Input, Value


@dataclass(frozen=True)
class Step:
    """A time step and its vector-Jacobian product. Names are those of the cell's fields.

    The step computes `new_state` and `y` from `state`, `inputs` and `params`. It computes `gradients`, with the keys
    "state", "inputs" and "params", from these tensors and from the gradients `d_state` of the new state and `d_y` of y.
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
    def placeholders(self) -> list[Input]:
        """The inputs of the step: state, inputs, params, and the gradients of the new state and of y."""
        records = (self.state, self.inputs, self.params, self.d_state)
        return [*(d for record in records for d in record.values()), self.d_y]

    @property
    def results(self) -> list[Value]:
        """The results of the step: the new state, y, and the gradients of state, inputs and params."""
        back = [v for record in self.gradients.values() for v in record.values()]
        return [*self.new_state.values(), self.y, *back]


@dataclass(frozen=True)
class Forward:
    """A time step without its gradient.

    Expressions that read the new state read the inputs `after` instead. `lines` has the line of the cell for each new
    state and, last, for y. `detached` is the first line that detaches a tensor from the gradient, which values do not
    show.
    """

    state: Mapping[str, Input]
    inputs: Mapping[str, Input]
    params: Mapping[str, Input]
    after: Mapping[str, Input]
    new_state: Mapping[str, Value]
    y: Value
    lines: tuple[str, ...]
    detached: str = ""
