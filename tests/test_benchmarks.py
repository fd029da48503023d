"""The scripts of benchmarks/ fit the library: their tables name existing tasks and experiments."""

import json
from pathlib import Path

import pytest

from fastweights.registry import TASKS
from fastweights.tasks import MissingFile

DOCS = Path(__file__).parents[1] / "docs"


def test_the_page_of_costs_equals_the_output_of_its_script(benchmark_script):
    script = benchmark_script("paper_presets")
    page = script.page(json.loads(script.STORED.read_text()))
    assert (DOCS / "how-to" / "paper-presets.md").read_text() == page, "run benchmarks/paper_presets.py"


def test_every_timed_task_can_be_made(benchmark_script):
    script, skipped = benchmark_script("tasks"), []
    for name, (kind, options, _) in script.RUNS.items():
        try:
            TASKS.load(kind)(**options)
        except MissingFile:
            skipped.append(name)
    if skipped:
        pytest.skip(f"no data for {', '.join(skipped)}")
