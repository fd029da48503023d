"""Initial states of layers, to which a reset returns."""

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor, nn

from fastweights.cell import Cell
from fastweights.core.errors import require
from fastweights.layers.base.initialise import assign, whole
from fastweights.layers.base.like import first_float, zeros
from fastweights.layers.base.slow_weights import require_free

KINDS = ("zero", "learned")


class InitialState(nn.Module):
    """The initial state of every member of a batch: zeros, constants, or parameters.

    Args:
        of: The NamedTuple of the state, or its cell, which pickles NamedTuples that it created.
        shapes: The shape of every field, without the batch.
        initial_state: "zero", "learned", or a record of constants that broadcast to the shapes. An `nn.Parameter` among
            them is copied and trained.
    """

    def __init__(self, of: type | Cell, shapes: Mapping[str, tuple[int, ...]], initial_state: Any) -> None:
        super().__init__()
        self.of = of
        self.shapes = dict(shapes)
        self.is_zero = isinstance(initial_state, str) and initial_state == "zero"
        constants = getattr(initial_state, "_fields", None) == tuple(shapes)
        requirement = f"'zero', 'learned' or a {self.kind.__name__}({', '.join(shapes)})"
        require(
            constants or (isinstance(initial_state, str) and initial_state in KINDS),
            "initial_state",
            requirement,
            repr(initial_state),
        )
        self._values: dict[str, Tensor] = {}
        for name, shape in () if self.is_zero else self.shapes.items():
            require_free(self, name, self.kind.__name__)
            value = getattr(initial_state, name, None)
            if constants:
                self._values[name] = _constant(name, value, shape)
            if constants and not isinstance(value, nn.Parameter):
                self.register_buffer(name, torch.empty(shape))
            else:
                self.register_parameter(name, nn.Parameter(torch.empty(shape)))
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Sets parameters and constants to their values, or to 0."""
        for name in () if self.is_zero else self.shapes:
            tensor = getattr(self, name)
            if name in self._values:
                assign(tensor, self._values[name])
            else:
                nn.init.zeros_(tensor)

    @property
    def kind(self) -> Any:
        """The NamedTuple of the state."""
        return self.of.State if isinstance(self.of, Cell) else self.of

    @staticmethod
    def of_heads(cell: Cell, num_heads: int, sizes: Mapping[str, int], initial_state: Any) -> "InitialState":
        """The initial state of a cell, `[H, ...]`."""
        slots = cell.slots["State"].items()
        return InitialState(cell, {name: (num_heads, *slot.shape(sizes)) for name, slot in slots}, initial_state)

    def forward(self) -> Any:
        """Returns the record, without the batch; None for zeros."""
        return None if self.is_zero else self.kind(*(getattr(self, name) for name in self.shapes))

    def of_batch(self, size: int, layer: nn.Module) -> Any:
        """Returns the state of a whole batch, on the device of a layer and in its dtype, but at least in float32.

        Sums over time lose accuracy in half precision.
        """
        like, start = first_float(layer), self()
        dtype = torch.promote_types(torch.float32 if like is None else like.dtype, torch.float32)
        if start is None:
            return self.kind(*(zeros(layer, size, *shape, dtype=dtype) for shape in self.shapes.values()))
        # Contiguous, as the states that a layer returns, so that an exported program accepts both.
        return self.kind(*(whole(leaf).to(dtype).expand(size, *leaf.shape).contiguous() for leaf in start))


def _constant(name: str, value: Any, shape: tuple[int, ...]) -> Tensor:
    # Not on the meta device, where a layer may be created, since `reset_parameters` needs the values.
    tensor = value.detach() if isinstance(value, Tensor) else torch.tensor(value, device="cpu")
    tensor = tensor.to(torch.get_default_dtype())
    fits = tensor.ndim <= len(shape) and all(
        size in (1, expected) for size, expected in zip(reversed(tensor.shape), reversed(shape), strict=False)
    )
    require(fits, f"initial_state.{name}", f"{list(shape)} or broadcast to it", list(tensor.shape))
    return tensor.expand(shape).clone()
