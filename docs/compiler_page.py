"""The page of the compiler: the text of `compiler.txt` with the results of all passes for a small cell."""

import inspect
from pathlib import Path
from typing import Any

import small_cell
import torch

from fastweights.cell import Cell
from fastweights.compiler.frontend.lower import lower
from fastweights.compiler.frontend.trace import Trace, trace
from fastweights.compiler.ir.passes import split
from fastweights.compiler.ir.show import show, show_step
from fastweights.compiler.pipeline import affine
from fastweights.compiler.targets.cpp.emit import CppSource
from fastweights.compiler.targets.cpp.plan import plan
from fastweights.compiler.targets.cpp.show import show_program

TEXT = Path(__file__).parent / "contributing" / "compiler.txt"
SIZES = {"K": 4, "V": 3}
LANES = 4
"""Lanes per vector in the C++ code of the page, on any CPU."""


def compiler_page() -> str:
    """The text with the results of the passes in place of their names."""
    text = TEXT.read_text(encoding="utf-8")
    for place, form in forms().items():
        text = text.replace(place, form)
    return text


def forms() -> dict[str, str]:
    """Results of the passes by their names in the text."""
    traced = trace(Cell.from_function(small_cell.small), SIZES, torch.float32)
    step = lower(traced)
    passes = split(step)
    programs = plan(passes, LANES)
    code = CppSource(programs, "small", torch.float32, LANES).forward()
    return {
        "CELL\n": inspect.getsource(small_cell.small),
        "TRACED\n": _graph(traced),
        "LOWERED\n": show_step(step) + "\n",
        "PASSES\n": show(passes) + "\n",
        "NESTS\n": show_program(programs.forward.step) + "\n",
        "AFFINE\n": _affine() + "\n",
        "CODE\n": _function(code, "forward_step"),
    }


def _affine() -> str:
    return str(affine(Cell.from_function(small_cell.small), SIZES, torch.float32))


def _graph(traced: Trace) -> str:
    """A traced graph with one operation per line and the names of its inputs."""
    inputs = [f"state_{n}" for n in traced.state] + [f"in_{n}" for n in traced.inputs]
    inputs += [f"param_{n}" for n in traced.params] + [f"d_state_{n}" for n in traced.state] + ["d_y"]
    nodes = list(traced.graph.graph.nodes)
    names = dict(zip([node for node in nodes if node.op == "placeholder"], inputs, strict=True))
    names |= {node: node.name for node in nodes if node not in names}
    lines = [f"{names[n]} = {n.target}({_written(n.args, names)})" for n in nodes if n.op == "call_function"]
    return "\n".join([*lines, f"return {_written(nodes[-1].args[0], names)}", ""])


def _written(arguments: Any, names: dict[torch.fx.Node, str]) -> str:
    written = [f"[{_written(a, names)}]" if isinstance(a, list | tuple) else str(names.get(a, a)) for a in arguments]
    return ", ".join(written)


def _function(code: str, name: str) -> str:
    """The C++ code of one function."""
    begin = code.index(f"static void {name}(")
    return code[begin : code.index("\n}\n", begin)] + "\n}\n"
