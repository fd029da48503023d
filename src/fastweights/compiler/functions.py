"""The elementwise vocabulary of the kernels: what every function means in PyTorch, and how it is written in C++.

A function that is added here can be used by a lowering, is emitted, and is tested against PyTorch.
"""

from collections.abc import Callable
from typing import NamedTuple

import torch
from torch import Tensor


class Function(NamedTuple):
    """A function of numbers or masks.

    `code` is C++ with a place for every argument: `fw::` is runtime.h, where a function takes vectors. A function that
    is `mixed` may take some as vectors and some as numbers; one that is `slow` is not computed twice to save memory.
    """

    meaning: Callable[..., Tensor]
    code: str
    is_mask: bool = False
    is_mixed: bool = False
    is_slow: bool = False


def _infix(name: str, sign: str, is_slow: bool = False) -> Function:
    return Function(getattr(torch, name), f"({{0}} {sign} {{1}})", is_mixed=True, is_slow=is_slow)


def _mask(name: str, sign: str) -> Function:
    return Function(getattr(torch, name), f"({{0}} {sign} {{1}})", is_mask=True)


def _runtime(name: str, is_slow: bool = False, arity: int = 1) -> Function:
    places = ", ".join(f"{{{n}}}" for n in range(arity))
    return Function(getattr(torch, name), f"fw::{name}({places})", is_slow=is_slow)


def _library(name: str, of: str = "") -> Function:
    """One that C has for single numbers."""
    code = f"fw::each({{0}}, [](real x) {{{{ return FW_MATH({of or name})(x); }}}})"
    return Function(getattr(torch, name), code, is_slow=True)


def _library_of_two(name: str) -> Function:
    code = f"fw::each({{0}}, {{1}}, [](real x, real y) {{{{ return FW_MATH({name})(x, y); }}}})"
    return Function(getattr(torch, name), code, is_slow=True)


def _floor_divide(x: Tensor, y: Tensor) -> Tensor:
    return torch.div(x, y, rounding_mode="floor")


ARITHMETIC = {"add": "+", "sub": "-", "mul": "*"}
COMPARISONS = {"eq": "==", "ne": "!=", "lt": "<", "le": "<=", "gt": ">", "ge": ">="}
LOGIC = {"logical_and": "&", "logical_or": "|", "logical_xor": "^"}
CHEAP = ("abs", "sign")
VECTORS = ("exp", "tanh", "sigmoid", "reciprocal", "sqrt", "rsqrt")
"""What runtime.h computes for whole vectors."""
TRIGONOMETRIC = ("sin", "cos", "tan", "asin", "acos", "atan", "sinh", "cosh", "asinh", "acosh", "atanh")
OF_ONE = ("log", "log2", "log10", "log1p", "exp2", "expm1", "erf", "erfc", "floor", "ceil", "trunc", *TRIGONOMETRIC)
OF_TWO = ("pow", "fmod", "fmax", "fmin", "atan2", "hypot", "copysign")

FUNCTIONS: dict[str, Function] = {
    "identity": Function(lambda x: x, "{0}", is_mixed=True),
    "neg": Function(torch.neg, "(-{0})", is_mixed=True),
    "where": Function(torch.where, "({0} ? {1} : {2})"),
    "logical_not": Function(torch.logical_not, "({0} == 0)", is_mask=True),
    "div": _infix("div", "/", is_slow=True),
    **{name: _infix(name, sign) for name, sign in ARITHMETIC.items()},
    **{name: _mask(name, sign) for name, sign in {**COMPARISONS, **LOGIC}.items()},
    **{name: _runtime(name) for name in CHEAP},
    **{name: _runtime(name, arity=2) for name in ("maximum", "minimum")},
    "remainder": _runtime("remainder", is_slow=True, arity=2),
    "floor_divide": _runtime("floor_divide", is_slow=True, arity=2)._replace(meaning=_floor_divide),
    **{name: _runtime(name, is_slow=True) for name in VECTORS},
    **{name: _library(name) for name in OF_ONE},
    "round": _library("round", "nearbyint"),
    **{name: _library_of_two(name) for name in OF_TWO},
}
