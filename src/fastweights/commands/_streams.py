"""Standard output and standard error."""

import io
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress

from fastweights.core.printable import PrintableStream


@contextmanager
def printable_streams() -> Iterator[None]:
    """Makes both streams take any text: control characters, and letters that the terminal does not know, are escaped.

    Everything that is printed goes through them, warnings and error messages of other packages included.
    """
    before = sys.stdout, sys.stderr
    for stream in before:
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")
    sys.stdout, sys.stderr = map(PrintableStream, before)
    try:
        yield
    finally:
        sys.stdout, sys.stderr = before


def print_nowhere() -> None:
    """Discards all that is printed from now on: Python would complain at its end of what it could not print."""
    with suppress(OSError, ValueError, AttributeError):
        stream = getattr(sys.stdout, "rich_proxied_file", sys.stdout)
        os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())
