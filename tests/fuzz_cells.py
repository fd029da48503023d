"""Random cells like those of users: the kernel of each equals the reference, or its error is one line.

    python tests/fuzz_cells.py --number 1000 --seed 0

Two processes share one new cache of kernels. Both run the same code, three cells of each code, with different numbers,
tensors and modules in their closures: a wrong result shows that a cell used the kernel of another one. The contents of
the closures change in place between two calls. `--only STREAM NUMBER` makes one cell again.
"""

import sys
from collections.abc import Callable
from functools import partial
from random import Random
from typing import Any, NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from fastweights import Cell, scan
from fastweights.signature import Key, Matrix, Rate, Value
from fastweights.testing import scan_checks
from fastweights.testing.samples import Shape
from fuzzing import Verdict, compared, parser, run
from my_memories import Holder, Scaled

TWINS = 3
"""Number of successive cells with the same code."""
SIZES = (1, 2, 3, 4, 5, 7, 8, 9, 16, 17)


class State(NamedTuple):
    W: Matrix


class Inputs(NamedTuple):
    k: Key
    v: Value
    beta: Rate


ANY = """
    {x}.tanh(); {x}.sigmoid(); F.gelu({x}); F.gelu({x}, approximate="tanh"); F.silu({x}); F.softplus({x}); F.elu({x})
    F.mish({x}); F.leaky_relu({x}, 0.1); F.relu({x}); F.hardtanh({x}); F.selu({x}); {x}.sin(); {x}.cos(); torch.erf({x})
    {x}.abs(); {x} ** 2; {x}.tanh() ** 3; {x}.abs().log1p(); {x}.tanh().exp(); {x}.tanh().expm1(); {x}.sigmoid().log()
    {x}.sigmoid().sqrt(); {x}.sigmoid().rsqrt(); {x}.atan(); {x}.asinh(); {x}.clamp(-0.7, 0.9); {x}.clamp(min=-0.2)
    torch.where({x} > 0.1, {x}, -0.3 * {x}); {x}.masked_fill({x} > 0.5, 0.25); {x} / (1 + {x}.abs()); {x} * 0.5 - 0.1
    1 / (1.5 + {x}.square()); {x}.sigmoid() ** 1.5; {x}.flip(0); {x}.roll(1, 0); {x} - {x}.mean(); {x}.softmax(-1)
    {x}.log_softmax(0); {x} / (1 + torch.linalg.vector_norm({x})); F.normalize({x}, dim=0); F.layer_norm({x}, {x}.shape)
    F.rms_norm({x}, {x}.shape); {x}.cumsum(0); {x} - {x}.logsumexp(0, keepdim=True); {x} * ({x} > 0); {x}.detach() * {x}
    {x}.clone().mul_(0.5); {x}.reshape(-1).reshape({x}.shape); {x} / {x}.amax().abs().add(1)
    {x} - {x}.max(-1, keepdim=True).values; torch.cat([{x}[1:], {x}[:1]]); torch.stack([{x}, 2 * {x}]).mean(0)
    ({x} > {x}.mean()).to({x}.dtype) * {x}; torch.vmap(lambda r: r.tanh() + 1)({x}); {x} % 0.7
    torch.func.grad(lambda z: F.softplus(z).square().mean())({x}); written({x}); F.dropout({x}, training=False)
    {x}.sort(0).values; torch.func.grad(lambda z: (z.sin() * z.abs()).sum())({x})
"""
"""Functions from a tensor of any shape to a tensor of that shape."""
PAIRS = """
    {x} + {y}; {x} - 0.5 * {y}; {x}.tanh() * {y}; torch.maximum({x}, {y}); torch.minimum({x}, {y})
    torch.lerp({x}, {y}, 0.3); {x} / (1 + {y} ** 2); torch.where({x} > {y}, {x}, {y} / 2); torch.addcmul({x}, {y}, {x})
    torch.atan2({x}, 1.5 + {y} ** 2); torch.logaddexp({x}, {y}); torch.hypot({x}, 1 + {y})
"""
VALUES = """
    x.v; x.v; {M} @ {K}; {M}.mean(1); {M}.amax(1); {M}.logsumexp(1); {M}.std(1, unbiased=False); {M}[:, 0]; {M}.mv({K})
    torch.einsum("vk,k->v", {M}, {K}); {V} * {S}; F.linear({K}, {M}); {M}.norm(dim=1); {M}.var(1, unbiased=False)
    F.cosine_similarity({M}, {K}[None], dim=1); torch.func.vmap(lambda r: (r * 0.3).sum())({M})
"""
KEYS = "x.k; x.k; {M}.T @ {V}; {M}.sum(0) / 3; {M}[-1]; {V} @ {M}; {K} * {S}; {M}.amin(0)"
MATRICES = """
    state.W; state.W; torch.outer({V}, {K}); {V}[:, None] * {K}; {M} * {S}; torch.tril({M}); {M} + {V}[:, None]
    torch.einsum("v,k->vk", {V}, {K}); {M}.softmax(0); {M} / (1 + {M}.norm()); {M} @ ({M}.T @ {M}).tanh()
    torch.addr({M}, {V}, {K})
"""
SCALARS = """
    x.beta; x.beta; 0.3; {V}.dot({V}).tanh(); {K}.mean(); {M}.mean(); {V}.amax().tanh(); {M}.var(unbiased=False).sqrt()
    {M}.norm().tanh(); {K}.logsumexp(0); {V}.prod().tanh()
"""


def lines(table: str) -> list[str]:
    """The entries of a table."""
    return [line.strip() for line in table.replace("\n", ";").split(";") if line.strip()]


TABLES = {"V": lines(VALUES), "K": lines(KEYS), "M": lines(MATRICES), "S": lines(SCALARS)}
UNARY, BINARY = lines(ANY), lines(PAIRS)


def written(x: Tensor) -> Tensor:
    """A copy of x with its first row halved in place."""
    y = x.clone()
    y[0] = x[0] / 2
    return y


class Net(nn.Module):
    """A module with parameters, a buffer and a number."""

    def __init__(self, size: int, scale: float) -> None:
        super().__init__()
        self.linear = nn.Linear(size, size)
        self.register_buffer("shift", torch.full((size,), scale))
        self.scale = scale

    def forward(self, x: Tensor) -> Tensor:
        return torch.tanh(self.linear(x)) * self.scale + self.shift


class Held(NamedTuple):
    """A value in a closure: the expression that uses it, its trainable tensors, and a change in place."""

    value: Any
    use: str
    leaves: list[Tensor]
    change: Callable[[], Any] | None = None


def with_default(c: float) -> Any:
    class Record(NamedTuple):
        x: Tensor
        scale: float = c

    return Record


def with_constant(c: float) -> Any:
    class Record:
        scale = c

    return Record


def plain(c: float) -> Callable[[Tensor], Tensor]:
    return lambda x: x * c


def _numbers(c: float) -> dict[str, Callable[[], Held]]:
    """Values with a number."""
    holder, table, record, items = Holder(c), {"scale": c}, with_constant(c), [c]
    return {
        "number": lambda: Held(c, "({x} * {held})", []),
        "function": lambda: Held(plain(c), "{held}({x})", []),
        "partial": lambda: Held(partial(torch.mul, other=c), "{held}({x})", []),
        "method": lambda: Held(holder.times, "{held}({x})", [], lambda: setattr(holder, "scale", c + 1)),
        "object": lambda: Held(holder, "({x} * {held}.scale)", [], lambda: setattr(holder, "scale", c - 1)),
        "dictionary": lambda: Held(table.get, '({x} * {held}("scale"))', [], lambda: table.update(scale=c + 2)),
        "list": lambda: Held(items, "({x} * {held}[0])", [], lambda: items.__setitem__(0, c / 2)),
        "property": lambda: Held(Scaled(c), "({x} * {held}.twice)", []),
        "default": lambda: Held(with_default(c), "({x} * {held}({x}).scale)", []),
        "constant": lambda: Held(record, "({x} + {held}.scale)", [], lambda: setattr(record, "scale", -c)),
    }


def _tensors(size: int, c: float, dtype: torch.dtype) -> dict[str, Callable[[], Held]]:
    """Values with tensors for vectors of a size."""
    vector, matrix = c * torch.randn(size, dtype=dtype), torch.randn(size, size, dtype=dtype) / size
    mask, net = torch.rand(size) > 0.5, Net(size, c).to(dtype)
    parameter = nn.Parameter(vector)
    flip = partial(mask.logical_not_)
    return {
        "tensor": lambda: Held(vector, "({x} + {held})", [], lambda: vector.mul_(1.5)),
        "parameter": lambda: Held(parameter, "({x} * {held})", [parameter], lambda: parameter.data.add_(0.3)),
        "matrix": lambda: Held(matrix.mv, "{held}({x})", [], lambda: matrix.neg_()),
        "mask": lambda: Held(mask, "torch.where({held}, {x}, -{x})", [], flip),
        "module": lambda: Held(net, "{held}({x})", [*net.parameters()], lambda: net.linear.weight.data.mul_(-1)),
        "buffer": lambda: Held(net, "{held}({x})", [*net.parameters()], lambda: net.shift.add_(0.5)),
        "scaled module": lambda: Held(net, "{held}({x})", [], lambda: setattr(net, "scale", c + 1)),
        "linear": lambda: Held(net.linear, "{held}({x})", [*net.linear.parameters()]),
        "pair": lambda: Held((vector, c), "({x} * {held}[0] - {held}[1])", []),
        "partial of a tensor": lambda: Held(partial(torch.mv, matrix), "{held}({x})", [], lambda: matrix.mul_(2)),
        "table": lambda: Held({"m": matrix}, '({held}["m"] @ {x})', [], lambda: matrix.t_()),
    }


KINDS = [*_numbers(1.0), *_tensors(1, 1.0, torch.float32)]


class Code:
    """Random code of a step. Equal seeds give equal code."""

    def __init__(self, random: Random) -> None:
        self.random = random
        self.held = [random.choice(KINDS) for _ in range(random.randint(1, 3))]
        self.lines: list[tuple[str, str]] = []
        depth = random.randint(1, 3)
        y = f"{self.expression('M', depth)} @ {self.expression('K', 1)}"
        for n in range(len(self.held)):
            self.lines.append((f"u{n} = ", f"h{n} {self.expression('V', depth - 1)}"))
            y += f" + u{n}"
        self.lines.append(("y = ", y))
        self.lines.append(("W = ", f"{self.expression('M', 1)}.tanh() * {self.expression('S', 1)} + 0.5 * state.W"))

    def expression(self, kind: str, depth: int) -> str:
        """The name of a "V"alue, "K"ey, "M"atrix or "S"calar."""
        is_deep = depth > 0 and kind != "S" and self.random.random() < 0.55
        table = (BINARY if self.random.random() < 0.3 else UNARY) if is_deep else TABLES[kind]
        line = self.random.choice(table if depth > 0 else [e for e in table if "{" not in e])
        kinds = {"x": kind, "y": kind, "V": "V", "K": "K", "M": "M", "S": "S"}
        arguments = {name: self.expression(of, depth - 1) for name, of in kinds.items() if f"{{{name}}}" in line}
        self.lines.append((f"a{len(self.lines)} = ", line.format(**arguments)))
        return f"a{len(self.lines) - 1}"


def source(code: Code, uses: list[str]) -> str:
    """Python source of a function that makes the step from the values in its closure."""
    names, body = [f"h{n}" for n in range(len(code.held))], []
    for target, value in code.lines:
        held, _, x = value.partition(" ")
        body.append(f"        {target}{uses[names.index(held)].format(x=x, held=held) if held in names else value}")
    head = f"def make({', '.join(names)}):\n    def step(state: State, x: Inputs) -> tuple[State, Value]:\n"
    return head + "\n".join(body) + "\n        return State(W), y\n    return step\n"


class RandomCell(NamedTuple):
    """A random cell with its arguments and its source."""

    cell: Cell
    arguments: Any
    leaves: list[Tensor]
    changes: list[Callable[[], Any]]
    dtype: torch.dtype
    text: str

    def outcome(self, arguments: Any, backend: str) -> list[Tensor]:
        """Results, and gradients of all tensors that require them."""
        a = scan_checks.with_gradients(arguments)
        y, state = scan(self.cell, *a, backend=backend)
        leaves = [*scan_checks.leaves(a).values(), *{id(x): x for x in self.leaves}.values()]
        loss = (y * torch.arange(y.numel(), dtype=y.dtype).reshape(y.shape).cos()).sum() + state.W.sin().sum()
        return [y.detach(), state.W.detach(), *torch.autograd.grad(loss, leaves, materialize_grads=True)]


def make(seed: int, stream: int, number: int) -> RandomCell:
    """Cell `number` of a stream: all streams have the same code, each with different values in the closure."""
    code, values = Code(Random(f"{seed} {number // TWINS}")), Random(f"{seed} {stream} {number}")
    torch.manual_seed(values.randrange(1 << 30))
    dtype = values.choice([torch.float64] * 3 + [torch.float32])
    B, T, H = (values.randint(1, most) for most in (2, 3, 2))
    same = Random(f"{seed} {number // TWINS} sizes")
    shape = Shape(B, T, H, same.choice(SIZES), same.choice(SIZES))
    held = []
    for kind in code.held:
        c = values.choice([0.5, -0.7, 1.0, 1.3, 2.0, values.uniform(-2, 2)])
        held.append({**_numbers(c), **_tensors(shape.V, c, dtype)}[kind]())
    text = source(code, [h.use for h in held])
    namespace = {"torch": torch, "F": F, "State": State, "Inputs": Inputs, "Value": Value, "written": written}
    exec(compile(text, "<a user's cell>", "exec"), namespace)
    cell = Cell.from_function(namespace["make"](*(h.value for h in held)))
    changes = [h.change for h in held if h.change]
    leaves = [x for h in held for x in h.leaves]
    return RandomCell(
        cell, scan_checks.arguments(cell, shape, dtype), leaves, changes, dtype, f"# {shape}, {dtype}\n{text}"
    )


def verdict_on(seed: int, stream: int, number: int) -> tuple[Verdict, str]:
    """The verdict on a cell, before and after a change of the values in its closure."""
    made = make(seed, stream, number)
    verdict = compared(made, "compiled")
    with torch.no_grad():
        for change in made.changes if verdict.kind == "equal" else []:
            change()
    if made.changes and verdict.kind == "equal":
        after = compared(made, "compiled")
        verdict = verdict if after.kind == "void" else after._replace(why=after.why and f"{after.why} after a change")
    return verdict, made.text


if __name__ == "__main__":
    sys.exit(run(verdict_on, parser(__doc__).parse_args()))
