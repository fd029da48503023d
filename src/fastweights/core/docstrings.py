"""Docstrings in which functions and classes share the descriptions of their parameters.

A description is written once, where a parameter is defined. Here it is copied into the docstrings of all functions and
subclasses with that parameter, so that `help()` and the site show every parameter.
"""

import inspect
import re
from collections.abc import Callable, Iterable, Mapping
from textwrap import fill
from typing import Any, ClassVar, TypeVar, get_origin

Documented = TypeVar("Documented", bound=Callable[..., Any])

ENTRY = re.compile(r"^    (\w+): (.+(?:\n        .+)*)", re.MULTILINE)
CODE = re.compile(r"`[^`]+`")
WIDTH, NO_BREAK = 112, "\N{NO-BREAK SPACE}"


def arguments(docstring: str) -> dict[str, str]:
    """The descriptions of the parameters after `Args:` in a docstring."""
    return {name: " ".join(words.split()) for name, words in ENTRY.findall(section(docstring, "Args:"))}


def section(docstring: str, title: str) -> str:
    """The text of a section such as `Returns:`, with its indentation; empty if there is none."""
    return f"\n{inspect.cleandoc(docstring)}".partition(f"\n{title}\n")[2].partition("\n\n")[0]


def complete(docstring: str, names: Iterable[str], shared: str) -> str:
    """Adds to a docstring the descriptions that it lacks.

    Args:
        docstring: The docstring. Its own descriptions take precedence.
        names: The parameters, in the order of the new section `Args:`.
        shared: A docstring with descriptions of parameters, and with the section `Returns:` if there is one to share.

    Returns:
        The new docstring.
    """
    own, others = arguments(docstring), arguments(shared)
    text = inspect.cleandoc(docstring)
    described = {name: own.get(name, others.get(name, "")) for name in [*names, *own]}
    if not own.keys() >= {name for name, words in described.items() if words}:
        text = _with_section(_without_arguments(text), "Args:", _entries(described))
    returns = section(shared, "Returns:")
    if returns and not section(text, "Returns:"):
        text = _with_section(text, "Returns:", returns)
    return text


def _entries(described: Mapping[str, str]) -> str:
    return "\n".join(_entry(f"    {name}: {words}") for name, words in described.items() if words)


def _entry(text: str) -> str:
    """One entry in lines of at most `WIDTH` characters, without a break inside of code."""
    unbroken = CODE.sub(lambda code: code[0].replace(" ", NO_BREAK), text)
    return fill(unbroken, WIDTH, subsequent_indent=" " * 8, break_on_hyphens=False).replace(NO_BREAK, " ")


def _without_arguments(text: str) -> str:
    before, title, after = text.partition("\n\nArgs:\n")
    return before + title and before + "".join(after.partition("\n\n")[1:]) if title else text


def _with_section(text: str, title: str, content: str) -> str:
    """Inserts a section in front of the sections that come later."""
    order = "Raises|Example" if title == "Returns:" else "Returns|Yields|Raises|Example"
    later = re.search(rf"^({order})s?:$|^>>> ", text, re.MULTILINE)
    place = later.start() if later else len(text)
    parts = (text[:place].rstrip(), f"{title}\n{content}", text[place:])
    return "\n\n".join(part for part in parts if part)


def shares(shared: str) -> Callable[[Documented], Documented]:
    """Completes the docstring of a function with descriptions that several functions share.

    Args:
        shared: A docstring with the sections `Args:` and, if the functions return the same, `Returns:`.

    Returns:
        A decorator.
    """

    def document(function: Documented) -> Documented:
        _complete(function, _parameters(function), shared)
        return function

    return document


def inherit(kind: type) -> None:
    """Completes the docstrings of a class and of its methods with the descriptions of its base classes.

    Args:
        kind: The class. A parameter that its docstring does not describe gets the description of the nearest base
            class.
    """
    bases = kind.__mro__[1:]
    _complete(kind, _options(kind), _merged(bases))
    for name, member in vars(kind).items():
        method = getattr(member, "__func__", member)
        if inspect.isfunction(method) and not name.startswith("_"):
            _complete(method, _parameters(method), _merged(vars(base).get(name) for base in bases))


def _complete(documented: Any, names: list[str], shared: str) -> None:
    if documented.__doc__:  # empty under `python -OO`
        documented.__doc__ = complete(documented.__doc__, names, shared)


def _merged(documented: Iterable[Any]) -> str:
    """A docstring with the descriptions and the section `Returns:` of several, of which the first take precedence."""
    docstrings = [getattr(part, "__doc__", None) or "" for part in documented if part is not object]
    described = {name: words for text in reversed(docstrings) for name, words in arguments(text).items()}
    returns = next(filter(None, (section(text, "Returns:") for text in docstrings)), "")
    return f"\nArgs:\n{_entries(described)}\n\nReturns:\n{returns}\n"


def _parameters(function: Callable[..., Any]) -> list[str]:
    return [name for name in inspect.signature(function).parameters if name not in ("self", "cls")]


def _options(kind: type) -> list[str]:
    """The parameters of a class. The class may be about to become a dataclass, which has no signature yet."""
    if "__init__" in vars(kind):
        return _parameters(kind.__init__)  # type: ignore[misc]
    fields = [name for name, hint in inspect.get_annotations(kind).items() if get_origin(hint) is not ClassVar]
    return list(dict.fromkeys([*_inherited(kind), *(name for name in fields if not name.startswith("_"))]))


def _inherited(kind: type) -> list[str]:
    try:
        return _parameters(kind.__mro__[1])
    except (TypeError, ValueError):
        return []
