"""Pages: derived pages are up to date, links have targets, and pictures have room for their text."""

import os
import re
import subprocess
import sys
from functools import cache
from html import unescape
from pathlib import Path
from xml.etree import ElementTree

import pytest
import torch

from fastweights.layers import layer_names
from fastweights.report.page import FIGURES
from fastweights.report.palette import LIGHT, dark_mode
from fastweights.training.run_folder.runs_file import RUNS

ROOT = Path(__file__).parents[1]
DOCS = ROOT / "docs"
PAGES = sorted([*ROOT.glob("*.md"), *DOCS.rglob("*.md")])


def test_committed_pages_follow_from_the_code(tmp_path):
    # Pages must not depend on the data of the machine, so this process has none.
    environment = os.environ | {"FASTWEIGHTS_DATA": str(tmp_path), "XDG_CACHE_HOME": str(tmp_path)}
    written = tmp_path / "docs"
    subprocess.run([sys.executable, DOCS / "generate.py", written], check=True, env=environment)
    for page in sorted([*tmp_path.rglob("*.md"), *tmp_path.rglob("*.svg")]):
        committed = ROOT / page.relative_to(tmp_path)
        assert committed.read_text() == page.read_text(), f"run make generate: {committed} is stale"
    for folder in ("cells", "tasks", "commands", "pictures"):
        assert {p.name for p in (DOCS / folder).iterdir()} == {p.name for p in (written / folder).iterdir()}


@cache
def anchors(page):
    """Anchors of the headings of a page, as on GitHub."""
    text = re.sub(r"^```.*?^```", "", page.read_text(), flags=re.MULTILINE | re.DOTALL)
    names = []
    for heading in re.findall(r"^#+ (.*)", text, re.MULTILINE):
        name = re.sub(r"[^\w -]", "", unescape(heading).lower()).replace(" ", "-")
        names.append(f"{name}-{names.count(name)}" if name in names else name)
    return set(names)


def links(page):
    """Targets of the links and images of a page, without its code."""
    text = re.sub(r"^```.*?^```|`[^`\n]*`", "", page.read_text(), flags=re.MULTILINE | re.DOTALL)
    return re.findall(r"\]\(([^)\s]+)\)", text)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_links_have_targets(page):
    for link in links(page):
        if re.match(r"https?://", link):
            assert re.fullmatch(r"https?://[\w.-]+\.\w+(/\S*)?", link), link
            continue
        path, _, anchor = link.partition("#")
        target = (page.parent / path).resolve() if path else page
        if target.parent == page.parent / FIGURES and (page.parent / RUNS).exists():
            continue  # Drawn from the runs: test_committed_reports_follow_from_their_runs.
        assert target.exists(), f"{link} has no target"
        assert target.is_relative_to(ROOT), f"{link} is outside of the repository"
        assert not anchor or anchor in anchors(target), f"{link}: {target.name} has no such heading"


MEAN = re.compile(r"(\d[\d.]*)(?: %)? ± (\d[\d.]*)")
NOTES = [page for page in sorted(DOCS.glob("results/*.md")) if any(link.endswith("report.md") for link in links(page))]


def rounds_to(number, text):
    """Whether a number, rounded to the digits of a text, is the text."""
    return abs(float(number) - float(text)) < 0.501 * 10 ** -len(text.partition(".")[2])


@pytest.mark.parametrize("page", NOTES, ids=lambda page: page.stem)
def test_means_in_notes_are_those_of_the_reports(page):
    """Each "mean ± deviation" is in a report that its section links to, or in one of the page if there is none."""
    text = page.read_text()
    for section in re.split(r"^## ", text, flags=re.MULTILINE):
        reports = re.findall(r"\]\((\S*report\.md)", section) or re.findall(r"\]\((\S*report\.md)", text)
        measured = {pair for report in reports for pair in MEAN.findall((page.parent / report).read_text())}
        for mean, deviation in MEAN.findall(section):
            assert any(rounds_to(m, mean) and rounds_to(d, deviation) for m, d in measured), f"{mean} ± {deviation}"


def test_every_page_is_listed():
    listed = {(DOCS / link.partition("#")[0]).resolve() for link in links(DOCS / "README.md")}
    own = {
        path for path in DOCS.rglob("*.md") if path.parent.name not in ("cells", "commands") and path.stem != "report"
    }
    assert own | {*ROOT.glob("*.md")} <= listed | {DOCS / "README.md"}, "docs/README.md lists every page"
    reports = {(page.parent / link).resolve() for page in DOCS.glob("results/*.md") for link in links(page)}
    assert {*DOCS.glob("results/*/**/report.md")} <= reports, "a page of docs/results links every report"


def test_readme_shows_installation_and_quick_start_first():
    lines = (ROOT / "README.md").read_text().splitlines()
    assert len(lines) <= 110
    assert lines.index("## Install") < lines.index("## Quick start") < 25
    assert sum(line.startswith("![") for line in lines) == 2, "one picture of the idea and one of the speed"
    papers = re.findall(r"^\| \[.*\]\(https://arxiv.org/abs/[\d.]+\), .* \| .*\d .* \|$", "\n".join(lines), re.M)
    assert len(papers) == 5, "one row with link and verdicts per paper"


def test_picture_of_the_speed_shows_the_committed_measurements():
    picture = ElementTree.parse(DOCS / "pictures" / "speed.svg").getroot()
    words = [text.text for text in picture.iter("{http://www.w3.org/2000/svg}text")]
    tables = [DOCS / "measurements" / f"{name}.csv" for name in ("delta-rule", "cells")]
    rows = [line for table in tables for line in table.read_text().splitlines() if line.startswith('"8, 256, 8, 16"')]
    bars = [(words[n - 1], float(word)) for n, word in enumerate(words) if re.fullmatch(r"[\d.]+", word)]
    assert len(bars) >= 8
    for name, times in bars:
        kind = name.partition(",")[0]
        assert any(f",{kind}," in row or kind == "delta" for row in rows if f",{times}," in row), name


@pytest.mark.parametrize("path", sorted((DOCS / "pictures").glob("*.svg")), ids=lambda path: path.stem)
def test_pictures_have_room_for_their_text(path):
    """A width of 0.62 of the height per letter is wide for a sans serif font."""
    picture = ElementTree.parse(path).getroot()
    _, _, width, height = map(float, picture.get("viewBox").split())
    for text in picture.iter("{http://www.w3.org/2000/svg}text"):
        x, y, size = (float(text.get(name)) for name in ("x", "y", "font-size"))
        length = 0.62 * size * len(text.text)
        left = x - length * {"start": 0, "middle": 0.5, "end": 1}[text.get("text-anchor", "start")]
        assert left >= 0, text.text
        assert left + length <= width, text.text
        assert size <= y <= height - 3
    colours = set(
        re.findall("#[0-9a-f]{6}", ElementTree.tostring(picture, encoding="unicode").replace(dark_mode(), ""))
    )
    assert colours <= set(LIGHT.colours), "every colour has a dark variant"


def test_layers_of_the_streams_page_exist():
    rows = re.findall(
        r"^    ([a-z][a-z0-9-]*) +[0-9,]+/s ", (DOCS / "results" / "streams.md").read_text(), re.MULTILINE
    )
    assert rows
    assert set(rows) <= set(layer_names()), "run benchmarks/stream.py without the layers that no longer exist"


@pytest.fixture
def scale(benchmark_script):
    return benchmark_script("scale")


def test_the_scale_page_equals_the_output_of_its_script(scale):
    from page import written

    page = written(ROOT / "docs" / "scale.md", "scale")
    assert page.splitlines() == scale.lines(scale.Machine()), "run benchmarks/scale.py --into docs/scale.md"


@pytest.mark.parametrize("sizes", [{}, {"batch": 16}, {"d": 512}])
def test_saved_activations_of_a_block_scale_with_width_and_tokens(scale, sizes):
    assert scale.saved(**sizes) == pytest.approx(scale.SAVED, rel=0.1)


def test_parameters_are_those_of_blocks_embedding_and_output(scale):
    model = scale.model()
    embedding_and_output = scale.VOCABULARY * scale.D + scale.VOCABULARY + 2 * scale.D
    assert model.parameters == scale.DEPTH * model.block + embedding_and_output
    assert model.state == scale.HEADS * (scale.D // scale.HEADS) ** 2
    assert scale.weights(model, 1) == 16 * model.parameters
    assert torch.get_default_dtype() == torch.float32
