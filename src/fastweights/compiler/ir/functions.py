"""The elementwise functions of the intermediate representation, and the PyTorch function of each.

To add a function, add it here and to the `functions.py` of every target. Lowering rules can then use it, and the tests
compare it with PyTorch.
"""

from collections.abc import Callable
from typing import NamedTuple

import torch
from torch import Tensor


class Function(NamedTuple):
    """A function whose first `masks` arguments are masks and whose others are numbers.

    An expression with an `is_slow` function is not computed twice to save memory.
    """

    meaning: Callable[..., Tensor]
    arity: int = 1
    masks: int = 0
    is_mask: bool = False
    is_slow: bool = False


def _floor_divide(x: Tensor, y: Tensor) -> Tensor:
    return torch.div(x, y, rounding_mode="floor")


def _of_torch(names: tuple[str, ...], arity: int = 1, masks: int = 0, **facts: bool) -> dict[str, Function]:
    return {name: Function(getattr(torch, name), arity, masks, **facts) for name in names}


ARITHMETIC = {"add": "+", "sub": "-", "mul": "*", "div": "/"}
COMPARISONS = {"eq": "==", "ne": "!=", "lt": "<", "le": "<=", "gt": ">", "ge": ">="}
LOGIC = {"logical_and": "&", "logical_or": "|", "logical_xor": "^"}
SIGNS = {**ARITHMETIC, **COMPARISONS, **LOGIC}
"""The infix operators, which are the same in Python, C++ and Triton."""
EXPONENTIAL = ("exp", "tanh", "sigmoid", "reciprocal", "sqrt", "rsqrt")
LOGARITHMS = ("log", "log2", "log10", "log1p", "exp2", "expm1", "erf", "erfc")
ROUNDING = ("floor", "ceil", "trunc", "round")
TRIGONOMETRIC = ("sin", "cos", "tan", "asin", "acos", "atan", "sinh", "cosh", "asinh", "acosh", "atanh")
OF_TWO = ("div", "remainder", "pow", "fmod", "fmax", "fmin", "atan2", "hypot", "copysign")

FUNCTIONS: dict[str, Function] = {
    "identity": Function(lambda x: x),
    "where": Function(torch.where, arity=3, masks=1),
    "logical_not": Function(torch.logical_not, masks=1, is_mask=True),
    "floor_divide": Function(_floor_divide, arity=2, is_slow=True),
    **_of_torch(("neg", "abs", "sign")),
    **_of_torch(("add", "sub", "mul", "maximum", "minimum"), arity=2),
    **_of_torch(tuple(COMPARISONS), arity=2, is_mask=True),
    **_of_torch(tuple(LOGIC), arity=2, masks=2, is_mask=True),
    **_of_torch((*EXPONENTIAL, *LOGARITHMS, *ROUNDING, *TRIGONOMETRIC), is_slow=True),
    **_of_torch(OF_TWO, arity=2, is_slow=True),
}
