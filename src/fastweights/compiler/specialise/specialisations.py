"""Specialisations of a step: its forms while a program runs, each with its kernels, and the current one."""

import threading
import time
from collections.abc import Callable, Collection, Hashable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from hashlib import sha256
from typing import NamedTuple

import torch
from torch import Tensor

from fastweights.cell import Cell, examples, register
from fastweights.compiler import pipeline
from fastweights.compiler.affine.form import AffineForm
from fastweights.compiler.affine.not_affine import NotAffine
from fastweights.compiler.clean_thread import PerProcess, run_in_clean_thread
from fastweights.compiler.errors import Unbuilt, Unsupported
from fastweights.compiler.specialise.call_log import CallLog, log_calls
from fastweights.compiler.specialise.guard import Guard, Unguardable
from fastweights.compiler.specialise.lift import lift
from fastweights.compiler.specialise.op_log import OpLog, record_ops
from fastweights.compiler.targets.target import DIRECTIONS, Kernel, OneStep, target_of
from fastweights.core.grad_mode import without_saved_tensor_hooks
from fastweights.core.memo import get_or_compute
from fastweights.core.source_location import FAULTS, is_fault

MOST = 8
"""Maximum number of kernels for one step at the same sizes. A step with a number that differs in every call would
otherwise wait for the C++ compiler each time."""
PAUSE = 60.0
"""Seconds before a failed build is tried again: a full disk need not stay full."""


class KernelSpec(NamedTuple):
    """The sizes, the dtype and the type of device that a kernel is built for."""

    sizes: Mapping[str, int]
    dtype: torch.dtype
    device: str


@dataclass(eq=False)
class Specialisation:
    """One form of a step: the cell with a param for every captured tensor, and its kernels or why there are none."""

    cell: Cell
    text: str
    spec: KernelSpec
    kernel: Kernel | None = None
    built: set[str] = field(default_factory=set)
    """The passes that the kernel has."""
    one_step: OneStep | None = None
    has_one_step: bool = True
    """Whether the target has a kernel for one step by itself, as far as is known."""
    reason: str = ""
    """Why no kernel can be made; empty as far as is known."""
    is_lowered: bool = False
    """Whether the step has been lowered without building a kernel."""
    failed_at: float = float("inf")
    affine_form: AffineForm | str = ""
    """The affine form, or why there is none; empty until `affine` is called."""

    def affine(self) -> AffineForm | str:
        """The affine form of the step, or why it has none."""
        if not self.affine_form:
            with LOCK.own:
                self.affine_form = (
                    self.reason if not self.text else run_in_clean_thread(_affine_or_why, self.cell, self.spec)
                )
        return self.affine_form

    def build(self, directions: Collection[str]) -> str:
        """Builds the kernel for some passes; returns why it cannot, else an empty string.

        A failed build is tried again after `PAUSE` seconds.
        """
        return "" if self.built.issuperset(directions) else self._make(partial(self._build, directions))

    def build_one_step(self) -> str:
        """The same for the kernel of one time step; the forward pass where the target has no other."""
        why = self._make(self._build_one_step) if self.one_step is None and self.has_one_step else ""
        return why if self.has_one_step else self.build(DIRECTIONS[:1])

    def check(self) -> str:
        """Why no kernel can be made, as far as lowering the step shows; empty if one can."""
        if not (self.built or self.reason or self.is_lowered):
            with LOCK.own:
                self._attempt(self._lower)
        return self.reason

    def _build(self, directions: Collection[str]) -> None:
        sizes, dtype, device = self.spec
        self.kernel = self.kernel or pipeline.kernel(self.cell, sizes, dtype, device, self.text)
        if missing := [direction for direction in directions if direction not in self.built]:
            self.kernel.build(missing)
            self.built.update(missing)

    def _build_one_step(self) -> None:
        sizes, dtype, device = self.spec
        self.one_step = self.one_step or pipeline.one_step(self.cell, sizes, dtype, device, self.text)
        self.has_one_step = self.one_step is not None

    def _lower(self) -> None:
        pipeline.passes(self.cell, self.spec.sizes, self.spec.dtype)
        self.is_lowered = True

    def _make(self, action: Callable[[], None]) -> str:
        if not self.reason or time.monotonic() > self.failed_at + PAUSE:
            with LOCK.own:
                self.reason, self.failed_at = "", float("inf")
                self._attempt(action)
        return self.reason

    def _attempt(self, action: Callable[[], None]) -> None:
        try:
            action()
        except Unsupported as error:
            self.reason = str(error)
        except Unbuilt as error:
            self.reason, self.failed_at = str(error), time.monotonic()


def _affine_or_why(cell: Cell, spec: KernelSpec) -> AffineForm | str:
    try:
        return pipeline.affine(cell, spec.sizes, spec.dtype)
    except (NotAffine, Unsupported) as error:
        return f"{cell.name} is not affine in its state: {error}"


class Specialisations:
    """The specialisations of the step of one cell for one `KernelSpec`."""

    def __init__(self, cell: Cell, spec: KernelSpec) -> None:
        self.cell, self.spec = cell, spec
        self.guard: Guard | None = None
        self.last: Specialisation | None = None
        self.by_text: dict[str, Specialisation] = {}
        self.by_calls: dict[Hashable, Specialisation] = {}
        self.records = examples(cell, spec.sizes, spec.dtype)

    def current(self) -> tuple[Specialisation, Sequence[Tensor]]:
        """The specialisation that fits the step now, and the tensors that the step captures."""
        if self.last is None:
            return self._record()
        if self.guard is not None and self.guard.holds():
            return self.last, ()
        calls = None if self.guard is not None else self._calls()
        known = None if calls is None or not calls.is_clear else self.by_calls.get(calls.key)
        return self._record() if known is None or calls is None else (known, calls.captured)

    def _calls(self) -> CallLog | None:
        """The functions that the step calls now; None if the step fails."""
        is_watched = torch._C._len_torch_dispatch_stack() or torch._C._len_torch_function_stack()
        try:
            with without_saved_tensor_hooks():
                return (
                    run_in_clean_thread(log_calls, self.cell, self.records)
                    if is_watched
                    else log_calls(self.cell, self.records)
                )
        except FAULTS as error:
            if not is_fault(error):
                raise
            return None

    def _record(self) -> tuple[Specialisation, Sequence[Tensor]]:
        """Records the operations of the step again, with a new guard."""
        with LOCK.own:
            self.guard = _guard(self.cell)
            op_log = OpLog("", [], None)
            try:
                op_log = run_in_clean_thread(record_ops, self.cell, dict(self.spec.sizes), self.spec.dtype)
                self._check_here(op_log)
                current = self._specialisation(op_log)
            except Unsupported as error:
                current = Specialisation(self.cell, "", self.spec, reason=str(error))
            if op_log.calls is not None and current.text:
                get_or_compute(self.by_calls, op_log.calls, lambda: current)
            self.last = current
            return current, op_log.captured

    def _check_here(self, op_log: OpLog) -> None:
        """Raises `Unsupported` if the step differs in the context of the caller, perhaps without gradients."""
        if self.guard is None and op_log.calls is not None:
            calls = self._calls()
            if calls is None or calls.key != op_log.calls:
                description = f"{self.cell.name} does something else when it is called elsewhere"
                raise Unsupported(description, "", "the same steps with and without gradients")

    def _specialisation(self, op_log: OpLog) -> Specialisation:
        if op_log.text not in self.by_text:
            if len(self.by_text) == MOST:
                description = f"{self.cell.name} changes from call to call, {MOST} times so far,"
                raise Unsupported(description, "", "what changes as a tensor, which is read at every call,")
            digest = sha256(f"{self.spec.device}\n{op_log.text}".encode()).hexdigest()
            key = f"{self.cell.key}@{digest[:24]}"
            lifted = lift(self.cell, op_log.captured, key) if op_log.captured else replace(self.cell, key=key)
            self.by_text[op_log.text] = BY_KEY[key] = Specialisation(register(lifted), op_log.text, self.spec)
        return self.by_text[op_log.text]


def _guard(cell: Cell) -> Guard | None:
    try:
        return Guard(cell)
    except Unguardable:
        return None


LOCK = PerProcess(threading.RLock)
"""PyTorch traces one function at a time."""
_SPECIALISATIONS: dict[Hashable, Specialisations] = {}
BY_KEY: dict[str, Specialisation] = {}
"""Specialisations by the keys of their cells."""


def specialisations_of(cell: Cell, sizes: Mapping[str, int], dtype: torch.dtype, device: str) -> Specialisations:
    """The specialisations of a cell at some sizes, in some dtype and on some type of device."""
    # A step that creates a tensor without a dtype depends on the default dtype.
    key = (cell.key, tuple(sorted(sizes.items())), dtype, device, torch.get_default_dtype())
    if key not in _SPECIALISATIONS:
        with LOCK.own:
            _SPECIALISATIONS.setdefault(key, Specialisations(cell, KernelSpec(dict(sizes), dtype, device)))
    return _SPECIALISATIONS[key]


def why_never(key: str, sizes: tuple[tuple[str, int], ...], device: str) -> str:
    """Why a cell does not compile for a type of device, without building; empty if it does.

    `torch.compile` asks it while it traces.
    """
    cell = Cell.of_key(key)
    missing = target_of(device).missing_requirement()
    if missing:
        return missing
    if _guard(cell) is None:
        return f"what {cell.name} closes over may change, which a traced program would not see"
    try:
        with LOCK.own:
            pipeline.passes(cell, dict(sizes), torch.float32)
    except Unsupported as error:
        return str(error)
    return ""


def affine_of(key: str, sizes: tuple[tuple[str, int], ...], dtype: torch.dtype) -> AffineForm | str:
    """The affine form of a cell, or why it has none, for `torch.compile`, which asks while it traces."""
    cell = Cell.of_key(key)
    if _guard(cell) is None:
        return f"what {cell.name} closes over may change, which a traced program would not see"
    with LOCK.own:
        return run_in_clean_thread(_affine_or_why, cell, KernelSpec(dict(sizes), dtype, ""))


# As by torch.compiler.assume_constant_result, whose import would take seconds: a trace calls it and keeps the answer.
why_never._dynamo_marked_constant = True  # type: ignore[attr-defined]
