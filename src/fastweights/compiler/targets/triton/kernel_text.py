"""Lines that the kernels of steps and those of all time steps have in common."""

from collections.abc import Iterable

from fastweights.compiler.targets.triton.body import Domain

Tile = tuple[str, str, Domain]
"""The name of a tile, its address in memory, and its axes."""


def kernel_text(name: str, parameters: Iterable[str], integers: Iterable[str], code: Iterable[str]) -> str:
    """The text of a kernel. It is not compiled again for other values of the `integers`."""
    quoted = ", ".join(f'"{integer}"' for integer in integers)
    lines = [f"@triton.jit(do_not_specialize=[{quoted}])", f"def {name}(", *indent(parameters), "):", *indent(code)]
    return "\n".join([*lines, ""])


def block_of_steps(steps: int) -> list[str]:
    """Lines that find the time steps, the head and the sequence of a program, which runs some `steps` of a head."""
    return [
        f"m, h, blocks = program // H, program % H, (T + {steps - 1}) // {steps}",
        f"b, start = m // blocks, m % blocks * {steps}",
        f"stop = tl.minimum(start + {steps}, T)",
    ]


def axis_indices(code: str) -> list[str]:
    """Lines that define the indices along axes that the code uses."""
    return [f"i{n} = tl.arange(0, {n})" for n in (1 << k for k in range(1, 21)) if _names(code, f"i{n}")]


def advanced(inputs: Iterable[Tile]) -> list[str]:
    """Lines that take the tiles that were loaded ahead."""
    return [f"{name} = next_{name}" for name, _, _ in inputs]


def indent(lines: Iterable[str], by: int = 1) -> list[str]:
    """Lines with a deeper indentation."""
    return [f"{'    ' * by}{line}" for line in lines]


def _names(code: str, name: str) -> bool:
    return any(f"{name}{end}" in code for end in ("[", " ", ")", ","))
