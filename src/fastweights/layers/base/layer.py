"""Base class of layers: the common interface, and the checks of every call."""

from collections.abc import Callable, Mapping
from functools import wraps
from inspect import Parameter, signature
from typing import Any

import torch
from torch import Tensor, nn

from fastweights.core.arguments import Count, checked, convert_argument
from fastweights.core.docstrings import inherit
from fastweights.core.errors import require
from fastweights.core.other_names import unexpected
from fastweights.core.padding import check_ends, mask_steps, valid_steps
from fastweights.layers.base.like import first_float
from fastweights.layers.base.validation import check_controls, check_input, check_marks, fit_state
from fastweights.steps import step_of

Controls = Mapping[str, Tensor]
"""Control signals of steps by name, `[B, T]` or `[B, T, ...]`."""
NO_CONTROLS: Controls = {}
CALL = ("x", "state", "reset", "lengths", "controls")
"""The arguments of a call of a layer."""


class Layer(nn.Module):
    """Base class of all layers: one interface, checks of every call, and padding.

        y, state = layer(x, state)

    A layer maps a sequence x to a sequence y of the same length and updates a state. A subclass defines `run`,
    `initial_state`, the `input_size` of x, and the names of the `controls` that it accepts.

    Example:
        >>> import torch
        >>> from fastweights.layers import DeltaNet
        >>> layer = DeltaNet(d_model=64, num_heads=4)
        >>> y, state = layer(torch.randn(2, 10, 64))
        >>> y, state = layer(torch.randn(2, 1, 64), state)  # continues the sequences
        >>> y.shape
        torch.Size([2, 1, 64])
    """

    input_size: int | None = None
    controls: tuple[str, ...] = ()

    def __init_subclass__(cls, **kwargs: Any) -> None:
        """Adds checks of the options and of the batch size to every layer, and completes its docstrings."""
        super().__init_subclass__(**kwargs)
        inherit(cls)
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
        """Maps a sequence and a state to the outputs and the next state.

        Args:
            x: Input `[B, T, D]`, in the dtype and on the device of the parameters of the layer.
            state: State that the last call returned, or `initial_state`. None: the initial state.
            reset: Resets, bool `[B, T]`. Where True, the state returns to the initial state before the time step.
            lengths: Number of time steps of each sequence, int `[B]`, from 0 to T. The rest is padding. Padding has no
                effect on the state and gets no gradient.
            controls: Control signals by name, bool, int or floating-point `[B, T]`, for layers that accept them.

        Returns:
            The output y `[B, T, D]`, 0 at padding, and the state after the last time step of each sequence. Every
            tensor of the state has the batch as its first axis, and the dtype of `initial_state`, also under autocast.

        Raises:
            InputError: an argument does not fit the layer.
        """
        if unknown:
            raise unexpected(next(iter(unknown)), CALL, type(self).__name__)
        check_input(x, self.input_size, self.like)
        check_marks(x, reset, lengths)
        check_controls(x, controls, self.controls, type(self).__name__)
        step = step_of(self, x, state) if lengths is None and not controls else None
        if step is not None:
            result: tuple[Tensor, Any] = step(self, x, state, reset)
            return result
        state = None if state is None else self.check_state(state, x)
        controls = NO_CONTROLS if controls is None else controls
        if lengths is None:
            return self.run(x, state, reset, None, controls)
        check_ends(lengths, x.shape[1])
        valid = valid_steps(lengths, x.shape[1])
        y, state = self.run(mask_steps(valid, x), state, None if reset is None else reset & valid, lengths, controls)
        return mask_steps(valid, y), state

    def run(
        self, x: Tensor, state: Any, reset: Tensor | None, lengths: Tensor | None, controls: Controls
    ) -> tuple[Tensor, Any]:
        """Runs the layer on checked inputs. A subclass defines it; users call the layer itself.

        Args:
            x: Input `[B, T, D]`, 0 at padding.
            state: State before the first time step. None: the initial state.
            reset: Resets, bool `[B, T]`, False at padding, or None.
            lengths: Number of time steps of each sequence, int `[B]`, or None.
            controls: Control signals by name, `[B, T]`.

        Returns:
            The output y `[B, T, D]`, with any values at padding, and the state after the last time step of each
            sequence.
        """
        raise NotImplementedError

    def initial_state(self, batch_size: int) -> Any:
        """Returns the state before the first time step.

        Args:
            batch_size: Number of sequences B.

        Returns:
            The state, a NamedTuple. Every tensor has the batch as its first axis.
        """
        raise NotImplementedError

    @property
    def like(self) -> Tensor | None:
        """A tensor with the dtype and the device of the layer."""
        return first_float(self)

    def check_state(self, state: Any, x: Tensor) -> Any:
        """Checks the state of a call. A subclass can replace the check; users call the layer itself.

        Args:
            state: State that was passed to the layer.
            x: Input `[B, T, D]` of the same call.

        Returns:
            The state in the dtypes of the initial state.

        Raises:
            InputError: the state does not fit the layer or the input.
        """
        return fit_state(state, self.initial_state(1), x)


def _with_batch_size(initial_state: Callable[[Any, int], Any]) -> Callable[[Any, int], Any]:
    """Makes `initial_state` check the batch size, unless it is traced."""

    @wraps(initial_state)
    def check(layer: Any, batch_size: int) -> Any:
        if not (torch.compiler.is_compiling() or isinstance(batch_size, torch.SymInt)):
            batch_size = convert_argument("batch_size", batch_size, Count)
        return initial_state(layer, batch_size)

    return check


def controls_of(*layers: nn.Module) -> tuple[str, ...]:
    """The names of the controls that any of the layers accepts."""
    return tuple(dict.fromkeys(name for layer in layers for name in getattr(layer, "controls", ())))


def call_layer(
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
    require(
        takes, "layer", "a layer with the argument lengths, for sequences with padding", type(layer).__name__, remedy
    )
