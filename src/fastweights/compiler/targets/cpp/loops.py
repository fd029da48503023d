"""Prints a loop nest as C++: the loops of its tiling, and the straight code of every block."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import product

from fastweights.compiler.ir.functions import FUNCTIONS
from fastweights.compiler.ir.nodes import Apply, Constant, Expression, Index, Load, Node, loads
from fastweights.compiler.targets.cpp.functions import CODE
from fastweights.compiler.targets.cpp.layout import stride_along
from fastweights.compiler.targets.cpp.schedule import Nest, Program, Statement
from fastweights.compiler.targets.cpp.tiling import (
    AccumulatorStart,
    CppBlock,
    FinishLanes,
    FinishRows,
    Loop,
    Part,
    Place,
    Registers,
    StoreRows,
    Tiling,
)

START = {"sum": "0", "max": "-fw::infinity", "min": "fw::infinity"}
COMBINE = {"sum": "{0} + {1}", "max": "fw::maximum({0}, {1})", "min": "fw::minimum({0}, {1})"}
ACROSS = {"sum": "fw::total", "max": "fw::highest", "min": "fw::lowest"}


@dataclass
class CppWriter:
    """Lines of code with an indentation depth."""

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
class CppValue:
    """Code for a value: a vector or one number for all lanes, and whether it is a mask."""

    code: str
    is_vector: bool
    is_mask: bool = False


def printed(program: Program, nest: Nest, tiling: Tiling, names: Mapping[str, str] | None = None) -> list[str]:
    """The lines of a loop nest. The buffers in `names` get other names."""
    out = CppWriter()
    out.open("")
    NestPrinter(program, nest, tiling, names or {}, out).run()
    out.close()
    return out.lines


class NestPrinter:
    """Prints the loops of a nest."""

    def __init__(self, program: Program, nest: Nest, tiling: Tiling, names: Mapping[str, str], out: CppWriter) -> None:
        self.program, self.nest, self.tiling, self.names, self.out = program, nest, tiling, names, out

    def run(self) -> None:
        for n in self.tiling.reductions(Place.MEMORY):
            self._clear(self.nest.statements[n])
        for axis in self.tiling.outer:
            self.out.open(f"for (int i{axis} = 0; i{axis} < {self.nest.shape[axis]}; ++i{axis})")
        self._parts(self.tiling.body)
        self.out.close(len(self.tiling.outer))

    def name(self, node: Node) -> str:
        """The name of the buffer of a node."""
        name = self.program.buffer(node).name
        return self.names.get(name, name)

    def _clear(self, statement: Statement) -> None:
        name, size = self.name(statement.node), statement.node.size
        self.out.add(f"for (int n = 0; n < {size}; ++n) {name}[n] = {START[statement.reduction]};")

    def _parts(self, parts: Sequence[Part]) -> None:
        for part in parts:
            match part:
                case Loop():
                    self._loop(part)
                case CppBlock():
                    self._block(part)
                case AccumulatorStart(registers):
                    self._start(registers)
                case FinishRows(registers):
                    self._finish_rows(registers)
                case FinishLanes(registers):
                    self._finish_lanes(registers)
                case StoreRows(widths, rows):
                    self._store_rows(widths, rows)

    def _loop(self, loop: Loop) -> None:
        name = f"i{loop.axis}"
        if loop.stop - loop.start > loop.step:
            self.out.open(f"for (int {name} = {loop.start}; {name} < {loop.stop}; {name} += {loop.step})")
        else:
            self.out.open("")
            self.out.add(f"constexpr int {name} = {loop.start};")
        self._parts(loop.body)
        self.out.close()

    def _block(self, block: CppBlock) -> None:
        printer = BlockPrinter(self, block.width, self.tiling.vector, block.row_accumulators, block.lane_accumulators)
        for v, r in product(range(block.vectors), range(block.rows)):
            for n, statement in enumerate(self.nest.statements):
                printer.statement(n, statement, r, v)
            printer.write()
        printer.flush()

    def _start(self, registers: Registers) -> None:
        place, width, rows, vectors = registers
        for n in self.tiling.reductions(place):
            start = f"fw::splat<{width}>({START[self.nest.statements[n].reduction]})"
            for r, v in product(range(rows), range(vectors)):
                self.out.add(f"fw::vec<{width}> a{n}w{width}_{r}_{v} = {start};")

    def _finish_rows(self, registers: Registers) -> None:
        place, width, rows, vectors = registers
        for n, v in product(self.tiling.reductions(place), range(vectors)):
            statement = self.nest.statements[n]
            total = _combined(statement, [f"a{n}w{width}_{r}_{v}" for r in range(rows)])
            self._store(statement, total, width, v, self.tiling.vector)

    def _finish_lanes(self, registers: Registers) -> None:
        place, width, rows, vectors = registers
        for n in self.tiling.reductions(place):
            statement, name = self.nest.statements[n], f"a{n}w{width}"
            sums = [_combined(statement, [f"{name}_{r}_{v}" for v in range(vectors)]) for r in range(rows)]
            if statement.reduction == "sum" and 1 < rows <= width:
                self.out.add(f"fw::vec<{width}> {name}_all[{rows}] = {{{', '.join(sums)}}};")
                self.out.add(f"const fw::vec<{rows}> {name} = fw::totals<{rows}>({name}_all);")
            else:
                numbers = ", ".join(f"{ACROSS[statement.reduction]}({x})" for x in sums)
                self.out.add(f"const fw::vec<{rows}> {name} = {{{numbers}}};")

    def _store_rows(self, widths: Sequence[int], rows: int) -> None:
        for n in self.tiling.reductions(Place.LANES):
            statement = self.nest.statements[n]
            total = _combined(statement, [f"a{n}w{width}" for width in widths])
            self._store(statement, total, rows, 0, self.tiling.row)

    def _store(self, statement: Statement, total: str, width: int, v: int, axis: int) -> None:
        printer = BlockPrinter(self, width, axis)
        printer.put(statement, CppValue(total, True), 0, v)
        printer.flush()


class BlockPrinter:
    """Prints the straight code of a block: every load once, and every store after the computation of its element."""

    def __init__(
        self, nest: NestPrinter, width: int, axis: int, row_accumulators: int = 1, lane_accumulators: int = 1
    ) -> None:
        self.nest, self.width, self.axis = nest, width, axis
        self.row_accumulators, self.lane_accumulators = row_accumulators, lane_accumulators
        self.row, self.out = nest.tiling.row, nest.out
        self.known: dict[object, CppValue] = {}
        self.stored: dict[object, CppValue] = {}
        self.stores: list[str] = []
        self.partial: dict[object, tuple[str, str, int, str]] = {}

    def statement(self, n: int, statement: Statement, r: int, v: int) -> None:
        """Prints statement number `n` for a row and a vector of the block."""
        value = self.value(statement.expression, r, v)
        match self.nest.tiling.places.get(n):
            case None:
                value = self._named(value)
                self.stored[(statement.node, statement.place, r, v)] = value
                self.put(statement, value, r, v)
            case Place.MEMORY:
                self._accumulate(n, statement, value, r, v)
            case Place.ROWS:
                self._add_up(f"a{n}w{self.width}_{r % self.row_accumulators}_{v}", statement, value)
            case Place.LANES:
                self._add_up(f"a{n}w{self.width}_{r}_{v % self.lane_accumulators}", statement, value)

    def _add_up(self, name: str, statement: Statement, value: CppValue) -> None:
        combine = COMBINE[statement.reduction]
        self.out.add(f"{name} = {combine.format(name, self._vector(value, combine))};")

    def _accumulate(self, n: int, statement: Statement, value: CppValue, r: int, v: int) -> None:
        """Combines the rows of a block in a register first, so that memory is read and written once per block."""
        key = (n, v) if statement.axis == self.row else (n, v, r)
        address, stride = self._address(statement, r, v)
        combine = COMBINE[statement.reduction]
        code = self._vector(value, combine)
        if key not in self.partial:
            name = f"a{n}p{len(self.partial)}"
            self.partial[key] = name, address, stride, combine
            self.out.add(f"fw::vec<{self.width}> {name} = {self._splat(value)};")
        else:
            name = self.partial[key][0]
            self.out.add(f"{name} = {combine.format(name, code)};")

    def put(self, statement: Statement, value: CppValue, r: int, v: int) -> None:
        """Stores a result at the end of the element."""
        address, stride = self._address(statement, r, v)
        if statement.add:
            old = self._load(address, stride)
            value = CppValue(f"({old.code} + {value.code})", value.is_vector or old.is_vector)
        self._store(address, stride, value)

    def flush(self) -> None:
        """Adds the partial results of the block to memory, and prints all stores that remain."""
        for name, address, stride, combine in self.partial.values():
            old = self._load(address, stride)
            self._store(address, stride, CppValue(combine.format(old.code, name), True))
        self.write()

    def write(self) -> None:
        """Prints the stores of an element. No other element of the block reads them."""
        for line in self.stores:
            self.out.add(line)
        self.stores.clear()

    def _address(self, statement: Statement, r: int, v: int) -> tuple[str, int]:
        return self._pointer(statement.node, statement.place, r, v)

    def _pointer(self, node: Node, index: tuple[Index, ...], r: int, v: int) -> tuple[str, int]:
        """Code for the address of an element, and the distance between lanes."""
        buffer, name = self.nest.program.buffer(node), self.nest.name(node)
        if buffer.is_scalar:
            return f"&{name}", 0
        offset = sum(i.start * stride for i, stride in zip(index, buffer.strides, strict=True))
        terms = []
        for axis in range(len(self.nest.nest.shape)):
            step = stride_along(axis, index, buffer.strides)
            if axis == self.axis:
                offset += step * v * self.width
            elif axis == self.row:
                offset += step * r
            if step:
                terms.append(f"i{axis}" if step == 1 else f"{step} * i{axis}")
        terms += [str(offset)] if offset else []
        stride = stride_along(self.axis, index, buffer.strides) if self.axis >= 0 else 0
        return " + ".join([name, *terms]), stride

    def _load(self, address: str, stride: int) -> CppValue:
        if stride == 0 or self.width == 1:
            return CppValue(address[1:] if address[0] == "&" else f"*({address})", False)
        if stride == 1:
            return CppValue(f"fw::load<{self.width}>({address})", True)
        return CppValue(f"fw::gather<{self.width}>({address}, {stride})", True)

    def _store(self, address: str, stride: int, value: CppValue) -> None:
        code = self._splat(value)
        if stride == 0 or self.width == 1:
            line = f"{address[1:] if address[0] == '&' else f'*({address})'} = {value.code};"
        elif stride == 1:
            line = f"fw::store<{self.width}>({address}, {code});"
        else:
            line = f"fw::scatter<{self.width}>({address}, {stride}, {code});"
        self.stores.append(line)

    def value(self, expression: Expression, r: int, v: int) -> CppValue:
        """Code for an expression at a row and a vector."""
        if isinstance(expression, Constant):
            return CppValue(number(expression.value), False)
        if isinstance(expression, Load):
            return self._loaded(expression, r, v)
        return self._applied(expression, r, v)

    def _loaded(self, load: Load, r: int, v: int) -> CppValue:
        stored = self.stored.get((load.node, load.index, r, v))
        if stored is not None:
            return stored
        address, stride = self._pointer(load.node, load.index, r, v)
        if address not in self.known:
            self.known[address] = self._named(self._load(address, stride))
        return self.known[address]

    def _named(self, value: CppValue) -> CppValue:
        if value.is_mask or value.code.isidentifier():
            return value
        name = f"x{len(self.known)}_{len(self.stored)}"
        self.out.add(f"const {f'fw::vec<{self.width}>' if value.is_vector else 'real'} {name} = {value.code};")
        return CppValue(name, value.is_vector)

    def _applied(self, expression: Apply, r: int, v: int) -> CppValue:
        key = (expression, r, v)
        if key not in self.known:
            arguments = [self.value(a, r, v) for a in expression.arguments]
            result = self._call(expression.function, arguments)
            shared = len(list(loads(expression))) and not CODE[expression.function].is_mixed
            self.known[key] = self._named(result) if shared else result
        return self.known[key]

    def _call(self, function: str, arguments: list[CppValue]) -> CppValue:
        template = CODE[function]
        is_vector = any(a.is_vector for a in arguments)
        codes = [self._splat(a) if is_vector and not template.is_mixed else a.code for a in arguments]
        return CppValue(template.text.format(*codes), is_vector, FUNCTIONS[function].is_mask)

    def _splat(self, value: CppValue) -> str:
        if value.is_vector or self.width == 1:
            return value.code
        return f"fw::{'splat_mask' if value.is_mask else 'splat'}<{self.width}>({value.code})"

    def _vector(self, value: CppValue, combine: str) -> str:
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
