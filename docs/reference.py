"""Settings of Sphinx for the API reference and for formulas."""

from importlib.util import find_spec
from typing import Any
from urllib.request import urlopen

EXTENSIONS = ["sphinx.ext.autodoc", "sphinx.ext.napoleon", "sphinx.ext.intersphinx", "docstrings", "mathml"]
INVENTORIES = {"python": "https://docs.python.org/3/", "torch": "https://docs.pytorch.org/docs/stable/"}
TIMEOUT = 5
"""Seconds to wait for the inventory of another project."""
OPTIONAL = ("tensordict", "torchrl", "onnx", "onnxruntime", "transformers")
"""Optional packages that modules import, and that the reference does not need."""


def inventories() -> dict[str, tuple[str, None]]:
    """Projects whose names become links; none without a network."""
    return {name: (url, None) for name, url in INVENTORIES.items() if _answers(f"{url}objects.inv")}


def _answers(url: str) -> bool:
    try:
        with urlopen(url, timeout=TIMEOUT):
            return True
    except OSError:
        return False


SETTINGS: dict[str, Any] = {
    "autodoc_mock_imports": [name for name in OPTIONAL if find_spec(name) is None],
    "autodoc_typehints": "signature",
    "autodoc_inherit_docstrings": True,
    "napoleon_numpy_docstring": False,
    "napoleon_use_rtype": False,
    "napoleon_use_ivar": True,
    "python_maximum_signature_line_length": 88,
    "add_module_names": False,
    "smartquotes_action": "De",
    "toc_object_entries_show_parents": "hide",
    "myst_dmath_double_inline": True,
}
