"""The Triton code of every function of the intermediate representation, with a placeholder per argument.

The name `fw` stands for `intrinsics.py`, and `libdevice` for the library that the assembler links.
"""

from fastweights.compiler.ir.functions import SIGNS

OF_TRITON = ("exp", "exp2", "log", "log2", "sin", "cos", "erf", "floor", "ceil", "sqrt", "abs")
OF_DEVICE = ("tanh", "sigmoid", "sign", "log1p", "expm1", "log10")
OF_DEVICE_TWO = ("maximum", "minimum", "fmax", "fmin", "remainder", "floor_divide")
OF_LIBRARY = ("erfc", "trunc", "tan", "asin", "acos", "atan", "sinh", "cosh", "asinh", "acosh", "atanh")
OF_LIBRARY_TWO = ("pow", "fmod", "atan2", "hypot", "copysign")

CODE: dict[str, str] = {
    "identity": "{0}",
    "neg": "(-{0})",
    "where": "tl.where({0}, {1}, {2})",
    "logical_not": "({0} == 0)",
    "reciprocal": "(1.0 / {0})",
    "rsqrt": "(1.0 / tl.sqrt({0}))",
    "round": "libdevice.nearbyint({0})",
    **{name: f"({{0}} {sign} {{1}})" for name, sign in SIGNS.items()},
    **{name: f"tl.{name}({{0}})" for name in OF_TRITON},
    **{name: f"fw.{name}({{0}})" for name in OF_DEVICE},
    **{name: f"fw.{name}({{0}}, {{1}})" for name in OF_DEVICE_TWO},
    **{name: f"libdevice.{name}({{0}})" for name in OF_LIBRARY},
    **{name: f"libdevice.{name}({{0}}, {{1}})" for name in OF_LIBRARY_TWO},
}

REDUCTIONS = {
    "sum": ("tl.sum({0}, {1})", "0.0"),
    "max": ("tl.reduce({0}, {1}, fw.maximum)", 'float("-inf")'),
    "min": ("tl.reduce({0}, {1}, fw.minimum)", 'float("inf")'),
}
"""The reduction of an axis, and its neutral element."""
COMBINE = {"sum": "{0} + {1}", "max": "fw.maximum({0}, {1})", "min": "fw.minimum({0}, {1})"}
"""The reduction of two numbers."""
