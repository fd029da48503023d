"""The documentation site builds without a warning, from the pages and docstrings that are there."""

import sys
from pathlib import Path

import numpy as np
import pytest

DOCS = Path(__file__).parents[1] / "docs"


@pytest.fixture
def build_site(monkeypatch):
    pytest.importorskip("sphinx", reason="builds with the extra docs")
    monkeypatch.syspath_prepend(str(DOCS))
    import build_site

    yield build_site
    for name in ("build_site", "exports", "gallery", "playground"):
        sys.modules.pop(name, None)


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")
def test_it_builds_without_a_warning(build_site, tmp_path):
    assert build_site.build(tmp_path / "site", builder="dummy") == 0


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


def test_docstrings_keep_their_formulas(build_site):
    text = build_site.prose(
        "y = a * b * c, <K>.\n\nArgs:\n    x: `[B, T]`, more\n        of it.\n    y: Two.\n\n>>> 1\n1\n"
    )
    assert r"y = a \* b \* c, \<K>." in text
    assert "- **x**: `[B, T]`, more of it.\n- **y**: Two." in text
    assert "```python\n>>> 1\n1\n```" in text
