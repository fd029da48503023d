"""Tables of a benchmark as CSV files. The tables of the documentation are in docs/measurements."""

import csv
import io
from collections.abc import Iterable, Iterator, Sequence
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
        comments = [f"# {line}\n" for line in (*common, *part) if line and not line.startswith("|")]
        _write(folder / f"{name}.csv", comments, _rows(part))


def replace_rows(path: Path, text: str, keys: int) -> None:
    """Writes the rows of one Markdown table into a CSV file, in place of its rows with the same first columns.

    Args:
        path: File that `write_tables` wrote, with the same columns.
        text: Output of the benchmark.
        keys: Number of columns that tell rows apart. Rows are sorted by them, with the first column in its order.
    """
    lines = path.read_text(encoding="utf-8").splitlines(keepends=True)
    comments = [line for line in lines if line.startswith("#")]
    header, *old = csv.reader(line for line in lines if not line.startswith("#"))
    _, part = _parts(text)
    measured, *new = _rows(part)
    if measured != header:
        raise ValueError(f"text must be a table with the columns {header}, got {measured}.")
    replaced = {tuple(row[:keys]) for row in new}
    rows = [row for row in old if tuple(row[:keys]) not in replaced] + new
    order = list(dict.fromkeys(row[0] for row in rows))
    _write(path, comments, [header, *sorted(rows, key=lambda row: (order.index(row[0]), row[1:keys]))])


def _write(path: Path, comments: Sequence[str], rows: Iterable[Sequence[str]]) -> None:
    file = io.StringIO()
    file.writelines(comments)
    csv.writer(file, lineterminator="\n").writerows(rows)
    write_atomically(path, file.getvalue().encode())


def _parts(text: str) -> Iterator[list[str]]:
    """The lines before the first table, and the lines of each table with the text after it."""
    part: list[str] = []
    for before, line in zip(["", *text.splitlines()], text.splitlines(), strict=False):
        if line.startswith("|") and not before.startswith("|"):
            yield part
            part = []
        part.append(line)
    yield part


def _rows(part: Sequence[str]) -> list[list[str]]:
    """The cells of the lines of a table, without the line below its header."""
    return [_cells(line) for line in part if line.startswith("|") and not line.startswith("|---")]


def _cells(line: str) -> list[str]:
    return [cell.strip() for cell in line.strip().strip("|").split("|")]
