"""What the compiler says when it cannot compile."""


class Unsupported(Exception):
    """A step outside the subset of PyTorch that the compiler knows: what, in which line, and what to write instead."""

    def __init__(self, what: str, line: str, instead: str) -> None:
        super().__init__(f"{what}{f' in {line}' if line else ''}; write {instead} instead")


class Unbuilt(Exception):
    """The C++ could not be built: why, and what to do about it."""
