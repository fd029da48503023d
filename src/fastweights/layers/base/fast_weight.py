"""The general layer: any cell, programmed by a linear slow network."""

from collections.abc import Mapping
from typing import Any

from fastweights.cell import Cell, letters
from fastweights.core.arguments import Probability, Size
from fastweights.core.errors import require
from fastweights.layers.base.cell_layer import Programmed, require_heads
from fastweights.layers.base.fused_inputs import prepared_by
from fastweights.layers.base.slow_net import Keys, SlowNet


class FastWeight(Programmed):
    """y = W_o [scale read_1, ..., scale read_H]: a cell programmed by a slow network, over any number of heads.

    Args:
        d_model: Size of the input and output.
        num_heads: Number of memories; it divides `d_model` unless both sizes are given.
        cell: A step, a rule, a name or a `Cell`, as in `Cell.from_function`.
        key_size: Size of keys and queries before the feature map; `d_model // heads` if None.
        value_size: Size of the values; `d_model // heads` if None.
        feature_map: A name from `fastweights list feature-maps`; that of the cell if None. Only for cells with keys.
        qk_norm: Normaliser of keys and queries; that of the cell if None. Only for cells with keys.
        rate_activation: Activation of the rates: "sigmoid", or "twice-sigmoid" for rates up to 2.
        scale: Factor on the output of the memory.
        backend: The backend of `scan`.
        sizes: The cell's own letters, in addition to K and V.
        constants: Values of the cell's parameters with the role "constant".
        initial_state: The initial state: "zero", "learned", or a `cell.State` of constants that fit `[H, ...]`; where
            one is an `nn.Parameter`, a copy of it is learned.
        read_dropout: Probability of dropping a number that was read, in front of W_o: with dropout behind the layer,
            as in a block, what version 1 of the Delta RNN and LSTM has in the code of Irie et al. 2021.
        query: "projection": q is a linear map of x. "input": q is x itself, of which every head gets its own part
            (Schlag et al. 2021, Eq. 3; Irie et al. 2021, Sec. 2.1). The feature map and the normaliser follow in both.
    """

    def __init__(
        self,
        d_model: Size,
        num_heads: Size,
        cell: Any,
        key_size: Size | None = None,
        value_size: Size | None = None,
        feature_map: str | None = None,
        qk_norm: str | None = None,
        rate_activation: str = "sigmoid",
        scale: float = 1.0,
        backend: str = "auto",
        sizes: Mapping[str, int] | None = None,
        constants: Mapping[str, float] | None = None,
        initial_state: Any = "zero",
        read_dropout: Probability = 0.0,
        query: str = "projection",
    ) -> None:
        cell = Cell.from_function(cell)
        if key_size is None or value_size is None:
            require_heads(d_model, num_heads)
        head_size = d_model // num_heads
        keys = _keys(cell, head_size if key_size is None else key_size, feature_map, qk_norm)
        values = {"V": head_size if value_size is None else value_size}
        _require_letters(cell, sizes or {})
        cell = prepared_by(cell, keys, rate_activation)
        slow_net = SlowNet(d_model, num_heads, cell, keys, {**values, **(sizes or {})}, rate_activation, query=query)
        super().__init__(
            d_model, slow_net, cell, scale, backend, constants, initial_state=initial_state, read_dropout=read_dropout
        )


def _require_letters(cell: Cell, sizes: Mapping[str, int]) -> None:
    others = sorted({letter for kind in cell.slots for letter in letters(cell, kind)} - {"K", "V"})
    requirement = f"of {', '.join(others)}" if others else f"left out for {cell.name}, which has no letters but K and V"
    require({*sizes} <= {*others}, "sizes", requirement, ", ".join(sizes))


def takes_keys(cell: Cell) -> bool:
    """Whether a cell has inputs that go through a feature map."""
    return any(slot.kind == "key" for slot in cell.slots["Inputs"].values())


def _keys(cell: Cell, size: int, feature_map: str | None, qk_norm: str | None) -> Keys:
    if takes_keys(cell):
        defaults = cell.key_maps
        return Keys(size, feature_map or defaults.feature_map, qk_norm or defaults.qk_norm)
    for name, value in {"feature_map": feature_map, "qk_norm": qk_norm}.items():
        require(value is None, name, f"left out for {cell.name}, which computes its keys itself", repr(value))
    return Keys(size, "identity", "none")
