"""The flags of C++ compilers, with alternatives for flags that a compiler does not have."""

from collections.abc import Sequence
from itertools import product
from pathlib import Path

SHARED = "-shared"
BASES = tuple(
    tuple(filter(None, base))
    for base in product(("-std=gnu++20", "-std=gnu++2a", "-std=gnu++17", "-std=gnu++1z", ""), ("-fPIC", ""))
)
"""Language standard and position-independent code, in order of preference. A compiler must accept one of these."""
# No -ffast-math: NaN and infinity must come through. What it would allow that is safe, the code does by itself. Loops
# come in blocks already: to unroll more of them takes the compiler twice the time for code that is no faster.
CHOICES = (
    *(("-O3", "-O2"), ("-march=native", "-mcpu=native"), ("-fno-math-errno",), ("-fno-trapping-math",)),
    *(("--param=max-completely-peeled-insns=50",), ("-fno-gcse-after-reload",), ("-fvisibility=hidden",), ("-w",)),
)
"""Optional flags, in order of preference. A compiler that accepts none of the alternatives builds without them."""
BEST = (*BASES[0], *(choice[0] for choice in CHOICES))


def openmp(platform: str, command: Sequence[str], libraries: Path) -> list[tuple[str, ...]]:
    """The flags for OpenMP, in order of preference; none for a compiler without OpenMP."""
    if platform == "win32" or any(Path(word).stem == "zig" or word == "ziglang" for word in command):
        return []
    if platform != "darwin":
        return [("-fopenmp", *map(str, sorted(libraries.glob("libgomp*"))[:1]))]
    # Apple's clang has OpenMP, but hides it and brings no library.
    library = [str(path) for path in sorted(libraries.glob("libomp*.dylib"))[:1]]
    return [("-Xpreprocessor", "-fopenmp", *library, f"-Wl,-rpath,{libraries}")] if library else [("-fopenmp",)]
