"""Builds WebAssembly with zig, and fills the templates of the pages. Every page is one file without links."""

import importlib.util
import re
import subprocess
import sys
from base64 import b64encode
from collections.abc import Mapping, Sequence
from pathlib import Path

from docutils.utils.math.latex2mathml import tex2mathml
from latex import latex

from fastweights.report.palette import DARK, LIGHT, Scheme, rgb

FOLDER = Path(__file__).parent / "playground"
FLAGS = (
    *("-target", "wasm32-wasi", "-mexec-model=reactor", "-O2", "-msimd128", "-s"),
    *("-fno-exceptions", "-DNETWORK_WITHOUT_FILES", "-Wno-psabi"),
)
PROGRAM = "page.wasm"


def has_compiler() -> bool:
    """Whether zig is installed."""
    return importlib.util.find_spec("ziglang") is not None


def built(folder: Path, sources: Sequence[str]) -> bytes:
    """The WebAssembly of C++ files in a folder."""
    subprocess.run([sys.executable, "-m", "ziglang", "c++", *FLAGS, *sources, "-o", PROGRAM], cwd=folder, check=True)
    return (folder / PROGRAM).read_bytes()


def text_of(content: bytes) -> str:
    """Bytes as text for a page."""
    return b64encode(content).decode()


def filled(template: str, parts: Mapping[str, str]) -> str:
    """A template of the folder, whose names in double braces are replaced by parts, or by the files of all pages."""
    parts = {"colours": _colours(), "style": _file("page.css"), "script": _file("page.js"), **parts}
    return re.sub(r"\{\{(\w+)\}\}", lambda match: parts[match[1]], _file(template))


def formula(text: str) -> str:
    """A formula of a docstring as MathML."""
    return str(tex2mathml(latex(text), as_block=True))


def _file(name: str) -> str:
    return (FOLDER / name).read_text(encoding="utf-8")


def _colours() -> str:
    """A style sheet with the colours of the pages, which follow the theme of the site."""
    return f":root {{ {_variables(LIGHT)} }} @media (prefers-color-scheme: dark) {{ :root {{ {_variables(DARK)} }} }}"


def _variables(scheme: Scheme) -> str:
    plus, minus = (", ".join(map(str, rgb(colour))) for colour in scheme.series[:2])
    return f"--paper: {scheme.paper}; --ink: {scheme.ink}; --line: {scheme.faint}; --plus: {plus}; --minus: {minus}"
