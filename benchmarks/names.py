"""Arguments that are names of parts."""

import argparse
from collections.abc import Callable, Iterable

from fastweights.core.errors import InputError, require_name


def one_of(kind: str, known: Iterable[str]) -> Callable[[str], str]:
    """A `type` of argparse: only these names, which a line of the usage tells whoever gives another."""
    names = tuple(known)

    def checked(name: str) -> str:
        try:
            require_name(kind, name, names)
        except InputError as error:
            raise argparse.ArgumentTypeError(str(error)) from error
        return name

    return checked
