"""Runs the loop nests of a C++ program with torch, nest by nest, without C++."""

import torch
from torch import Tensor

from fastweights.compiler.ir.functions import FUNCTIONS
from fastweights.compiler.ir.interpret import REDUCTIONS, read
from fastweights.compiler.ir.nodes import Apply, Constant, ConstantTensor, Expression
from fastweights.compiler.ir.passes import Pass
from fastweights.compiler.targets.cpp.plan import PassPlan
from fastweights.compiler.targets.cpp.schedule import Nest, Program, Statement

Memory = dict[str, Tensor]


def execute(program: Program, memory: Memory) -> Memory:
    """The memory after a program; NaN marks elements without a write."""
    memory = {name: x.clone() for name, x in memory.items()}
    for node, buffer in program.buffers.items():
        if isinstance(node, ConstantTensor):
            memory[buffer.name] = torch.tensor(node.numbers, dtype=torch.float64).reshape(node.shape)
        if buffer.local or buffer.name not in memory:
            memory[buffer.name] = torch.full(buffer.shape, torch.nan, dtype=torch.float64)
    for nest in program.nests:
        _execute(program, nest, memory)
    return memory


def _execute(program: Program, nest: Nest, memory: Memory) -> None:
    """Runs a nest: it reads the memory from before the nest, except for elements that it has stored itself."""
    before = {name: x.clone() for name, x in memory.items()}
    stored: dict[object, Tensor] = {}

    def value(expression: Expression) -> Tensor:
        if isinstance(expression, Constant):
            return torch.full(nest.shape, expression.value, dtype=torch.float64)
        if isinstance(expression, Apply):
            return FUNCTIONS[expression.function].meaning(*map(value, expression.arguments))
        if (expression.node, expression.index) in stored:
            return stored[expression.node, expression.index]
        buffer = program.buffer(expression.node)
        return read(before[buffer.name].reshape(expression.node.shape), expression.index, nest.shape)

    for statement in nest.statements:
        result = value(statement.expression)
        if statement.reduction:
            result = REDUCTIONS[statement.reduction](result, statement.axis, keepdim=True)
        else:
            stored[statement.node, statement.place] = result
        _store(program, statement, result, memory)


def _store(program: Program, statement: Statement, result: Tensor, memory: Memory) -> None:
    name, shape = program.buffer(statement.node).name, statement.node.shape
    places = torch.arange(statement.node.size).reshape(shape)
    chosen = read(places, statement.place, tuple(result.shape)).flatten()
    flat = memory[name].flatten()
    flat[chosen] = flat[chosen] + result.flatten() if statement.add else result.flatten()
    memory[name] = flat.reshape(memory[name].shape)


def step(plan: PassPlan, memory: Memory, next_inputs: Memory) -> Memory:
    """One step of a pass, with the reads ahead of its beginning.

    The reads ahead of the step equal those of another beginning, after it and with the inputs of the next step.
    """
    memory = memory | execute(plan.begin, memory)
    after = execute(plan.step, memory | {f"next_{name}": x for name, x in next_inputs.items()})
    new = {b.name: after[b.name if b.name in plan.step.in_place else f"new_{b.name}"] for b in plan.state}
    again = execute(plan.begin, memory | next_inputs | new)
    for buffer in plan.ahead:
        torch.testing.assert_close(after[f"next_{buffer.name}"], again[buffer.name])
    return after | {f"new {name}": x for name, x in new.items()}


def sample(kernel_pass: Pass, params: Memory) -> tuple[Memory, Memory]:
    """Numbers for the inputs of one step, and for the moving inputs of the next step.

    They are from 0 to 1, where every cell is defined, including cells with logarithms of their state.
    """
    carried = {name: torch.rand(d.shape, dtype=torch.float64) for name, d in kernel_pass.carried.items()}
    shapes = {name: d.shape for name, d in kernel_pass.moving.items()}
    moving, next_inputs = ({name: torch.rand(s, dtype=torch.float64) for name, s in shapes.items()} for _ in range(2))
    added = {name: torch.rand(v.shape, dtype=torch.float64) for name, v in kernel_pass.added.items()}
    return params | carried | moving | added, next_inputs
