"""What is public: exported in one place, documented, and all that the pages need."""

import ast
import importlib
import inspect
import re
import runpy
import subprocess
import sys
from pathlib import Path

import pytest

import fastweights

ROOT = Path(__file__).parents[1]
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
