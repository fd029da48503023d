"""Builds the documentation site: the pages of this folder, every public name, and a gallery of the cells.

    python docs/build_site.py build/site        # or: make site

Needs no network. A warning is an error. The README is the landing page; pages keep their folders, and links that the
repository has between files become links of the site.
"""

import argparse
import os
import re
import shutil
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import api
import gallery
import reference
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
    "Reference": ["gallery", "api/index", "cells/index", "tasks/README", "commands/index"],
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
SETTINGS: dict[str, Any] = {
    "project": "fastweights",
    "version": fastweights.__version__,
    "extensions": ["myst_parser", *reference.EXTENSIONS],
    "myst_heading_anchors": 4,
    "html_theme": "furo",
    "html_title": f"fastweights {fastweights.__version__}",
    "highlight_language": "text",
    "root_doc": "index",
    **reference.SETTINGS,
}


class Built(NamedTuple):
    """A site: the number of warnings, the titles of the pages, and the names of the objects of the API reference."""

    warnings: int
    titles: dict[str, str]
    objects: set[str]


def build(into: Path, builder: str = "html") -> Built:
    """Builds the site. The builder "dummy" writes nothing."""
    with tempfile.TemporaryDirectory() as folder:
        source = Path(folder)
        write_source(source)
        trees = source / "doctrees"
        settings = SETTINGS | {"intersphinx_mapping": reference.inventories()}
        site = Sphinx(str(source), None, str(into), str(trees), builder, settings, status=None, warningiserror=True)
        site.build()
        titles = {page: title.astext() for page, title in site.env.titles.items()}
        return Built(site._warncount, titles, {name for name, *_ in site.env.domains["py"].get_objects()})


def write_source(source: Path) -> None:
    """Everything that Sphinx reads."""
    pages = [path for path in sorted(DOCS.rglob("*.md")) if path != DOCS / "README.md"] + [ROOT / name for name in TOP]
    for path in pages:
        write(source / place(path), relinked(path))
    for path in {path for page in pages for path in linked(page) if path.suffix == ".py"}:
        name = path.relative_to(ROOT)
        code = path.read_text(encoding="utf-8")
        write(source / place(path), f"---\norphan: true\n---\n# {name}\n\n````python\n{code}````\n")
    for path in [path for kind in ("svg", "png", "csv") for path in DOCS.rglob(f"*.{kind}")]:
        target = source / path.relative_to(DOCS)
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(path, target)
    draw_reports(source)
    api.write(source / "api")
    gallery.write(source)
    for folder in ("cells", "commands", "results"):
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


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("into", type=Path, metavar="FOLDER")
    options = parser.parse_args()
    warnings = build(options.into.resolve()).warnings
    print(f"The site is {options.into}/index.html.")
    return 1 if warnings else 0


if __name__ == "__main__":
    sys.exit(main())
