"""Functions of transformers that run a memory over time, or the short convolution in front of it."""

import re
from collections.abc import Callable, Iterator
from importlib import import_module
from pathlib import Path
from types import ModuleType
from typing import Any, NamedTuple

MEMORIES = ("gated_delta_rule", "kimi_delta_attention")
"""Ends of the names of the functions that run a memory, after `chunk_` or `recurrent_`."""
CONVOLUTION = "causal_conv1d_fn"
"""Name of the convolution."""
PATTERN = re.compile(rf"^def (\w*(?:chunk|recurrent)_({'|'.join(MEMORIES)})|({CONVOLUTION}))\(", re.MULTILINE)


class Found(NamedTuple):
    """A function of a module of transformers.

    Attributes:
        module: The module of a model.
        name: Name of the function.
        function: The function.
        kind: Its memory, from `MEMORIES`, or `CONVOLUTION`.
    """

    module: ModuleType
    name: str
    function: Callable[..., Any]
    kind: str

    @property
    def path(self) -> str:
        """Full name of the function."""
        return f"{self.module.__name__}.{self.name}"


def functions() -> Iterator[Found]:
    """All functions of the installed version, in the order of their names.

    Only modules whose text defines a memory are imported: transformers has hundreds of others.
    """
    import transformers

    for file in sorted(Path(transformers.__file__).parent.glob("models/*/modeling_*.py")):
        text = file.read_text(encoding="utf-8")
        names = PATTERN.findall(text) if any(f"_{memory}(" in text for memory in MEMORIES) else []
        if any(memory for _, memory, _ in names):
            module = import_module(f"transformers.models.{file.parent.name}.{file.stem}")
            yield from (Found(module, name, getattr(module, name), kind or other) for name, kind, other in names)
