"""Every public name is documented: all parameters, the result, and an example per layer and per model."""

import doctest
import inspect
import sys
from pathlib import Path

import pytest
from torch import nn

from fastweights.core.docstrings import arguments, complete, section, shares

DOCS = Path(__file__).parents[1] / "docs"


@pytest.fixture(scope="module")
def api():
    pytest.importorskip("sphinx", reason="reads with the extra docs")
    sys.path.insert(0, str(DOCS))
    import api

    yield api
    sys.path.remove(str(DOCS))
    sys.modules.pop("api")


def documented(api):
    """All public functions, classes and methods by their full names."""
    for module in api.modules():
        for name, value in api.public(module).items():
            if inspect.isclass(value) or inspect.isroutine(value) or hasattr(value, "make"):
                yield f"{module}.{name}", value
            if inspect.isclass(value):
                routines = [member for member in api.members(value) if callable(getattr(value, member))]
                yield from ((f"{module}.{name}.{member}", getattr(value, member)) for member in routines)


def parameters(value):
    """The parameters for users: parameters only for error messages have the annotation `object`."""
    try:
        signature = inspect.signature(value).parameters.values()
    except (TypeError, ValueError):
        return []
    kinds = {parameter.kind for parameter in signature}
    if kinds == {inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD}:
        return []
    return [p.name for p in signature if p.name not in ("self", "cls") and p.annotation is not object]


def test_every_public_module_has_names(api):
    assert {"fastweights.functional", "fastweights.adapters.fla", "fastweights.parallel"} <= set(api.modules())
    assert all(api.public(module) for module in api.modules())


def test_every_public_constant_is_described(api, tmp_path):
    """The generator of the reference raises an error for a constant without a docstring."""
    api.write(tmp_path / "reference")


def test_every_parameter_is_described(api):
    missing = {}
    for full, value in documented(api):
        text = inspect.getdoc(value) or ""
        described = arguments(text) | arguments(text.replace("Attributes:", "Args:"))
        if undescribed := [name for name in parameters(value) if name not in described]:
            missing[full] = undescribed
    assert not missing


def test_every_result_is_described(api):
    missing = []
    for full, value in documented(api):
        if inspect.isclass(value) or inspect.signature(value).return_annotation in (None, inspect.Signature.empty):
            continue
        text = inspect.getdoc(value) or ""
        if not (section(text, "Returns:") or section(text, "Yields:")):
            missing.append(full)
    assert not missing


@pytest.mark.parametrize("package", ["fastweights.layers", "fastweights.models"])
def test_every_layer_and_model_has_an_example(api, package):
    """Doctest runs the examples of all modules."""
    missing = [
        name
        for name, value in api.public(package).items()
        if inspect.isclass(value) and issubclass(value, nn.Module)
        if not doctest.DocTestParser().get_examples(inspect.getdoc(value) or "")
    ]
    assert not missing


def test_first_line_of_a_docstring_is_no_formula(api):
    wrong = [full for full, value in documented(api) if "<-" in (inspect.getdoc(value) or "").partition("\n")[0]]
    assert not wrong


def test_members_of_base_classes_are_documented_once(api):
    layers = api.public("fastweights.layers")
    assert {"forward", "initial_state", "run"} <= set(api.members(layers["Layer"]))
    assert api.members(layers["DeltaNet"]) == []


def test_docstring_is_completed_in_the_order_of_parameters():
    text = "Adds.\n\nSource: A 2020.\n\nArgs:\n    b: Own.\n\nRaises:\n    InputError: never.\n\n>>> 1\n1"
    shared = "Args:\n    a: Shared `[B, T]`.\n    b: Other.\n    c: Unused.\n\nReturns:\n    The sum."
    assert complete(text, ["a", "b"], shared) == (
        "Adds.\n\nSource: A 2020.\n\nArgs:\n    a: Shared `[B, T]`.\n    b: Own.\n\nReturns:\n    The sum.\n\n"
        "Raises:\n    InputError: never.\n\n>>> 1\n1"
    )


def test_functions_share_descriptions():
    @shares("\nArgs:\n    x: Input.\n    y: Not a parameter.")
    def double(x):
        """Doubles."""
        return 2 * x

    assert double.__doc__ == "Doubles.\n\nArgs:\n    x: Input."


def test_function_without_docstring_gets_none():
    """As under `python -OO`, where no function has a docstring."""

    @shares("Args:\n    x: Input.")
    def double(x):
        return 2 * x

    assert double.__doc__ is None
