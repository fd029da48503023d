"""Groups the expressions of a lowered network into loops, and gives every result a buffer."""

from collections.abc import Iterable, Sequence

from fastweights.compiler.ir.network import (
    BufferRole,
    CellStep,
    Convert,
    Gather,
    Loops,
    MatrixProduct,
    NetworkBuffer,
    NetworkProgram,
    Operation,
    View,
)
from fastweights.compiler.ir.nodes import COMPUTED, Input, Load, Map, Node, Value, upstream, whole
from fastweights.compiler.network.lower import Lowered, Special
from fastweights.compiler.network.view import base_of, is_dense, offset_of, strides_of


def group(lowered: Lowered, title: str, new_states: Sequence[int]) -> NetworkProgram:
    """The program of a lowered network, whose results at the positions `new_states` are the states after the step."""
    return Grouping(lowered, title, new_states).program()


DENSE_FROM = {"x": 1, "inputs": 3, "weight": 2, "table": 1}
"""The first axis from which an operand must be contiguous; 0 for the others."""


class Grouping:
    """Assigns every node to the first operation that needs it: the loops in front of that operation compute it."""

    def __init__(self, lowered: Lowered, title: str, new_states: Sequence[int]) -> None:
        self.lowered, self.new_states = lowered, new_states
        self.out = NetworkProgram(title)
        self.buffers: dict[Node, NetworkBuffer] = {**lowered.inputs}
        self.ready: set[Node] = set(lowered.inputs)
        self.operands = [self._prepared(special) for special in lowered.specials]
        self.states = [b for b in lowered.inputs.values() if b.role is BufferRole.STATE]
        self.results = [self._result(n, value) for n, (value, _) in enumerate(lowered.results)]
        self.group: dict[Node, int] = {}
        for n, roots in enumerate([*map(self._roots, self.operands), self.results]):
            for node in upstream(_bases(roots), self.group):
                self.group.setdefault(node, n)
        self.stored = self._choose_stored()

    def program(self) -> NetworkProgram:
        """The program, without operations whose results are not needed."""
        self._add_buffers(self.lowered.inputs.values())
        results = self._result_buffers()
        for n, (special, operands) in enumerate(zip(self.lowered.specials, self.operands, strict=True)):
            self._add_loops(n)
            for node in special.results:
                self._allocate(node)
            self.ready.update(special.results)
            self.out.operations.append(self._operation(special, operands))
        self._add_loops(len(self.operands))
        for value, buffer in zip(self.results, results, strict=True):
            if self.buffers[base_of(_node(value))] is not buffer:
                self.out.operations.append(Convert(buffer, self._view(value)))
        _drop_unused(self.out)
        return self.out

    def _prepared(self, special: Special) -> dict[str, list[Value]]:
        """The operands as views of stored nodes."""
        return {
            name: [_as_view(value, DENSE_FROM.get(name, 0)) for value in values]
            for name, values in special.operands.items()
        }

    def _result(self, n: int, value: Value) -> Value:
        """A result as a view. A part of another state is copied early, since that state may be overwritten."""
        view = _as_view(value, 0)
        buffer = self.buffers.get(base_of(_node(view)))
        is_other = buffer in self.states and buffer is not self._state_of(n)
        return whole(Map(value.shape, value.expression)) if is_other else view

    def _state_of(self, n: int) -> NetworkBuffer | None:
        """The state before the step whose memory result n may have."""
        return self.states[self.new_states.index(n)] if n in self.new_states else None

    def _roots(self, operands: dict[str, list[Value]]) -> list[Value]:
        return [value for values in operands.values() for value in values]

    def _choose_stored(self) -> set[Node]:
        """The nodes that an operation reads, or the loops in front of another operation than their own."""
        roots = [*(v for operands in self.operands for v in self._roots(operands)), *self.results]
        stored = set(_bases(roots))
        for reader, n in self.group.items():
            stored.update(base for base in map(base_of, reader.operands()) if self.group[base] != n)
        return stored

    def _result_buffers(self) -> list[NetworkBuffer]:
        """The buffers of the results. A node that is a result is computed in its buffer where possible."""
        made = {node for special in self.lowered.specials for node in special.results}
        buffers = []
        for n, (value, (_, kind)) in enumerate(zip(self.results, self.lowered.results, strict=True)):
            role = BufferRole.NEW_STATE if n in self.new_states else BufferRole.OUTPUT
            buffer = NetworkBuffer(f"{role.value}_{n}", value.shape, kind, role)
            node = base_of(_node(value))
            fits = kind == "real" and node not in self.buffers and node.size == buffer.size
            if fits and (role is BufferRole.OUTPUT or (node in made and self._may_overwrite(node, self._state_of(n)))):
                self.buffers[node] = buffer
            buffers.append(buffer)
        self._add_buffers(buffers)
        return buffers

    def _may_overwrite(self, node: Node, old_state: NetworkBuffer | None) -> bool:
        """Whether a cell computes a new state from this old state, and no later operation reads the old state."""
        at = next(n for n, special in enumerate(self.lowered.specials) if node in special.results)
        old = set(_bases(self.operands[at].get("states", [])))
        results: list[Node] = [*self.lowered.specials[at].results]
        place = results.index(node) - 1  # the first result of a cell is its output
        if self.lowered.specials[at].kind != "cell" or place < 0:
            return False
        if self.buffers.get(_bases(self.operands[at]["states"])[place]) is not old_state:
            return False
        later = [*self.operands[at + 1 :], {"results": self.results}]
        reads = {base for operands in later for base in _bases(self._roots(operands))}
        reads |= {base_of(o) for d, n in self.group.items() if n > at for o in d.operands()}
        return old.isdisjoint(reads)

    def _add_buffers(self, buffers: Iterable[NetworkBuffer]) -> None:
        self.out.buffers.extend(buffers)

    def _allocate(self, node: Node) -> NetworkBuffer:
        """The buffer of a node, a new one unless it has one."""
        if node not in self.buffers:
            self.buffers[node] = NetworkBuffer(f"t{len(self.buffers)}", node.shape, "real", BufferRole.SCRATCH)
            self._add_buffers([self.buffers[node]])
        return self.buffers[node]

    def _add_loops(self, n: int) -> None:
        """Adds the loops in front of operation n."""
        computed = [d for d, m in self.group.items() if m == n and d in self.stored and isinstance(d, COMPUTED)]
        if not computed:
            return
        needed = upstream(computed, self.ready) & self.ready
        placeholders = {d: self.buffers[d] for d in sorted(needed, key=lambda d: d.serial)}
        computed.sort(key=lambda d: d.serial)
        results = [(self._allocate(d), whole(d)) for d in computed]
        self.ready.update(computed)
        self.out.operations.append(Loops(placeholders, results))

    def _view(self, value: Value) -> View:
        return View(self.buffers[base_of(_node(value))], offset_of(value), value.shape, strides_of(value))

    def _operation(self, special: Special, operands: dict[str, list[Value]]) -> Operation:
        views = {name: [self._view(v) for v in values] for name, values in operands.items()}
        made = [self.buffers[node] for node in special.results]
        match special.kind:
            case "convert":
                return Convert(made[0], views["x"][0])
            case "linear":
                return MatrixProduct(made[0], views["x"][0], views["weight"][0], *views["bias"])
            case "gather":
                return Gather(made[0], views["table"][0], views["index"][0])
        assert special.spec is not None
        return CellStep(
            special.spec.cell,
            special.spec.sizes,
            special.spec.dtype,
            inputs=views["inputs"],
            states=views["states"],
            params=views["params"],
            initial=views["initial"],
            reset=views["reset"][0] if views["reset"] else None,
            y=made[0],
            new_states=made[1:],
        )


def _node(value: Value) -> Node:
    assert isinstance(value.expression, Load)
    return value.expression.node


def _bases(values: Iterable[Value]) -> list[Node]:
    return [base_of(_node(value)) for value in values]


def _as_view(value: Value, dense_from: int) -> Value:
    """The value as a view that is contiguous from an axis on: itself, or a new node with its elements."""
    if isinstance(value.expression, Load) and isinstance(base_of(_node(value)), (Input, *COMPUTED)):
        strides = strides_of(value)
        if is_dense(value.shape[dense_from:], strides[dense_from:]):
            return value
    return whole(Map(value.shape, value.expression))


def _drop_unused(program: NetworkProgram) -> None:
    """Removes the operations whose results nothing reads."""
    needed = {b for b in program.buffers if b.role in (BufferRole.OUTPUT, BufferRole.NEW_STATE)}
    operations: list[Operation] = []
    for operation in reversed(program.operations):
        if needed.intersection(operation.writes):
            needed.update(operation.reads)
            operations.insert(0, operation)
    program.operations[:] = operations
    used = {b for operation in operations for b in (*operation.reads, *operation.writes)}
    program.buffers[:] = [b for b in program.buffers if b.role is not BufferRole.SCRATCH or b in used]
