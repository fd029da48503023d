"""Arrays in untrusted .npy and .npz files: nothing is unpickled, and no memory is allocated by the size in a header."""

import re
from collections.abc import Collection
from math import prod
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fastweights.core.errors import InputError, require
from fastweights.tasks.sources.archives import members

HEADER = re.compile(
    rb"\x93NUMPY(?:\x01\x00..|\x02\x00....)"
    rb"\{'descr': '(?P<type>[<>|]?(?:b1|[iu][1248]|f[248]|U[1-9]\d{0,6}))', "
    rb"'fortran_order': (?P<fortran>True|False), 'shape': \((?P<shape>[\d, ]{1,80})\), \} *\n",
    re.DOTALL,
)
"""Header that numpy writes for arrays of numbers and of strings, in versions 1.0 and 2.0 of the format."""


def read_array(content: bytes, name: str) -> NDArray[Any]:
    """The array in the content of a .npy file, a view of it.

    Raises:
        InputError: The content is damaged, or holds something else than numbers or strings.
    """
    header = HEADER.match(content)
    requirement = "a whole .npy array of numbers or strings"
    if header is None:
        raise InputError(f"{name} must be {requirement}, got another header.")
    shape = tuple(int(size) for size in header["shape"].replace(b",", b" ").split())
    kind, size = np.dtype(header["type"].decode()), len(content) - header.end()
    require(bool(shape) and min(shape) >= 1, name, f"{requirement} with at least one value", f"shape {list(shape)}")
    claimed = prod(shape) * kind.itemsize
    require(claimed == size, name, requirement, f"{size:,} bytes for shape {list(shape)} of {kind}")
    if kind.kind == "U":
        _require_characters(np.frombuffer(content, f"{kind.str[0]}u4", offset=header.end()), name)
    flat = np.frombuffer(content, kind, offset=header.end())
    return flat.reshape(shape, order="F" if header["fortran"] == b"True" else "C")


def _require_characters(codes: NDArray[Any], name: str) -> None:
    """`InputError` unless all numbers are code points of characters."""
    valid = (codes <= 0x10FFFF) & ~((codes >= 0xD800) & (codes <= 0xDFFF))
    require(bool(valid.all()), name, "strings of Unicode characters", "other code points")


def read_arrays(path: Path, names: Collection[str]) -> dict[str, NDArray[Any]]:
    """Reads the arrays of these names in a .npz file, if they exist.

    Raises:
        InputError: The file is damaged, or an array is none of numbers or strings.
    """
    names_by_file = {f"{name}.npy": name for name in names}
    return {
        names_by_file[file]: read_array(content, f"{names_by_file[file]} in {path}")
        for file, content in members(path, names_by_file.get)
    }
