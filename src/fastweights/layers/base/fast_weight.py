"""The general layer: any cell, programmed by a linear slow network."""

from collections.abc import Mapping
from typing import Any

from fastweights.cell import Cell, letters
from fastweights.core.arguments import Probability, Size
from fastweights.core.errors import require
from fastweights.layers.base.cell_layer import CellLayer, require_heads
from fastweights.layers.base.fused_inputs import prepared_by
from fastweights.layers.base.slow_net import Keys, SlowNet


class FastWeight(CellLayer):
    """Layer over any cell or rule, programmed by a linear slow network.

        y = W_o [scale read_1, ..., scale read_H]

    A linear map of x gives the keys, values, queries and rates of every head. The cell runs over time, and W_o maps the
    concatenated outputs of the heads to y.

    Args:
        d_model: Size D of the input and the output.
        num_heads: Number of heads H, each with its own memory. It must divide `d_model` unless `key_size` and
            `value_size` are both set.
        cell: Rule, step, name or `Cell`, as in `Cell.from_function`.
        key_size: Size of keys and queries before the feature map. None: `d_model // num_heads`.
        value_size: Size of the values. None: `d_model // num_heads`.
        feature_map: Feature map of keys and queries, a name from `fastweights list feature-maps`. None: the default of
            the cell. Only for cells with keys.
        qk_norm: Normaliser of keys and queries, a name from `fastweights list normalisers`. None: the default of the
            cell. Only for cells with keys.
        rate_activation: Activation of the rates: "sigmoid", or "twice-sigmoid" for rates up to 2.
        scale: Factor on the output of the memory.
        backend: Backend of `scan`: "auto", "compiled", "chunkwise" or "reference".
        sizes: Sizes of the letters of the cell other than K and V, by letter.
        constants: Values of the parameters of the cell with the role "constant", by name.
        initial_state: Initial state: "zero", "learned", or a `cell.State` of constants that broadcast to `[H, ...]`. An
            `nn.Parameter` in it is copied and learned.
        read_dropout: Dropout probability of the outputs of the memory, before W_o. Version 1 of the Delta RNN and LSTM
            in the code of Irie et al. 2021 has it in addition to the dropout of the block.
        query: "projection": q is a linear map of x. "input": q is x itself, split over the heads (Schlag et al. 2021,
            Eq. 3; Irie et al. 2021, Sec. 2.1). The feature map and the normaliser apply to both.

    Raises:
        InputError: an option does not fit the cell.

    Example:
        >>> import torch
        >>> layer = FastWeight(
        ...     d_model=64, num_heads=4, cell="gated-delta", feature_map="dpfp-2"
        ... )
        >>> y, state = layer(torch.randn(2, 10, 64))
        >>> y.shape, state.W.shape
        (torch.Size([2, 10, 64]), torch.Size([2, 4, 16, 64]))
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
    requirement = (
        f"sizes of {', '.join(others)}" if others else f"left out for {cell.name}, which has no letters but K and V"
    )
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
