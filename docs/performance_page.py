"""The pages on performance: the texts of `performance.txt` and `gpu.txt` with some rows of the measurements."""

import re
from pathlib import Path

from tables import read_table

ROWS = [("8, 256, 8, 16", cell) for cell in ("sum", "delta", "gated-delta", "delta-rnn", "delta-lstm")]
ROWS += [("8, 256, 8, 16", cell) for cell in ("recurrent-delta-net", "srwm", "fast-weight-rnn")]
ROWS += [("4, 1024, 8, 64", cell) for cell in ("sum", "delta", "gated-delta")]
"""Shape and cell of the rows of the table."""
BOTH = "forward + backward ms"


def performance_page() -> str:
    """The page as Markdown."""
    cells, steps = read_table("cells"), read_table("one-step").rows
    measured = {(row["B, T, H, K"], row["cell"], row["run"]): row for row in cells.rows}
    parts = {
        "MACHINE": cells.comments[0].removeprefix("float32, medians, ").removesuffix("."),
        "TABLE": "\n".join(_row(measured, *row) for row in ROWS),
        "PARTS": _step_parts(),
        "FIRST": _first_call(),
        "TORCH": _range("first-call-and-torch-compile", "torch.compile"),
        "CHUNKS": _range("long-sequence", "chunkwise / compiled"),
        "STEP": next(row["microseconds"] for row in steps if (row["cell"], row["run"]) == ("delta", "compiled")),
    }
    text = (Path(__file__).parent / "performance.txt").read_text(encoding="utf-8")
    for name, part in parts.items():
        text = text.replace(name, part)
    return text


def _row(measured: dict[tuple[str, str, str], dict[str, str]], shape: str, cell: str) -> str:
    """A row of the table: times of a cell at a shape, and the ratio of the loop to the compiled kernel."""
    rows = [measured.get((shape, cell, run), {}) for run in ("eager loop", "chunkwise", "compiled")]
    ratio = f"{float(rows[-1]['times the eager loop']):.0f}"
    return f"| {' | '.join([f'[{cell}](cells/{cell}.md)', shape, *(row.get(BOTH, '') for row in rows), ratio])} |"


def _step_parts() -> str:
    """The parts of a training step of some models."""
    rows = read_table("training-step-parts").rows
    lines = [f"| {' | '.join(rows[0])} |", f"|---|{'---:|' * (len(rows[0]) - 1)}"]
    return "\n".join([*lines, *(f"| {' | '.join(row.values())} |" for row in rows)])


def _first_call() -> str:
    """Rows of the median times of the first call."""
    medians = next(row for row in read_table("first-call").rows if row["cell"] == "**median**")
    seconds = {name: value.partition(" ")[0] for name, value in medians.items()}
    return "\n".join(
        f"| {label} | {seconds[f'K = V = 16, to {purpose}']} | {seconds[f'K = V = 64, to {purpose}']} |"
        for label, purpose in {"forward pass": "run", "forward and backward pass": "train"}.items()
    )


def _range(table: str, column: str) -> str:
    """Range of the numbers in all columns whose names begin with `column`."""
    rows = read_table(table).rows
    numbers = [float(row[name].partition(" ")[0]) for row in rows for name in row if name.startswith(column)]
    return f"{min(numbers):.0f} to {max(numbers):.0f}"


def gpu_page() -> str:
    """The page on GPUs as Markdown: the text of `gpu.txt` with the measurements at one shape."""
    table = read_table("gpu-language-model-small")
    name = next(iter(table.rows[0]))
    times = {row[name].removesuffix(" (busy)"): row for row in table.rows}
    long = {row[next(iter(row))]: row["as a graph, ms"] for row in read_table("gpu-one-long-sequence").rows}
    cells = [row.partition(", ")[0] for row in times if row.endswith(", compiled")]
    parts = {
        "MACHINE": table.comments[0],
        "TABLE": "\n".join(_gpu_row(times, cell) for cell in cells),
        "CHECKS": re.search(r"\d+ of \d+ cells", " ".join(table.comments))[0],  # type: ignore[index]
        "LONG": f"{float(long['delta, compiled']):.0f}",
    }
    text = (Path(__file__).parent / "gpu.txt").read_text(encoding="utf-8")
    for key, part in parts.items():
        text = text.replace(key, part)
    return text


def _gpu_row(times: dict[str, dict[str, str]], cell: str) -> str:
    """Times of a cell; empty where a run was not measured or failed."""
    graph, launches = "as a graph, ms", "launches in, ms"
    places = [("compiled", graph), ("compiled", launches), ("loop", launches), ("flash-linear-attention", graph)]
    values = [times.get(f"{cell}, {run}", {}).get(column, "") for run, column in places]
    return f"| {' | '.join([f'[{cell}](cells/{cell}.md)', *(x if x[:1].isdigit() else '' for x in values)])} |"
