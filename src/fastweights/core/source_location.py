"""Lines of the user's code, for messages about a step."""

import linecache
import traceback
from types import FrameType

INTERNAL = (
    "torch.",
    "fastweights.compiler.",
    "fastweights.backends.",
    "fastweights.core.source_location.",
    "fastweights.call.step_check.",
)
"""Modules whose lines do not help the author of a cell."""


def line_of(frame: FrameType | None) -> str:
    """`FILE:NUMBER: CODE` of the nearest frame outside of torch and of what runs cells; empty if there is none."""
    while frame is not None and _is_internal(frame):
        frame = frame.f_back
    return "" if frame is None else _text(frame, frame.f_lineno)


def line_of_error(error: BaseException) -> str:
    """The line of the user's code that raised an error; empty if there is none."""
    frames = [(frame, number) for frame, number in traceback.walk_tb(error.__traceback__) if not _is_internal(frame)]
    return _text(*frames[-1]) if frames else ""


def is_of_torch(frame: FrameType | None) -> bool:
    """Whether the caller is PyTorch itself, perhaps through a dispatch mode of the compiler."""
    name = "" if frame is None else str(frame.f_globals.get("__name__"))
    return name.startswith("torch.") or (
        name.startswith("fastweights.compiler.") and is_of_torch(frame and frame.f_back)
    )


def _is_internal(frame: FrameType) -> bool:
    return f"{frame.f_globals.get('__name__', '')}.".startswith(INTERNAL)


def _text(frame: FrameType, number: int) -> str:
    path = frame.f_code.co_filename
    return f"{path.rpartition('/')[2]}:{number}: {linecache.getline(path, number).strip()}"


def reason_of(error: BaseException) -> str:
    """The first line of the message of an error, or the name of its class."""
    return str(error).strip().partition("\n")[0] or type(error).__name__


FAULTS = (
    ArithmeticError,
    AssertionError,
    AttributeError,
    LookupError,
    NameError,
    RuntimeError,
    TypeError,
    ValueError,
)
"""Exceptions of faulty code. `is_fault` excludes classes that users derive from them."""
RAISED_BY = ("builtins", "torch.fx", "torch._subclasses", "torch._dynamo", "torch._functorch")
"""Modules of the exceptions of Python and of torch's tracers."""


def is_fault(error: BaseException) -> bool:
    """Whether an exception of a user's step means that the step is faulty.

    All others pass through: exceptions of classes that the user defines, warnings that are errors, a lack of memory,
    and the exception with which torch ends the recomputation of gradient checkpointing.
    """
    return type(error).__module__.startswith(RAISED_BY) and "allocate memory" not in str(error)
