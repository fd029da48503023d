"""The documentation site builds without a warning, from the pages and docstrings that are there."""

import sys
from pathlib import Path

import pytest

DOCS = Path(__file__).parents[1] / "docs"


@pytest.fixture
def build_site(monkeypatch):
    pytest.importorskip("sphinx", reason="builds with the extra docs")
    monkeypatch.syspath_prepend(str(DOCS))
    import build_site

    yield build_site
    for name in ("build_site", "exports", "gallery"):
        sys.modules.pop(name, None)


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")
def test_it_builds_without_a_warning(build_site, tmp_path):
    assert build_site.build(tmp_path / "site", builder="dummy") == 0


def test_docstrings_keep_their_formulas(build_site):
    text = build_site.prose(
        "y = a * b * c, <K>.\n\nArgs:\n    x: `[B, T]`, more\n        of it.\n    y: Two.\n\n>>> 1\n1\n"
    )
    assert r"y = a \* b \* c, \<K>." in text
    assert "- **x**: `[B, T]`, more of it.\n- **y**: Two." in text
    assert "```python\n>>> 1\n1\n```" in text
