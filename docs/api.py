"""The API reference of the site: one page per public module, and one per class of the packages with many classes.

`write` writes the pages, which Sphinx fills by autodoc; `docstrings.py` converts the docstrings.
"""

import importlib
import inspect
import sys
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from types import ModuleType
from typing import Any, TypeVar

from sphinx.pycode import ModuleAnalyzer

import fastweights
from fastweights import adapters
from fastweights.core.family import Family
from fastweights.layers import Layer

PAGED = ("fastweights.layers", "fastweights.models", "fastweights.tasks")
"""Packages with one page per class."""


def modules() -> list[str]:
    """Names of all public modules."""
    names = [name for name in fastweights.PUBLIC if name != "adapters"]
    files = sorted(path.stem for path in Path(str(adapters.__file__)).parent.iterdir() if path.name[0] != "_")
    paths = [*names, *(f"adapters.{file}" for file in files)]
    return ["fastweights", *(f"fastweights.{name}" for name in paths if public(f"fastweights.{name}"))]


def public(module: str) -> dict[str, Any]:
    """Public objects of a module by name: those of `__all__`, or those that the module defines."""
    home = importlib.import_module(module)
    names = getattr(home, "__all__", None) or [name for name in vars(home) if is_own(home, name)]
    objects = {name: getattr(home, name) for name in sorted(names, key=str.lower)}
    return {name: value for name, value in objects.items() if not isinstance(value, ModuleType)}


def is_own(module: ModuleType, name: str) -> bool:
    """Whether a module defines a name, as a function or a class."""
    value = getattr(module, name)
    fits = callable(value) and not isinstance(value, TypeVar)
    return fits and not name.startswith("_") and getattr(value, "__module__", "") == module.__name__


@cache
def homes() -> dict[int, str]:
    """Full name under which each public object is documented, by the identity of the object.

    An object of several modules is documented in the last of them: `fastweights.LanguageModel` in `fastweights.models`.
    """
    named = ((f"{module}.{name}", value) for module in modules() for name, value in public(module).items())
    return {id(value): full for full, value in named if full.endswith(f".{getattr(value, '__name__', '')}")}


def members(kind: type) -> list[str]:
    """Public methods and properties that a class adds to those of its base classes in this library."""
    bases = [base for base in kind.__mro__[1:] if base.__module__.startswith("fastweights")]
    inherited = {name for base in bases for name in vars(base)} | {"reset_parameters"}
    return [name for name in vars(kind) if name not in inherited and is_documented(kind, name)]


def is_documented(kind: type, name: str) -> bool:
    """Whether an attribute of a class is a public method or property with a docstring."""
    member = inspect.getattr_static(kind, name)
    routine = isinstance(member, property | staticmethod | classmethod) or inspect.isfunction(member)
    return routine and not name.startswith("_") and bool(getattr(kind, name).__doc__)


def write(folder: Path) -> None:
    """Writes all pages."""
    folder.mkdir()
    for module in modules():
        (folder / f"{module}.rst").write_text("\n\n".join(_module(module)) + "\n", encoding="utf-8")
        for name, value in public(module).items() if module in PAGED else ():
            if inspect.isclass(value):
                text = "\n\n".join([_title(name), *_object(f"{module}.{name}", value)])
                (folder / f"{module}.{name}.rst").write_text(text + "\n", encoding="utf-8")
    tree = [".. toctree::\n   :maxdepth: 1\n", *(f"   {module}" for module in modules())]
    (folder / "index.rst").write_text("\n".join([_title("API reference"), "", *tree]) + "\n", encoding="utf-8")


def _module(module: str) -> Iterator[str]:
    """Parts of the page of a module."""
    yield _title(module if "." in module else f"{module}: top-level names")
    yield f".. automodule:: {module}\n   :no-members:"
    names, full = public(module), homes()
    documented = {name: full.get(id(value), f"{module}.{name}") for name, value in names.items()}
    own = {name: value for name, value in names.items() if documented[name] == f"{module}.{name}"}
    if others := {name: home for name, home in documented.items() if name not in own}:
        yield "Also here: " + ", ".join(f":py:obj:`{name} <{home}>`" for name, home in others.items()) + "."
    paged = {name: value for name, value in own.items() if module in PAGED and inspect.isclass(value)}
    if paged:
        yield _table(module, paged)
        yield "\n".join([".. toctree::\n   :hidden:\n", *(f"   {module}.{name}" for name in paged)])
    for name, value in own.items():
        if name not in paged:
            yield from _object(f"{module}.{name}", value)


def _table(module: str, classes: dict[str, type]) -> str:
    """Table of classes with the first sentence of each docstring."""
    rows = [f"   * - :py:obj:`{name} <{module}.{name}>`\n     - {_summary(value)}" for name, value in classes.items()]
    return "\n".join([".. list-table::\n   :widths: 30 70\n", *rows])


def _summary(value: type) -> str:
    words = (inspect.getdoc(value) or "").partition("\n\n")[0]
    return " ".join(words.split()).replace("\\", "\\\\").replace("*", "\\*").replace("`", "``").replace("|", "\\|")


def _object(full: str, value: Any) -> Iterator[str]:
    """The directive of a class, a function or a constant."""
    if not inspect.isclass(value):
        is_function = inspect.isroutine(value) or isinstance(value, Family)
        yield f".. autofunction:: {full}" if is_function else _data(full)
        return
    if issubclass(value, Layer) and value is not Layer:
        yield "Calls, states, resets and padding: see :py:class:`Layer <fastweights.layers.Layer>`."
    names = members(value)
    options = f"\n   :members: {', '.join(names)}\n   :member-order: bysource" if names else ""
    yield f".. autoclass:: {full}{options}"


def _data(full: str) -> str:
    """The directive of a constant."""
    module, _, name = full.rpartition(".")
    return f".. py:data:: {name}\n   :module: {module}\n\n   {_words(module, name)}"


def _words(package: str, name: str) -> str:
    """The docstring of a constant, from the module of the package that defines it."""
    for module in sorted(sys.modules):
        if module.startswith(package) and (text := ModuleAnalyzer.for_module(module).find_attr_docs().get(("", name))):
            return " ".join(text).replace("`", "``").strip()
    raise LookupError(f"{package}.{name} must have a docstring")


def _title(text: str) -> str:
    return f"{text}\n{'=' * len(text)}"
