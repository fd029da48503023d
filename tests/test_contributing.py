"""CONTRIBUTING.md and the workflow name existing things, and `make test` covers every property of every part.

Public names are exported and documented.
"""

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
    """Whether a file exists; for a new file, whether its folder or the parent of its folder exists."""
    fixed = path.partition("NAME")[0].partition("PAPER")[0]
    return (ROOT / fixed).exists()


def test_table_has_every_kind_of_part():
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


def test_workflow_tests_the_oldest_and_the_newest_versions():
    oldest = re.search(r'"torch>=([\d.]+)"', PROJECT)[1]
    newest = re.search(r"^torch==([\d.]+)", (ROOT / "constraints.txt").read_text(encoding="utf-8"), re.M)[1]
    pythons = re.findall(r"Python :: (3\.\d+)", PROJECT)
    matrices = re.findall(r'\{ python: "([\d.]+)", torch: "([\d.]+)" \}', WORKFLOW)
    assert set(matrices) == {(pythons[0], f"{oldest}.0"), (pythons[-1], newest)}


def test_pre_commit_runs_the_pinned_version_of_ruff():
    (pinned,) = re.findall(r"^ruff==(.*)$", (ROOT / "constraints.txt").read_text(encoding="utf-8"), re.M)
    assert f"rev: v{pinned}\n" in (ROOT / ".pre-commit-config.yaml").read_text(encoding="utf-8")


def in_make_test(function):
    """The identifiers of the cases of a test that `make test` runs."""
    (cases,) = (mark for mark in function.pytestmark if mark.name == "parametrize")
    return [case.id for case in cases.args[1] if not any(mark.name == "slow" for mark in case.marks)]


@pytest.mark.parametrize("name", Cell.names())
def test_every_property_of_a_cell_is_in_make_test(name):
    backends = test_cells.RUNS_ON[name]
    cases = [case.removeprefix(f"{name}-") for case in in_make_test(test_cells.test_guarantee)]
    for check in checks_in(scan_checks):
        covered = {backend for backend in backends if f"{backend}-{check}" in cases}
        assert covered >= ({"compiled"} if check in OF_TRACERS else set(backends)), check


def test_every_property_of_a_layer_is_in_make_test():
    cases = [mark.args[1] for mark in test_layers.test_guarantee.pytestmark if mark.name == "parametrize"]
    assert [len(case) for case in cases] == [len(test_layers.MAKERS), len(checks_in(layer_checks))]


@pytest.mark.parametrize("name", Cell.names())
def test_tiers_cover_all_shapes(name):
    for dtype in (torch.float64, torch.float32):
        shapes, further_shapes = shapes_by_tier(name, dtype)
        assert Counter(shapes + further_shapes) == Counter(scan_checks.SHAPES[dtype])
        assert scan_checks.ODD in shapes
        assert name not in CORE or not further_shapes


@pytest.mark.parametrize("pair", OTHERS, ids=str)
def test_make_test_runs_every_shape_and_dtype_with_ordinary_cells(pair):
    dtype, shape = pair
    assert sum(shape in shapes_by_tier(name, dtype)[0] for name in set(Cell.names()) - set(CORE)) >= 10


def test_tiers_name_existing_checks():
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
    modules = {name: module for module, names in EXPORTS["exports"](folder).items() for name in names}
    assert sorted(package.__all__) == sorted(modules), "run make generate"
    for name, module in modules.items():
        assert getattr(package, name) is getattr(importlib.import_module(module), name)


@pytest.mark.parametrize("package", PACKAGES)
def test_every_public_name_exists_and_is_documented(package):
    module = importlib.import_module(package)
    assert sorted(set(module.__all__)) == sorted(module.__all__)
    assert not [name for name in module.__all__ if name.startswith("_")]
    for name in module.__all__:
        value = getattr(module, name)
        if inspect.isclass(value) or inspect.isroutine(value):
            assert inspect.getdoc(value), name


def test_lazy_names_equal_those_for_type_checkers():
    tree = ast.parse(Path(fastweights.__file__).read_text(encoding="utf-8"))
    (block,) = (node for node in tree.body if isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING")
    modules = {alias.name: node.module for node in block.body for alias in node.names}
    assert sorted(modules) == sorted(fastweights.__all__)
    for name, module in modules.items():
        assert getattr(fastweights, name) is getattr(importlib.import_module(module), name)


def test_submodules_are_attributes_of_the_package():
    code = "import fastweights as f; print(f.layers.DeltaNet.__name__, f.rules.delta.__name__, 'layers' in dir(f))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["DeltaNet", "delta", "True"]


def test_unknown_name_is_an_attribute_error():
    with pytest.raises(AttributeError, match="has no attribute 'sccan'"):
        _ = fastweights.sccan


def snippets(page):
    """The Python code of a page, with or without prompts."""
    for block in re.findall(r"```python\n(.*?)```", page.read_text(encoding="utf-8"), re.DOTALL):
        lines = [line for line in block.splitlines() if ">>>" not in block or line.startswith((">>> ", "... "))]
        yield "\n".join(re.sub(r"^(>>>|\.\.\.) ", "", line) for line in lines)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_pages_use_public_names_only(page):
    for snippet in snippets(page):
        for node in ast.walk(ast.parse(snippet)):
            if isinstance(node, ast.ImportFrom) and node.module.partition(".")[0] == "fastweights":
                module = importlib.import_module(node.module)
                names = {alias.name for alias in node.names}
                assert not [part for part in node.module.split(".") if part.startswith("_")], node.module
                assert names <= {*getattr(module, "__all__", vars(module))}, f"{node.module} has no public {names}"
                assert not [name for name in names if name.startswith("_")]


def test_citation_has_the_current_version():
    assert f"version: {fastweights.__version__}\n" in (ROOT / "CITATION.cff").read_text(encoding="utf-8")
