"""Functions of tiles that Triton's language does not have. They are exact at the edges of their range."""

# mypy: allow-untyped-defs
import triton
import triton.language as tl
from triton.language.extra import libdevice


@triton.jit
def maximum(x, y):
    """The larger number, and NaN if either is NaN."""
    return tl.maximum(x, y, propagate_nan=tl.PropagateNan.ALL)


@triton.jit
def minimum(x, y):
    """The smaller number, and NaN if either is NaN."""
    return tl.minimum(x, y, propagate_nan=tl.PropagateNan.ALL)


@triton.jit
def fmax(x, y):
    """The larger number, and the other one if either is NaN."""
    return tl.where(x != x, y, tl.where(y != y, x, tl.maximum(x, y)))


@triton.jit
def fmin(x, y):
    """The smaller number, and the other one if either is NaN."""
    return tl.where(x != x, y, tl.where(y != y, x, tl.minimum(x, y)))


@triton.jit
def sigmoid(x):
    """1 / (1 + exp(-x)): where exp is infinite, 0."""
    return 1.0 / (1.0 + tl.exp(-x))


@triton.jit
def tanh(x):
    """The hyperbolic tangent. Near 0 it is a quotient of polynomials, because 1 - exp(-2 |x|) would cancel."""
    z = tl.minimum(x * x, 1.0)
    over = x * (135135.0 + z * (17325.0 + z * (378.0 + z)))
    near = over / (135135.0 + z * (62370.0 + z * (3150.0 + z * 28.0)))
    e = tl.exp(-2.0 * tl.abs(x))
    far = (1.0 - e) / (1.0 + e)
    return tl.where(tl.abs(x) < 0.5, near, tl.where(x < 0.0, -far, far))


@triton.jit
def sign(x):
    """-1, 0 or 1; NaN where x is."""
    return tl.where(x > 0.0, 1.0, tl.where(x < 0.0, -1.0, x * 0.0)).to(x.dtype)


@triton.jit
def log1p(x):
    """log(1 + x), corrected by the rounding error of 1 + x."""
    u = 1.0 + x
    exact = tl.log(u) - ((u - 1.0) - x) / u
    return tl.where((u == 1.0) | (u == float("inf")), x, tl.where(u == 0.0, tl.log(u), exact))


@triton.jit
def expm1(x):
    """exp(x) - 1, corrected by the logarithm of the computed exponential (Kahan)."""
    u = tl.exp(x)
    corrected = (u - 1.0) * (x / tl.log(u))
    edge = (u - 1.0 == -1.0) | (u == float("inf"))
    return tl.where(u == 1.0, x, tl.where(edge, u - 1.0, corrected))


@triton.jit
def log10(x):
    """log(x) / log(10)."""
    return tl.log(x) * 0.43429448190325182765


@triton.jit
def floor_divide(x, y):
    """The quotient rounded down. The remainder is subtracted first, because x / y might round up."""
    left = libdevice.fmod(x, y)
    quotient = (x - left) / y
    quotient = tl.where((left != 0.0) & ((left < 0.0) != (y < 0.0)), quotient - 1.0, quotient)
    below = tl.floor(quotient)
    nearest = tl.where(quotient - below > 0.5, below + 1.0, below)
    return tl.where(y == 0.0, x / y, tl.where(quotient == 0.0, x / y * 0.0, nearest))


@triton.jit
def remainder(x, y):
    """The remainder of x / y, with the sign of y."""
    left = libdevice.fmod(x, y)
    return tl.where((left != 0.0) & ((left < 0.0) != (y < 0.0)), left + y, left)
