"""CONTRIBUTING.md, the workflow and the templates name files, commands and versions that exist."""

import re
from pathlib import Path

import pytest

from fastweights import cli

ROOT = Path(__file__).parents[1]
TEXT = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")
WORKFLOW = (ROOT / ".github" / "workflows" / "test.yml").read_text(encoding="utf-8")
MAKEFILE = (ROOT / "Makefile").read_text(encoding="utf-8")
PROJECT = (ROOT / "pyproject.toml").read_text(encoding="utf-8")
KINDS = {
    *("a rule", "a cell", "a layer", "a task", "an experiment", "a compiler function (elementwise)", "an operation"),
    *("a target", "a chunkwise kernel", "a report element", "a page"),
}


def rows():
    """The cells of every row of the table of additions."""
    table = TEXT.partition("| I want to add |")[2].partition("\n\n")[0]
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in table.splitlines()[2:]]


def exists(path):
    """Whether a file is there; for a new file, whether there is a folder for it, or for its folder."""
    fixed = path.partition("NAME")[0].partition("PAPER")[0]
    return (ROOT / fixed).exists()


def test_the_table_has_every_kind_of_part():
    assert {row[0] for row in rows()} >= KINDS


@pytest.mark.parametrize("row", rows(), ids=lambda row: row[0])
def test_files_commands_and_pages_of_a_row_exist(row):
    _, files, commands, pages = row
    paths = re.findall(r"`([^`]+)`", files)
    assert paths
    assert all(map(exists, paths)), paths
    assert re.findall(r"`[^`]+`", commands)
    for command in re.findall(r"`([^`]+)`", commands):
        program, name = command.split()[:2]
        assert name in (targets() if program == "make" else commands_of_the_program()), command
    assert re.findall(r"\]\((docs/[^)#]+)", pages)


def targets():
    return set(re.findall(r"^([\w-]+):(?!=)", MAKEFILE, re.M))


def commands_of_the_program():
    return {path.stem for path in (Path(cli.__file__).parent / "commands").glob("[a-z]*.py")}


def test_every_make_command_on_a_page_of_the_root_is_a_target():
    for page in (TEXT, (ROOT / "README.md").read_text(encoding="utf-8"), WORKFLOW):
        assert set(re.findall(r"\bmake ([a-z]+(?:-[a-z]+)*)\b(?=[`\s]+(?:[|;,#]|$|TORCH|PYTHON))", page)) <= targets()


def test_the_workflow_tests_the_oldest_and_the_newest_versions():
    oldest = re.search(r'"torch>=([\d.]+)"', PROJECT)[1]
    newest = re.search(r"^torch==([\d.]+)", (ROOT / "constraints.txt").read_text(encoding="utf-8"), re.M)[1]
    pythons = re.findall(r"Python :: (3\.\d+)", PROJECT)
    matrices = re.findall(r'\{ python: "([\d.]+)", torch: "([\d.]+)" \}', WORKFLOW)
    assert set(matrices) == {(pythons[0], f"{oldest}.0"), (pythons[-1], newest)}


def test_pre_commit_runs_the_version_of_ruff_that_development_uses():
    (pinned,) = re.findall(r"^ruff==(.*)$", (ROOT / "constraints.txt").read_text(encoding="utf-8"), re.M)
    assert f"rev: v{pinned}\n" in (ROOT / ".pre-commit-config.yaml").read_text(encoding="utf-8")
