"""Command-line arguments that are names."""

import argparse
from collections.abc import Callable, Iterable

from fastweights.core.errors import InputError, require_name


def one_of(kind: str, known: Iterable[str]) -> Callable[[str], str]:
    """Type of an argparse argument that accepts these names only. Other names are refused in one line."""
    names = tuple(known)

    def checked(name: str) -> str:
        try:
            require_name(kind, name, names)
        except InputError as error:
            raise argparse.ArgumentTypeError(str(error)) from error
        return name

    return checked
