"""The step of a memory that is given as a loss: what `Cell.from_loss` makes a cell of."""

import inspect
from collections.abc import Callable, Mapping, Sequence
from string import ascii_uppercase
from types import GenericAlias
from typing import Annotated, Any, NamedTuple, get_type_hints

import torch
from torch import Tensor
from torch.func import grad

from fastweights.core.errors import require
from fastweights.core.family import family
from fastweights.core.import_path import address_of, find_imported
from fastweights.inner import as_it_is
from fastweights.signature import Key, Slot, is_slot, keyed_by, slot_of

Hints = Mapping[str, Any]


class Parts(NamedTuple):
    """The functions that a memory is made of: see `fastweights.inner`."""

    loss: Callable[..., Tensor]
    memory: Callable[..., Tensor]
    retention: Callable[..., Tensor]
    optimiser: Callable[..., Tensor]
    link: Callable[..., Tensor]


def step_of(parts: Parts, fades_first: bool, steps: int, learned_start: bool) -> Callable[..., Any]:
    """The step of a memory; other processes find it again if they find its parts.

    Raises:
        InputError: a part is not annotated, the loss is no scalar, or the optimiser has no rate.
    """
    addresses, options = tuple(map(address_of, parts)), (fades_first, steps, learned_start)
    return made(addresses, *options) if all(addresses) else _step(parts, *options)


@family
def made(addresses: tuple[str, ...], fades_first: bool, steps: int, learned_start: bool) -> Callable[..., Any]:
    """The step made of what stands at these addresses."""
    return _step(Parts(*map(find_imported, addresses)), fades_first, steps, learned_start)


def _step(parts: Parts, fades_first: bool, steps: int, learned_start: bool) -> Callable[..., Any]:
    records = _records(parts, learned_start)
    loss, memory, retention, optimiser, link = parts
    of_loss, of_retention, of_optimiser = (tuple(hints) for hints in _taken(parts))
    State, count, has_last = records["state"], len(_weights(memory)), _has_last(optimiser)

    def moved(fast: Sequence[Tensor], last: Sequence[Tensor], x: Any) -> list[Tensor]:
        """How far the optimiser moves every matrix from here."""
        told, rates = _of(x, of_loss), _of(x, of_optimiser)
        slopes = grad(lambda W: loss(memory(*W, x.k), x.v, **told))([link(A) for A in fast])
        if not has_last:
            return [optimiser(slope, **rates) for slope in slopes]
        return [optimiser(slope, before, **rates) for slope, before in zip(slopes, last, strict=True)]

    def learn(start: Sequence[Any], state: Sequence[Tensor], x: Any) -> Any:
        """What is kept are shifts from the start: where nothing fades, they are never found as small differences."""
        shifts, last = state[:count], state[count:]
        fast = list(map(_at, start, shifts))
        if retention is not as_it_is:
            shifts = [_off(A, retention(A0, **_of(x, of_retention))) for A, A0 in zip(start, fast, strict=True)]
        for n in range(steps):
            last = moved(fast if n == 0 and not fades_first else list(map(_at, start, shifts)), last, x)
            shifts = [A + by for A, by in zip(shifts, last, strict=True)]
        read = memory(*(link(_at(*pair)) for pair in zip(start, shifts, strict=True)), x.q)
        return State(*shifts, *(last if has_last else ())), read

    def step(state: Any, x: Any) -> Any:
        return learn([None] * count, state, x)

    def step_from_start(state: Any, x: Any, params: Any) -> Any:
        return learn(params, state, x)

    return _told(step_from_start if learned_start else step, parts, records)


def _at(start: Tensor | None, shift: Tensor) -> Tensor:
    return shift if start is None else start + shift


def _off(start: Tensor | None, weights: Tensor) -> Tensor:
    return weights if start is None else weights - start


def _of(x: Any, names: Sequence[str]) -> dict[str, Tensor]:
    return {name: getattr(x, name) for name in names}


def _records(parts: Parts, learned_start: bool) -> dict[str, Any]:
    """The annotations of the step: its state, inputs, params and output."""
    weights, output = _weights(parts.memory), slot_of(_hints(parts.memory)["return"], "y")
    value = Annotated[Tensor, Slot(output.axes, "value")]
    taken = {name: hint for hints in _taken(parts) for name, hint in hints.items()}
    _require_rate(parts)
    _require_scalar(parts, output)
    last = {f"{name}_last": hint for name, hint in weights.items()} if _has_last(parts.optimiser) else {}
    start = {name: Annotated[Tensor, Slot(slot_of(hint, name).axes, "weight")] for name, hint in weights.items()}
    records = {"state": _record("State", {**weights, **last})}
    records["x"] = _record("Inputs", {"q": Key, "k": Key, "v": value, **taken})
    records |= {"params": _record("Params", start)} if learned_start else {}
    return records | {"return": GenericAlias(tuple, (records["state"], value))}


def _record(name: str, fields: Hints) -> Any:
    return NamedTuple(name, list(fields.items()))


def _told(step: Any, parts: Parts, records: dict[str, Any]) -> Callable[..., Any]:
    """What is read off a step."""
    names = [_name(part) for part in parts]
    words = [names[part] for part in (2, 3, 0, 1) if parts[part] is not as_it_is]
    step.__annotations__ = records
    step.__name__ = "_".join(words)
    step.__doc__ = f"W <- {names[2]}(W) + {names[3]}(gradient of {names[0]}), y = {names[1]}(q)."
    return keyed_by("identity", "l2")(step)


def _weights(memory: Callable[..., Tensor]) -> Hints:
    """The matrices of a memory: all that it takes but the key, which comes last."""
    *names, _ = inspect.signature(memory).parameters
    hints = _hints(memory)
    fits = bool(names) and all(is_slot(hints.get(name)) for name in [*names, "return"])
    remedy = "Write memory(W: Matrix, k: Key) -> Value."
    require(fits, "memory", "annotated with its matrices, then the key, and its output", _name(memory), remedy)
    return {name: hints[name] for name in names}


def _taken(parts: Parts) -> tuple[Hints, Hints, Hints]:
    """What loss, retention and optimiser take from the slow net: all behind what they are called with anyhow."""
    optimiser = _behind("optimiser", parts.optimiser, 1 + _has_last(parts.optimiser))
    return _behind("loss", parts.loss, 2), _behind("retention", parts.retention, 1), optimiser


def _behind(name: str, part: Callable[..., Tensor], given: int) -> Hints:
    hints = _hints(part)
    names = list(inspect.signature(part).parameters)[given:]
    for taken in names:
        remedy = f"Annotate {taken} as Rate, Decay or any other."
        require(is_slot(hints.get(taken)), name, "annotated with what it takes", _name(part), remedy)
    return {taken: hints[taken] for taken in names}


def _has_last(optimiser: Callable[..., Tensor]) -> bool:
    return "last" in list(inspect.signature(optimiser).parameters)[1:2]


def _require_rate(parts: Parts) -> None:
    *_, taken = _taken(parts)
    fits = any(slot_of(hint, name).kind == "rate" for name, hint in taken.items())
    remedy = "Annotate how far it goes with Rate: (gradient, beta: Rate)."
    require(fits, "optimiser", "a function that takes a rate", _name(parts.optimiser), remedy)


def _require_scalar(parts: Parts, output: Slot) -> None:
    taken, *_ = _taken(parts)
    slots = {name: slot_of(hint, name) for name, hint in taken.items()}
    sizes = dict.fromkeys(ascii_uppercase, 3)
    y = torch.full(output.shape(sizes), 0.5)
    value = parts.loss(y, y / 2, **{name: torch.full(slot.shape(sizes), 0.5) for name, slot in slots.items()})
    got = list(value.shape) if isinstance(value, Tensor) else type(value).__name__
    require(got == [], "loss", "a scalar", got, "Add up what it returns: .sum().")


def _hints(part: Callable[..., Any]) -> dict[str, Any]:
    return get_type_hints(part, include_extras=True)


def _name(part: Callable[..., Any]) -> str:
    return getattr(part, "__name__", type(part).__name__).strip("<>")
