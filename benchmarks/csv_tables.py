"""Tables of a benchmark as CSV files. The tables of the documentation are in docs/measurements."""

import csv
import io
from collections.abc import Iterator, Sequence
from pathlib import Path

from fastweights.core.files import write_atomically


def write_tables(folder: Path, names: Sequence[str], text: str) -> None:
    """Writes the Markdown tables of a text as `FOLDER/NAME.csv`, in order.

    The other lines of the text are comments: those before the first table in every file, later ones in the file of the
    table before them.

    Args:
        folder: Folder of the files. It is created if it does not exist.
        names: One name per table.
        text: Output of the benchmark.
    """
    folder.mkdir(parents=True, exist_ok=True)
    common, *parts = _parts(text)
    if len(parts) != len(names):
        raise ValueError(f"names must be {len(parts)}, one per table, got {len(names)}.")
    for name, part in zip(names, parts, strict=True):
        comments = [line for line in (*common, *part) if line and not line.startswith("|")]
        rows = [_cells(line) for line in part if line.startswith("|") and not line.startswith("|---")]
        file = io.StringIO()
        file.writelines(f"# {line}\n" for line in comments)
        csv.writer(file, lineterminator="\n").writerows(rows)
        write_atomically(folder / f"{name}.csv", file.getvalue().encode())


def _parts(text: str) -> Iterator[list[str]]:
    """The lines before the first table, and the lines of each table with the text after it."""
    part: list[str] = []
    for before, line in zip(["", *text.splitlines()], text.splitlines(), strict=False):
        if line.startswith("|") and not before.startswith("|"):
            yield part
            part = []
        part.append(line)
    yield part


def _cells(line: str) -> list[str]:
    return [cell.strip() for cell in line.strip().strip("|").split("|")]
