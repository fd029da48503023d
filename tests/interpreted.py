"""Runs checks of the Triton kernels in a separate process with Triton's interpreter.

    TRITON_INTERPRET=1 python tests/interpreted.py CHECK CELL ... [-- CHECK CELL ...]

prints a line `CELL ok` or `CELL` with the error for every cell. The interpreter computes one number at a time, so
the shapes are tiny: the checks test the kernel code, not a GPU. The kernels save the state every second step.
"""

import os
import sys
from collections.abc import Callable
from dataclasses import replace
from importlib import import_module
from itertools import accumulate, groupby, product
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import torch
import triton.language as tl
import triton.runtime.interpreter as interpreter
from torch import Tensor
from triton.language.extra import libdevice

from fastweights import Cell, scan
from fastweights.backends.chunkwise import all_steps
from fastweights.backends.chunkwise import chunks as _chunks
from fastweights.compiler import op
from fastweights.compiler.ir.functions import FUNCTIONS
from fastweights.compiler.targets import target
from fastweights.compiler.targets.triton import functions, kernel, source
from fastweights.testing import scan_checks
from fastweights.testing.samples import Shape, in_role, sample_state

SMALL = Shape(1, 3, 1, 3, 2)


def interpret() -> None:
    """Makes Triton's interpreter run kernels on CPU tensors."""
    patch = interpreter._patch_lang_tensor

    def patched(tensor, scope):
        patch(tensor, scope)
        # Triton 3.6 converts an array of one number to an integer, which numpy 2.4 no longer does.
        scope.set_attr(tensor, "__index__", lambda self: int(self.handle.data.item()))

    interpreter._patch_lang_tensor = patched
    splat = interpreter.InterpreterBuilder.create_splat

    def create_splat(self, kind, scalar):
        """A splat that keeps comparisons bool: Triton spreads them as int32, which 3.9 rejects as a mask."""
        tile = splat(self, kind, scalar)
        tile.data = tile.data.astype(bool) if scalar.data.dtype == bool else tile.data
        return tile

    interpreter.InterpreterBuilder.create_splat = create_splat
    cast, dot = interpreter.InterpreterBuilder.cast_impl, interpreter.InterpreterBuilder.create_dot

    def cast_impl(self, tile, kind):
        """A conversion that rounds to bfloat16, where Triton cuts digits off."""
        if kind.scalar != tl.bfloat16:
            return cast(self, widened(tile), kind)
        bits = torch.from_numpy(widened(tile).data).to(torch.bfloat16).view(torch.uint16).numpy()
        return interpreter.TensorHandle(bits, tl.bfloat16)

    def create_dot(self, x, y, *others):
        """A product of bfloat16, which Triton stores as integers and would multiply as such."""
        return dot(self, widened(x), widened(y), *others)

    interpreter.InterpreterBuilder.cast_impl = cast_impl
    interpreter.InterpreterBuilder.create_dot = create_dot
    interpreter.ScanOps.generic_scan = scan_by_slices
    for name in (*functions.OF_LIBRARY, *functions.OF_LIBRARY_TWO, "nearbyint"):
        setattr(libdevice, name, computed_by_torch(getattr(torch, {"nearbyint": "round"}.get(name, name))))
    target.TARGETS["cpu"] = "triton"
    op.chunk_on_gpu = kernel.chunk_on_gpu = lambda size, T, heads: min(T, 2)
    kernel.LONG, kernel.BLOCK, source.BLOCK = 3, 2, 2
    # Uninitialised memory holds NaN.
    torch.use_deterministic_algorithms(True)
    assert torch.empty(9).isnan().all()


def widened(tile: Any) -> Any:
    """A tile of bfloat16 in float32. Other tiles stay as they are."""
    if tile.dtype.scalar != tl.bfloat16:
        return tile
    return interpreter.TensorHandle((tile.data.astype(np.uint32) << 16).view(np.float32), tl.float32)


def scan_by_slices(self: Any, tiles: list[Any]) -> list[Any]:
    """Combines whole slices along the axis of a scan. Triton combines number by number, which takes minutes."""
    slices = [
        tuple(self.to_tensor(np.take(x.handle.data, [i], self.axis), x.dtype) for x in tiles)
        for i in range(tiles[0].shape[self.axis])
    ]
    results = list(accumulate(slices, lambda before, new: self.combine_fn.fn(*before, *new)))
    return [
        self.to_tensor(np.concatenate([x[n].handle.data for x in results], self.axis), tile.dtype)
        for n, tile in enumerate(tiles)
    ]


def computed_by_torch(function: Callable[..., Tensor]) -> Callable[..., Any]:
    """A function of a GPU library, which the interpreter lacks, computed by torch."""

    def run(*tiles: Any) -> Any:
        result = function(*(torch.from_numpy(np.atleast_1d(tile.handle.data)) for tile in tiles)).numpy()
        return tl.core.tensor(interpreter.TensorHandle(result, tiles[0].handle.dtype), tiles[0].type)

    return run


EDGES = (0.0, -0.0, 0.1, -0.1, 0.3, 1.0, -1.0, 2.5, -3.0, 7.0, 85.0, -88.5, 1e-10, 1e10, float("inf"), -float("inf"))
KERNEL = """
@triton.jit
def kernel(a, b, c, out, N: tl.constexpr):
    at = tl.arange(0, N)
    x, y, z = tl.load(a + at), tl.load(b + at), tl.load(c + at)
    tl.store(out + at, {result})
"""


def function_equals_torch(name: str) -> None:
    """All edge cases and all pairs of them."""
    function, arguments = FUNCTIONS[name], ["x", "y", "z"]
    arguments[: function.masks] = [f"({argument} > 0.5)" for argument in arguments[: function.masks]]
    code = functions.CODE[name].format(*arguments)
    text = KERNEL.format(result=f"tl.where({code}, 1.0, 0.0)" if function.is_mask else code)
    with TemporaryDirectory() as folder:
        (Path(folder) / f"of_{name}.py").write_text(source.HEAD + text)
        sys.path.insert(0, folder)
        kernel_of = import_module(f"of_{name}").kernel
        for dtype in (torch.float32, torch.float64):
            edges = torch.tensor(EDGES, dtype=dtype)
            inputs = edges.repeat_interleave(16), edges.repeat(16), edges.roll(5).repeat(16)
            out = torch.zeros(256, dtype=dtype)
            kernel_of[(1,)](*inputs, out, N=256)
            numbers = [x > 0.5 if n < function.masks else x for n, x in enumerate(inputs)]
            want = function.meaning(*numbers[: function.arity]).to(dtype)
            torch.testing.assert_close(out, want, equal_nan=True)


def sample_arguments(
    cell: Cell, shape: Shape, dtype: torch.dtype, lengths: torch.Tensor | None = None
) -> scan_checks.Arguments:
    """A sample with a state, resets and the initial state that resets restore."""
    initial = type(sample_state(cell, shape))(*(x[0] for x in sample_state(cell, shape, seed=5)))
    a = scan_checks.arguments(cell, shape)._replace(initial_state=initial, lengths=lengths)
    if shape.T > 2:
        a.reset[0, 2] = True
    return a.to(dtype)


def compare(
    cell: Cell,
    shape: Shape,
    dtype: torch.dtype,
    lengths: torch.Tensor | None = None,
    backend: str = "compiled",
    resets_to_zeros: bool = False,
) -> None:
    """Results and all gradients, also of the final state, equal those of the reference in float64."""
    a = sample_arguments(cell, shape, dtype, lengths)
    a = a._replace(initial_state=None) if resets_to_zeros else a
    got = scan_checks.results_and_gradients(cell, backend, a)
    want = scan_checks.results_and_gradients(cell, "reference", a.to(torch.float64))
    scan_checks.assert_close(got, want, dtype, shape)


def equals_the_reference(cell: Cell) -> None:
    """Float64, three steps: T is no multiple of the two steps of a chunk."""
    compare(cell, SMALL, torch.float64)


def equals_the_reference_everywhere(cell: Cell) -> None:
    """One step, several heads and members, lengths, every dtype, K > V and K < V."""
    compare(cell, Shape(1, 1, 1, 2, 3), torch.float64)
    compare(cell, Shape(2, 4, 2, 3, 5), torch.float64, lengths=torch.tensor([4, 0]))
    for dtype in (torch.float32, torch.bfloat16):
        compare(cell, Shape(2, 7, 1, 5, 3), dtype)
    compare(cell, Shape(1, 4, 1, 4, 8), torch.float32)


def equals_the_reference_cut(cell: Cell) -> None:
    """Programs of two rows each, the last one with fewer."""
    source.LEAST = 2
    compare(cell, Shape(1, 4, 1, 4, 3), torch.float64)
    compare(cell, Shape(2, 4, 1, 3, 5), torch.float64, lengths=torch.tensor([3, 4]))


def every_variant_equals_the_reference(cell: Cell) -> None:
    """Tensors computed ahead or in the loop, and loads one step ahead or not, with resets and lengths."""
    for kernel.LONG, loads_ahead in product((3, 99), (True, False)):
        kernel.INTERPRETED = replace(kernel.INTERPRETED, loads_ahead=loads_ahead)
        compare(cell, SMALL, torch.float64)
        compare(cell, Shape(2, 5, 2, 3, 4), torch.float64, lengths=torch.tensor([5, 2]))


def chunks_equal_the_reference(cell: Cell) -> None:
    """The chunkwise backend with chunks of 16 steps, with operands by PyTorch and by generated kernels."""
    compare(cell, Shape(1, 19, 1, 3, 2), torch.float64, backend="chunkwise")
    made = generated_kernels()
    compare(cell, Shape(1, 5, 1, 3, 2), torch.float64, torch.tensor([4]), "chunkwise", resets_to_zeros=True)
    assert made, "no kernel computed the operands"
    assert None not in made, "the compiler has no kernel for the operands"


def generated_kernels() -> list[Any]:
    """The kernels of functions of one step that are generated from now on."""
    made, make = [], all_steps._kernel

    def recorded(*arguments: Any) -> Any:
        made.append(make(*arguments))
        return made[-1]

    all_steps._kernel = recorded
    return made


def chunks_equal_the_reference_everywhere(cell: Cell) -> None:
    """One block of time and several, more rows and columns than a tile, lengths, and every dtype."""
    for block, shape in ((_chunks.BLOCK, Shape(2, 37, 1, 3, 5)), (200, Shape(1, 70, 2, 17, 33))):
        _chunks.BLOCK = block
        for dtype in (torch.float64, torch.float32, torch.bfloat16):
            for resets_to_zeros in (False, True):
                compare(cell, shape, dtype, backend="chunkwise", resets_to_zeros=resets_to_zeros)
    compare(cell, Shape(2, 40, 1, 4, 4), torch.float64, torch.tensor([40, 0]), "chunkwise")


def chunks_alone_are_those_in_a_batch(cell: Cell) -> None:
    """Outputs, last states and gradients of inputs have the same bits, with operands by generated kernels."""
    made = generated_kernels()
    a = scan_checks.arguments(cell, Shape(2, 19, 1, 3, 2), torch.float32)
    whole = bits_of_chunks(cell, a)
    for b in range(2):
        inputs, state, reset = (scan_checks.member(part, b) for part in (a.inputs, a.state, a.reset))
        alone = bits_of_chunks(cell, a._replace(inputs=inputs, state=state, reset=reset))
        assert all(torch.equal(one[0], all_of_them[b]) for one, all_of_them in zip(alone, whole, strict=True))
    assert made, "no kernel computed the operands"
    assert None not in made, "the compiler has no kernel for the operands"


def bits_of_chunks(cell: Cell, a: scan_checks.Arguments) -> list[Tensor]:
    """The outputs, the last states, and the gradients that do not add up members of a batch."""
    a = scan_checks.with_gradients(a)
    y, last = scan(cell, *a, backend="chunkwise")
    gradients = torch.autograd.grad(sum(x.sin().sum() for x in (y, *last)), [*a.inputs, *a.state])
    return [y, *last, *gradients]


def gradients_pass_two_layers(cell: Cell) -> None:
    """A second scan reads the output of the first one and its last state."""
    a = scan_checks.arguments(cell, Shape(1, 4, 1, 3, 3))
    results = []
    for backend in ("compiled", "reference"):
        b = scan_checks.with_gradients(a)
        y, state = scan(cell, *b, backend=backend)
        z, last = scan(cell, inputs_from(cell, y, b.inputs), state, b.params, backend=backend)
        outputs = {"y": z, **{f"last {n}": x for n, x in zip(last._fields, last, strict=True)}}
        results.append(outputs | scan_checks.gradients(outputs, b))
    scan_checks.assert_close(results[0], results[1], torch.float64)


def inputs_from(cell: Cell, y: Tensor, inputs: Any) -> Any:
    """Inputs with y as the first one, in its role: the sum of a denominator requires positive keys."""
    name, slot = next(iter(cell.slots["Inputs"].items()))
    made = in_role(slot, y)
    return inputs._replace(**{name: made}) if made.shape == getattr(inputs, name).shape else inputs


def is_an_operation(cell: Cell) -> None:
    """PyTorch's check of an operation: traced shapes, strides and gradients, and no mutation."""
    a = sample_arguments(cell, SMALL, torch.float64)
    tensors = [x.requires_grad_() for x in (*a.inputs, *a.state, *(a.params or ()))]
    initial = [torch.zeros_like(x, requires_grad=True) for x in a.state]
    torch.library.opcheck(torch.ops.fastweights.scan.default, (cell.key, tensors, initial, a.reset, None, True))


CHECKS: dict[str, Callable[[Cell], None]] = {
    f.__name__: f
    for f in (
        equals_the_reference,
        equals_the_reference_everywhere,
        equals_the_reference_cut,
        every_variant_equals_the_reference,
        chunks_equal_the_reference,
        chunks_equal_the_reference_everywhere,
        chunks_alone_are_those_in_a_batch,
        gradients_pass_two_layers,
        is_an_operation,
    )
}


def main(check: str, names: list[str]) -> None:
    """Prints a line per cell."""
    interpret()
    run: Any = CHECKS.get(check) or getattr(scan_checks, check, None)
    for name in names:
        try:
            if check == function_equals_torch.__name__:
                function_equals_torch(name)
            else:
                run(Cell.from_function(name)) if check in CHECKS else run(Cell.from_function(name), "compiled")
            print(name, "ok", flush=True)
        except Exception as error:
            print(name, " ".join(f"{type(error).__name__}: {error}".split()), flush=True)


def run_apart(arguments: list[str], run: Callable[[str, list[str]], None]) -> None:
    """Runs every check of the arguments `CHECK CASE ... [-- CHECK CASE ...]` in a fork, in the order of the arguments.

    A check may change settings of the kernels. The forks share the imports, which take seconds.
    """
    for is_separator, group in groupby(arguments, lambda argument: argument == "--"):
        if is_separator:
            continue
        check, *cases = group
        if not (child := os.fork()):
            run(check, cases)
            os._exit(0)
        os.waitpid(child, 0)


if __name__ == "__main__":
    run_apart(sys.argv[1:], main)
