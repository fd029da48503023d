"""The step of a memory that is defined by a loss, from which `Cell.from_loss` builds a cell."""

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
from fastweights.inner import identity
from fastweights.signature import Key, TensorSpec, is_slot, key_features, slot_of

Hints = Mapping[str, Any]


class MemoryParts(NamedTuple):
    """The functions that define a memory: see `fastweights.inner`."""

    loss: Callable[..., Tensor]
    memory: Callable[..., Tensor]
    retention: Callable[..., Tensor]
    optimiser: Callable[..., Tensor]
    link: Callable[..., Tensor]


def step_of(parts: MemoryParts, decay_before_gradient: bool, steps: int, learned_start: bool) -> Callable[..., Any]:
    """Returns the step of a memory. Other processes can load it if they can import its parts.

    Raises:
        InputError: a part is not annotated, the loss is no scalar, or the optimiser has no rate.
    """
    addresses, options = tuple(map(address_of, parts)), (decay_before_gradient, steps, learned_start)
    return step_at(addresses, *options) if all(addresses) else _step(parts, *options)


@family
def step_at(
    addresses: tuple[str, ...], decay_before_gradient: bool, steps: int, learned_start: bool
) -> Callable[..., Any]:
    """The step with the parts at these import paths."""
    return _step(MemoryParts(*map(find_imported, addresses)), decay_before_gradient, steps, learned_start)


def _step(parts: MemoryParts, decay_before_gradient: bool, steps: int, learned_start: bool) -> Callable[..., Any]:
    records = _records(parts, learned_start)
    loss, memory, retention, optimiser, link = parts
    loss_inputs, retention_inputs, optimiser_inputs = (tuple(hints) for hints in _part_inputs(parts))
    State, count, has_last = records["state"], len(_weights(memory)), _has_last(optimiser)

    def changes(fast: Sequence[Tensor], last: Sequence[Tensor], x: Any) -> list[Tensor]:
        """The change of every matrix by the optimiser."""
        inputs, rates = _pick(x, loss_inputs), _pick(x, optimiser_inputs)
        gradients = grad(lambda W: loss(memory(*W, x.k), x.v, **inputs))([link(A) for A in fast])
        if not has_last:
            return [optimiser(gradient, **rates) for gradient in gradients]
        return [optimiser(gradient, before, **rates) for gradient, before in zip(gradients, last, strict=True)]

    def learn(start: Sequence[Any], state: Sequence[Tensor], x: Any) -> Any:
        """The state holds shifts from the start. Without a decay they are never computed as small differences."""
        shifts, last = state[:count], state[count:]
        fast = list(map(_at, start, shifts))
        if retention is not identity:
            shifts = [_off(A, retention(A0, **_pick(x, retention_inputs))) for A, A0 in zip(start, fast, strict=True)]
        for n in range(steps):
            last = changes(fast if n == 0 and not decay_before_gradient else list(map(_at, start, shifts)), last, x)
            shifts = [A + change for A, change in zip(shifts, last, strict=True)]
        read = memory(*(link(_at(*pair)) for pair in zip(start, shifts, strict=True)), x.q)
        return State(*shifts, *(last if has_last else ())), read

    def step(state: Any, x: Any) -> Any:
        return learn([None] * count, state, x)

    def step_from_start(state: Any, x: Any, params: Any) -> Any:
        return learn(params, state, x)

    return _annotate(step_from_start if learned_start else step, parts, records)


def _at(start: Tensor | None, shift: Tensor) -> Tensor:
    return shift if start is None else start + shift


def _off(start: Tensor | None, weights: Tensor) -> Tensor:
    return weights if start is None else weights - start


def _pick(x: Any, names: Sequence[str]) -> dict[str, Tensor]:
    return {name: getattr(x, name) for name in names}


def _records(parts: MemoryParts, learned_start: bool) -> dict[str, Any]:
    """The annotations of the step: its state, inputs, parameters and output."""
    weights, output = _weights(parts.memory), slot_of(_hints(parts.memory)["return"], "y")
    value = Annotated[Tensor, TensorSpec(output.axes, "value")]
    further = {name: hint for hints in _part_inputs(parts) for name, hint in hints.items()}
    _require_rate(parts)
    _require_scalar(parts, output)
    last = {f"{name}_last": hint for name, hint in weights.items()} if _has_last(parts.optimiser) else {}
    start = {name: Annotated[Tensor, TensorSpec(slot_of(hint, name).axes, "weight")] for name, hint in weights.items()}
    records = {"state": _record("State", {**weights, **last})}
    records["x"] = _record("Inputs", {"q": Key, "k": Key, "v": value, **further})
    records |= {"params": _record("Params", start)} if learned_start else {}
    return records | {"return": GenericAlias(tuple, (records["state"], value))}


def _record(name: str, fields: Hints) -> Any:
    return NamedTuple(name, list(fields.items()))


def _annotate(step: Any, parts: MemoryParts, records: dict[str, Any]) -> Callable[..., Any]:
    """Sets the annotations, the name and the docstring of a step."""
    names = [_name(part) for part in parts]
    words = [names[part] for part in (2, 3, 0, 1) if parts[part] is not identity]
    step.__annotations__ = records
    step.__name__ = "_".join(words)
    step.__doc__ = f"W <- {names[2]}(W) + {names[3]}(gradient of {names[0]}), y = {names[1]}(q)."
    return key_features("identity", "l2")(step)


def _weights(memory: Callable[..., Tensor]) -> Hints:
    """The matrices of a memory: all its parameters but the key, which comes last."""
    *names, _ = inspect.signature(memory).parameters
    hints = _hints(memory)
    fits = bool(names) and all(is_slot(hints.get(name)) for name in [*names, "return"])
    remedy = "Write memory(W: Matrix, k: Key) -> Value."
    require(fits, "memory", "annotated with its matrices, then the key, and its output", _name(memory), remedy)
    return {name: hints[name] for name in names}


def _part_inputs(parts: MemoryParts) -> tuple[Hints, Hints, Hints]:
    """The inputs of loss, retention and optimiser from the slow network: all parameters after the fixed ones."""
    optimiser = _inputs_after("optimiser", parts.optimiser, 1 + _has_last(parts.optimiser))
    return _inputs_after("loss", parts.loss, 2), _inputs_after("retention", parts.retention, 1), optimiser


def _inputs_after(name: str, part: Callable[..., Tensor], count: int) -> Hints:
    hints = _hints(part)
    names = list(inspect.signature(part).parameters)[count:]
    for parameter in names:
        remedy = f"Annotate {parameter}, for example as Rate or Decay."
        require(is_slot(hints.get(parameter)), name, "annotated in all its inputs", _name(part), remedy)
    return {parameter: hints[parameter] for parameter in names}


def _has_last(optimiser: Callable[..., Tensor]) -> bool:
    return "last" in list(inspect.signature(optimiser).parameters)[1:2]


def _require_rate(parts: MemoryParts) -> None:
    *_, inputs = _part_inputs(parts)
    fits = any(slot_of(hint, name).kind == "rate" for name, hint in inputs.items())
    remedy = "Annotate its step size with Rate: (gradient, beta: Rate)."
    require(fits, "optimiser", "a function that takes a rate", _name(parts.optimiser), remedy)


def _require_scalar(parts: MemoryParts, output: TensorSpec) -> None:
    inputs, *_ = _part_inputs(parts)
    slots = {name: slot_of(hint, name) for name, hint in inputs.items()}
    sizes = dict.fromkeys(ascii_uppercase, 3)
    y = torch.full(output.shape(sizes), 0.5)
    value = parts.loss(y, y / 2, **{name: torch.full(slot.shape(sizes), 0.5) for name, slot in slots.items()})
    got = list(value.shape) if isinstance(value, Tensor) else type(value).__name__
    require(got == [], "loss", "a scalar", got, "Sum it over its components: .sum().")


def _hints(part: Callable[..., Any]) -> dict[str, Any]:
    return get_type_hints(part, include_extras=True)


def _name(part: Callable[..., Any]) -> str:
    return getattr(part, "__name__", type(part).__name__).strip("<>")
