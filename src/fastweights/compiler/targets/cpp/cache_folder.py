"""Work in the first folder for compiled kernels where it succeeds."""

from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

from fastweights.compiler.errors import Unbuilt
from fastweights.compiler.targets.cache import candidate_folders
from fastweights.compiler.targets.cpp.attempt import Unloadable

Result = TypeVar("Result")


class NoFolder(Unbuilt):
    """There is no folder for compiled kernels: nothing is known about the compiler."""


def in_some_place(work: Callable[[Path], Result]) -> Result:
    """The result of `work` in the cache or, if that is read-only, full, or its files cannot run, in a temporary folder.

    Raises:
        Unbuilt: the compiler fails, or what it builds does not load in any folder.
        NoFolder: no folder is there, or none can be written to.
    """
    why: Unbuilt = _no_folder("others may write to the temporary folder")
    for place in candidate_folders():
        try:
            return work(place)
        except Unloadable as error:
            why = Unbuilt(str(error))
        except OSError as error:
            why = _no_folder(error)
    raise why


def _no_folder(why: object) -> NoFolder:
    remedy = "set $FASTWEIGHTS_CACHE to one that is yours alone."
    return NoFolder(f"there is no folder for compiled kernels ({why}); {remedy}")
