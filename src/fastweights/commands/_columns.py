"""Tables of names and descriptions, for terminals."""

import textwrap
from collections.abc import Mapping

WIDTH = 100
"""Maximum number of columns of a line."""


def columns(rows: Mapping[str, str], indent: str = "", width: int = WIDTH) -> str:
    """One line per name with its description; long descriptions continue below their start.

    >>> print(columns({"delta": "Delta rule.", "sum": "Sum rule."}))
    delta  Delta rule.
    sum    Sum rule.
    """
    widest = max(map(len, rows))
    return "\n".join(wrapped(f"{indent}{name:<{widest}}  ", text, width) for name, text in rows.items())


def wrapped(start: str, text: str, width: int = WIDTH) -> str:
    """A text behind a start, whose further lines begin below the text."""
    return textwrap.fill(text, width, initial_indent=start, subsequent_indent=" " * len(start), break_on_hyphens=False)
