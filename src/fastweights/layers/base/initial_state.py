"""Where the state of a layer starts, and where a reset takes it back to."""

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor, nn

from fastweights.cell import Cell
from fastweights.core.errors import require
from fastweights.layers.base.initialise import assign
from fastweights.layers.base.like import first_float, zeros
from fastweights.layers.base.slow_weights import require_free

KINDS = ("zero", "learned")


class Start(nn.Module):
    """The initial state of every member of a batch: zeros, constants, or parameters, which start at 0 or as given.

    Args:
        of: The NamedTuple that a state is, or the cell whose state it is: one that a cell made is pickled with it.
        shapes: The shape of every field, without the batch.
        initial: "zero", "learned", or a record of constants that broadcast to the shapes; where one is an
            `nn.Parameter`, a copy of it is learned.
    """

    def __init__(self, of: type | Cell, shapes: Mapping[str, tuple[int, ...]], initial: Any) -> None:
        super().__init__()
        self.of = of
        self.shapes = dict(shapes)
        self.is_zero = isinstance(initial, str) and initial == "zero"
        constants = getattr(initial, "_fields", None) == tuple(shapes)
        wanted = f"'zero', 'learned' or a {self.kind.__name__}({', '.join(shapes)})"
        require(constants or (isinstance(initial, str) and initial in KINDS), "initial", wanted, repr(initial))
        self._values: dict[str, Tensor] = {}
        for name, shape in () if self.is_zero else self.shapes.items():
            require_free(self, name, self.kind.__name__)
            value = getattr(initial, name, None)
            if constants:
                self._values[name] = _constant(name, value, shape)
            if constants and not isinstance(value, nn.Parameter):
                self.register_buffer(name, torch.empty(shape))
            else:
                self.register_parameter(name, nn.Parameter(torch.empty(shape)))
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Parameters and constants as given, or 0."""
        for name in () if self.is_zero else self.shapes:
            tensor = getattr(self, name)
            if name in self._values:
                assign(tensor, self._values[name])
            else:
                nn.init.zeros_(tensor)

    @property
    def kind(self) -> Any:
        """The NamedTuple that a state is."""
        return self.of.State if isinstance(self.of, Cell) else self.of

    @staticmethod
    def of_heads(cell: Cell, heads: int, sizes: Mapping[str, int], initial: Any) -> "Start":
        """That of a cell, `[H, ...]`."""
        slots = cell.slots["State"].items()
        return Start(cell, {name: (heads, *slot.shape(sizes)) for name, slot in slots}, initial)

    def forward(self) -> Any:
        """The record, without the batch; None for zeros."""
        return None if self.is_zero else self.kind(*(getattr(self, name) for name in self.shapes))

    def of_batch(self, size: int, layer: nn.Module) -> Any:
        """The state of a whole batch, on the device of a layer and in its dtype, but at least in float32.

        A state that adds up is not kept in half precision.
        """
        like, start = first_float(layer), self()
        dtype = torch.promote_types(torch.float32 if like is None else like.dtype, torch.float32)
        if start is None:
            return self.kind(*(zeros(layer, size, *shape, dtype=dtype) for shape in self.shapes.values()))
        # Contiguous, as every state is that a layer returns: a program that is exported with one takes the other.
        return self.kind(*(_whole(leaf).to(dtype).expand(size, *leaf.shape).contiguous() for leaf in start))


def _whole(leaf: Tensor) -> Tensor:
    """All of a parameter that is sharded (DTensor), as it is outside of a forward pass."""
    return leaf.full_tensor() if hasattr(leaf, "full_tensor") else leaf


def _constant(name: str, value: Any, shape: tuple[int, ...]) -> Tensor:
    # Not on the meta device, where a layer may be created: `reset_parameters` needs the numbers.
    tensor = value.detach() if isinstance(value, Tensor) else torch.tensor(value, device="cpu")
    tensor = tensor.to(torch.get_default_dtype())
    fits = tensor.ndim <= len(shape) and all(
        mine in (1, theirs) for mine, theirs in zip(reversed(tensor.shape), reversed(shape), strict=False)
    )
    require(fits, f"initial.{name}", f"{list(shape)} or broadcast to it", list(tensor.shape))
    return tensor.expand(shape).clone()
