"""Standard output and standard error."""

import io
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress

from fastweights.core.printable import PrintableStream


@contextmanager
def printable_streams() -> Iterator[None]:
    """Makes both streams accept any text: control characters and unencodable letters are escaped.

    This includes warnings and error messages of other packages.
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
    """Discards all further output, since Python would report at exit that it cannot be written."""
    with suppress(OSError, ValueError, AttributeError):
        stream = getattr(sys.stdout, "rich_proxied_file", sys.stdout)
        os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())
