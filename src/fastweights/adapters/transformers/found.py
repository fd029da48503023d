"""Functions of transformers that run a memory over time, or the short convolution in front of it."""

import re
from collections.abc import Callable, Iterator
from importlib import import_module
from pathlib import Path
from types import ModuleType
from typing import Any, NamedTuple

from fastweights.adapters.transformers.replacement import Replacement
from fastweights.adapters.transformers.table import TABLE

DEFINITION = re.compile(r"^(?:def| *class) (\w+)\(", re.MULTILINE)
"""A function of a module, or a class, which may be indented."""


class Found(NamedTuple):
    """A function of a module of transformers.

    Attributes:
        module: The module of a model.
        owner: The module or class that has the function.
        name: Name of the function.
        function: The function.
        replacement: Its row of the table.
    """

    module: ModuleType
    owner: Any
    name: str
    function: Callable[..., Any]
    replacement: Replacement

    @property
    def path(self) -> str:
        """Full name of the function."""
        return f"{self.module.__name__}.{'' if self.owner is self.module else self.owner.__name__ + '.'}{self.name}"


def functions() -> Iterator[Found]:
    """All functions of the installed version, in the order of modules and names.

    Only modules whose text defines a function of the table are imported: transformers has hundreds of others.
    """
    import transformers

    for file in sorted(Path(transformers.__file__).parent.glob("models/*/modeling_*.py")):
        matches = _matches(file.read_text(encoding="utf-8"))
        if matches:
            module = import_module(f"transformers.models.{file.parent.name}.{file.stem}")
            yield from (entry for name, row in matches.items() if (entry := _found(module, name, row)))


def _matches(text: str) -> dict[str, Replacement]:
    """The functions of the table that the text of a module defines, by name, with their rows."""
    defined = dict.fromkeys(DEFINITION.findall(text))
    matches: dict[str, Replacement] = {}
    for row in TABLE:
        if not row.defined_with or row.defined_with in defined:
            pattern, dot, method = row.name.partition(".")
            for name in filter(re.compile(pattern).fullmatch, defined):
                matches.setdefault(f"{name}{dot}{method}", row)
    return matches


def _found(module: ModuleType, name: str, row: Replacement) -> Found | None:
    """The function of a name; None if a package takes its place, as that of xLSTM."""
    owner_name, _, function_name = name.rpartition(".")
    owner = getattr(module, owner_name, None) if owner_name else module
    is_own = owner is module or getattr(owner, "__module__", "") == module.__name__
    return Found(module, owner, function_name, getattr(owner, function_name), row) if is_own else None
