"""Builds the documentation site: the pages of this folder, every public name, and a gallery of the cells.

    python docs/build_site.py build/site        # or: make site

Needs no network. A warning is an error. The README is the landing page; pages keep their folders, and links that the
repository has between files become links of the site.
"""

import argparse
import importlib
import inspect
import os
import re
import shutil
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from textwrap import dedent
from typing import Any

import exports
import gallery
import playground
from sphinx.application import Sphinx

import fastweights
from fastweights.report.page import FIGURES, draw_figures
from fastweights.report.runs import collect
from fastweights.training.run_folder.runs_file import RUNS

DOCS = Path(__file__).parent
ROOT = DOCS.parent
TOP = {"README.md": "index.md", "CONTRIBUTING.md": "contributing.md", "CHANGELOG.md": "changes.md"}
"""Pages of the repository that are no pages of this folder."""
SECTIONS = {
    "To begin": ["choosing-a-memory", "how-do-i"],
    "Tutorials": [
        *("a-classifier", "a-language-model", "a-translator", "agents"),
        *("writing-a-rule", "memory-as-a-loss", "reproducing"),
    ],
    "To use a memory": ["keeping-states", "sequences", "looking-inside", "learning-to-remember", "tasks"],
    "With other libraries": ["transformers", "fla", "torchrl", "export"],
    "To make a memory": ["cells-in-full", "guarantees"],
    "Reference": ["gallery", "api/index", "cells/index", "tasks/index", "commands/index"],
    "What it costs, and what came out": ["performance", "scale", "results/README", "results/index"],
    "To work on it": [
        "compiler",
        "gpu",
        "chunkwise-kernels",
        "contributing",
        "changes",
        "dependencies",
        "releasing",
        "citing",
    ],
}
WIDE = 100
"""Letters of a signature that stands in one line."""
SETTINGS: dict[str, Any] = {
    "project": "fastweights",
    "version": fastweights.__version__,
    "extensions": ["myst_parser"],
    "myst_heading_anchors": 4,
    "html_theme": "furo",
    "html_title": f"fastweights {fastweights.__version__}",
    "highlight_language": "text",
    "root_doc": "index",
    "html_extra_path": [playground.EXTRA],
}


def build(into: Path, builder: str = "html") -> int:
    """Builds the site, and returns how many warnings there were; the builder "dummy" writes nothing."""
    with tempfile.TemporaryDirectory() as folder:
        source = Path(folder)
        write_source(source)
        trees = source / "doctrees"
        site = Sphinx(str(source), None, str(into), str(trees), builder, SETTINGS, status=None, warningiserror=True)
        site.build()
        return site._warncount


def write_source(source: Path) -> None:
    """Everything that Sphinx reads."""
    pages = [path for path in sorted(DOCS.rglob("*.md")) if path != DOCS / "README.md"] + [ROOT / name for name in TOP]
    for path in pages:
        write(source / place(path), relinked(path))
    for path in {path for page in pages for path in linked(page) if path.suffix == ".py"}:
        name = path.relative_to(ROOT)
        code = path.read_text(encoding="utf-8")
        write(source / place(path), f"---\norphan: true\n---\n# {name}\n\n````python\n{code}````\n")
    for path in [path for kind in ("svg", "png") for path in DOCS.rglob(f"*.{kind}")]:
        target = source / path.relative_to(DOCS)
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(path, target)
    draw_reports(source)
    write_api(source / "api")
    gallery.write(source)
    playground.write(source)
    for folder in ("cells", "tasks", "commands", "results"):
        pages = sorted(path.relative_to(source / folder) for path in (source / folder).rglob("*.md"))
        write(source / folder / "index.md", f"# All {folder}\n\n{tree(str(page.with_suffix('')) for page in pages)}")
    listed = [page for pages in SECTIONS.values() for page in pages]
    more = sorted(path.stem for path in source.glob("*.md") if path.stem not in {"index", *listed})
    trees = [tree(pages, name) for name, pages in {**SECTIONS, "More": more}.items() if pages]
    with (source / "index.md").open("a", encoding="utf-8") as index:
        index.write("\n" + "\n".join(trees))


def draw_reports(source: Path) -> None:
    """Draws the figures of all reports from their runs: the repository has the runs alone."""
    for folder in sorted(path.parent for path in DOCS.rglob(RUNS)):
        drawn = source / folder.relative_to(DOCS) / FIGURES
        drawn.mkdir(parents=True, exist_ok=True)
        for name, content in draw_figures(collect(folder)).items():
            (drawn / name).write_bytes(content)


def tree(pages: Any, caption: str = "") -> str:
    """A list of pages in the margin; in the page as well where it has no caption."""
    head = f":hidden:\n:caption: {caption}\n" if caption else ":maxdepth: 1\n"
    return f"```{{toctree}}\n{head}\n" + "\n".join(pages) + "\n```\n"


def write(path: Path, text: str) -> None:
    """A file, with its folder."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, encoding="utf-8")


LINK = re.compile(r"\]\((?![a-z]+://|#)([^)\s#]+)(#[^)\s]*)?\)")


def linked(page: Path) -> Iterator[Path]:
    """The files of the repository that a page leads to."""
    for match in LINK.finditer(page.read_text(encoding="utf-8")):
        yield (page.parent / match[1]).resolve()


def relinked(page: Path) -> str:
    """A page whose links lead to where pages are in the site."""
    home = place(page).parent

    def link(match: re.Match[str]) -> str:
        target = place((page.parent / match[1]).resolve())
        return f"]({os.path.relpath(target, home)}{match[2] or ''})"

    return LINK.sub(link, page.read_text(encoding="utf-8"))


def place(path: Path) -> Path:
    """Where a file of the repository is in the site: pages at the top have names of their own, code is a page."""
    if path == DOCS / "README.md":
        return Path("index.md")
    if path.is_relative_to(DOCS):
        return path.relative_to(DOCS) / ("index.md" if path.is_dir() else "")
    inside = path.relative_to(ROOT)
    return Path(TOP[path.name]) if path.name in TOP and path.parent == ROOT else Path("code") / f"{inside}.md"


def write_api(folder: Path) -> None:
    """A page a package, with all its public names."""
    packages = ["fastweights", "fastweights.inspect", *(f"fastweights.{f.folder}" for f in exports.FOLDERS)]
    for package in packages:
        write(folder / f"{package}.md", "\n\n".join(api(package)) + "\n")
    write(folder / "index.md", f"# Every public name\n\n{tree(packages)}")


def api(package: str) -> Iterator[str]:
    """The parts of a package's page."""
    module = importlib.import_module(package)
    yield f"# {package}"
    yield prose(module.__doc__ or "")
    for name in sorted(module.__all__, key=str.lower):
        value = getattr(module, name)
        if inspect.ismodule(value):
            continue
        yield f"## {name}"
        yield f"```python\n{signature(name, value)}\n```"
        yield prose(inspect.getdoc(value) or "")
        if inspect.isclass(value):
            yield from methods(name, value)


def methods(name: str, kind: type) -> Iterator[str]:
    """The public methods that a class defines."""
    for method, value in vars(kind).items():
        found = getattr(kind, method)
        if not method.startswith("_") and inspect.isroutine(found) and value.__doc__ and callable(found):
            yield f"### {name}.{method}"
            yield f"```python\n{signature(method, found)}\n```"
            yield prose(inspect.getdoc(found) or "")


def signature(name: str, value: Any) -> str:
    """`name(a: A, b: B = ...) -> C`, on lines of their own if they are long; the name alone where there is none."""
    try:
        found = inspect.signature(value)
    except (TypeError, ValueError):
        return name
    text = f"{name}{found}"
    if len(text) > WIDE:
        end = (
            "" if found.return_annotation is found.empty else f" -> {inspect.formatannotation(found.return_annotation)}"
        )
        text = "\n    ".join([f"{name}(", *(f"{parameter}," for parameter in found.parameters.values())]) + f"\n){end}"
    # Defaults that are objects have addresses, which differ from build to build.
    return re.sub(r" at 0x[0-9a-f]+", "", text)


def prose(text: str) -> str:
    """A docstring as Markdown: its sections as lists, its examples and formulas as code."""
    lines: list[str] = []
    for block in re.split(r"\n\s*\n", dedent(text).strip("\n")):
        head, _, rest = block.partition("\n")
        if re.fullmatch(r"(Args|Returns|Raises|Yields|Attributes):", head.strip()) and rest:
            lines += [f"**{head.strip().rstrip(':')}**", entries(dedent(rest))]
        elif block.lstrip().startswith(">>>"):
            lines.append(f"```python\n{dedent(block)}\n```")
        else:
            lines.append(block if block.startswith("    ") else escaped(block))
    return "\n\n".join(lines)


def entries(text: str) -> str:
    """`name: what it is`, an item each."""
    items = (" ".join(item.split()) for item in re.split(r"\n(?=\S)", text))
    return "\n".join("- " + escaped(re.sub(r"^(\w+):", r"**\1**:", item)) for item in items)


def escaped(text: str) -> str:
    """Formulas outside of code as they are: no emphasis between the stars of two products, no tags, no references."""
    parts = re.split(r"(``?[^`]+``?|\*\*\w+\*\*)", text)
    return "".join(part if n % 2 else re.sub(r"([*_<\[\]|])", r"\\\1", part) for n, part in enumerate(parts))


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("into", type=Path, metavar="FOLDER")
    options = parser.parse_args()
    warnings = build(options.into.resolve())
    print(f"The site is {options.into}/index.html.")
    return 1 if warnings else 0


if __name__ == "__main__":
    sys.exit(main())
