"""The documentation site builds without a warning, from the pages and docstrings that are there."""

import sys
from pathlib import Path

import numpy as np
import pytest

from fastweights.registry import descriptions

DOCS = Path(__file__).parents[1] / "docs"


@pytest.fixture
def build_site(monkeypatch):
    pytest.importorskip("sphinx", reason="builds with the extra docs")
    monkeypatch.syspath_prepend(str(DOCS))
    import build_site

    yield build_site
    for path in DOCS.glob("*.py"):
        sys.modules.pop(path.stem, None)


@pytest.fixture(scope="module")
def site(tmp_path_factory):
    """The environment of Sphinx after all pages are read, and the number of warnings."""
    pytest.importorskip("sphinx", reason="builds with the extra docs")
    sys.path.insert(0, str(DOCS))
    import build_site

    yield build_site.build(tmp_path_factory.mktemp("site"), builder="dummy")
    sys.path.remove(str(DOCS))


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")
def test_it_builds_without_a_warning(site):
    assert site.warnings == 0


@pytest.mark.slow
def test_no_two_pages_have_one_title(site):
    pages = {}
    for page, title in site.titles.items():
        pages.setdefault(title, []).append(page)
    assert not {title: found for title, found in pages.items() if len(found) > 1}


@pytest.mark.slow
def test_the_index_has_the_public_objects(site):
    """Other projects link to them by `objects.inv`."""
    assert {
        "fastweights.scan",
        "fastweights.Cell",
        "fastweights.layers.DeltaNet",
        "fastweights.layers.Layer.forward",
        "fastweights.functional.delta_rule",
        "fastweights.signature.Matrix",
    } <= site.objects


def test_surfaces_of_dpfp_are_the_paper_s(build_site):
    """Schlag et al. 2021, Eqs. 33-36 and Figure 1: r(+-x) r(+-y), one above 0 in each quadrant and none on the axes."""
    found = build_site.gallery.surfaces("dpfp-1", points=9)
    for row, column in np.ndindex(9, 9):
        x, y = column / 4 - 1, 1 - row / 4
        want = [max(a * x, 0) * max(b * y, 0) for a in (1, -1) for b in (1, -1)]
        assert sorted(found[:, row, column].tolist()) == pytest.approx(sorted(want))
        assert (found[:, row, column] > 0).sum() == (x != 0 and y != 0)
    quadrants = [found[:, row, column].argmax().item() for row in (0, 8) for column in (0, 8)]
    assert sorted(quadrants) == [0, 1, 2, 3]


def test_docstrings_become_restructured_text(build_site):
    """Formulas are typeset, code is code, public names and papers are links, and nothing else is markup."""
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
    """Every symbol of every formula is known."""
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
