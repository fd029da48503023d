"""Compiled time steps of modules: streaming, generation and acting run a whole network as one C++ function.

A module asks `step_of` at the start of its forward pass. Single time steps of small batches on a CPU, without
gradients, are compiled once there have been `AFTER` of them. All other calls run layer by layer.
"""

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, cast, get_args
from weakref import WeakKeyDictionary

import torch
from torch import Tensor, nn

from fastweights.call.plan import is_observed
from fastweights.compiler.network.leaves import leaves
from fastweights.core.arguments import convert_argument
from fastweights.core.errors import InputError, require_name
from fastweights.dispatch import WATCHERS

if TYPE_CHECKING:
    from fastweights.compiler.network.network_step import NetworkStep, OwnState

Precision = Literal["float32", "bfloat16", "int8"]

AFTER = 256
"""Number of single steps that a module runs layer by layer before its step is compiled, which takes seconds."""
MOST = 8
"""Largest batch that is compiled. PyTorch's matrix products are faster for larger ones."""
CHANGES = 4
"""Number of times that a step is compiled again because its module has changed."""


class _Mode(threading.local):
    """When this thread compiles steps: after a number of them, or never (None). `skipped` is run layer by layer."""

    after: int | None = AFTER
    skipped: nn.Module | None = None


MODE = _Mode()


@contextmanager
def compiled_after(count: int | None) -> Iterator[None]:
    """A region in which steps are compiled after `count` single steps of a module; never if None."""
    before, MODE.after = MODE.after, count
    try:
        yield
    finally:
        MODE.after = before


class StepExplanation(NamedTuple):
    """The way a module runs single time steps.

    Args:
        module: The name of its class.
        reason: The part that does not compile; empty if a step of the whole module is one compiled function.
    """

    module: str
    reason: str

    @property
    def is_compiled(self) -> bool:
        """Whether a step of the whole module is one compiled function."""
        return not self.reason

    def __str__(self) -> str:
        how = "one compiled step" if self.is_compiled else f"layer by layer: {self.reason}"
        return f"{self.module}: {how}"


def compile_step(module: nn.Module, *arguments: Any, weights: str = "float32") -> StepExplanation:
    """Compiles one time step of a module now, and returns how the module runs such steps.

    Args:
        module: A model or a layer on a CPU.
        arguments: Arguments of a call with one time step, by position. The state is the one that is a tuple.
        weights: How all later steps of the module store matrices: "float32" reads the parameters where they are.
            "bfloat16" makes copies in half the memory. "int8" makes copies in a quarter of it, with a scale per row.
            Copies are made again when the parameters change. All sums are in float32.

    Returns:
        An explanation, whose text is one line. It names the part of the module that does not compile, if there is one.

    Raises:
        InputError: `weights` has another value, or an argument is neither a tensor, nor None, nor a tuple of these.

    >>> from fastweights.models import LanguageModel
    >>> model = LanguageModel(
    ...     vocab_size=10, d_model=16, num_layers=1, num_heads=2
    ... ).eval()
    >>> print(compile_step(model, torch.tensor([[3]]), model.initial_state(1)))
    LanguageModel: one compiled step
    """
    convert_argument("module", module, nn.Module)
    require_name("weights", weights, get_args(Precision))
    steps = _steps_of(module)
    if weights != steps.precision:
        steps.precision, steps.forms = cast(Precision, weights), {}
    step = steps.compiled(module, arguments)
    return StepExplanation(type(module).__name__, step if isinstance(step, str) else "")


def step_of(module: nn.Module, x: Tensor, state: Any) -> "ModuleSteps | None":
    """The function that runs a call of a module with one time step; None for all calls that run layer by layer."""
    if state is None or MODE.after is None or torch.is_grad_enabled() or torch.compiler.is_compiling():
        return None
    if x.shape[1] != 1 or x.shape[0] > MOST or x.device.type != "cpu" or MODE.skipped is module:
        return None
    return None if WATCHERS or is_observed() or torch._C._is_any_autocast_enabled() else _steps_of(module)


class Recurrence:
    """Runs a module one time step at a time, and owns the state between the steps.

    A compiled step then updates the state in place, and Python's part of a step is short.

    Args:
        module: A module that is called as `module(*inputs, state)`. The state is its last result.
        state: The state before the first step.
    """

    def __init__(self, module: nn.Module, state: Any) -> None:
        self._module, self._state = module, state
        self._own: OwnState | None = None

    def __call__(self, *inputs: Tensor) -> Any:
        """The results of a step without the state: one, or a tuple of several."""
        own = self._own if step_of(self._module, inputs[0], ()) is not None else None
        results = None if own is None else own(inputs)
        step_results = self._plain_step(inputs) if results is None else results
        return step_results[0] if len(step_results) == 1 else tuple(step_results)

    @property
    def state(self) -> Any:
        """The state after the last step."""
        return self._state if self._own is None else self._own.state()

    def _plain_step(self, inputs: tuple[Tensor, ...]) -> list[Tensor]:
        """A step of the module. The next one may be a compiled step."""
        *results, self._state = self._module(*inputs, self.state)
        steps = step_of(self._module, inputs[0], self._state)
        self._own = None if steps is None else steps.with_own_state((*inputs, self._state))
        return results


class _Form:
    """The steps of a module for one signature: how many there have been, and the compiled one or why there is none."""

    def __init__(self) -> None:
        self.count = self.changes = 0
        self.step: NetworkStep | None = None
        self.reason = ""


class ModuleSteps:
    """Runs single time steps of a module."""

    def __init__(self) -> None:
        self.forms: dict[Any, _Form] = {}
        self.precision: Precision = "float32"

    def __call__(self, module: nn.Module, *arguments: Any) -> Any:
        """The results of `module.forward(*arguments)`. The state is the argument that is a tuple."""
        tensors, form = self._form(arguments)
        if form is None:
            return _layer_by_layer(module, arguments)
        form.count += 1
        if form.step is None and not form.reason and form.count > (MODE.after or 0):
            self._compile(form, module, arguments)
        result = None if form.step is None else form.step(tensors)
        if result is not None:
            return result
        if form.step is not None and form.step.weights.places() is None:
            form.step, form.changes = None, form.changes + 1
            form.reason = "its submodules, hooks or weights change" if form.changes > CHANGES else ""
        return _partly(module, arguments) if form.reason else _layer_by_layer(module, arguments)

    def compiled(self, module: nn.Module, arguments: tuple[Any, ...]) -> "NetworkStep | str":
        """The compiled step of a signature, or why there is none."""
        _, form = self._form(arguments)
        if form is None:
            raise InputError("arguments must be tensors, None and nested tuples of these, got another type.")
        if form.step is None and not form.reason:
            self._compile(form, module, arguments)
        return form.step or form.reason

    def with_own_state(self, arguments: tuple[Any, ...]) -> "OwnState | None":
        """The compiled step of a signature with memory of its own for the state; None if there is no such step."""
        from fastweights.compiler.network.network_step import OwnState

        tensors, form = self._form(arguments)
        return None if form is None or form.step is None else OwnState(form.step, tensors)

    def _form(self, arguments: tuple[Any, ...]) -> tuple[list[Tensor], _Form | None]:
        tensors, types = leaves(arguments)
        if NotImplemented in types:
            return tensors, None
        key = (torch.get_default_dtype(), *types, *[(x.shape, x.dtype) for x in tensors])
        form = self.forms.get(key)
        return tensors, self.forms.setdefault(key, _Form()) if form is None else form

    def _compile(self, form: _Form, module: nn.Module, arguments: tuple[Any, ...]) -> None:
        from fastweights.compiler.errors import Unbuilt, Unsupported
        from fastweights.compiler.network.network_step import NetworkStep

        try:
            form.step = NetworkStep(module, arguments, self.precision)
        except (Unsupported, Unbuilt) as error:
            form.reason = str(error)


_STEPS: WeakKeyDictionary[nn.Module, ModuleSteps] = WeakKeyDictionary()


def _steps_of(module: nn.Module) -> ModuleSteps:
    return _STEPS.get(module) or _STEPS.setdefault(module, ModuleSteps())


def _layer_by_layer(module: nn.Module, arguments: tuple[Any, ...]) -> Any:
    with compiled_after(None):
        return module.forward(*arguments)


def _partly(module: nn.Module, arguments: tuple[Any, ...]) -> Any:
    """Runs a module that does not compile as a whole: its layers may compile by themselves."""
    before, MODE.skipped = MODE.skipped, module
    try:
        return module.forward(*arguments)
    finally:
        MODE.skipped = before
