"""Text from files and arguments that cannot steer a terminal or reorder a page."""

import io
import unicodedata
from typing import Any

UNSAFE = {"Cc", "Cf", "Cs", "Zl", "Zp"}
"""Unicode categories: control and format characters (bidirectional overrides), lone surrogates, separators of lines."""

JOINERS = "\u200c\u200d"
"""Format characters that Persian, Indic scripts and emoji need."""


def printable(text: str, allowed: str = "") -> str:
    """Escapes every character that could control a terminal, hide text or reorder it.

    Args:
        text: Any text, of a file or an argument.
        allowed: Control characters that are not escaped. A name on its own line allows none.

    >>> print(printable("a\\x1b[2J \\u202eb\\n"))
    a\\x1b[2J \\u202eb\\n
    """
    if text.isprintable():
        return text
    return "".join(c if c in allowed or _is_safe(c) else c.encode("unicode_escape").decode() for c in text)


class PrintableStream(io.TextIOBase):
    """A text stream that writes `printable` text, with line ends and tabs.

    Programs that check find no terminal, since their colours would be escaped. `rich` writes its own styles to the
    stream inside, which it finds by the attribute `rich_proxied_file`.
    """

    def __init__(self, stream: Any) -> None:
        self.rich_proxied_file = stream

    @property
    def encoding(self) -> str:  # type: ignore[override]
        return str(self.rich_proxied_file.encoding)

    def write(self, text: str) -> int:
        self.rich_proxied_file.write(printable(text, allowed="\n\t"))
        return len(text)

    def flush(self) -> None:
        self.rich_proxied_file.flush()


def _is_safe(character: str) -> bool:
    return unicodedata.category(character) not in UNSAFE or character in JOINERS
