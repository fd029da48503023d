"""A function of the tensors of one time step, without recurrence, and its gradient."""

from dataclasses import dataclass
from functools import cached_property

from fastweights.compiler.ir.nodes import Input, Load, Node, Value, ancestors


@dataclass(frozen=True, eq=False)
class StepMap:
    """A function of one time step of one head, and its vector-Jacobian product.

    Every step has its own `inputs`, and all steps share the `params`. The gradients of the `marks`, which are inputs
    too, are not computed. An output has several parts if a step of the cell becomes several steps.
    """

    inputs: tuple[Input, ...]
    params: tuple[Input, ...]
    marks: tuple[Input, ...]
    outputs: tuple[tuple[Value, ...], ...]
    d_outputs: tuple[tuple[Input, ...], ...]
    d_inputs: tuple[Value, ...]
    d_params: tuple[Value, ...]

    @cached_property
    def copies(self) -> dict[int, int]:
        """The indices of the outputs that are an input as it is, with the index of this input."""
        places = {n: self._copied(parts) for n, parts in enumerate(self.outputs)}
        return {n: place for n, place in places.items() if place is not None}

    @cached_property
    def computed(self) -> list[int]:
        """The indices of the other outputs."""
        return [n for n in range(len(self.outputs)) if n not in self.copies]

    @cached_property
    def read(self) -> set[Node]:
        """The nodes that the computed outputs are made of."""
        return ancestors(part for n in self.computed for part in self.outputs[n])

    def _copied(self, parts: tuple[Value, ...]) -> int | None:
        """The index of the input whose elements a single part has in the same order."""
        (shape, expression), *others = parts
        if others or not isinstance(expression, Load) or expression.node not in self.inputs:
            return None
        node, index = expression.node, expression.index
        sizes = [(n, i) for n, i in zip(node.shape, index, strict=True) if n > 1]
        axes = [a for a, n in enumerate(shape) if n > 1]
        is_copy = [n for n, _ in sizes] == [shape[a] for a in axes] and all(
            (i.axis, i.step, i.start) == (a, 1, 0) for a, (_, i) in zip(axes, sizes, strict=True)
        )
        return self.inputs.index(node) if is_copy else None
