"""The slow network: emits keys, values, queries and rates, whose sizes follow from the signature of the cell."""

import inspect
import re
from collections.abc import Callable, Mapping
from functools import partial
from math import prod
from typing import Any

import torch
from torch import Tensor, nn

from fastweights.cell import Cell
from fastweights.core.errors import invalid, require, require_name
from fastweights.layers.base.initialise import assign, change_initial, whole
from fastweights.layers.base.layer import NO_CONTROLS, Controls
from fastweights.registry import FEATURE_MAPS, NORMALISERS, RATE_ACTIVATIONS, Folder


def feature_map(name: str, size: int) -> Any:
    """Returns a feature map by name; a trailing number is its option.

    >>> feature_map("dpfp-3", size=16).output_size
    96
    """
    kind, options = _with_option(FEATURE_MAPS, name)
    return kind(size, **options)


def normaliser(name: str) -> Callable[[Tensor], Tensor]:
    """Returns a normaliser by name; a trailing number is its option.

    >>> round(float(normaliser("sum-1")(torch.ones(4))[0]), 2)
    0.24
    """
    function, options = _with_option(NORMALISERS, name)
    return partial(function, **options) if options else function


def _with_option(folder: Folder, name: str) -> tuple[Any, dict[str, int]]:
    """The part of this name, and the trailing number as the value of its second parameter."""
    match = re.fullmatch(r"(.+)-(\d+)", name)
    if match is None or name in folder.names():
        return folder.load(name), {}
    part = folder.load(match[1])
    _, *option = inspect.signature(part).parameters
    require(bool(option), folder.kind.replace(" ", "_"), f"'{match[1]}', which has no option", f"'{name}'")
    return part, {option[0]: int(match[2])}


class Keys(nn.Module):
    """phi(x), normalised: maps the last axis, of size `size`, to a key."""

    def __init__(self, size: int, features: str, normalised: str) -> None:
        super().__init__()
        self.features, self.normalised = features, normalised
        self.feature_map = feature_map(features, size)
        self.normalise = normaliser(normalised)
        self.input_size = size
        self.output_size: int = self.feature_map.output_size

    def forward(self, x: Tensor) -> Tensor:
        """`[..., size]` -> `[..., output_size]`."""
        mapped: Tensor = self.normalise(self.feature_map(x))
        return mapped

    @property
    def function(self) -> Callable[[Tensor], Tensor] | None:
        """The map as a pure function; None if the feature map has parameters."""
        phi, normalise = getattr(self.feature_map, "function", None), self.normalise
        if phi is None or not isinstance(normalise, partial):
            return phi and (lambda x: normalise(phi(x)))
        function, options = normalise.func, tuple(normalise.keywords.values())
        return lambda x: function(phi(x), *options)

    def map_queries(self, x: Tensor) -> Tensor:
        """Maps queries for earlier keys: random features are not redrawn."""
        mapped: Tensor = self.normalise(getattr(self.feature_map, "map_queries", self.feature_map)(x))
        return mapped


QUERIES = ("projection", "input")
"""The source of a query: a linear map of x, or x itself."""


class SlowNet(nn.Module):
    """Emits the inputs of a cell for every step and head: one linear map without bias, then one function per role.

    Keys and queries go through the feature map and the normaliser, rates through the rate activation, decays through a
    sigmoid with a learned bias per head. The weights of angles start at 0. The outputs of a head are contiguous, in the
    order of the inputs of the cell. Outputs of shared roles, which every head receives, follow after all heads.

    `sizes` are those of the cell: V, and any letter of the cell's own. K is what the keys make it. Nothing reads the
    `idle` outputs of a head. With `query="input"` the query q of a head is its part of x, `input_size / heads` numbers
    long, in place of a map of x.

    Source: Schlag et al. 2021, Eqs. 4 and 21.
    """

    def __init__(
        self,
        input_size: int,
        num_heads: int,
        cell: Cell,
        keys: Keys,
        sizes: Mapping[str, int],
        rate_activation: str = "sigmoid",
        idle: int = 0,
        query: str = "projection",
    ) -> None:
        super().__init__()
        require_name("query", query, QUERIES)
        self.input_size = input_size
        self.query = query
        self.num_heads = num_heads
        self.cell = cell
        self.keys = keys
        self.squash = RATE_ACTIVATIONS.load(rate_activation)
        self.sizes = {**sizes, "K": keys.output_size}
        raw = {**sizes, "K": keys.input_size}
        inputs = cell.slots["Inputs"].items()
        self.slots = {name: slot for name, slot in inputs if slot.kind != "control"}
        self.controls = {name: slot for name, slot in inputs if slot.kind == "control"}
        self.kinds = {name: slot.kind for name, slot in self.slots.items()}
        self.shapes = {name: slot.shape(self.sizes) for name, slot in self.slots.items()}
        widths = {n: prod(slot.shape(raw if slot.kind == "key" else self.sizes)) for n, slot in self.slots.items()}
        if query == "input":
            _require_query(cell, input_size, num_heads, keys.input_size)
            del widths["q"]
        self.own = {n: width for n, width in widths.items() if not self.slots[n].is_shared}
        self.own |= {"": idle} if idle else {}
        self.shared = {n: width for n, width in widths.items() if self.slots[n].is_shared}
        self.projection = nn.Linear(
            input_size, num_heads * sum(self.own.values()) + sum(self.shared.values()), bias=False
        )
        if "angle" in self.kinds.values():
            change_initial(self.projection, partial(_zero_rows, self._rows_of("angle")))
        if "decay" in self.kinds.values():
            self.decay_bias = nn.Parameter(torch.empty(num_heads))
        self.reset_parameters()

    def _rows_of(self, kind: str) -> list[int]:
        """The outputs of the linear map that are inputs of a kind."""
        own, shared = ([name for name, n in widths.items() for _ in range(n)] for widths in (self.own, self.shared))
        names = [*own * self.num_heads, *shared]
        return [row for row, name in enumerate(names) if self.kinds.get(name) == kind]

    def reset_parameters(self) -> None:
        """Spreads the decays of the heads; the projection initialises itself."""
        if hasattr(self, "decay_bias"):
            assign(self.decay_bias, _spread_decays(self.num_heads, self.decay_bias.device))

    def forward(self, x: Tensor, controls: Controls = NO_CONTROLS) -> Any:
        """x `[B, T, D]`, the cell's controls `[B, T, ...]` -> `cell.Inputs` of tensors `[B, T, H, ...]`."""
        fields = self._split_heads(self.projection(x))
        if self.query == "input":
            fields = {"q": x.unflatten(-1, (self.num_heads, -1)), **fields}
        fields.update(self._map_keys({name: fields[name] for name, kind in self.kinds.items() if kind == "key"}))
        emitted = {name: self._finish(name, value) for name, value in fields.items()}
        return self.cell.Inputs(**emitted, **self._marks(x, controls))

    def _split_heads(self, outputs: Tensor) -> dict[str, Tensor]:
        """Splits the outputs of the linear map into the inputs of the cell, `[B, T, H, ...]`."""
        width = sum(self.own.values())
        per_head = outputs[..., : self.num_heads * width].unflatten(-1, (self.num_heads, width))
        by_name = dict(zip(self.own, per_head.split([*self.own.values()], -1), strict=True))
        if self.shared:
            shared = outputs[..., self.num_heads * width :].unsqueeze(-2).expand(*per_head.shape[:-1], -1)
            by_name |= zip(self.shared, shared.split([*self.shared.values()], -1), strict=True)
        return {name: by_name[name] for name in self.slots if name in by_name}

    def _marks(self, x: Tensor, controls: Controls) -> dict[str, Tensor]:
        """The control signals as numbers, the same for every head."""
        if not self.controls:
            return {}
        if controls.keys() != self.controls.keys():
            requirement = f"signals for {' and '.join(self.controls)}, which {self.cell.name} needs"
            remedy = f"Call layer(x, controls={{'{next(iter(self.controls))}': ...}}) with tensors [B, T]."
            raise invalid("controls", requirement, ", ".join(controls) or "none", remedy)
        return {name: self._mark(name, controls[name], x) for name in self.controls}

    def _mark(self, name: str, mark: Tensor, x: Tensor) -> Tensor:
        shape = self.controls[name].shape(self.sizes)
        if mark.shape[2:] != shape:
            raise invalid(name, f"{[*x.shape[:2], *shape]} like the steps of x", list(mark.shape))
        return mark.to(x.dtype).unsqueeze(2).expand(*x.shape[:2], self.num_heads, *shape)

    def _map_keys(self, keys: dict[str, Tensor]) -> dict[str, Tensor]:
        """Maps all keys in one call, since random features must be the same for keys and queries."""
        if not keys:
            return {}
        rows = [key.unflatten(-1, (-1, self.keys.input_size)) for key in keys.values()]
        mapped = self.keys(torch.cat(rows, dim=-2)).split([row.shape[-2] for row in rows], dim=-2)
        return {name: part.flatten(-2) for name, part in zip(keys, mapped, strict=True)}

    def _finish(self, name: str, value: Tensor) -> Tensor:
        if len(self.shapes[name]) != 1:
            value = value.reshape(*value.shape[:-1], *self.shapes[name])
        match self.kinds[name]:
            case "rate":
                squashed: Tensor = self.squash(value)
                return squashed
            case "decay":
                return (value + self.decay_bias.view(-1, *[1] * (value.ndim - 3))).sigmoid()
            case _:
                return value


def _require_query(cell: Cell, input_size: int, num_heads: int, key_size: int) -> None:
    """`InputError` unless the cell reads with a query that a head's part of x can be."""
    slot = cell.slots["Inputs"].get("q")
    fits = slot is not None and slot.axes in ("K", str(key_size)) and not slot.is_shared
    require(fits, "query", f"'projection' for {cell.name}, which reads with no single query q", "'input'")
    remedy = "The query of a head is its part of x."
    fits = num_heads * key_size == input_size
    require(fits, "key_size", f"{input_size} / {num_heads} with query='input' and {num_heads} heads", key_size, remedy)


def _zero_rows(rows: list[int], linear: nn.Linear) -> None:
    weight = whole(linear.weight.detach()).clone()
    weight[rows] = 0
    assign(linear.weight, weight)


def _spread_decays(num_heads: int, device: torch.device) -> Tensor:
    """Biases for decays from 0.9 to 0.999, so that the heads start with memories of about 10 to 1000 steps."""
    forgotten = torch.logspace(-1, -3, num_heads, device=device)
    return (1 / forgotten - 1).log()
