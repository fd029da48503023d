"""Writes a cell as C++ files with a C interface: code, header and example, for use without Python."""

from math import prod
from pathlib import Path
from typing import NamedTuple

import torch

from fastweights.compiler.ir.passes import Passes
from fastweights.compiler.targets.arguments import FORWARD, in_order
from fastweights.compiler.targets.cell_spec import CellSpec
from fastweights.compiler.targets.cpp.emit import CppSource
from fastweights.compiler.targets.cpp.plan import plan
from fastweights.core.files import write_atomically

WIDTH = 16
"""Bytes per vector. Every CPU with vectors has vectors of this width."""
REALS = {torch.float32: "float", torch.float64: "double"}


class Kind(NamedTuple):
    """The C names of a record: structure, prefix, argument, leading axes, storage in the example, and qualifier."""

    structure: str
    prefix: str
    argument: str
    axes: str
    room: str
    constant: str = "const "
    remark: str = ""


KINDS = {
    "Inputs": Kind("inputs", "in_", "x", "batch, time, heads", "TIME * HEADS"),
    "State": Kind("state", "state_", "state", "batch, heads", "HEADS", "", " /* zeros: nothing is remembered yet */"),
    "Params": Kind("params", "param_", "params", "num_heads", "HEADS"),
}
Y = KINDS["Inputs"]._replace(prefix="")


class Array(NamedTuple):
    """A tensor of a cell, with its axes per head and time step."""

    kind: Kind
    field: str
    shape: tuple[int, ...]

    @property
    def name(self) -> str:
        """A name that differs from those of all other tensors and from the keywords of C."""
        return f"{self.kind.prefix}{self.field}"

    @property
    def axes(self) -> str:
        """All axes, for comments."""
        return f"[{', '.join([self.kind.axes, *map(str, self.shape)])}]"


def write(spec: CellSpec, passes: Passes, folder: Path) -> list[Path]:
    """Writes the forward pass of a cell as `NAME.cpp`, `NAME.h` and `example.c` into a folder. Returns the paths."""
    files = Files(spec, passes)
    texts = {f"{files.name}.cpp": files.code(), f"{files.name}.h": files.header(), "example.c": files.example()}
    folder.mkdir(parents=True, exist_ok=True)
    for name, text in texts.items():
        write_atomically(folder / name, text.encode())
    return [folder / name for name in texts]


class Files:
    """The texts of the files of one cell."""

    def __init__(self, spec: CellSpec, passes: Passes) -> None:
        self.spec, self.passes, self.real = spec, passes, REALS[spec.dtype]
        self.name = spec.cell.name.replace("-", "_")
        sizes = dict(spec.sizes)
        self.arrays = {
            kind: [Array(KINDS[kind], field, slot.shape(sizes)) for field, slot in slots.items()]
            for kind, slots in spec.cell.slots.items()
        }
        self.y = Array(Y, "y", spec.cell.output.shape(sizes))
        arguments = [f"const {self.name}_{KINDS[kind].structure}* {KINDS[kind].argument}" for kind in self.arrays]
        numbers = "int64_t batch, int64_t time, int64_t heads"
        self.signature = f"void {self.name}_run({', '.join(arguments)}, {self.real}* y, {numbers})"

    def code(self) -> str:
        """The code of the kernel, and the function that calls it."""
        dtype = self.spec.dtype
        lanes = WIDTH // dtype.itemsize
        kernel = CppSource(plan(self.passes, lanes), self.spec.title, dtype, lanes).forward("static")
        return "\n".join(
            [
                # Every cell of a program has its own name, since the types of numbers may differ.
                f"#define fw {self.name}_fw",
                kernel,
                f'#include "{self.name}.h"\n',
                f"{self.signature} {{",
                f"    void* p[] = {{{', '.join(self._pointers())}}};",
                "    const int64_t n[] = {batch, time, heads, time, 1, 0, batch * heads,",
                f"                         {', '.join(self._strides())}}};",
                "    forward(p, n);",
                "}\n",
            ]
        )

    def _pointers(self) -> list[str]:
        """The arguments of the kernel, in order. A state is updated in place."""
        members = {
            kind: [f"(void*){array.kind.argument}->{array.name}" for array in arrays]
            for kind, arrays in self.arrays.items()
        }
        nothing = ["nullptr"]
        named = {
            "all_in": members["Inputs"],
            "first_state": members["State"],
            "last_state": members["State"],
            "all_y": ["y"],
        }
        named |= {"all_param": members.get("Params", []), "initial_state": nothing * len(members["State"])}
        return in_order(FORWARD, named | {"reset": nothing, "lengths": nothing, "checkpoints": nothing})

    def _strides(self) -> list[str]:
        sizes = [prod(array.shape) for array in self.arrays["Inputs"]]
        return [f"time * heads * {n}, heads * {n}, {n}" for n in sizes]

    def header(self) -> str:
        """The header for programs that use the cell."""
        formula = self.spec.cell.summary.strip().split("\n\n")[0].split("\n")
        sizes = [f"    {self._size(array)} = {prod(array.shape)}," for array in [*self._all(), self.y]]
        return "\n".join(
            [
                f"/* {self.spec.title}.",
                *(f" * {line}" for line in formula),
                " */",
                "#pragma once\n#include <stdint.h>\n",
                "/* Numbers a head; of inputs and y, a head and a step. */",
                *("enum {", *sizes, "};"),
                *map(self._structure, self.arrays),
                '\n#ifdef __cplusplus\nextern "C"\n#endif',
                "/* Reads `time` steps, one or many, into y "
                + self.y.axes
                + ". The state is left behind the last one,",
                "   where it was given; zeros are the state before the first. All tensors are contiguous. */",
                f"{self.signature};\n",
            ]
        )

    def _structure(self, kind: str) -> str:
        fields = [f"    {a.kind.constant}{self.real}* {a.name}; /* {a.axes} */" for a in self.arrays[kind]]
        return "\n".join(["\ntypedef struct {", *fields, f"}} {self.name}_{KINDS[kind].structure};"])

    def example(self) -> str:
        """An example program that runs one time step, and then a sequence from the new state."""
        filled = [array for array in self._all() if array.kind is not KINDS["State"]]
        args = ", ".join(f"&{KINDS[kind].argument}" for kind in self.arrays)
        return "\n".join(
            [
                f"/* g++ -O3 -Wno-psabi {self.name}.cpp example.c -o example && ./example */",
                f'#include <stdio.h>\n#include "{self.name}.h"\n',
                "enum { HEADS = 2, TIME = 4 };",
                *map(self._storage, [*self._all(), self.y]),
                f"\nstatic void fill({self.real}* x, size_t count) {{ /* yours come from a network */",
                f"    for (size_t n = 0; n < count; ++n) x[n] = ({self.real})(n % 7 + 1) / 10;",
                "}",
                "\nint main(void) {",
                *(f"    fill({array.name}, sizeof {array.name} / sizeof *{array.name});" for array in filled),
                *map(self._struct_literal, self.arrays),
                f"    {self.name}_run({args}, y, 1, 1, HEADS); /* one step */",
                f"    {self.name}_run({args}, y, 1, TIME, HEADS); /* a sequence, from the state behind that step */",
                '    for (size_t n = 0; n < sizeof y / sizeof *y; ++n) printf("%.17g\\n", y[n]);',
                "    return 0;",
                "}\n",
            ]
        )

    def _storage(self, array: Array) -> str:
        return f"static {self.real} {array.name}[{array.kind.room} * {self._size(array)}];{array.kind.remark}"

    def _struct_literal(self, kind: str) -> str:
        names = ", ".join(array.name for array in self.arrays[kind])
        return f"    const {self.name}_{KINDS[kind].structure} {KINDS[kind].argument} = {{{names}}};"

    def _all(self) -> list[Array]:
        return [array for arrays in self.arrays.values() for array in arrays]

    def _size(self, array: Array) -> str:
        return f"{self.name}_{array.name}"
