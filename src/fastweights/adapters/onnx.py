"""Layers and language models as ONNX programs, with their states in and out.

A memory that ONNX has an operator for is one node, `LinearAttention`; every other one is a `Scan` over its step.
"""

from collections.abc import Callable, Iterator, Sequence
from importlib.util import find_spec
from itertools import accumulate
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.export import Dim, ExportedProgram
from torch.fx.experimental.proxy_tensor import make_fx
from torch.nn.functional import pad
from torch.overrides import TorchFunctionMode
from torch.utils._pytree import tree_flatten_with_path, tree_leaves, tree_map

from fastweights.cell import Cell
from fastweights.core.errors import InputError, require
from fastweights.dispatch import scan  # noqa: F401 (registers the operation)

__all__ = ["export", "open_session"]

OPSET = 27
"""The first one with `LinearAttention`."""
OLDEST = 18
"""The first one that torch writes."""
EXTRA = "Try pip install 'fastweights[onnx]'."
SCAN = torch.ops.fastweights.scan.default


def export(module: nn.Module, x: Tensor, file: str | Path, opset: int = OPSET) -> None:
    """Exports a layer or a language model to ONNX, for any batch size and any number of time steps.

    The program maps `x` and the previous state to `y` and the next state: `state_W` and `new_state_W` for a state with
    the field W. A sequence begins with `module.initial_state`, which is zeros for most layers.

    Args:
        module: Module in evaluation mode, called as `y, state = module(x, state)`, with `initial_state`.
        x: Example input: `[B, T, D]` for a layer, int `[B, T]` for a language model, with B and T of at least 2.
        file: Path of the ONNX file.
        opset: Version of the ONNX operators. Before 27 there is no `LinearAttention`, and every memory is a `Scan`.

    Raises:
        InputError: onnx or onnxscript is not installed, or an argument is invalid.
    """
    for package in ("onnx", "onnxscript"):
        require(find_spec(package) is not None, package, "installed", "no such module", EXTRA)
    require(not module.training, "module", "in evaluation mode", "one in training", "Call module.eval() first.")
    _require_opset(opset)
    whole = "a module that takes and returns a state of tensors, and has initial_state"
    require(hasattr(module, "initial_state"), "module", whole, type(module).__name__)
    require(
        x.ndim > 1 and min(x.shape[:2]) > 1, "x", "an example [B, T, ...] with B and T of at least 2", list(x.shape)
    )
    with torch.no_grad():
        state = module.initial_state(len(x))  # type: ignore[operator]
        require(all(isinstance(leaf, Tensor) for leaf in tree_leaves(state)), "module", whole, type(module).__name__)
        program = _without_scans(_program(module, x, state), opset)
        names = [f"state_{name}" for name in _names(state)]
        inputs, outputs = ["x", *names], ["y", *(f"new_{name}" for name in names)]
        # torch's converter knows no version behind 25: what is written for an old one, `_declare` calls by the new one.
        options: dict[str, Any] = {"opset_version": OLDEST, "input_names": inputs, "output_names": outputs}
        try:
            written = torch.onnx.export(program, dynamo=True, verbose=False, **options)
        except torch.onnx.OnnxExporterError as error:
            raise InputError(f"module must be a module with operations that ONNX has, got {_cause(error)}") from error
        assert written is not None
        _declare(written.model, opset)
        _write(written, Path(file))


def _write(program: Any, path: Path) -> None:
    """Writes a program, and the file of its weights where they are large: a symbolic link is replaced, not followed."""
    with TemporaryDirectory(prefix=f".{path.name}.", dir=path.parent) as folder:
        program.save(Path(folder, path.name))
        for part in Path(folder).iterdir():
            part.replace(path.parent / part.name)


def open_session(file: str | Path) -> Any:
    """Opens an ONNX program with onnxruntime, on the CPU.

    Args:
        file: Path of the ONNX file.

    Returns:
        The `onnxruntime.InferenceSession`.

    Raises:
        InputError: onnxruntime is not installed, or does not support the program.
    """
    require(find_spec("onnxruntime") is not None, "onnxruntime", "installed", "no such module", EXTRA)
    import onnxruntime
    from onnxruntime.capi import onnxruntime_pybind11_state as errors

    # They have no base of their own.
    kinds = tuple(kind for kind in vars(errors).values() if isinstance(kind, type) and issubclass(kind, Exception))
    try:
        return onnxruntime.InferenceSession(str(file), providers=["CPUExecutionProvider"])
    except kinds as error:
        got, why = onnxruntime.__version__, " ".join(str(error).replace(str(file), "it").split())[:200]
        remedy = f"It says: {why}. Export with a smaller opset, or take a newer onnxruntime."
        raise InputError(f"onnxruntime must be a version that runs {file}, got {got}. {remedy}") from None


def _require_opset(opset: int) -> None:
    from onnx.defs import onnx_opset_version

    newest = onnx_opset_version()
    require(OLDEST <= opset <= newest, "opset", f"from {OLDEST} to {newest}, which this onnx knows", opset)


def _cause(error: BaseException) -> str:
    """The first error of a chain, in one line."""
    while error.__cause__ is not None:
        error = error.__cause__
    return f"{type(error).__name__}: {' '.join(str(error).split())[:200]}"


def _declare(model: Any, opset: int) -> None:
    """Declares the version of the operators of a program.

    What operators a program has from before mean the same in all that came since.
    """
    for part in (model, *model.functions.values()):
        part.opset_imports[""] = opset


def _program(module: nn.Module, x: Tensor, state: Any) -> ExportedProgram:
    batch, time = Dim("batch", min=1, max=1 << 16), Dim("time", min=1, max=1 << 24)
    shapes = ({0: batch, 1: time}, tree_map(lambda leaf: {0: batch}, state))
    return torch.export.export(module, (x, state), dynamic_shapes=shapes)


def _names(state: Any) -> Iterator[str]:
    """Names of the leaves of a state by fields and indices: W, or 0_W."""
    for path, _ in tree_flatten_with_path(state)[0]:
        yield "_".join(str(getattr(key, "name", getattr(key, "idx", getattr(key, "key", key)))) for key in path)


class Call(NamedTuple):
    """Arguments of a scan, with mapped inputs: records of `[B, T, H, ...]`, `[B, H, ...]` and `[H, ...]`."""

    cell: Cell
    inputs: Any
    state: Any
    params: Any
    initial_state: Any
    reset: Tensor | None


def _call(
    cell: str,
    tensors: Sequence[Tensor],
    initial_state: Sequence[Tensor],
    reset: Tensor | None,
    lengths: Any,
    keep: bool,
) -> Call:
    """The arguments of `fastweights::scan`; a program has no lengths."""
    outer = Cell.of_key(cell)
    m, n = len(outer.slots["Inputs"]), len(outer.slots["State"])
    inner, prepare = outer.inner_cell or (outer, lambda x: x)
    inputs, state, params = prepare(outer.Inputs(*tensors[:m])), inner.State(*tensors[m : m + n]), tensors[m + n :]
    return Call(
        inner,
        inputs,
        state,
        inner.Params(*params) if inner.Params else None,
        inner.State(*initial_state) if initial_state else None,
        reset,
    )


def _without_scans(program: ExportedProgram, opset: int) -> ExportedProgram:
    """The program in operations that ONNX supports."""
    steps = [_step(node) for node in program.graph.nodes if node.target is SCAN]
    later = iter(steps)

    def run(*arguments: Any) -> list[Tensor]:
        step, call = next(later), _call(*arguments)
        attention = _attention(call) if opset >= OPSET else None
        y, state = _scan(call, step) if attention is None else _attend(call, attention)
        return [y, *state, y.new_empty(0)]

    return program.run_decompositions({SCAN: run})


def _step(node: torch.fx.Node) -> torch.fx.GraphModule:
    """The step of a node for all heads of all members, written down before the program around it is: tracing nests ill.

    It takes state, inputs, reset, params and initial state, one after the other; the batch may be of any size.
    """
    values = tree_map(lambda x: x.meta["val"] if isinstance(x, torch.fx.Node) else x, node.args)
    with values[1][0].fake_mode:
        call = _call(*values)

    def step(*flat: Tensor) -> list[Tensor]:
        state, x, reset, params, initial_state = _unflatten(call, flat)
        if reset is not None:
            state = type(state)(*(_chosen(reset, start, old) for start, old in zip(initial_state, state, strict=True)))
        arguments = (state, x) if params is None else (state, x, params)
        axes = (0, 0, None)[: len(arguments)]
        with PaddedConcatenation():
            after, y = torch.vmap(torch.vmap(call.cell.step), in_dims=axes)(*arguments)
        # A scan hands out no tensor that it was given, and none twice: y may be the state.
        return [*(leaf.clone() for leaf in after), y * 1]

    x = type(call.inputs)(*(value[:, 0] for value in call.inputs))
    flat = _flatten(call._replace(inputs=x, reset=None if call.reset is None else call.reset[:, 0]))
    like = [torch.zeros([3 if isinstance(n, torch.SymInt) else n for n in v.shape], dtype=v.dtype) for v in flat]
    # Some products are mapped over batch and heads with operations in place, which no program has.
    return make_fx(torch.func.functionalize(step), tracing_mode="symbolic")(*like)


class PaddedConcatenation(TorchFunctionMode):
    """Puts tensors together by padding and adding: PyTorch 2.13 maps `cat` over one batch of any size, but not two."""

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        return (_cat if func in CATS else func)(*args, **(kwargs or {}))


CATS = (torch.cat, torch.concat, torch.concatenate)


def _cat(tensors: Sequence[Tensor], dim: int = 0) -> Tensor:
    behind = tensors[0].ndim - 1 - dim % tensors[0].ndim
    ends = list(accumulate(x.shape[dim] for x in tensors))
    return sum(
        pad(x, (0, 0) * behind + (end - x.shape[dim], ends[-1] - end)) for x, end in zip(tensors, ends, strict=True)
    )  # type: ignore[return-value]


def _flatten(call: Call) -> list[Tensor]:
    reset = () if call.reset is None else (call.reset,)
    return [*call.state, *call.inputs, *reset, *(call.params or ()), *(call.initial_state or ())]


def _unflatten(call: Call, flat: Sequence[Tensor]) -> tuple[Any, Any, Tensor | None, Any, Any]:
    rest = iter(flat)
    state, x = (type(record)(*(next(rest) for _ in record)) for record in (call.state, call.inputs))
    reset = None if call.reset is None else next(rest)
    params, initial_state = (
        None if record is None else type(record)(*(next(rest) for _ in record))
        for record in (call.params, call.initial_state)
    )
    return state, x, reset, params, initial_state


def _chosen(reset: Tensor, start: Tensor, old: Tensor) -> Tensor:
    return torch.where(reset.reshape(-1, *(1 for _ in old.shape[1:])), start, old)


def _scan(call: Call, step: torch.fx.GraphModule) -> tuple[Tensor, Sequence[Tensor]]:
    """The memory as a loop over time. No two tensors of a scan may share memory, as parts of one map do."""
    marks = () if call.reset is None else (call.reset,)
    state, moving, fixed = (
        [x.clone() for x in tensors]
        for tensors in (
            call.state,
            [x.movedim(1, 0) for x in (*call.inputs, *marks)],
            (*(call.params or ()), *(call.initial_state or ())),
        )
    )
    *state, y = torch.ops.higher_order.scan(step, state, moving, tuple(fixed))
    return y.movedim(0, 1), state


class Attention(NamedTuple):
    """Arguments of `LinearAttention`: its rule and `[B, T, H, ...]`; decay in [0, 1], per head or per feature."""

    rule: str
    q: Tensor
    k: Tensor
    v: Tensor
    decay: Tensor | None = None
    beta: Tensor | None = None


ATTENTIONS: dict[str, Callable[[Any], Attention]] = {
    "sum": lambda x: Attention("linear", x.q, x.k, x.v),
    "delta": lambda x: Attention("delta", x.q, x.k, x.v, None, x.beta),
    "gated-delta": lambda x: Attention("gated_delta", x.q, x.k, x.v, x.decay, x.beta),
    "kda": lambda x: Attention("gated_delta", x.q, x.k, x.v, x.decay, x.beta),
    "gla": lambda x: Attention("gated", x.q, x.k, x.v, x.decay),
    "hgrn2": lambda x: Attention("gated", x.q, 1 - x.decay, x.v, x.decay),
    "hebbian": lambda x: Attention("gated", x.q, x.k, x.eta[..., None] * x.v, x.decay),
    "gated": lambda x: Attention("gated", x.q, x.k, x.beta[..., None] * x.v, 1 - x.beta),
}
"""The cells that it computes."""


def _attention(call: Call) -> Attention | None:
    """The memory as `LinearAttention`, if it is one."""
    if call.reset is not None or call.inputs[0].dtype == torch.float64:
        return None
    if call.cell.name in ATTENTIONS and call.cell is Cell.from_name(call.cell.name):
        return ATTENTIONS[call.cell.name](call.inputs)
    return None


def _attend(call: Call, attention: Attention) -> tuple[Tensor, Sequence[Tensor]]:
    """One node; its state has keys before values, its heads lie side by side."""
    rule, q, k, v, decay, beta = attention
    num_heads, V = v.shape[-2:]
    packed = [None if x is None else x.flatten(2) if x.ndim > 3 else x for x in (q, k, v, decay, beta)]
    past, log_decay = call.state.W.mT, None if packed[3] is None else packed[3].log()
    y, last = torch.onnx.ops.symbolic_multi_out(
        "LinearAttention",
        [*packed[:3], past, log_decay, packed[4]],
        {"q_num_heads": num_heads, "kv_num_heads": num_heads, "scale": 1.0, "update_rule": rule},
        dtypes=(v.dtype, past.dtype),
        shapes=((*v.shape[:2], num_heads * V), past.shape),
        version=OPSET,
    )
    return y.unflatten(-1, (num_heads, V)), (last.mT,)
