"""C++ for one loop nest: blocks of rows and vectors, accumulators in registers, and the remainders of every axis."""

from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import product
from typing import NamedTuple

from fastweights.compiler.ir.functions import FUNCTIONS
from fastweights.compiler.ir.nodes import Apply, Constant, Expression, Index, Load, loads
from fastweights.compiler.targets.cpp.functions import CODE
from fastweights.compiler.targets.cpp.layout import stride_along, vector_axis
from fastweights.compiler.targets.cpp.schedule import Nest, Program, Statement

START = {"sum": "0", "max": "-fw::infinity", "min": "fw::infinity"}
COMBINE = {"sum": "{0} + {1}", "max": "fw::maximum({0}, {1})", "min": "fw::minimum({0}, {1})"}
ACROSS = {"sum": "fw::total", "max": "fw::highest", "min": "fw::lowest"}
ACCUMULATORS = 12
"""How many vectors of partial sums a loop keeps in registers."""
ROWS = 8
"""How many rows are summed side by side where the vector runs along the sum."""
HELD = 8
"""How many vectors a row may have for sums down the rows to stay in registers beside sums along them."""


@dataclass
class Writer:
    """Lines of code at a depth."""

    lines: list[str] = field(default_factory=list)
    depth: int = 1

    def add(self, line: str) -> None:
        self.lines.append("    " * self.depth + line)

    def open(self, line: str) -> None:
        self.add(f"{line} {{" if line else "{")
        self.depth += 1

    def close(self, count: int = 1) -> None:
        for _ in range(count):
            self.depth -= 1
            self.add("}")


@dataclass(frozen=True)
class Result:
    """Code for a value: whether it is a vector or one number for all lanes, and whether it is a mask."""

    code: str
    is_vector: bool
    is_mask: bool = False


class Emitted(NamedTuple):
    """The code of one loop nest, and comments with the lines of the cell that it computes."""

    comments: list[str]
    lines: list[str]


def emitted(program: Program, nest: Nest, lanes: int) -> Emitted:
    """Writes one loop nest."""
    out = Writer()
    out.open("")
    NestEmitter(program, nest, vector_axis(program, nest, lanes), lanes, out).run()
    out.close()
    lines = dict.fromkeys(s.definition.line for s in nest.statements if s.definition.line)
    return Emitted([f"    // {line}" for line in lines], out.lines)


def pieces(size: int, lanes: int) -> Iterator[tuple[int, int, int]]:
    """(vector width, start, stop) of full vectors, then of ever shorter ones for the remainder."""
    start, width = 0, lanes
    while start < size:
        stop = start + (size - start) // width * width
        if stop > start:
            yield width, start, stop
        start, width = stop, width // 2


class NestEmitter:
    """Writes the loops of a nest around `Block`s.

    If a reduction runs along the vector axis, rows go outside and are blocked, so that several sums run side by side,
    and a short row is one block, so that sums down the rows stay in registers too; otherwise vectors go outside, and
    reductions down the rows stay in registers.
    """

    def __init__(self, program: Program, nest: Nest, axis: int, lanes: int, out: Writer) -> None:
        self.program, self.nest, self.axis, self.lanes, self.out = program, nest, axis, lanes, out
        reductions = [s for s in nest.statements if s.reduction]
        self.across = [s for s in reductions if s.axis == axis]
        others = [a for a in range(len(nest.shape)) if a != axis]
        along = [s.axis for s in reductions if s.axis != axis]
        by_use = sorted(others, key=lambda a: (along.count(a) if not self.across else 0, nest.shape[a]))
        self.row = by_use[-1] if by_use else -1
        self.outer = [a for a in others if a != self.row]
        self.vectors = list(pieces(nest.shape[axis], lanes)) if axis >= 0 else []
        self.count = sum((stop - start) // width for width, start, stop in self.vectors)
        held = not self.across or self.count <= HELD
        self.down = [s for s in reductions if held and s.axis == self.row and s not in self.across]
        self.apart = self.beside = 1
        self.memory = [s for s in reductions if s not in self.across and s not in self.down]

    def run(self) -> None:
        for statement in self.memory:
            self._clear(statement)
        for axis in self.outer:
            self.out.open(f"for (int i{axis} = 0; i{axis} < {self.nest.shape[axis]}; ++i{axis})")
        if self.axis < 0:
            self._scalars()
        elif self.across:
            self._rows_outside()
        else:
            self._vectors_outside()
        self.out.close(len(self.outer))

    def _clear(self, statement: Statement) -> None:
        buffer = self.program.buffer(statement.definition)
        size = statement.definition.size
        self.out.add(f"for (int n = 0; n < {size}; ++n) {buffer.name}[n] = {START[statement.reduction]};")

    def _scalars(self) -> None:
        self._block(1, [0], [0])

    def _loop(self, axis: int, start: int, stop: int, step: int) -> None:
        """Opens a loop, or a block if it would run once; the start is then in the block."""
        name = f"i{axis}"
        if stop - start > step:
            self.out.open(f"for (int {name} = {start}; {name} < {stop}; {name} += {step})")
        else:
            self.out.open("")
            self.out.add(f"constexpr int {name} = {start};")

    def _vectors_outside(self) -> None:
        for width, start, stop in self.vectors:
            count = (stop - start) // width
            most = max(1, ACCUMULATORS // max(1, len(self.down))) if self.down else 4
            # Two vectors of a row where the row is stored too: with four, stores wait for each other.
            most = min(most, 2) if self.down and len(self.down) < len(self.nest.statements) else most
            side = next(n for n in (4, 3, 2, 1) if n <= most and count % n == 0)
            self._loop(self.axis, start, stop, width * side)
            self._down_the_rows(width, side)
            self.out.close()

    def _down_the_rows(self, width: int, side: int) -> None:
        if self.row < 0:
            self._block(width, [0], list(range(side)))
            return
        size = self.nest.shape[self.row]
        most = ACCUMULATORS // (side * len(self.down)) if self.down else 2
        self.apart = apart = next(n for n in (4, 2, 1) if n <= max(1, min(most, size)))
        self.beside = side
        self._start(self.down, width, apart, side)
        full = size // apart * apart
        self._loop(self.row, 0, full, apart)
        self._block(width, list(range(apart)), list(range(side)))
        self.out.close()
        for row in range(full, size):
            self.out.open("")
            self.out.add(f"constexpr int i{self.row} = {row};")
            self._block(width, [0], list(range(side)))
            self.out.close()
        self._finish_down(width, side)

    def _finish_down(self, width: int, side: int) -> None:
        for statement, name in self._named(self.down):
            for v in range(side):
                total = _combined(statement, [f"{name}w{width}_{r}_{v}" for r in range(self.apart)])
                block = Block(self, width, [0], [v])
                block.put(statement, Result(total, True), 0, v)
                block.flush()

    def _rows_outside(self) -> None:
        size = self.nest.shape[self.row] if self.row >= 0 else 1
        most = max(1, ROWS // (1 if len(self.across) < 3 and not self.down else 2))
        self.apart = max(1, 4 // self.count)
        for width, start, stop in self.vectors:
            self._start(self.down, width, self.apart, (stop - start) // width)
        for rows, start, stop in pieces(size, most):
            if self.row >= 0:
                self._loop(self.row, start, stop, rows)
            self._across_the_row(rows)
            if self.row >= 0:
                self.out.close()
        for width, start, stop in self.vectors if self.down else []:
            self.out.open("")
            self.out.add(f"constexpr int i{self.axis} = {start};")
            self._finish_down(width, (stop - start) // width)
            self.out.close()

    def _across_the_row(self, rows: int) -> None:
        for width, start, stop in self.vectors:
            count = (stop - start) // width
            side = next(n for n in (4, 2, 1) if rows * n <= 4 and count % n == 0) if rows < 4 else 1
            self.beside, side = side, count if self.down else side
            self._start(self.across, width, rows, self.beside)
            self._loop(self.axis, start, stop, width * side)
            self._block(width, list(range(rows)), list(range(side)))
            self.out.close()
            self._finish_across(width, rows)
        self._store_across([width for width, _, _ in self.vectors], rows)

    def _start(self, statements: list[Statement], width: int, rows: int, sides: int) -> None:
        """Accumulators of a reduction, side by side."""
        for statement, name in self._named(statements):
            start = f"fw::splat<{width}>({START[statement.reduction]})"
            for r, v in product(range(rows), range(sides)):
                self.out.add(f"fw::vec<{width}> {name}w{width}_{r}_{v} = {start};")

    def _finish_across(self, width: int, rows: int) -> None:
        """One number a row, from vectors of a width."""
        for statement, name in self._named(self.across):
            sums = [_combined(statement, [f"{name}w{width}_{r}_{v}" for v in range(self.beside)]) for r in range(rows)]
            if statement.reduction == "sum" and 1 < rows <= width:
                self.out.add(f"fw::vec<{width}> {name}w{width}_all[{rows}] = {{{', '.join(sums)}}};")
                self.out.add(f"const fw::vec<{rows}> {name}w{width} = fw::totals<{rows}>({name}w{width}_all);")
            else:
                numbers = ", ".join(f"{ACROSS[statement.reduction]}({x})" for x in sums)
                self.out.add(f"const fw::vec<{rows}> {name}w{width} = {{{numbers}}};")

    def _store_across(self, widths: list[int], rows: int) -> None:
        for statement, name in self._named(self.across):
            total = _combined(statement, [f"{name}w{width}" for width in widths])
            block = Block(self, rows, [0], [0], axis=self.row)
            block.put(statement, Result(total, True), 0, 0)
            block.flush()

    def _named(self, statements: list[Statement]) -> list[tuple[Statement, str]]:
        return [(s, f"a{self.nest.statements.index(s)}") for s in statements]

    def _block(self, width: int, rows: list[int], sides: list[int]) -> None:
        block = Block(self, width, rows, sides)
        for v, r in product(sides, rows):
            for statement in self.nest.statements:
                block.statement(statement, r, v)
            block.write()
        block.flush()


class Block:
    """The straight code inside the loops, for some rows and vectors: every load once, every store after its element."""

    def __init__(self, emitter: NestEmitter, width: int, rows: list[int], sides: list[int], axis: int = -2) -> None:
        self.emitter, self.width, self.rows, self.sides = emitter, width, rows, sides
        self.axis = emitter.axis if axis == -2 else axis
        self.program, self.out = emitter.program, emitter.out
        self.known: dict[object, Result] = {}
        self.stored: dict[object, Result] = {}
        self.stores: list[str] = []
        self.partial: dict[object, tuple[str, str, int, str]] = {}

    def statement(self, statement: Statement, r: int, v: int) -> None:
        value = self.value(statement.expression, r, v)
        name = self._accumulator(statement)
        combine = COMBINE.get(statement.reduction, "")
        if statement in self.emitter.down or statement in self.emitter.across:
            is_down = statement in self.emitter.down
            name = f"{name}w{self.width}_{r % self.emitter.apart if is_down else r}"
            name = f"{name}_{v if is_down else v % self.emitter.beside}"
            self.out.add(f"{name} = {combine.format(name, self._vector(value, combine))};")
        elif statement in self.emitter.memory:
            self._accumulate(statement, value, r, v, combine)
        else:
            value = self._named(value)
            self.stored[(statement.definition, statement.place, r, v)] = value
            self.put(statement, value, r, v)

    def _accumulate(self, statement: Statement, value: Result, r: int, v: int, combine: str) -> None:
        """Adds the rows of a block up in a register first: memory is read and written once a block."""
        key = (statement, v) if statement.axis == self.emitter.row else (statement, v, r)
        address, stride = self._address(statement, r, v)
        code = self._vector(value, combine)
        if key not in self.partial:
            name = f"{self._accumulator(statement)}p{len(self.partial)}"
            self.partial[key] = name, address, stride, combine
            self.out.add(f"fw::vec<{self.width}> {name} = {self._splat(value)};")
        else:
            name = self.partial[key][0]
            self.out.add(f"{name} = {combine.format(name, code)};")

    def _accumulator(self, statement: Statement) -> str:
        return f"a{self.emitter.nest.statements.index(statement)}"

    def put(self, statement: Statement, value: Result, r: int, v: int) -> None:
        """Stores a result when the block is done."""
        address, stride = self._address(statement, r, v)
        if statement.add:
            old = self._load(address, stride)
            value = Result(f"({old.code} + {value.code})", value.is_vector or old.is_vector)
        self._store(address, stride, value)

    def flush(self) -> None:
        for name, address, stride, combine in self.partial.values():
            old = self._load(address, stride)
            self._store(address, stride, Result(combine.format(old.code, name), True))
        self.write()

    def write(self) -> None:
        """Stores what is done: no other element of a block reads it."""
        for line in self.stores:
            self.out.add(line)
        self.stores.clear()

    def _address(self, statement: Statement, r: int, v: int) -> tuple[str, int]:
        return self._pointer(statement.definition, statement.place, r, v)

    def _pointer(self, definition: object, index: tuple[Index, ...], r: int, v: int) -> tuple[str, int]:
        """Code for the address of an element, and how far apart the lanes are."""
        buffer = self.program.buffer(definition)  # type: ignore[arg-type]
        if buffer.is_scalar:
            return f"&{buffer.name}", 0
        offset = sum(i.start * stride for i, stride in zip(index, buffer.strides, strict=True))
        terms = []
        for axis in range(len(self.emitter.nest.shape)):
            step = stride_along(axis, index, buffer.strides)
            if axis == self.axis:
                offset += step * v * self.width
            elif axis == self.emitter.row:
                offset += step * r
            if step:
                terms.append(f"i{axis}" if step == 1 else f"{step} * i{axis}")
        terms += [str(offset)] if offset else []
        stride = stride_along(self.axis, index, buffer.strides) if self.axis >= 0 else 0
        return " + ".join([buffer.name, *terms]), stride

    def _load(self, address: str, stride: int) -> Result:
        if stride == 0 or self.width == 1:
            return Result(address[1:] if address[0] == "&" else f"*({address})", False)
        if stride == 1:
            return Result(f"fw::load<{self.width}>({address})", True)
        return Result(f"fw::gather<{self.width}>({address}, {stride})", True)

    def _store(self, address: str, stride: int, value: Result) -> None:
        code = self._splat(value)
        if stride == 0 or self.width == 1:
            line = f"{address[1:] if address[0] == '&' else f'*({address})'} = {value.code};"
        elif stride == 1:
            line = f"fw::store<{self.width}>({address}, {code});"
        else:
            line = f"fw::scatter<{self.width}>({address}, {stride}, {code});"
        self.stores.append(line)

    def value(self, expression: Expression, r: int, v: int) -> Result:
        """Code for an expression at a row and a vector."""
        if isinstance(expression, Constant):
            return Result(number(expression.value), False)
        if isinstance(expression, Load):
            return self._loaded(expression, r, v)
        return self._applied(expression, r, v)

    def _loaded(self, load: Load, r: int, v: int) -> Result:
        stored = self.stored.get((load.definition, load.index, r, v))
        if stored is not None:
            return stored
        address, stride = self._pointer(load.definition, load.index, r, v)
        if address not in self.known:
            self.known[address] = self._named(self._load(address, stride))
        return self.known[address]

    def _named(self, value: Result) -> Result:
        if value.is_mask or value.code.isidentifier():
            return value
        name = f"x{len(self.known)}_{len(self.stored)}"
        self.out.add(f"const {f'fw::vec<{self.width}>' if value.is_vector else 'real'} {name} = {value.code};")
        return Result(name, value.is_vector)

    def _applied(self, expression: Apply, r: int, v: int) -> Result:
        key = (expression, r, v)
        if key not in self.known:
            arguments = [self.value(a, r, v) for a in expression.arguments]
            result = self._call(expression.function, arguments)
            shared = len(list(loads(expression))) and not CODE[expression.function].is_mixed
            self.known[key] = self._named(result) if shared else result
        return self.known[key]

    def _call(self, function: str, arguments: list[Result]) -> Result:
        found = CODE[function]
        is_vector = any(a.is_vector for a in arguments)
        codes = [self._splat(a) if is_vector and not found.is_mixed else a.code for a in arguments]
        return Result(found.text.format(*codes), is_vector, FUNCTIONS[function].is_mask)

    def _splat(self, value: Result) -> str:
        if value.is_vector or self.width == 1:
            return value.code
        return f"fw::{'splat_mask' if value.is_mask else 'splat'}<{self.width}>({value.code})"

    def _vector(self, value: Result, combine: str) -> str:
        return value.code if "+" in combine else self._splat(value)


def _combined(statement: Statement, parts: list[str]) -> str:
    total = parts[0]
    for part in parts[1:]:
        total = "(" + COMBINE[statement.reduction].format(total, part) + ")"
    return total


def number(value: float) -> str:
    """A number in C++."""
    if value != value:
        return "fw::nan"
    if abs(value) == float("inf"):
        return f"{'-' if value < 0 else ''}fw::infinity"
    return f"real({value!r})"
