"""The error for a step without an affine form."""

from collections.abc import Collection, Iterator
from contextlib import contextmanager


class NotAffine(Exception):
    """The step has no affine form. The message has the reason and the line of the cell. `states` are not affine."""

    def __init__(self, reason: str, line: str = "", states: Collection[str] = ()) -> None:
        super().__init__(reason)
        self.reason, self.line, self.states = reason, line, frozenset(states)

    def __str__(self) -> str:
        return f"{self.reason}{f', in {self.line}' if self.line else ''}"


class ReadWhole(NotAffine):
    """A state is read element by element."""

    def __init__(self, state: str, line: str = "") -> None:
        super().__init__(f"elements of {state} are read one by one, not in a product with a vector", line, (state,))
        self.state = state


@contextmanager
def error_context(line: str, states: Collection[str] = ()) -> Iterator[None]:
    """Adds a line of the cell to an error that has none yet, and the states that are not affine."""
    try:
        yield
    except NotAffine as error:
        error.line, error.states = error.line or line, frozenset(states) or error.states
        raise
