"""Imports among the parts of the library, and its import time."""

import ast
import shutil
import subprocess
import sys
from functools import cache
from graphlib import TopologicalSorter
from pathlib import Path

import pytest

import fastweights
from fastweights.compiler.targets.target import TARGETS
from fastweights.registry import BACKENDS

pytestmark = pytest.mark.quick
ROOT = Path(fastweights.__file__).parent
FOUNDATIONS = {"core", "signature", "state", "registry"}
MAY_IMPORT = {
    "core": set(),
    "signature": {"core"},
    "state": {"core"},
    "registry": {"core"},
    "inner": {"core", "signature"},
    "step_docstrings": {"core", "signature"},
    "rules": {"core", "signature", "step_docstrings"},
    "feature_maps": {"core"},
    "normalisers": {"core"},
    "rate_activations": {"core"},
    "tokenizers": {"core"},
    "cell": FOUNDATIONS | {"inner"},
    "cells": FOUNDATIONS | {"rules", "feature_maps", "normalisers", "step_docstrings"},
    "call": FOUNDATIONS | {"cell"},
    "compiler": FOUNDATIONS | {"cell", "call"},
    "backends": FOUNDATIONS | {"cell", "call", "compiler"},
    "dispatch": FOUNDATIONS | {"cell", "call"},
    "last_states": FOUNDATIONS | {"cell", "call", "dispatch", "state"},
    "functional": FOUNDATIONS | {"cell", "dispatch", "normalisers"},
    "parallel": FOUNDATIONS | {"cell", "call", "backends", "dispatch"},
    "steps": FOUNDATIONS | {"call", "compiler", "dispatch"},
    "layers": FOUNDATIONS | {"rules", "cell", "cells", "dispatch", "steps"},
    "models": FOUNDATIONS | {"cell", "cells", "compiler", "dispatch", "layers", "steps"},
    "tasks": FOUNDATIONS | {"tokenizers"},
    "testing": FOUNDATIONS | {"cell", "dispatch", "tasks"},
    "training": FOUNDATIONS | {"tasks", "steps"},
    "experiments": FOUNDATIONS | {"tasks", "training"},
    "report": FOUNDATIONS | {"training", "experiments"},
    "inspect": FOUNDATIONS | {"call", "dispatch", "tasks", "report"},
    "recipes": FOUNDATIONS | {"experiments", "training", "layers"},
    "adapters": FOUNDATIONS
    | {
        "normalisers",
        "tokenizers",
        "cell",
        "cells",
        "compiler",
        "dispatch",
        "functional",
        "layers",
        "models",
        "testing",
    },
}
"""The permitted imports of each part, from the lowest part to the highest. A part is a folder or module of the root."""
ENTRY_POINTS = {"__init__", "__main__", "cli", "commands"}


def part(path):
    """The folder or the module of the package root that contains a file."""
    return path.relative_to(ROOT).parts[0].removesuffix(".py")


PARTS = sorted({part(path) for path in ROOT.rglob("*.py")} - ENTRY_POINTS)


@cache
def nodes_of(path):
    """The syntax tree of a file, and all its nodes."""
    tree = ast.parse(path.read_text(encoding="utf-8"))
    return tree, [*ast.walk(tree)]


def imports(path):
    for node in nodes_of(path)[1]:
        if isinstance(node, ast.ImportFrom) and node.module:
            yield node.module
        elif isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)


def test_no_part_imports_upwards():
    order = list(MAY_IMPORT)
    for name, allowed in MAY_IMPORT.items():
        assert allowed <= set(order[: order.index(name)]), name


@pytest.mark.parametrize("name", PARTS)
def test_part_imports_only_allowed_parts(name):
    for path in ROOT.rglob("*.py"):
        if part(path) == name:
            imported = {module.split(".")[1] for module in imports(path) if module.startswith("fastweights.")}
            assert imported <= MAY_IMPORT[name] | {name}, path


def test_imports_have_no_cycle():
    files = {module_of(path): path for path in ROOT.rglob("*.py")}
    for num_layers in range(2, 6):
        graph = {}
        for module, path in files.items():
            source = ".".join(module.split(".")[:num_layers])
            imported = {".".join(target.split(".")[:num_layers]) for target in targets_of(path, files)}
            graph.setdefault(source, set()).update(imported - {source, "fastweights"})
        TopologicalSorter(graph).prepare()


def module_of(path):
    """The full module name of a file."""
    return ".".join(["fastweights", *path.relative_to(ROOT).with_suffix("").parts]).removesuffix(".__init__")


def targets_of(path, files):
    """The modules of this library that a file imports, also inside functions."""
    for node in nodes_of(path)[1]:
        if isinstance(node, ast.ImportFrom) and node.module:
            for name in (f"{node.module}.{alias.name}" for alias in node.names):
                yield from [module for module in (name, node.module) if module in files][:1]


@pytest.mark.parametrize("folder", ["rules", "feature_maps", "normalisers", "rate_activations"])
def test_parts_of_a_folder_do_not_import_each_other(folder):
    """Helpers are an exception: their names begin with an underscore."""
    for path in (ROOT / folder).glob("[a-z]*.py"):
        assert not any(
            module.startswith(f"fastweights.{folder}.") and "._" not in module for module in imports(path)
        ), path


def test_only_targets_import_themselves():
    """No target imports another, either: the type of a device selects its kernels.

    Hand-written kernels of a backend for one target are in a folder with the name of the target.
    """
    root = ROOT / "compiler" / "targets"
    targets = {path.parent.name for path in root.glob("*/target.py")}
    assert targets == set(TARGETS.values())
    for path in ROOT.rglob("*.py"):
        target = next((name for name in targets if name in path.parts), None)
        imported = {m.split(".")[3] for m in imports(path) if m.startswith("fastweights.compiler.targets.")}
        assert imported & targets <= {target}, path


def test_dispatch_names_no_backend_and_no_device():
    text = (ROOT / "dispatch.py").read_text(encoding="utf-8")
    words = {node.value for node in ast.walk(ast.parse(text)) if isinstance(node, ast.Constant)}
    assert not words & {*BACKENDS.names(), "cpu", "cuda"}


def test_every_training_loop_has_settings_and_the_required_functions():
    """The name of a file of settings is that of its loop."""
    loops, settings = ({p.stem for p in (ROOT / "training" / part).glob("[a-z]*.py")} for part in ("loops", "settings"))
    assert loops == settings
    for name in loops:
        tree = ast.parse((ROOT / "training" / "loops" / f"{name}.py").read_text(encoding="utf-8"))
        assert {"train", "finish", "show"} <= {node.name for node in tree.body if isinstance(node, ast.FunctionDef)}


def test_recipes_are_data():
    """They train nothing, and torch is not loaded to read them."""
    assert "torch" not in loaded(
        "from fastweights.registry import EXPERIMENTS; [EXPERIMENTS.load(name) for name in EXPERIMENTS.names()]"
    )


@cache
def loaded(statement):
    """The modules that a new process has after a statement."""
    code = f"{statement}\nimport sys; print(*sys.modules)"
    return set(subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.split())


SCAN_AND_LAYERS = "import fastweights; fastweights.scan; import fastweights.layers"


def test_import_is_light():
    heavy = {
        "triton",
        "lightning_fabric",
        "gymnasium",
        "transformers",
        "matplotlib",
        "rich",
        "jsonargparse",
        "safetensors",
    }
    assert not loaded(SCAN_AND_LAYERS) & heavy


def test_compiled_backend_does_not_load_torch_compile():
    assert not {"torch._inductor", "torch._dynamo"} & loaded(SCAN_AND_LAYERS)


def test_parser_of_the_command_line_does_not_load_torch():
    assert "torch" not in loaded(
        "from fastweights import cli; from fastweights.registry import COMMANDS; cli.make_parser(COMMANDS.names())"
    )
    assert "torch" not in loaded("from fastweights.experiments.flags import parse; parse('char-lm', ['--steps', '3'])")


def test_report_loads_no_torch_and_load_run_no_fabric(tmp_path):
    agents = Path(__file__).parents[1] / "docs" / "results" / "agents" / "rates"
    shutil.copytree(agents, tmp_path / "runs", ignore=shutil.ignore_patterns("figures", "report.*"))
    assert "torch" not in loaded(f"from fastweights.cli import main; main(['report', {str(tmp_path)!r}])")
    assert (tmp_path / "report.md").exists()
    assert "lightning_fabric" not in loaded("import fastweights.experiments.load_run, fastweights.commands._episode")


def test_every_public_part_has_a_docstring():
    for path in ROOT.rglob("*.py"):
        tree, _ = nodes_of(path)
        assert ast.get_docstring(tree), path
        for node in tree.body:
            if isinstance(node, ast.FunctionDef | ast.ClassDef) and not node.name.startswith("_"):
                record = isinstance(node, ast.ClassDef) and any(ast.unparse(b) == "NamedTuple" for b in node.bases)
                assert ast.get_docstring(node) or record, f"{path}: {node.name}"


@pytest.mark.parametrize("name", ["fla", "onnx", "torchrl", "transformers"])
def test_adapter_can_be_imported_first(name):
    for package in {"onnx": ["onnx"], "torchrl": ["torchrl"], "transformers": ["transformers"]}.get(name, []):
        pytest.importorskip(package)
    subprocess.run([sys.executable, "-W", "ignore", "-c", f"import fastweights.adapters.{name}"], check=True)


CATCHES_ALL = {
    "core/import_path.py": "the import of a user's module runs any code",
    "testing/__init__.py": "a check reports every error of the cell",
    "tokenizers/bpe.py": "the library raises no more specific error",
    "training/rl/worker_pool.py": "a process sends its error to its parent",
    "training/distributed/torchrun.py": "a process reports its failure to the others, and raises the error",
}
"""Files that may catch every exception, with the reason."""


def catches_all(handler):
    """Whether a handler catches every exception."""
    kinds = handler.type.elts if isinstance(handler.type, ast.Tuple) else [handler.type]
    return any(kind is None or ast.unparse(kind) in ("Exception", "BaseException") for kind in kinds)


def test_no_handler_catches_every_exception():
    """Such a handler would hide a lack of memory, and exceptions that PyTorch or a user's code raises on purpose."""
    files = set()
    for path in ROOT.rglob("*.py"):
        if any(isinstance(node, ast.ExceptHandler) and catches_all(node) for node in nodes_of(path)[1]):
            files.add(path.relative_to(ROOT).as_posix())
    assert files == {*CATCHES_ALL}


def test_property_tests_set_no_deadline():
    """The profile in `conftest.py` has none, for all tests."""
    folder = Path(__file__).parent
    calls = (
        (path, node)
        for path in folder.rglob("*.py")
        if path.name != "conftest.py"
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        if isinstance(node, ast.Call) and ast.unparse(node.func).endswith("settings")
    )
    with_deadline = [
        path.name for path, call in calls if {k.arg for k in call.keywords} & {"deadline", "suppress_health_check"}
    ]
    assert not with_deadline


def test_require_has_no_constant_condition():
    """`raise invalid(...)` reports an error without a condition, so that mypy sees the end of the function."""
    assert not [
        f"{path.relative_to(ROOT)}:{node.lineno}"
        for path in ROOT.rglob("*.py")
        for node in nodes_of(path)[1]
        if isinstance(node, ast.Call) and ast.unparse(node.func) == "require" and isinstance(node.args[0], ast.Constant)
    ]
