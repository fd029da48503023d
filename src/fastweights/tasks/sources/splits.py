"""Splits of classes of images into training, validation and test."""

import csv
import io
from collections.abc import Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from fastweights.core.errors import InputError, require
from fastweights.core.files import decoded
from fastweights.tasks.sources.image_sets import Files

PARTS = ("train", "val", "test")
Split = tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.int64]]
"""Indices of the classes of each part."""
HEADER = ["filename", "label"]


def read_tables(contents: Mapping[str, bytes], folder: str) -> tuple[Files, tuple[list[int], ...]]:
    """Reads the files of every class from the tables `{train,val,test}.csv`, and the classes of each.

    Raises:
        InputError: A table is missing or invalid, names a missing file, or has a class of another table.
    """
    files: dict[str, list[tuple[str, bytes]]] = {}
    parts: list[list[str]] = []
    for part in PARTS:
        table = f"{part}.csv"
        require(table in contents, "folder", f"a folder with {', '.join(f'{p}.csv' for p in PARTS)}", f"no {table}")
        rows = _rows(contents[table], table)
        parts.append(list(dict.fromkeys(label for _, label in rows)))
        for name, label in rows:
            require(folder + name in contents, table, "a table of existing files", repr(name))
            files.setdefault(label, []).append((name, contents[folder + name]))
    require_disjoint(parts)
    indices = {name: n for n, name in enumerate(files)}
    return files, tuple([indices[label] for label in part] for part in parts)


def read_folders(contents: Mapping[str, bytes], folder: str) -> tuple[Files, tuple[list[int], ...]]:
    """Reads the files of every class by folder, and the classes of the folders `train`, `val` and `test`, if all of
    these exist; none otherwise.

    Raises:
        InputError: There is no folder of images, or a class is in two parts.
    """
    parents = {name: name.rpartition("/")[0] for name in sorted(contents)}
    split = {parent.partition("/")[0] for parent in parents.values()} == set(PARTS)
    files: dict[str, list[tuple[str, bytes]]] = {}
    parts: dict[str, list[str]] = {part: [] for part in PARTS}
    for name, parent in parents.items():
        part, _, label = parent.partition("/") if split else ("", "", parent)
        if label:
            files.setdefault(parent, []).append((name, contents[name]))
            parts.setdefault(part, []).append(label)
    require(bool(files), "folder", "a folder with a sub-folder of images per class", f"none in {folder}")
    if not split:
        return files, ()
    require_disjoint([list(dict.fromkeys(parts[part])) for part in PARTS])
    return files, tuple([n for n, parent in enumerate(files) if parent.startswith(f"{part}/")] for part in PARTS)


def require_disjoint(parts: Sequence[Sequence[str]]) -> None:
    """`InputError` if a class is in two parts."""
    part_of: dict[str, str] = {}
    for part, names in zip(PARTS, parts, strict=True):
        for name in names:
            both = f"{part_of.get(name)} and {part}"
            require(name not in part_of, f"class {name!r}", "in one split", both, "Take it out of one of them.")
            part_of[name] = part


def _rows(content: bytes, table: str) -> list[list[str]]:
    try:
        rows = list(csv.reader(io.StringIO(decoded(content, table, "one"), newline=""), strict=True))
    except csv.Error as error:
        raise InputError(f"{table} must be a table of values with commas between them, got {error}.") from None
    header = rows[0] if rows else []
    require(header == HEADER, table, f"a table that begins with {','.join(HEADER)}", repr(",".join(header))[:80])
    rows = [row for row in rows[1:] if row]
    wrong = next((n for n, row in enumerate(rows, start=2) if len(row) != 2 or not all(row)), 0)
    require(not wrong, table, "a table whose lines have a filename and a label", f"line {wrong}")
    require(bool(rows), table, "a table with at least one image", "none")
    return rows
