"""The forms that a step takes while a program runs, each with its kernel, and which of them it has now."""

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
from fastweights.compiler import lowered
from fastweights.compiler.affine.finder import affine_form
from fastweights.compiler.affine.form import AffineForm
from fastweights.compiler.affine.not_affine import NotAffine
from fastweights.compiler.clean_thread import PerProcess, alone
from fastweights.compiler.errors import Unbuilt, Unsupported
from fastweights.compiler.frontend.lower import lower_forward
from fastweights.compiler.frontend.trace import trace_forward
from fastweights.compiler.specialise.call_log import Calls, calls_of
from fastweights.compiler.specialise.guard import Changing, Watch
from fastweights.compiler.specialise.lift import lift
from fastweights.compiler.specialise.op_log import Tape, write_down
from fastweights.compiler.targets.target import WAYS, Kernel, OneStep, target_of
from fastweights.core.grad_mode import unsaved
from fastweights.core.memo import remember
from fastweights.core.source_location import FAULTS, is_fault

MOST = 8
"""How many kernels are built for a step that changes, at the same sizes: one with a number that moves at every call
would wait for the C++ compiler each time."""
PAUSE = 60.0
"""Seconds after which a build that failed is tried again: a full disk need not stay full."""


class Where(NamedTuple):
    """What a kernel is built for."""

    sizes: Mapping[str, int]
    dtype: torch.dtype
    device: str


@dataclass(eq=False)
class Form:
    """What a step is: the cell with a param for every tensor that it has from elsewhere, and its kernels or why not."""

    cell: Cell
    text: str
    where: Where
    kernel: Kernel | None = None
    built: set[str] = field(default_factory=set)
    """The ways over time that the kernel has."""
    one_step: OneStep | None = None
    has_one_step: bool = True
    """Whether the target has a kernel for one step by itself, as far as is known."""
    refusal: str = ""
    is_known: bool = False
    """Whether it has been lowered, without a kernel."""
    tried: float = float("inf")
    found: AffineForm | str = ""
    """Its affine form, or why there is none; empty before anybody has asked."""

    def affine(self) -> AffineForm | str:
        """The affine form of the step, or why it has none."""
        if not self.found:
            with LOCK.own:
                self.found = self.refusal if not self.text else alone(_affine_or_why, self.cell, self.where)
        return self.found

    def build(self, ways: Collection[str]) -> str:
        """Makes the kernel for some ways over time, or says why it cannot be made; what has failed is tried again after
        a while."""
        return "" if self.built.issuperset(ways) else self._make(partial(self._build, ways))

    def build_one_step(self) -> str:
        """The same for one step by itself; the way forward where the target has no other."""
        why = self._make(self._build_one_step) if self.one_step is None and self.has_one_step else ""
        return why if self.has_one_step else self.build(WAYS[:1])

    def check(self) -> str:
        """Says why no kernel can be made, as far as that can be told without building it."""
        if not (self.built or self.refusal or self.is_known):
            with LOCK.own:
                self._attempt(self._lower)
        return self.refusal

    def _build(self, ways: Collection[str]) -> None:
        sizes, dtype, device = self.where
        self.kernel = self.kernel or target_of(device).kernel(self.cell, sizes, dtype, self.text)
        if missing := [way for way in ways if way not in self.built]:
            self.kernel.build(missing)
            self.built.update(missing)

    def _build_one_step(self) -> None:
        sizes, dtype, device = self.where
        self.one_step = self.one_step or target_of(device).one_step(self.cell, sizes, dtype, self.text)
        self.has_one_step = self.one_step is not None

    def _lower(self) -> None:
        lowered(self.cell, self.where.sizes, self.where.dtype)
        self.is_known = True

    def _make(self, action: Callable[[], None]) -> str:
        if not self.refusal or time.monotonic() > self.tried + PAUSE:
            with LOCK.own:
                self.refusal, self.tried = "", float("inf")
                self._attempt(action)
        return self.refusal

    def _attempt(self, action: Callable[[], None]) -> None:
        try:
            action()
        except Unsupported as error:
            self.refusal = str(error)
        except Unbuilt as error:
            self.refusal, self.tried = str(error), time.monotonic()


def _affine_or_why(cell: Cell, where: Where) -> AffineForm | str:
    try:
        return affine_form(lower_forward(trace_forward(cell, dict(sorted(where.sizes.items())), where.dtype)))
    except (NotAffine, Unsupported) as error:
        return f"{cell.name} is not affine in its state: {error}"


class Forms:
    """All forms of the step of a cell at some sizes, in some dtype and on some type of device."""

    def __init__(self, cell: Cell, where: Where) -> None:
        self.cell, self.where = cell, where
        self.watch: Watch | None = None
        self.last: Form | None = None
        self.by_text: dict[str, Form] = {}
        self.by_calls: dict[Hashable, Form] = {}
        self.records = examples(cell, where.sizes, where.dtype)

    def now(self) -> tuple[Form, Sequence[Tensor]]:
        """The form that the step has now, and the tensors that it has from elsewhere."""
        if self.last is None:
            return self._written()
        if self.watch is not None and self.watch.holds():
            return self.last, ()
        calls = None if self.watch is not None else self._calls()
        form = None if calls is None or not calls.is_clear else self.by_calls.get(calls.key)
        return self._written() if form is None or calls is None else (form, calls.captured)

    def _calls(self) -> Calls | None:
        """What the step calls now; None if it fails."""
        is_watched = torch._C._len_torch_dispatch_stack() or torch._C._len_torch_function_stack()
        try:
            with unsaved():
                return alone(calls_of, self.cell, self.records) if is_watched else calls_of(self.cell, self.records)
        except FAULTS as error:
            if not is_fault(error):
                raise
            return None

    def _written(self) -> tuple[Form, Sequence[Tensor]]:
        with LOCK.own:
            self.watch = _watch(self.cell)
            tape = Tape("", [], None)
            try:
                tape = alone(write_down, self.cell, dict(self.where.sizes), self.where.dtype)
                self._check_here(tape)
                form = self._form(tape)
            except Unsupported as error:
                form = Form(self.cell, "", self.where, refusal=str(error))
            if tape.calls is not None and form.text:
                remember(self.by_calls, tape.calls, lambda: form)
            self.last = form
            return form, tape.captured

    def _check_here(self, tape: Tape) -> None:
        """That the step does here, perhaps without gradients, what it does alone."""
        if self.watch is None and tape.calls is not None:
            calls = self._calls()
            if calls is None or calls.key != tape.calls:
                what = f"{self.cell.name} does something else when it is called elsewhere"
                raise Unsupported(what, "", "the same steps with and without gradients")

    def _form(self, tape: Tape) -> Form:
        if tape.text not in self.by_text:
            if len(self.by_text) == MOST:
                what = f"{self.cell.name} changes from call to call, {MOST} times so far,"
                raise Unsupported(what, "", "what changes as a tensor, which is read at every call,")
            digest = sha256(f"{self.where.device}\n{tape.text}".encode()).hexdigest()
            key = f"{self.cell.key}@{digest[:24]}"
            lifted = lift(self.cell, tape.captured, key) if tape.captured else replace(self.cell, key=key)
            self.by_text[tape.text] = BY_KEY[key] = Form(register(lifted), tape.text, self.where)
        return self.by_text[tape.text]


def _watch(cell: Cell) -> Watch | None:
    try:
        return Watch(cell)
    except Changing:
        return None


LOCK = PerProcess(threading.RLock)
"""PyTorch traces one function at a time."""
_FORMS: dict[Hashable, Forms] = {}
BY_KEY: dict[str, Form] = {}
"""The forms by the keys of their cells."""


def forms(cell: Cell, sizes: Mapping[str, int], dtype: torch.dtype, device: str) -> Forms:
    """Those of a cell at some sizes, in some dtype and on some type of device."""
    # What a step makes without saying of what dtype depends on the default.
    key = (cell.key, tuple(sorted(sizes.items())), dtype, device, torch.get_default_dtype())
    if key not in _FORMS:
        with LOCK.own:
            _FORMS.setdefault(key, Forms(cell, Where(dict(sizes), dtype, device)))
    return _FORMS[key]


def why_never(key: str, device: str) -> str:
    """Why a cell does not compile at any size for a type of device, without building; empty if it does.

    `torch.compile` asks it while it traces, when sizes are symbols.
    """
    cell = Cell.of_key(key)
    lack = target_of(device).lack()
    if lack:
        return lack
    if _watch(cell) is None:
        return f"what {cell.name} closes over may change, which a traced program would not see"
    try:
        with LOCK.own:
            lowered(cell, cell.example_sizes, torch.float32)
    except Unsupported as error:
        return str(error)
    return ""


def affine_of(key: str, sizes: tuple[tuple[str, int], ...], dtype: torch.dtype) -> AffineForm | str:
    """The affine form of a cell, or why it has none, for `torch.compile`, which asks while it traces."""
    cell = Cell.of_key(key)
    if _watch(cell) is None:
        return f"what {cell.name} closes over may change, which a traced program would not see"
    with LOCK.own:
        return alone(_affine_or_why, cell, Where(dict(sizes), dtype, ""))


# As by torch.compiler.assume_constant_result, whose import would take seconds: a trace calls it and keeps the answer.
why_never._dynamo_marked_constant = True  # type: ignore[attr-defined]
