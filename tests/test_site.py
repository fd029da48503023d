"""The documentation site: no warnings, different titles, captions, descriptions, and a search with relevant results."""

import json
import re
import shutil
import subprocess
import sys
from collections import Counter
from html import unescape
from pathlib import Path

import numpy as np
import pytest

from fastweights import Cell
from fastweights.registry import descriptions

DOCS = Path(__file__).parents[1] / "docs"
MODULES = ("build_site", "exports", "gallery", "index_terms", "mathml", *(f.stem for f in DOCS.glob("playground*.py")))

QUERIES = {
    "install": "getting-started/installation",
    "Windows": "getting-started/installation",
    "quick start": "getting-started/quick-start",
    "troubleshooting": "getting-started/faq",
    "classifier": "tutorials/classifier",
    "language model": "tutorials/language-model",
    "translation": "tutorials/translator",
    "few-shot": "tutorials/few-shot",
    "reinforcement learning": "tutorials/agent",
    "custom rule": "tutorials/update-rule",
    "variable length": "how-to/sequences",
    "padding": "how-to/sequences",
    "attention mask": "how-to/sequences",
    "save a state": "how-to/states",
    "mixed precision": "how-to/training",
    "gradient checkpointing": "how-to/training",
    "gradient accumulation": "how-to/training",
    "early stopping": "how-to/training",
    "FSDP": "how-to/training",
    "resume training": "how-to/training",
    "kernel cache": "how-to/kernels",
    "ONNX": "how-to/export",
    "Hugging Face": "how-to/transformers",
    "flash-linear-attention": "how-to/fla",
    "TorchRL": "how-to/torchrl",
    "hidden state": "concepts/states-and-resets",
    "slow network": "concepts/fast-weights",
    "glossary": "concepts/glossary",
    "changelog": "changelog",
    "DeltaNet": "cells/delta",
    "benchmark": "performance",
    "reproduction results": "results/README",
}
"""Search terms of readers, and the pages that answer them."""


@pytest.fixture(scope="module")
def build_site():
    for name in ("sphinx", "sphinx_copybutton"):
        pytest.importorskip(name, reason="builds with the extra docs")
    sys.path.insert(0, str(DOCS))
    import build_site

    yield build_site
    sys.path.remove(str(DOCS))
    for name in MODULES:
        sys.modules.pop(name, None)


@pytest.fixture(scope="module")
def site(build_site, tmp_path_factory):
    """The folder of the built site."""
    folder = tmp_path_factory.mktemp("site")
    assert build_site.build(folder).warnings == 0
    return folder


def pages(site):
    """Text of every page by name, without the pages that Sphinx adds."""
    added = {"genindex", "search", "py-modindex"}
    files = [path for path in sorted(site.rglob("*.html")) if path.stem not in added and "_modules" not in path.parts]
    return {path.relative_to(site).with_suffix("").as_posix(): path.read_text(encoding="utf-8") for path in files}


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")
def test_titles_are_different(site):
    titles = Counter(re.search(r"<title>(.*?)</title>", text, re.DOTALL)[1] for text in pages(site).values())
    assert not [title for title, number in titles.items() if number > 1]


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")
def test_pictures_have_captions_and_pages_have_descriptions(site):
    for name, text in pages(site).items():
        article = text.partition("<article")[2].partition("</article>")[0]
        figures = re.findall(r"<figure.*?</figure>", article, re.DOTALL)
        assert "<img " not in re.sub(r"<figure.*?</figure>", "", article, flags=re.DOTALL), name
        assert all(unescape(re.sub(r"<.*?>", "", figure)).strip() for figure in figures), name
    for name in QUERIES.values():
        assert re.search(r'<meta content="[^"]{20,}" name="description"', pages(site)[name]), name


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")
def test_links_inside_of_the_site_have_targets(site):
    texts = pages(site)
    ids = {name: set(re.findall(r'\bid="([^"]+)"', text)) for name, text in texts.items()}
    for name, text in texts.items():
        for link, anchor in re.findall(r'href="([^":#]*\.html)?(?:#([^"]+))?"', text):
            target = (site / f"{name}.html").parent / link if link else site / f"{name}.html"
            assert target.exists(), (name, link)
            page = target.resolve().relative_to(site.resolve()).with_suffix("").as_posix()
            assert not anchor or page not in ids or unescape(anchor) in ids[page], (name, link, anchor)


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")
def test_the_index_has_the_public_objects(site):
    """Other projects link to the objects through `objects.inv`."""
    from sphinx.util.inventory import InventoryFile

    with (site / "objects.inv").open("rb") as file:
        inventory = InventoryFile.load(file, "", lambda base, uri: uri)
    objects = {name for kind, names in inventory.items() if kind.startswith("py:") for name in names}
    assert {
        "fastweights.scan",
        "fastweights.Cell",
        "fastweights.layers.DeltaNet",
        "fastweights.layers.Layer.forward",
        "fastweights.functional.delta_rule",
        "fastweights.signature.Matrix",
    } <= objects


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")
def test_the_search_lists_the_right_page_first(site):
    """The test runs the search of Sphinx in Node."""
    node = shutil.which("node") or pytest.skip("needs node")
    command = [node, str(Path(__file__).with_name("search.js")), str(site), *QUERIES]
    lines = subprocess.run(command, capture_output=True, text=True, check=True).stdout.splitlines()
    first = {query: json.loads(line)[0] for query, line in zip(QUERIES, lines, strict=True)}
    assert first == QUERIES


@pytest.mark.slow
def test_pictures_of_the_gallery_show_contributions(build_site):
    import gallery

    pictures = {name: gallery.picture(gallery.contents(Cell.from_name(name))) for name in Cell.names()}
    assert not [name for name, picture in pictures.items() if not picture[3].any()], "opacity"


def test_every_page_of_the_index_is_in_the_site(build_site):
    from index_terms import TERMS

    listed = {page for section in build_site.SECTIONS.values() for page in section}
    cells = {f"cells/{path.stem}" for path in (DOCS / "cells").glob("*.md")}
    assert set(TERMS) <= listed | cells
    assert len(QUERIES) >= 30


def test_surfaces_of_dpfp_equal_those_of_the_paper(build_site):
    """Schlag et al. 2021, Eqs. 33-36 and Figure 1: r(+-x) r(+-y), one above 0 per quadrant, none on the axes."""
    surfaces = build_site.gallery.surfaces("dpfp-1", points=9)
    for row, column in np.ndindex(9, 9):
        x, y = column / 4 - 1, 1 - row / 4
        want = [max(a * x, 0) * max(b * y, 0) for a in (1, -1) for b in (1, -1)]
        assert sorted(surfaces[:, row, column].tolist()) == pytest.approx(sorted(want))
        assert (surfaces[:, row, column] > 0).sum() == (x != 0 and y != 0)
    quadrants = [surfaces[:, row, column].argmax().item() for row in (0, 8) for column in (0, 8)]
    assert sorted(quadrants) == [0, 1, 2, 3]


def test_docstrings_become_restructured_text(build_site):
    """Formulas are typeset, code is marked, public names and papers are links, and other markup is escaped."""
    docstring = (
        "Sum of `scan` and `x`.\n\n    W <- W + v k^T\n\nSource: A 2020 (arXiv:2102.11174), a*b_.\n\n"
        "Args:\n    num_heads: Heads `[B, T]`, a_b.\n\nExample:\n    >>> 1 * 1\n    1"
    )
    import docstrings

    parts = list(docstrings.restructured(docstring, {"scan": "fastweights.scan"}))
    assert parts == [
        "Sum of :py:obj:`scan <fastweights.scan>` and ``x``.",
        ".. math::\n\n   W \\leftarrow W + v k^{\\mathsf{T}}",
        r"**Source:** A 2020 (`arXiv:2102.11174 <https://arxiv.org/abs/2102.11174>`__), a\*b\_.",
        "Args:\n    num_heads: Heads ``[B, T]``, a\\_b.",
        "Example:\n    >>> 1 * 1\n    1",
    ]


@pytest.mark.parametrize("kind", ["rules", "cells", "layers", "feature-maps", "normalisers", "rate-activations"])
def test_formulas_become_latex_and_mathml(build_site, kind):
    """Every symbol of every formula is supported."""
    from docutils.utils.math.latex2mathml import tex2mathml

    for name, described in descriptions(kind).items():
        if described.formula:
            assert "<math" in str(tex2mathml(build_site.gallery.latex(described.formula), as_block=True)), name


def test_a_formula_with_an_unknown_symbol_is_refused(build_site):
    with pytest.raises(ValueError, match="got '@'"):
        build_site.gallery.latex("y = W @ q")


@pytest.mark.parametrize("kind", ["rules", "cells", "layers", "feature-maps"])
def test_a_part_has_a_summary_of_one_short_line(kind):
    """`fastweights list` shows it next to the name, in 100 columns."""
    rows = descriptions(kind)
    width = max(map(len, rows)) + 2
    assert not [name for name, described in rows.items() if width + len(described.summary) > 100]
