"""Builds the documentation site: the pages of this folder, every public name, and a gallery of the cells.

    python docs/build_site.py build/site        # or: make site

The build needs no network. A warning is an error. The README is the landing page. Pages keep their folders, and links
between files of the repository become links of the site.
"""

import argparse
import json
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
import playground
import reference
from index_terms import indexed
from results_pages import navigation
from sphinx.application import Sphinx

import fastweights
from fastweights.report.page import FIGURES, draw_figures
from fastweights.report.runs import collect
from fastweights.training.run_folder.runs_file import RUNS

DOCS = Path(__file__).parent
ROOT = DOCS.parent
REPOSITORY = "https://github.com/fastweights/fastweights"
TOP = {"README.md": "index.md", "CONTRIBUTING.md": "contributing/index.md", "CHANGELOG.md": "changelog.md"}
"""Places in the site of the pages outside this folder."""
SECTIONS = {
    "Getting started": [
        *("getting-started/installation", "getting-started/quick-start", "getting-started/choosing-a-layer"),
        "getting-started/faq",
    ],
    "Tutorials": [
        *("tutorials/classifier", "tutorials/language-model", "tutorials/translator", "tutorials/few-shot"),
        *("tutorials/agent", "tutorials/update-rule"),
    ],
    "How-to guides": [
        *("how-to/how-do-i", "how-to/sequences", "how-to/states", "how-to/training", "how-to/kernels"),
        *(
            "how-to/export",
            "how-to/deploy-without-python",
            "how-to/custom-cell",
            "how-to/memory-as-a-loss",
            "how-to/inspect",
            "how-to/agents",
        ),
        *("how-to/tasks", "how-to/reproducing", "how-to/paper-presets"),
        *("how-to/transformers", "how-to/fine-tune", "how-to/fla", "how-to/torchrl"),
    ],
    "Concepts": [
        *("concepts/fast-weights", "concepts/states-and-resets", "concepts/backends", "concepts/online-memory"),
        *("gallery", "playground", "concepts/glossary"),
    ],
    "Reference": [
        *(
            "api/index",
            "cells/index",
            "tasks/README",
            "commands/index",
            "reference/guarantees",
            "reference/bibliography",
        ),
        *("reference/citing", "changelog"),
    ],
    "Results": [
        *("results/README", "results/ba2016", "results/gregor2020", "results/schlag2021", "results/irie2021"),
        *("results/irie2022", "results/learning-rates", "results/char-lm", "results/streams", "results/other-texts"),
        *("results/more-neurons", "results/index", "performance", "gpu", "scale"),
    ],
    "Contributing": [
        *("contributing/index", "contributing/adding-a-task", "contributing/adding-an-experiment"),
        *("contributing/compiler", "contributing/chunkwise-kernels", "contributing/dependencies"),
        *("contributing/releasing", f"GitHub repository <{REPOSITORY}>"),
    ],
}
LISTS = (
    *((folder, f"All {folder}", "*.md") for folder in ("cells", "commands")),
    ("results", "All reports", "report.md"),
)
"""Folders with a list of their pages: title of the list, and pattern of the files."""
SETTINGS: dict[str, Any] = {
    "project": "fastweights",
    "version": fastweights.__version__,
    "copyright": "the fastweights authors",
    "extensions": ["myst_parser", "sphinx_copybutton", *reference.EXTENSIONS],
    "myst_heading_anchors": 4,
    "myst_enable_extensions": ["dollarmath"],
    "html_theme": "furo",
    "html_theme_options": {
        "source_edit_link": f"{REPOSITORY}/edit/main/docs/{{filename}}",
        "top_of_page_buttons": ["edit"],
    },
    "html_title": f"fastweights {fastweights.__version__}",
    "html_static_path": [str(DOCS / "static"), str(DOCS / "site.css")],
    "html_css_files": ["pages.css", "site.css"],
    "html_math_renderer": "mathml",
    "html_copy_source": False,
    "html_show_sphinx": False,
    "copybutton_prompt_text": r">>> |\.\.\. ",
    "copybutton_prompt_is_regexp": True,
    "highlight_language": "text",
    "root_doc": "index",
    "html_extra_path": [playground.EXTRA],
    **reference.SETTINGS,
}


class Built(NamedTuple):
    """Result of a build: number of warnings, titles of pages, and names of the objects of the API reference."""

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
        site.connect("html-page-context", offer_edit)
        site.build()
        titles = {page: title.astext() for page, title in site.env.titles.items()}
        return Built(site._warncount, titles, {name for name, *_ in site.env.domains["py"].get_objects()})


GENERATED = ("cells", "commands", "tasks", "report")
"""Names of generated folders and pages."""


def offer_edit(_site: Sphinx, page: str, _template: str, context: dict[str, Any], _tree: object) -> None:
    """Removes the edit link from generated pages, and from pages without a file in `docs`."""
    written = (DOCS / f"{page}.md").is_file() and not (DOCS / f"{page}.txt").is_file()
    if not written or set(page.split("/")) & set(GENERATED):
        context["page_source_suffix"] = ""


def write_source(source: Path) -> None:
    """Writes all files that Sphinx reads."""
    pages = [path for path in sorted(DOCS.rglob("*.md")) if path != DOCS / "README.md"] + [ROOT / name for name in TOP]
    for path in pages:
        text = indexed(place(path).with_suffix("").as_posix(), trimmed(relinked(path)))
        text = navigable(path, text) if path.with_name(RUNS).is_file() else text
        write(source / place(path), described(figures(text)))
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
    playground.write(source)
    for folder, title, pattern in LISTS:
        pages = sorted(path.relative_to(source / folder) for path in (source / folder).rglob(pattern))
        write(source / folder / "index.md", f"# {title}\n\n{tree(str(page.with_suffix('')) for page in pages)}")
    trees = [tree(pages, name) for name, pages in SECTIONS.items()]
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
    """Writes a file, and creates its folder."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, encoding="utf-8")


LINK = re.compile(r"\]\((?![a-z]+://|#)([^)\s#]+)(#[^)\s]*)?\)")


def linked(page: Path) -> Iterator[Path]:
    """Files of the repository that a page links to."""
    for match in LINK.finditer(page.read_text(encoding="utf-8")):
        yield (page.parent / match[1]).resolve()


def relinked(page: Path) -> str:
    """A page with links to the places of files in the site."""
    home = place(page).parent

    def link(match: re.Match[str]) -> str:
        target = place((page.parent / match[1]).resolve())
        return f"]({os.path.relpath(target, home)}{match[2] or ''})"

    return LINK.sub(link, page.read_text(encoding="utf-8"))


def trimmed(text: str) -> str:
    """A page without badges, which other servers draw, and without the blank lines after examples for doctest."""
    text = re.sub(r"^\[!\[.*\n\n", "", text, flags=re.MULTILINE)
    return re.sub(r"(^```python\n>>> .*?)\n\n```$", r"\1\n```", text, flags=re.MULTILINE | re.DOTALL)


def navigable(report: Path, text: str) -> str:
    """A report with links to its paper and to all results, without its contents, which the margin of the site shows."""
    title, _, *rest = text.split("\n\n")
    return "\n\n".join([title, navigation(report), *rest])


PICTURE = re.compile(r"^!\[([^\]]*)\]\(([^)]+)\)$(?:\n\n\*([^*]+)\*$)?", re.MULTILINE)


def figures(text: str) -> str:
    """A page whose separate pictures have captions: the italic paragraph after a picture, or its alternative text."""

    def figure(match: re.Match[str]) -> str:
        alternative, path, caption = match.groups()
        return f"```{{figure}} {path}\n:alt: {alternative}\n\n{caption or alternative}\n```"

    return PICTURE.sub(figure, text)


DESCRIPTION = 160
"""Maximum number of letters of a description for search engines."""


def described(text: str) -> str:
    """A page with its first paragraph as its description for search engines."""
    paragraphs = (block.partition("\n- ")[0] for block in text.split("\n\n") if re.match(r"[A-Z*]|- \*\*Goal", block))
    plain = re.sub(r"\[([^\]]*)\]\([^)]*\)|[*`$]", r"\1", " ".join(next(paragraphs, "").split()).removeprefix("- "))
    short = plain if len(plain) <= DESCRIPTION else plain[: plain.rfind(" ", 0, DESCRIPTION)] + " ..."
    return f"---\nmyst:\n  html_meta:\n    description: {json.dumps(short)}\n---\n{text}" if short else text


def place(path: Path) -> Path:
    """Place of a file of the repository in the site. Top-level pages have names in `TOP`, and code becomes a page."""
    if path == DOCS / "README.md":
        return Path("index.md")
    if path.is_relative_to(DOCS):
        return path.relative_to(DOCS) / ("index.md" if path.is_dir() else "")
    inside = path.relative_to(ROOT)
    return Path(TOP[path.name]) if path.name in TOP and path.parent == ROOT else Path("code") / f"{inside}.md"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("into", type=Path, metavar="FOLDER", help="folder of the built site")
    options = parser.parse_args()
    warnings = build(options.into.resolve()).warnings
    print(f"The site is {options.into}/index.html.")
    return 1 if warnings else 0


if __name__ == "__main__":
    sys.exit(main())
