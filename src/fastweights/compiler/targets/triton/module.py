"""Loads the source text of kernels as a module."""

import linecache
from functools import lru_cache
from hashlib import sha256
from types import ModuleType


@lru_cache(1000)
def loaded(text: str) -> ModuleType:
    """The module of a text. Triton reads the text of functions from Python's line cache, so there is no file."""
    module = ModuleType(f"fastweights_kernel_{sha256(text.encode()).hexdigest()[:24]}")
    module.__file__ = f"<{module.__name__}>"
    linecache.cache[module.__file__] = (len(text), None, text.splitlines(True), module.__file__)
    exec(compile(text, module.__file__, "exec"), vars(module))
    return module
