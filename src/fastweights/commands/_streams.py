"""What is printed, and where."""

import io
import os
import sys
from contextlib import suppress


def print_any_text() -> None:
    """Names of files need not be UTF-8, and a terminal need not know every letter: better escaped than not said."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")


def printable(text: str) -> str:
    """A text on one line, whose control characters are escaped: a file of a stranger must not steer the terminal."""
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in text)


def print_nowhere() -> None:
    """From now on: Python would complain at its end of what it could not print."""
    with suppress(OSError, ValueError, AttributeError):
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
