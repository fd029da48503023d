"""The errors of the compiler."""


class Unsupported(Exception):
    """A step is outside the subset of PyTorch that compiles. The message has the operation, the line and a remedy."""

    def __init__(self, problem: str, line: str, instead: str) -> None:
        super().__init__(f"{problem}{f' in {line}' if line else ''}; write {instead} instead")


class Unbuilt(Exception):
    """A kernel cannot be built on this machine. The message names the reason and a remedy."""
