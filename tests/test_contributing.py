"""The repository: CONTRIBUTING.md and the workflow name things that exist, `make test` holds every part to every
property, and public names are exported and documented."""

import ast
import importlib
import inspect
import re
import runpy
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest
import torch

import fastweights
import test_cells
import test_layers
from fastweights import Cell, cli
from fastweights.testing import checks_in, layer_checks, scan_checks
from tiers import CORE, OF_SHAPES, OF_TRACERS, OTHERS, QUICK, shapes_by_tier

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


def in_make_test(function):
    """The identifiers of a test's cases that `make test` runs."""
    (cases,) = (mark for mark in function.pytestmark if mark.name == "parametrize")
    return [case.id for case in cases.args[1] if not any(mark.name == "slow" for mark in case.marks)]


@pytest.mark.parametrize("name", Cell.names())
def test_every_property_of_a_cell_is_in_make_test(name):
    backends = test_cells.RUNS_ON[name]
    cases = [case.removeprefix(f"{name}-") for case in in_make_test(test_cells.test_guarantee)]
    for check in checks_in(scan_checks):
        held = {backend for backend in backends if f"{backend}-{check}" in cases}
        assert held >= ({"compiled"} if check in OF_TRACERS else set(backends)), check


def test_every_property_of_a_layer_is_in_make_test():
    cases = [mark.args[1] for mark in test_layers.test_guarantee.pytestmark if mark.name == "parametrize"]
    assert [len(case) for case in cases] == [len(test_layers.MAKERS), len(checks_in(layer_checks))]


@pytest.mark.parametrize("name", Cell.names())
def test_the_shapes_of_both_tiers_are_all_shapes(name):
    for dtype in (torch.float64, torch.float32):
        now, later = shapes_by_tier(name, dtype)
        assert Counter(now + later) == Counter(scan_checks.SHAPES[dtype])
        assert scan_checks.ODD in now
        assert name not in CORE or not later


@pytest.mark.parametrize("pair", OTHERS, ids=str)
def test_every_shape_in_every_dtype_meets_ordinary_cells_in_make_test(pair):
    dtype, shape = pair
    assert sum(shape in shapes_by_tier(name, dtype)[0] for name in set(Cell.names()) - set(CORE)) >= 10


def test_tiers_are_of_checks_that_are_there():
    assert {*OF_SHAPES, *OF_TRACERS, *QUICK} <= set(checks_in(scan_checks))
    assert set(CORE) <= set(Cell.names())


def test_continuous_integration_runs_every_tier_once():
    """`make test` takes its selection from pyproject.toml; `make test-slow` takes the complement."""
    assert "-m 'not slow'" in (ROOT / "pyproject.toml").read_text(encoding="utf-8")
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    commands = dict(re.findall(r"^(\S+): \S+\n\t\$\(PYTEST\)(.*)$", makefile, re.M))
    assert {name: commands[name].strip() for name in ("test", "test-slow", "test-all")} == {
        "test": "",
        "test-slow": "-m slow",
        "test-all": '-m ""',
    }
    assert re.findall(r"^make (\S+)$", (ROOT / ".ci" / "run").read_text(encoding="utf-8"), re.M) == [
        "lint",
        "test",
        "test-slow",
    ]


EXPORTS = runpy.run_path(str(ROOT / "docs" / "exports.py"))
FOLDERS = EXPORTS["FOLDERS"]
PACKAGES = ["fastweights", *(f"fastweights.{folder.folder}" for folder in FOLDERS)]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]


@pytest.mark.parametrize("folder", FOLDERS, ids=lambda folder: folder.folder)
def test_every_part_of_a_folder_is_exported_by_its_package(folder):
    package = importlib.import_module(f"fastweights.{folder.folder}")
    found = {name: module for module, names in EXPORTS["exports"](folder).items() for name in names}
    assert sorted(package.__all__) == sorted(found), "run make generate"
    for name, module in found.items():
        assert getattr(package, name) is getattr(importlib.import_module(module), name)


@pytest.mark.parametrize("package", PACKAGES)
def test_every_public_name_is_there_and_documented(package):
    module = importlib.import_module(package)
    assert sorted(set(module.__all__)) == sorted(module.__all__)
    assert not [name for name in module.__all__ if name.startswith("_")]
    for name in module.__all__:
        value = getattr(module, name)
        if inspect.isclass(value) or inspect.isroutine(value):
            assert inspect.getdoc(value), name


def test_lazy_names_are_those_that_type_checkers_see():
    tree = ast.parse(Path(fastweights.__file__).read_text(encoding="utf-8"))
    (block,) = (node for node in tree.body if isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING")
    seen = {alias.name: node.module for node in block.body for alias in node.names}
    assert sorted(seen) == sorted(fastweights.__all__)
    for name, home in seen.items():
        assert getattr(fastweights, name) is getattr(importlib.import_module(home), name)


def test_everything_is_reached_from_the_package_alone():
    code = "import fastweights as f; print(f.layers.DeltaNet.__name__, f.rules.delta.__name__, 'layers' in dir(f))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["DeltaNet", "delta", "True"]


def test_an_unknown_name_is_an_attribute_error():
    with pytest.raises(AttributeError, match="has no attribute 'sccan'"):
        _ = fastweights.sccan


def snippets(page):
    """The Python of a page, prompts or not."""
    for block in re.findall(r"```python\n(.*?)```", page.read_text(encoding="utf-8"), re.DOTALL):
        lines = [line for line in block.splitlines() if ">>>" not in block or line.startswith((">>> ", "... "))]
        yield "\n".join(re.sub(r"^(>>>|\.\.\.) ", "", line) for line in lines)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_pages_need_only_what_is_public(page):
    for snippet in snippets(page):
        for node in ast.walk(ast.parse(snippet)):
            if isinstance(node, ast.ImportFrom) and node.module.partition(".")[0] == "fastweights":
                home = importlib.import_module(node.module)
                names = {alias.name for alias in node.names}
                assert not [part for part in node.module.split(".") if part.startswith("_")], node.module
                assert names <= {*getattr(home, "__all__", vars(home))}, f"{node.module} has no public {names}"
                assert not [name for name in names if name.startswith("_")]


def test_what_is_cited_is_this_version():
    assert f"version: {fastweights.__version__}\n" in (ROOT / "CITATION.cff").read_text(encoding="utf-8")
