"""Base class of layers: the common interface, and the checks of every call."""

from collections.abc import Callable, Mapping
from functools import wraps
from inspect import Parameter, signature
from typing import Any

import torch
from torch import Tensor, nn

from fastweights.core.arguments import Count, checked, fit
from fastweights.core.errors import require
from fastweights.core.other_names import unexpected
from fastweights.core.padding import check_ends, only, within
from fastweights.layers.base.like import first_float
from fastweights.layers.base.validation import check_controls, check_input, check_marks, fit_state
from fastweights.steps import step_of

Controls = Mapping[str, Tensor]
"""Control signals of steps by name, `[B, T]` or `[B, T, ...]`."""
NO_CONTROLS: Controls = {}
CALL = ("x", "state", "reset", "lengths", "controls")
"""The arguments of a call of a layer."""


class Layer(nn.Module):
    """y, state = layer(x, state=None, reset=None, lengths=None, controls=None), with x and y `[B, T, D]`.

    A layer defines `run` and `initial_state`, the `input_size` of x, and the names of the `controls` that it accepts.
    This class checks the calls and masks padding: the x of `run` is 0 there, and so is y.

    Args of a call:
        x: The input `[B, T, D]`, in the dtype and on the device of the layer's parameters.
        state: The state that the last call returned, or `initial_state`. None: the initial state.
        reset: bool `[B, T]`: the state returns to the initial one before step t.
        lengths: int `[B]`, from 0 to T: number of steps per member. The rest is padding: it changes no state and gets
            no gradient, whatever its values, and y is 0 there.
        controls: Control signals that come with the data, by name: bool, int or floating, `[B, T]`.

    Returns:
        y `[B, T, D]` and the state after the last step of every member, batch first in every leaf, in the dtypes of
        `initial_state`, under autocast too.

    Raises:
        InputError: an argument does not fit the layer.
    """

    input_size: int | None = None
    controls: tuple[str, ...] = ()

    def __init_subclass__(cls, **kwargs: Any) -> None:
        """Adds checks of the options and of the batch size to every layer."""
        super().__init_subclass__(**kwargs)
        if "__init__" in vars(cls):
            cls.__init__ = checked(cls.__init__)  # type: ignore[method-assign]
        if "initial_state" in vars(cls):
            cls.initial_state = _with_batch_size(cls.initial_state)  # type: ignore[method-assign, assignment]

    def forward(
        self,
        x: Tensor,
        state: Any = None,
        reset: Tensor | None = None,
        lengths: Tensor | None = None,
        controls: Controls | None = None,
        **unknown: object,
    ) -> tuple[Tensor, Any]:
        """Checks a call, masks padding, and runs the layer."""
        if unknown:
            raise unexpected(next(iter(unknown)), CALL, type(self).__name__)
        check_input(x, self.input_size, self.like)
        check_marks(x, reset, lengths)
        check_controls(x, controls, self.controls, type(self).__name__)
        step = step_of(self, x, state) if lengths is None and not controls else None
        if step is not None:
            result: tuple[Tensor, Any] = step(self, x, state, reset)
            return result
        state = None if state is None else self.take(state, x)
        controls = NO_CONTROLS if controls is None else controls
        if lengths is None:
            return self.run(x, state, reset, None, controls)
        check_ends(lengths, x.shape[1])
        inside = within(lengths, x.shape[1])
        y, state = self.run(only(inside, x), state, None if reset is None else reset & inside, lengths, controls)
        return only(inside, y), state

    def run(
        self, x: Tensor, state: Any, reset: Tensor | None, lengths: Tensor | None, controls: Controls
    ) -> tuple[Tensor, Any]:
        """Runs the layer on checked inputs. Padding in x is 0 and has no reset; y may have any value there."""
        raise NotImplementedError

    def initial_state(self, batch_size: int) -> Any:
        """Returns the state before the first step, batch first in every leaf."""
        raise NotImplementedError

    @property
    def like(self) -> Tensor | None:
        """A tensor with the dtype and the device of the layer."""
        return first_float(self)

    def take(self, state: Any, x: Tensor) -> Any:
        """Checks the state of a call, and returns it in the dtypes of the initial state."""
        return fit_state(state, self.initial_state(1), x)


def _with_batch_size(initial_state: Callable[[Any, int], Any]) -> Callable[[Any, int], Any]:
    """Makes `initial_state` check the batch size, unless it is traced."""

    @wraps(initial_state)
    def check(layer: Any, batch_size: int) -> Any:
        if not (torch.compiler.is_compiling() or isinstance(batch_size, torch.SymInt)):
            batch_size = fit("batch_size", batch_size, Count)
        return initial_state(layer, batch_size)

    return check


def controls_of(*layers: nn.Module) -> tuple[str, ...]:
    """The names of the controls that any of the layers accepts."""
    return tuple(dict.fromkeys(name for layer in layers for name in getattr(layer, "controls", ())))


def call(
    layer: nn.Module,
    x: Tensor,
    state: Any,
    reset: Tensor | None,
    lengths: Tensor | None,
    controls: Controls = NO_CONTROLS,
) -> tuple[Tensor, Any]:
    """Calls a layer inside another one, with the controls that it accepts.

    The layer may be a module of the user without `lengths` and `controls`; with padding it raises an error.
    """
    if lengths is not None and not isinstance(layer, Layer):
        _require_lengths(layer)
    more: dict[str, Any] = {} if lengths is None else {"lengths": lengths}
    accepted = {name: mark for name, mark in controls.items() if name in controls_of(layer)}
    y, after = layer(x, state, reset, **more, **({"controls": accepted} if accepted else {}))
    return y, after


def _require_lengths(layer: nn.Module) -> None:
    """`InputError` unless a layer accepts variable-length sequences."""
    parameters = signature(layer.forward).parameters.values()
    takes = any(p.name == "lengths" or p.kind == Parameter.VAR_KEYWORD for p in parameters)
    remedy = "Add lengths=None to its forward(x, state, reset)."
    require(takes, "layer", "one with the argument lengths, for sequences with padding", type(layer).__name__, remedy)
