"""Sequences of the user, labelled or not: a folder with a sub-folder per class, a table, or arrays."""

from collections import Counter
from collections.abc import Callable, Iterable
from pathlib import Path, PurePosixPath
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from fastweights.core.errors import require
from fastweights.core.files import decoded, read_file
from fastweights.tasks.sources.archives import members
from fastweights.tasks.sources.arrays import read_array, read_arrays
from fastweights.tasks.sources.tables import Rows, finite, is_header, numbers, read_rows

ARCHIVES = (".zip", ".tar", ".gz", ".tgz")
SPECIAL = ("label", "sequence", "length", "text")
"""Columns of a table other than features."""

Value = str | NDArray[np.float32]
"""A text, or features `[T, D]`."""


class Example(NamedTuple):
    """A sequence, its origin, and its class, or None."""

    name: str
    value: Value
    label: str | None


def read_examples(path: Path, layout: str = "") -> list[Example]:
    """Reads all sequences in a file or a folder.

    Args:
        path: A folder with a sub-folder per class or an archive of one, a CSV, TSV or .npz file, or one .txt or .npy
            sequence.
        layout: "files" if a table is one sequence, whose rows are its steps; otherwise a table has many sequences.

    Raises:
        InputError: It is of another kind, damaged, or empty.
    """
    require(path.exists(), "data", "an existing file or folder", path)
    suffix = path.suffix.lower()
    if suffix == ".npz":
        examples = _in_arrays(path)
    elif suffix in (".csv", ".tsv") and layout != "files" and not path.is_dir():
        examples = _in_table(read_rows(read_file(path, "data"), str(path)), str(path))
    elif suffix in READERS and not path.is_dir():
        examples = [example._replace(name=str(path)) for example in _examples([(path.name, read_file(path, "data"))])]
    else:
        valid = path.is_dir() or suffix in ARCHIVES
        require(valid, "data", f"a folder or a file of {', '.join((*READERS, '.npz', *ARCHIVES))}", path)
        examples = _examples(_inside(sorted(members(path, _is_sequence))))
    remedy = "A folder needs a sub-folder per class with .txt, .csv, .tsv or .npy files."
    require(bool(examples), "data", "a file or folder with at least one sequence", f"none in {path}", remedy)
    kinds = Counter("texts" if isinstance(example.value, str) else "numbers" for example in examples)
    require(len(kinds) == 1, "data", "all texts or all numbers", f"both in {path}")
    return examples


def _is_sequence(name: str) -> bool:
    path = PurePosixPath(name)
    # Notebooks, file managers and archives leave hidden files and folders.
    return path.suffix.lower() in READERS and not any(part.startswith((".", "__MACOSX")) for part in path.parts)


def _inside(files: list[tuple[str, bytes]]) -> list[tuple[str, bytes]]:
    """Files by their names in the folder of the classes, without the outer folders of archives."""
    while files and len({name.partition("/")[0] for name, _ in files}) == 1 and all(n.count("/") > 1 for n, _ in files):
        files = [(name.partition("/")[2], content) for name, content in files]
    return files


def _examples(files: Iterable[tuple[str, bytes]]) -> list[Example]:
    """Reads files with one sequence each. The first folder of the name is the class. Empty files are skipped."""
    examples = []
    for name, content in files:
        if content.strip():
            folder, slash, _ = name.partition("/")
            value = READERS[PurePosixPath(name).suffix.lower()](content, name)
            examples.append(Example(name, value, folder if slash else None))
    return examples


def _text(content: bytes, name: str) -> str:
    return decoded(content, "text", name)


def _steps(content: bytes, name: str) -> NDArray[np.float32]:
    """Features `[T, D]` of a table whose rows are steps."""
    rows = read_rows(content, name)
    rows = rows[1:] if rows and is_header(rows[0]) else rows
    require(bool(rows), name, "a table with at least one row of numbers", "none")
    return numbers(rows, name)


def _array(content: bytes, name: str) -> NDArray[np.float32]:
    """Features `[T, D]`, from `[T]` or `[T, D]`."""
    values = read_array(content, name)
    fits = values.dtype.kind in "biuf" and values.ndim <= 2
    require(fits, name, "numbers [T] or [T, D]", f"{values.dtype} {list(values.shape)}")
    return finite(values.reshape(len(values), -1), name)


READERS: dict[str, Callable[[bytes, str], Value]] = {".txt": _text, ".csv": _steps, ".tsv": _steps, ".npy": _array}
"""Readers of one sequence, by suffix."""


def _in_arrays(path: Path) -> list[Example]:
    """Sequences in the arrays `x` `[N, T]` or `[N, T, D]`, or strings `[N]`; classes in `y`; perhaps `lengths`."""
    arrays = read_arrays(path, ("x", "y", "lengths"))
    require("x" in arrays, "data", "a .npz file with an array x", f"{path} with {', '.join(arrays) or 'none'}")
    x = arrays["x"]
    text = x.dtype.kind == "U" and x.ndim == 1
    fits = text or (x.dtype.kind in "biuf" and x.ndim in (2, 3))
    require(fits, f"x in {path}", "numbers [N, T] or [N, T, D], or strings [N]", f"{x.dtype} {list(x.shape)}")
    labels = _labels(arrays["y"], len(x), path) if "y" in arrays else [None] * len(x)
    names = [f"{path.name}[{n}]" for n in range(len(x))]
    if text:
        texts = [Example(*parts) for parts in zip(names, map(str, x), labels, strict=True)]
        return [example for example in texts if str(example.value).strip()]
    values = finite(x.reshape(*x.shape[:2], -1), f"x in {path}")
    ends = _lengths(arrays["lengths"], x.shape, path) if "lengths" in arrays else [x.shape[1]] * len(x)
    return [Example(name, v[:end], label) for name, v, end, label in zip(names, values, ends, labels, strict=True)]


def _labels(y: NDArray[Any], number: int, path: Path) -> list[str]:
    fits = y.shape == (number,) and y.dtype.kind in "biuU"
    require(fits, f"y in {path}", f"whole numbers or strings [{number}]", f"{y.dtype} {list(y.shape)}")
    return [str(label) for label in y.tolist()]


def _lengths(lengths: NDArray[Any], shape: tuple[int, ...], path: Path) -> list[int]:
    fits = lengths.shape == shape[:1] and lengths.dtype.kind in "iu" and 1 <= lengths.min() <= lengths.max() <= shape[1]
    requirement = f"whole numbers [{shape[0]}] from 1 to {shape[1]}"
    require(bool(fits), f"lengths in {path}", requirement, f"{lengths.dtype} {list(lengths.shape)}")
    return [int(length) for length in lengths]


def _in_table(rows: Rows, name: str) -> list[Example]:
    """Sequences in a table with a header.

    Columns `label` and `text`: a text per row. Columns `label` and `sequence`: a step per row, and rows with the same
    `sequence` are one. Else a sequence per row, a step per column, cells at the end of a row empty, or a `length`.
    """
    require(bool(rows) and is_header(rows[0]), name, "a table with a header, such as label,x1,x2", "none")
    header = [column.lower() if column.lower() in SPECIAL else column for column in rows[0]]
    require(len(set(header)) == len(header), name, "a table with different names of columns", ",".join(header)[:80])
    wrong = next((n for n, row in enumerate(rows) if len(row) != len(header)), None)
    width = f"a table of {len(header)} columns in every row, as in its header"
    require(wrong is None, name, width, f"{len(rows[wrong or 0])} in row {wrong}")
    columns: Columns = {column: tuple(row[n] for row in rows[1:]) for n, column in enumerate(header)}
    labels = columns.get("label")
    empty = labels is not None and "" in labels
    require(not empty, name, "a table with a label in every row", f"none in row {_row_of('', labels)}")
    if "text" in columns:
        return _texts(columns, labels, name)
    features = [column for column in header if column not in SPECIAL]
    require(bool(features), name, "a table with columns of features, or a column text", ",".join(header)[:80])
    if "sequence" in columns:
        return _long(columns, features, labels, name)
    return _wide(columns, features, labels, name)


Columns = dict[str, tuple[str, ...]]
Labels = tuple[str, ...] | None


def _row_of(cell: str, column: Labels) -> int:
    """Number of the first row with a cell, from 1; 0 if there is none."""
    return column.index(cell) + 1 if column and cell in column else 0


def _texts(columns: Columns, labels: Labels, name: str) -> list[Example]:
    others = ", ".join(column for column in columns if column not in ("text", "label"))
    require(not others, name, "a table of the columns label and text", f"{others} as well", "Leave them out.")
    rows = zip(columns["text"], labels or [None] * len(columns["text"]), strict=True)
    return [Example(f"row {n}", text, label) for n, (text, label) in enumerate(rows, start=1) if text]


def _long(columns: Columns, features: list[str], labels: Labels, name: str) -> list[Example]:
    steps: dict[str, list[int]] = {}
    for row, sequence in enumerate(columns["sequence"]):
        steps.setdefault(sequence, []).append(row)
    if not steps:
        return []
    values = numbers([list(cells) for cells in zip(*(columns[f] for f in features), strict=True)], name)
    examples = []
    for sequence, rows in steps.items():
        row_labels = {labels[row] for row in rows} if labels else {None}
        require(len(row_labels) == 1, name, "a table with one label per sequence", f"several for sequence {sequence!r}")
        examples.append(Example(f"sequence {sequence}", values[rows], row_labels.pop()))
    return examples


def _wide(columns: Columns, features: list[str], labels: Labels, name: str) -> list[Example]:
    rows = [list(cells) for cells in zip(*(columns[f] for f in features), strict=True)]
    if "length" in columns:
        rows = [_cut(row, text, name) for row, text in zip(rows, columns["length"], strict=True)]
    examples = []
    for n, row in enumerate(rows, start=1):
        while row and not row[-1]:
            row.pop()
        require(bool(row), name, "a table with at least one number in every row", f"none in row {n}")
        value = numbers([row], f"row {n} of {name}").reshape(-1, 1)
        examples.append(Example(f"row {n}", value, labels[n - 1] if labels else None))
    return examples


def _cut(row: list[str], length: str, name: str) -> list[str]:
    fits = length.isdecimal() and len(length) < 10 and 1 <= int(length) <= len(row)
    require(fits, f"length in {name}", f"a whole number from 1 to {len(row)}", repr(length)[:80])
    return row[: int(length)]
