"""A call of a module that becomes a function in C."""

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from torch import Tensor, nn


class NetworkCall(NamedTuple):
    """A call of a module, whose last result is the state after the call.

    Args:
        module: The module.
        arguments: The arguments of an example by their names in C: tensors, and one tuple, which is the state before
            the call.
        outputs: The names of the results in C, without the state.
        is_optional: Whether the function is left out if the call does not compile.
    """

    module: nn.Module
    arguments: Mapping[str, Any]
    outputs: Sequence[str]
    is_optional: bool = False

    @property
    def state(self) -> Any:
        """The state before the call."""
        return next(x for x in self.arguments.values() if isinstance(x, tuple))

    @property
    def inputs(self) -> list[str]:
        """The names of the arguments in C, without the state."""
        return [name for name, x in self.arguments.items() if isinstance(x, Tensor)]
