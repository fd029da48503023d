"""The general layer: any cell, programmed by a linear slow net."""

from collections.abc import Mapping
from typing import Any

from fastweights.cell import Cell, letters
from fastweights.core.arguments import Probability, Size
from fastweights.core.errors import require
from fastweights.layers.base.cell_layer import Programmed, require_heads
from fastweights.layers.base.fused_inputs import prepared_by
from fastweights.layers.base.slow_net import Keys, SlowNet


class FastWeight(Programmed):
    """y = W_o [scale read_1, ..., scale read_H]: a cell programmed by a slow net, over any number of heads.

    Args:
        d_model: Size of the input and output.
        heads: Number of memories; it divides `d_model` unless both sizes are given.
        cell: What `Cell.of` takes: a step, a rule, a name or a `Cell`.
        key_size: Size of keys and queries before the feature map; `d_model // heads` if None.
        value_size: Size of the values; `d_model // heads` if None.
        feature_map: A name from `fastweights list feature-maps`, the cell's own if None; only for cells that take keys.
        normaliser: Of keys and queries, the cell's own if None; only for cells that take keys.
        squashing: What brings rates into their range: "sigmoid", or "twice-sigmoid" for rates up to 2.
        scale: Factor on what the memory returns.
        backend: The backend of `scan`.
        sizes: The cell's own letters, beside K and V.
        constants: Values of the cell's parameters with the role "constant".
        initial: The initial state: "zero", "learned", or a `cell.State` of constants that fit `[H, ...]`; where one is
            an `nn.Parameter`, a copy of it is learned.
        read_dropout: Probability of dropping a number that was read, in front of W_o: with dropout behind the layer,
            as in a block, what version 1 of the Delta RNN and LSTM has in the code of Irie et al. 2021.
        query: "projection": q is a linear map of x. "input": q is x itself, of which every head gets its own part
            (Schlag et al. 2021, Eq. 3; Irie et al. 2021, Sec. 2.1). The feature map and the normaliser follow in both.
    """

    def __init__(
        self,
        d_model: Size,
        heads: Size,
        cell: Any,
        key_size: Size | None = None,
        value_size: Size | None = None,
        feature_map: str | None = None,
        normaliser: str | None = None,
        squashing: str = "sigmoid",
        scale: float = 1.0,
        backend: str = "auto",
        sizes: Mapping[str, int] | None = None,
        constants: Mapping[str, float] | None = None,
        initial: Any = "zero",
        read_dropout: Probability = 0.0,
        query: str = "projection",
    ) -> None:
        cell = Cell.of(cell)
        if key_size is None or value_size is None:
            require_heads(d_model, heads)
        own = d_model // heads
        keys = _keys(cell, own if key_size is None else key_size, feature_map, normaliser)
        values = {"V": own if value_size is None else value_size}
        _require_letters(cell, sizes or {})
        cell = prepared_by(cell, keys, squashing)
        slow_net = SlowNet(d_model, heads, cell, keys, {**values, **(sizes or {})}, squashing, query=query)
        super().__init__(d_model, slow_net, cell, scale, backend, constants, initial=initial, read_dropout=read_dropout)


def _require_letters(cell: Cell, sizes: Mapping[str, int]) -> None:
    own = sorted({letter for kind in cell.slots for letter in letters(cell, kind)} - {"K", "V"})
    wanted = f"of {', '.join(own)}" if own else f"left out for {cell.name}, which has no letters but K and V"
    require({*sizes} <= {*own}, "sizes", wanted, ", ".join(sizes))


def takes_keys(cell: Cell) -> bool:
    """Whether a cell has inputs that go through a feature map."""
    return any(slot.kind == "key" for slot in cell.slots["Inputs"].values())


def _keys(cell: Cell, size: int, feature_map: str | None, normaliser: str | None) -> Keys:
    if takes_keys(cell):
        own = cell.key_maps
        return Keys(size, feature_map or own.feature_map, normaliser or own.normaliser)
    for name, value in {"feature_map": feature_map, "normaliser": normaliser}.items():
        require(value is None, name, f"left out for {cell.name}, which makes its keys itself", repr(value))
    return Keys(size, "identity", "none")
