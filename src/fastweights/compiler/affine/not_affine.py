"""The error for a step without an affine form."""

from collections.abc import Iterator
from contextlib import contextmanager


class NotAffine(Exception):
    """The step has no affine form. The message has the reason and the line of the cell."""

    def __init__(self, what: str, line: str = "") -> None:
        super().__init__(f"{what}{f', in {line}' if line else ''}")
        self.what, self.line = what, line


@contextmanager
def within(line: str) -> Iterator[None]:
    """Adds a line of the cell to an error that has none yet."""
    try:
        yield
    except NotAffine as error:
        raise error if error.line else NotAffine(error.what, line) from None
