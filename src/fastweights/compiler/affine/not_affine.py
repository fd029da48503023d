"""What stands in the way of an affine form."""

from collections.abc import Iterator
from contextlib import contextmanager


class NotAffine(Exception):
    """What stands in the way of an affine form, and in which line of the cell."""

    def __init__(self, what: str, line: str = "") -> None:
        super().__init__(f"{what}{f', in {line}' if line else ''}")
        self.what, self.line = what, line


@contextmanager
def within(line: str) -> Iterator[None]:
    """What stands in the way does so in this line, if nobody knows a closer one."""
    try:
        yield
    except NotAffine as error:
        raise error if error.line else NotAffine(error.what, line) from None
