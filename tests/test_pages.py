"""The generated pages are those that the code generates."""

import os
import subprocess
import sys
from pathlib import Path

DOCS = Path(__file__).parents[1] / "docs"


def test_committed_pages_follow_from_the_code(tmp_path):
    # Pages must not depend on the data of the machine: here there are none.
    environment = os.environ | {"FASTWEIGHTS_DATA": str(tmp_path), "XDG_CACHE_HOME": str(tmp_path)}
    subprocess.run([sys.executable, DOCS / "generate.py", tmp_path], check=True, env=environment)
    for page in sorted(tmp_path.rglob("*.md")):
        committed = DOCS / page.relative_to(tmp_path)
        assert committed.read_text() == page.read_text(), f"run python docs/generate.py: {committed} is stale"
    for folder in ("cells", "tasks"):
        assert {p.name for p in (DOCS / folder).iterdir()} == {p.name for p in (tmp_path / folder).iterdir()}
