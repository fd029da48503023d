"""The C++ code of every function of the intermediate representation."""

from typing import NamedTuple

from fastweights.compiler.ir.functions import ARITHMETIC, COMPARISONS, LOGIC


class Code(NamedTuple):
    """C++ code with a placeholder per argument. The namespace `fw` is runtime.h.

    A function that is `is_mixed` accepts vectors and numbers at the same time.
    """

    text: str
    is_mixed: bool = False


def _runtime(name: str, arity: int = 1) -> Code:
    return Code(f"fw::{name}({', '.join(f'{{{n}}}' for n in range(arity))})")


def _library(name: str) -> Code:
    """A function of the C library for single numbers."""
    return Code(f"fw::each({{0}}, [](real one) {{{{ return FW_MATH({name})(one); }}}})")


def _library_of_two(name: str) -> Code:
    return Code(f"fw::each({{0}}, {{1}}, [](real one, real two) {{{{ return FW_MATH({name})(one, two); }}}})")


VECTORS = ("abs", "sign", "exp", "tanh", "sigmoid", "reciprocal", "sqrt", "rsqrt")
"""Functions that runtime.h computes for whole vectors."""
VECTORS_OF_TWO = ("maximum", "minimum", "remainder", "floor_divide")
TRIGONOMETRIC = ("sin", "cos", "tan", "asin", "acos", "atan", "sinh", "cosh", "asinh", "acosh", "atanh")
OF_ONE = ("log", "log2", "log10", "log1p", "exp2", "expm1", "erf", "erfc", "floor", "ceil", "trunc", *TRIGONOMETRIC)
OF_TWO = ("pow", "fmod", "fmax", "fmin", "atan2", "hypot", "copysign")

CODE: dict[str, Code] = {
    "identity": Code("{0}", is_mixed=True),
    "neg": Code("(-{0})", is_mixed=True),
    "where": Code("({0} ? {1} : {2})"),
    "logical_not": Code("({0} == 0)"),
    **{name: Code(f"({{0}} {sign} {{1}})", is_mixed=True) for name, sign in ARITHMETIC.items()},
    **{name: Code(f"({{0}} {sign} {{1}})") for name, sign in {**COMPARISONS, **LOGIC}.items()},
    **{name: _runtime(name) for name in VECTORS},
    **{name: _runtime(name, arity=2) for name in VECTORS_OF_TWO},
    **{name: _library(name) for name in OF_ONE},
    "round": _library("nearbyint"),
    **{name: _library_of_two(name) for name in OF_TWO},
}
