"""Tables of text: CSV and TSV files."""

import csv
import io
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from fastweights.core.errors import InputError, require
from fastweights.core.files import decoded

DELIMITERS = ",;\t"
Rows = list[list[str]]


def read_rows(content: bytes, name: str) -> Rows:
    """The non-empty rows of a UTF-8 table, with stripped cells. The delimiter is that of the first line.

    Raises:
        InputError: The content is not such a table.
    """
    text = decoded(content, name, "one")
    first = text.lstrip().partition("\n")[0]
    delimiter = max(DELIMITERS, key=first.count)
    try:
        reader = csv.reader(io.StringIO(text, newline=""), delimiter=delimiter, strict=True)
        rows = [[cell.strip() for cell in row] for row in reader]
    except csv.Error as error:
        raise InputError(f"{name} must be a table, got something else: {error}.") from None
    return [row for row in rows if any(row)]


def is_header(row: Sequence[str]) -> bool:
    """Whether a row has names rather than numbers."""
    try:
        np.array(row, dtype=np.float64)
    except ValueError:
        return True
    return False


def numbers(rows: Rows, name: str) -> NDArray[np.float32]:
    """The numbers `[rows, columns]` of a table.

    Raises:
        InputError: A cell is no finite number, or rows have different widths.
    """
    width = len(rows[0])
    uneven = next((row for row in rows if len(row) != width), None)
    require(uneven is None, name, f"a table of {width} columns, as its first row", f"a row of {len(uneven or ())}")
    try:
        values = np.array(rows, dtype=np.float64)
    except ValueError as error:
        raise InputError(f"{name} must be a table of numbers, got another cell: {error}.") from None
    return finite(values, name)


def finite(values: NDArray[np.generic], name: str) -> NDArray[np.float32]:
    """Numbers in single precision.

    Raises:
        InputError: One is not a number, or is infinite in single precision.
    """
    with np.errstate(over="ignore"):
        single = values.astype(np.float32)
    wrong = np.argwhere(~np.isfinite(single))
    got = f"{values[tuple(wrong[0])]} at {wrong[0].tolist()}" if len(wrong) else ""
    require(not len(wrong), name, "a table of finite numbers", got, "Fill in or leave out what is missing.")
    return single
