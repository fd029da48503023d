"""One run of a compiler, and loading what it built."""

import os
import subprocess
from collections.abc import Sequence
from ctypes import CDLL
from pathlib import Path

from fastweights.compiler.errors import Unbuilt

REMEDY = "Mend it, or name another one in $CXX."


class Unloadable(OSError):
    """A library was built and does not load: perhaps in this folder only, as on a disk whose files cannot run."""


def attempt(arguments: Sequence[str], library: Path) -> None:
    """Runs a compiler, by name and arguments, which must write `library`.

    Raises:
        Unbuilt: the compiler fails; the message has its first error.
        OSError: there is no space left.
    """
    # Error messages in English, whatever the language of the user.
    how = {"env": os.environ | {"LC_ALL": "C"}, "text": True, "errors": "replace", "stdin": subprocess.DEVNULL}
    try:
        result = subprocess.run(arguments, capture_output=True, **how)  # type: ignore[call-overload]
    except OSError as error:
        raise Unbuilt(f"the compiler {arguments[0]} cannot be run ({error.strerror}). {REMEDY}") from None
    if "No space left" in result.stderr:
        raise OSError(result.stderr)
    if result.returncode:
        complaint = _first_error(result.stderr, result.returncode)
        raise Unbuilt(f"the compiler {arguments[0]} fails ({complaint}). {REMEDY}")
    if not library.exists():
        raise Unbuilt(f"the compiler {arguments[0]} writes nothing. {REMEDY}")


def loaded(library: Path, name: str) -> CDLL:
    """Loads a library that the compiler `name` built.

    Raises:
        Unloadable: the loader refuses it; the message has the loader's own words.
    """
    try:
        return CDLL(str(library))
    except OSError as error:
        why = str(error).removeprefix(f"{library}: ")
        raise Unloadable(f"the compiler {name} builds libraries that do not load ({why}). {REMEDY}") from None


def _first_error(complaint: str, status: int) -> str:
    lines = [line.strip() for line in complaint.splitlines() if line.strip()]
    # GCC's own last line about its linker is an error too, and no cause.
    errors = [line for line in lines if "error" in line.lower() and not line.startswith("collect2")]
    return (errors or lines or [f"exit status {status}"])[0][:300]
