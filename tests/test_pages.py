"""The generated pages are those that the code generates."""

import subprocess
import sys
from pathlib import Path

DOCS = Path(__file__).parents[1] / "docs"


def test_committed_pages_follow_from_the_code(tmp_path):
    subprocess.run([sys.executable, DOCS / "generate.py", tmp_path], check=True)
    for page in sorted(tmp_path.rglob("*.md")):
        committed = DOCS / page.relative_to(tmp_path)
        assert committed.read_text() == page.read_text(), f"run python docs/generate.py: {committed} is stale"
    assert {p.name for p in (DOCS / "cells").iterdir()} == {p.name for p in (tmp_path / "cells").iterdir()}
