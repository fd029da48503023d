"""Stores the matrices of a program in bfloat16, or in int8 with a scale per row: a step reads less memory."""

from fastweights.compiler.ir.network import BufferRole, Gather, MatrixProduct, NetworkBuffer, NetworkProgram, Precision

LEAST = 1 << 10
"""Smallest number of elements of a matrix that is stored in another precision."""


def store_weights(program: NetworkProgram, precision: Precision) -> None:
    """Changes the types of all matrices of a program that are read by rows only."""
    if precision == "float32":
        return
    for buffer in _matrices(program):
        buffer.type = precision
        if precision == "int8":
            buffer.scale = NetworkBuffer(f"{buffer.name}.scale", buffer.shape[:1], "real", BufferRole.WEIGHT)
            program.buffers.append(buffer.scale)


def _matrices(program: NetworkProgram) -> list[NetworkBuffer]:
    """The weights that are only multiplied by rows, or looked up."""
    fits = [b for b in program.of(BufferRole.WEIGHT) if len(b.shape) == 2 and b.size >= LEAST]
    by_rows = [o.weight.buffer for o in program.operations if isinstance(o, MatrixProduct) and _is_by_rows(o)]
    by_rows += [o.table.buffer for o in program.operations if isinstance(o, Gather)]
    reads = [b for o in program.operations for b in o.reads]
    return [b for b in fits if b in by_rows and reads.count(b) == by_rows.count(b)]


def _is_by_rows(linear: MatrixProduct) -> bool:
    return linear.weight.strides == (1, linear.weight.buffer.shape[1])
