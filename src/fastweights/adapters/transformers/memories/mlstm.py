"""The mLSTM of xLSTM."""

from collections.abc import Callable
from functools import cache
from types import ModuleType
from typing import Annotated, Any, NamedTuple

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

    States are `[B, H, K, V]`, `[B, H, K]` and `[B, H, 1]`.
    """
    q, k, v, write, forget = (x.transpose(1, 2) for x in (query, key, value, igate, fgate))
    before = None
    if c_initial is not None and n_initial is not None and m_initial is not None:
        before = _State(*map(at_least_float32, (c_initial, n_initial, m_initial[..., 0])))
    y, last = scan(_cell(self.config.eps), MLSTMInputs(q, k, v, forget, write), before)
    y = y.transpose(1, 2)
    is_inference = "inference" in (mode or self.config.mode)
    returns_state = self.config.return_last_states if return_last_states is None else return_last_states
    return (y, (last.C, last.n, last.m[..., None])) if is_inference or returns_state else y


LARGE = 1 << 16
"""Numbers of a state from which the chunks of xLSTM are faster than a kernel, where the sequence consists of chunks."""


def _fits(self: Any, query: Tensor, key: Tensor, value: Tensor, *_: Any, mode: str | None = None, **__: Any) -> bool:
    is_large = query.shape[-1] * value.shape[-1] >= LARGE and query.shape[2] % self.config.chunk_size == 0
    return is_on_cpu(query) and not is_large and (mode or self.config.mode) in ("train", "inference")


def _trials(module: ModuleType, draw: Draw) -> list[SampleCall]:
    backend = module.xLSTMBackend(module.xLSTMConfig())

    def trial(T: int, states: tuple[Tensor, ...]) -> SampleCall:
        b, H, K, V = 1, 2, 8, 16
        q, k, v = (draw(b, H, T, size) - 0.5 for size in (K, K, V))
        return SampleCall((backend, q, k, v, *(4 * draw(b, H, T) - 2 for _ in range(2)), *states))

    states = (draw(1, 2, 8, 16), draw(1, 2, 8), draw(1, 2, 1))
    return [trial(5, ()), trial(5, states), trial(1, states)]


MLSTM = Replacement(
    "xLSTMBackend.forward",
    "the mLSTM of xLSTM",
    ("self", "query", "key", "value", "igate", "fgate", "c_initial", "n_initial", "m_initial", "return_last_states"),
    frozenset({"mode"}),
    _fits,
    _forward,
    _trials,
)
