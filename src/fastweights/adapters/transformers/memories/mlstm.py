"""The mLSTM of xLSTM."""

from collections.abc import Callable, Sequence
from functools import cache
from math import isqrt
from types import ModuleType
from typing import Annotated, Any, NamedTuple

import torch
from torch import Tensor

from fastweights.adapters.transformers.replacement import Draw, Replacement, SampleCall, is_on_cpu
from fastweights.cell import Cell
from fastweights.cells.mlstm import MLSTMInputs, MLSTMState, mlstm
from fastweights.core.autocast import at_least_float32
from fastweights.core.family import family
from fastweights.core.traced_constant import traced_constant
from fastweights.dispatch import scan
from fastweights.signature import Accumulator, TensorSpec, Value


class _State(NamedTuple):
    C: Annotated[Tensor, TensorSpec("K V", "memory")]
    n: Accumulator
    m: Annotated[Tensor, TensorSpec("", "memory")]


@family
def _step(eps: float) -> Callable[..., Any]:
    """The step of `mlstm` in the layout of xLSTM: states have keys before values, and queries are divided by K^0.5."""

    def step(state: _State, x: MLSTMInputs) -> tuple[_State, Value]:
        q = x.q * x.q.shape[-1] ** -0.5
        after, y = mlstm(MLSTMState(state.C.mT, state.n, state.m), x._replace(q=q), eps)
        return _State(after.W.mT, after.z, after.m), y

    return step


@traced_constant
@cache
def _cell(eps: float) -> Cell:
    return Cell.from_function(_step(eps))


NAMES = ("query", "key", "value", "igate", "fgate")


def _forward(
    self: Any,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    igate: Tensor,
    fgate: Tensor,
    c_initial: Tensor | None = None,
    n_initial: Tensor | None = None,
    m_initial: Tensor | None = None,
    return_last_states: bool | None = None,
    mode: str | None = None,
) -> Tensor | tuple[Tensor, tuple[Tensor, Tensor, Tensor]]:
    """Any number of time steps T: query and key `[B, H, T, K]`, value `[B, H, T, V]`, gates `[B, H, T]`.

    States are `[B, H, K, V]`, `[B, H, K]` and `[B, H, 1]`. With large states, xLSTM reads the whole chunks, and the
    kernel the steps after them.
    """
    inputs, before = (query, key, value, igate, fgate), (c_initial, n_initial, m_initial)
    is_inference = "inference" in (mode or self.config.mode)
    whole = query.shape[2] // self.config.chunk_size * self.config.chunk_size
    if is_inference and whole and _is_large(query, value):
        start = {name: x[:, :, :whole] for name, x in zip(NAMES, inputs, strict=True)}
        first, between = self._inference_fn(**start, c_initial=c_initial, n_initial=n_initial, m_initial=m_initial)
        y, last = _run(self.config.eps, [x[:, :, whole:] for x in inputs], between)
        return torch.cat((first, y), 2), last
    y, last = _run(self.config.eps, inputs, before)
    returns_state = self.config.return_last_states if return_last_states is None else return_last_states
    return (y, last) if is_inference or returns_state else y


def _run(
    eps: float, inputs: Sequence[Tensor], before: tuple[Tensor | None, Tensor | None, Tensor | None]
) -> tuple[Tensor, tuple[Tensor, Tensor, Tensor]]:
    """Outputs and last states of the kernel, for tensors in the layout of `_forward`."""
    q, k, v, write, forget = (x.transpose(1, 2) for x in inputs)
    c, n, m = before
    state = None
    if c is not None and n is not None and m is not None:
        state = _State(*map(at_least_float32, (c, n, m[..., 0])))
    y, last = scan(_cell(eps), MLSTMInputs(q, k, v, forget, write), state)
    return y.transpose(1, 2), (last.C, last.n, last.m[..., None])


LARGE = 1 << 16
"""Numbers of a state from which the chunks of xLSTM are faster than a kernel."""


def _is_large(query: Tensor, value: Tensor) -> bool:
    return query.shape[-1] * value.shape[-1] >= LARGE


def _fits(self: Any, query: Tensor, key: Tensor, value: Tensor, *_: Any, mode: str | None = None, **__: Any) -> bool:
    is_fast = _is_large(query, value) and query.shape[2] % self.config.chunk_size == 0
    return is_on_cpu(query) and not is_fast and (mode or self.config.mode) in ("train", "inference")


def _trials(module: ModuleType, draw: Draw) -> list[SampleCall]:
    backend = module.xLSTMBackend(module.xLSTMConfig())

    def trial(T: int, states: tuple[Tensor, ...], K: int = 8, V: int = 16) -> SampleCall:
        b, H = 1, 2
        q, k, v = (draw(b, H, T, size) - 0.5 for size in (K, K, V))
        return SampleCall((backend, q, k, v, *(4 * draw(b, H, T) - 2 for _ in range(2)), *states))

    states = (draw(1, 2, 8, 16), draw(1, 2, 8), draw(1, 2, 1))
    side = isqrt(LARGE)
    large = trial(backend.config.chunk_size + 3, (), side, side)
    return [trial(5, ()), trial(5, states), trial(1, states), large]


MLSTM = Replacement(
    "xLSTMBackend.forward",
    "the mLSTM of xLSTM",
    ("self", *NAMES, "c_initial", "n_initial", "m_initial", "return_last_states"),
    frozenset({"mode"}),
    _fits,
    _forward,
    _trials,
)
