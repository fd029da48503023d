"""Shares of a training step by its parts, from the CPU events of `torch.profiler`.

A range around every call of a module marks the operations inside. An operation of the backward pass belongs to the
module of its forward operation, which has the same sequence number.
"""

from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from torch import nn
from torch.profiler import ProfilerActivity, profile, record_function

from fastweights.layers.wrappers.short_convolution import WithShortConvolution
from fastweights.models.adaptive_softmax import AdaptiveSoftmax
from fastweights.models.dropout import Dropout

MATRICES, MEMORY, CLIPPING = "matrix products", "fast weights: forward and backward pass", "gradient clipping"
OPERATIONS = {
    **dict.fromkeys(("aten::mm", "aten::addmm", "aten::addmm_", "aten::bmm", "aten::baddbmm"), MATRICES),
    **dict.fromkeys(("aten::mkldnn_rnn_layer", "aten::mkldnn_rnn_layer_backward"), "LSTM of PyTorch"),
    **dict.fromkeys(("_Direct", "_DirectBackward"), MEMORY),
    **dict.fromkeys(("aten::_foreach_norm", "aten::linalg_vector_norm", "aten::_foreach_mul_"), CLIPPING),
}
"""Operations that are parts, whatever module calls them."""
MODULES: dict[type[nn.Module], str] = {
    Dropout: "dropout",
    nn.LayerNorm: "LayerNorm",
    nn.ReLU: "ReLU",
    WithShortConvolution: "short convolution",
    AdaptiveSoftmax: "adaptive softmax, without its matrix products",
}
"""Modules whose other operations are a part, with their subclasses."""
OTHER = "other operations of modules: residual sums, copies, loss, Python"
REST = "autograd and Python between modules"
OPTIMISER = "optimiser"
STEP, MARK = "one training step", "part: "


def shares(step: Callable[[], Any], model: nn.Module, steps: int) -> dict[str, float]:
    """The share of every part of a training step."""
    with _marked(model), profile(activities=[ProfilerActivity.CPU]) as measured:
        for _ in range(steps):
            with record_function(STEP):
                step()
    times = _times([event for event in measured.events() if _root(event).name == STEP])
    total = sum(times.values())
    return {part: own / total for part, own in times.items()}


@contextmanager
def _marked(model: nn.Module) -> Iterator[None]:
    """Records a range around every call of a module, named by its part."""
    calls = [(module, _call_of(module), _part_of(module)) for module in model.modules()]
    for module, name, part in calls:
        setattr(module, name, record_function(MARK + part)(getattr(module, name)))
    try:
        yield
    finally:
        for module, name, _ in calls:
            delattr(module, name)


def _call_of(module: nn.Module) -> str:
    """The method by which a model calls a module."""
    return "nll" if isinstance(module, AdaptiveSoftmax) else "forward"


def _part_of(module: nn.Module) -> str:
    return next((name for kind, name in MODULES.items() if isinstance(module, kind)), OTHER)


def _times(events: list[Any]) -> Counter[str]:
    """Time of every part, without the time of the events inside."""
    ahead = [event for event in events if not any(map(_is_backward, _ancestors(event)))]
    forward = {event.sequence_nr: _part(event, {}) for event in ahead if event.sequence_nr >= 0}
    times: Counter[str] = Counter()
    for event in events:
        times[_part(event, forward)] += event.self_cpu_time_total
    return times


def _part(event: Any, forward: dict[int, str]) -> str:
    """The part of an event: the optimiser, that of its operation, or that of its module."""
    around = list(_ancestors(event))
    if any(one.name.startswith("Optimizer.") for one in around):
        return OPTIMISER
    if event.name in OPERATIONS:
        return OPERATIONS[event.name]
    marks = (one.name.removeprefix(MARK) for one in around if one.name.startswith(MARK))
    behind = (forward.get(one.sequence_nr, REST) for one in around[1:] if _is_backward(one))
    part = next(marks, None) or next(behind, REST)
    return OTHER if part in OPERATIONS.values() else part


def _is_backward(event: Any) -> bool:
    return event.name.startswith("autograd::engine::evaluate_function")


def _ancestors(event: Any) -> Iterator[Any]:
    """The event, and all events around it."""
    while event is not None:
        yield event
        event = event.cpu_parent


def _root(event: Any) -> Any:
    *_, last = _ancestors(event)
    return last
