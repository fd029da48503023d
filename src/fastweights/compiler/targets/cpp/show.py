"""Prints the loop nests of a program as text."""

from collections.abc import Iterator

from fastweights.compiler.ir.nodes import load_nodes
from fastweights.compiler.ir.show import axes, element, written
from fastweights.compiler.targets.cpp.schedule import Nest, Program, Statement


def show_program(program: Program) -> str:
    """The loop nests in order, with the names of the buffers."""
    return "\n".join(line for nest in program.nests for line in _nest(program, nest))


def _nest(program: Program, nest: Nest) -> Iterator[str]:
    yield f"for {axes(nest.shape)[1:-1]}:" if nest.shape else "once:"
    for statement in nest.statements:
        yield f"    {_statement(program, statement)}"


def _statement(program: Program, statement: Statement) -> str:
    names = {load.node: program.buffer(load.node).name for load in load_nodes(statement.expression)}
    to = element(program.buffer(statement.node).name, statement.place)
    code = written(statement.expression, names)
    if statement.reduction:
        return f"{to} = {statement.reduction} of {code}"
    return f"{to} {'+=' if statement.add else '='} {code}"
