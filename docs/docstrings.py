"""A Sphinx extension that converts the docstrings of the library to reStructuredText, before napoleon reads them.

Docstrings are plain text for `help()`, with formulas as in `latex.py`, code in single backquotes, and arXiv numbers. On
the site, formulas are typeset, and public names and arXiv numbers are links.
"""

import inspect
import re
from collections.abc import Iterator
from textwrap import dedent, indent
from typing import Any, get_type_hints

import api
from latex import latex
from sphinx.application import Sphinx
from sphinx.util.inspect import stringify_signature
from sphinx.util.typing import stringify_annotation

from fastweights.core.docstrings import section
from fastweights.layers import LayerKind, LayerKinds

SECTION = re.compile(r"(Args|Attributes|Returns|Yields|Raises|Example):\n")
CODE = re.compile(r"(`[^`]+`)")
PAPERS = {
    re.compile(r"arXiv:(\d{4}\.\d{4,5})"): r"`arXiv:\1 <https://arxiv.org/abs/\1>`__",
    re.compile(r"doi:(10\.[^\s);,]+)"): r"`doi:\1 <https://doi.org/\1>`__",
}
ALIASES = {LayerKind: "LayerKind", LayerKinds: "LayerKinds"}
"""Types that signatures show by their names."""
LABEL = re.compile(r"^(Source|Files|Needs|Can|Input -> target):")


def setup(app: Sphinx) -> dict[str, bool]:
    """Registers the extension."""
    app.connect("autodoc-process-docstring", _convert, priority=400)
    app.connect("autodoc-process-signature", _sign)
    return {"parallel_read_safe": True}


def _convert(app: Sphinx, what: str, name: str, obj: Any, options: Any, lines: list[str]) -> None:
    targets = _targets()
    lines[:] = [*"\n\n".join(restructured("\n".join(lines), targets)).split("\n"), ""]


def _targets() -> dict[str, str]:
    """Full names of the public objects by their short names.

    Lower-case words are left out, since they are also options and plain words.
    """
    targets: dict[str, str] = {}
    for full in api.homes().values():
        short = full.rpartition(".")[2]
        if not short.islower() or "_" in short or short in ("scan", "explain", "load"):
            targets[short] = full
    return targets


def restructured(docstring: str, targets: dict[str, str]) -> Iterator[str]:
    """The paragraphs of a docstring as reStructuredText."""
    for number, block in enumerate(re.split(r"\n\s*\n", dedent(docstring).strip("\n"))):
        if number == 1 and block.startswith("    "):
            yield f".. math::\n\n   {latex(block)}"
        elif block.startswith("    "):
            yield f".. code-block:: python\n\n{indent(dedent(block), '   ')}"
        elif block.startswith((">>>", "Example:")):
            yield block
        elif SECTION.match(block):
            title, _, entries = block.partition("\n")
            yield "\n".join([title, *(_entry(line, targets) for line in entries.split("\n"))])
        else:
            yield LABEL.sub(r"**\1:**", marked_up(block, targets))


def _entry(line: str, targets: dict[str, str]) -> str:
    """A line of a section. The name of a parameter is unchanged."""
    name, words = re.match(r"(    \w+: )?(.*)", line).groups()  # type: ignore[union-attr]
    space = words[: len(words) - len(words.lstrip())]
    return (name or space) + marked_up(words.strip(), targets)


def marked_up(text: str, targets: dict[str, str]) -> str:
    """Text with code and links, in which all other markup is escaped."""
    return "".join(_code(part[1:-1], targets) if part.startswith("`") else _linked(part) for part in CODE.split(text))


def _code(text: str, targets: dict[str, str]) -> str:
    code = " ".join(text.split())
    return f":py:obj:`{code} <{targets[code]}>`" if code in targets else f"``{code}``"


def _linked(text: str) -> str:
    escaped = re.sub(r"([\\*_|])", r"\\\1", text)
    for number, link in PAPERS.items():
        escaped = number.sub(link, escaped)
    return escaped


def _sign(app: Sphinx, what: str, name: str, obj: Any, *rest: Any) -> tuple[str, str] | None:
    """Signature with short types; empty for classes that users do not create."""
    if not callable(obj):
        return None
    is_result = inspect.isclass(obj) and (section(obj.__doc__ or "", "Attributes:") or not _takes_options(obj))
    return ("", "") if is_result else signature(obj)


def _takes_options(kind: type) -> bool:
    """Whether a class has parameters other than `*args` and `**kwargs`."""
    try:
        kinds = {parameter.kind for parameter in inspect.signature(kind).parameters.values()}
    except (TypeError, ValueError):
        return False
    return not kinds <= {inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD}


def signature(obj: Any) -> tuple[str, str] | None:
    """Parameters and result as text, without the requirements and the axes of the annotations."""
    try:
        full = inspect.signature(obj)
        hints = get_type_hints(obj.__init__ if inspect.isclass(obj) else obj)
    except (TypeError, ValueError, NameError):
        return None
    parameters = [
        parameter.replace(annotation=_short(parameter.annotation, hints.get(parameter.name, parameter.annotation)))
        for parameter in full.parameters.values()
        if parameter.annotation is not object and parameter.name != "self"
    ]
    text = stringify_signature(
        full.replace(parameters=parameters), show_return_annotation=False, unqualified_typehints=True
    )
    result = "" if inspect.isclass(obj) or "return" not in hints else stringify_annotation(hints["return"], "smart")
    return re.sub(r" at 0x[0-9a-f]+", "", text), result


def _short(annotation: Any, hint: Any) -> Any:
    """The alias that an annotation uses, or the annotation."""
    aliases = [name for kind, name in ALIASES.items() if annotation == kind]
    return f"~fastweights.layers.{aliases[0]}" if aliases else hint
