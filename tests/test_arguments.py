"""Wrong arguments of public functions: one line with the error, and with our name for a name of another library."""

import inspect
from collections.abc import Callable, Mapping
from dataclasses import MISSING, fields
from functools import partial
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence

import fastweights
from fastweights import Cell, InputError, LanguageModel, functional, inner, layers, make_layer, models, scan
from fastweights.adapters.fla import chunk_delta_rule
from fastweights.core.arguments import checked
from fastweights.core.errors import LONGEST, require
from fastweights.core.other_names import OTHER_NAMES
from fastweights.layers import layer_names, layer_options
from fastweights.registry import LAYERS, TASKS, matches
from fastweights.training import settings
from fastweights.training.rl.vtrace import vtrace

D, HEADS = 16, 2
WRONG: dict[str, Any] = {
    "text": "2",
    "unknown name": "no such name",
    "None": None,
    "list": [8],
    "empty list": [],
    "list of text": ["auto"],
    "mapping": {"K": "x"},
    "fraction": 1.5,
    "negative": -1,
    "zero": 0,
    "True": True,
    "NaN": float("nan"),
    "infinity": float("inf"),
    "tensor": torch.rand(3, 3),
    "number in a tensor": torch.tensor(2),
    "object": object(),
}


def outcome(call: Callable[[], object]) -> str:
    """Empty if a call runs or is refused in one line; else what is raw."""
    try:
        call()
    except InputError as error:
        message = str(error)
        return "" if "\n" not in message and len(message) <= LONGEST else f"a long message: {message!r}"
    except Exception as error:
        return f"{type(error).__name__}: {error}"
    return ""


def raw(run: Callable[..., object], given: Mapping[str, Any]) -> dict[tuple[str, str], str]:
    """Raw errors when one argument is wrong and the others are `given`."""
    assert outcome(partial(run, **given)) == "", "the right arguments are refused"
    run(**given)
    wrong = {
        (name, what): {**given, name: value}
        for name in inspect.signature(run).parameters
        for what, value in WRONG.items()
    }
    found = {case: outcome(partial(run, **arguments)) for case, arguments in wrong.items()}
    return {case: message for case, message in found.items() if message}


def making(make: Callable[..., Any], use: Callable[[Any], object]) -> Callable[..., object]:
    """A function with the parameters of `make` that also uses what is made."""

    def run(**arguments: Any) -> object:
        return use(make(**arguments))

    signature = inspect.signature(make)
    kept = [p for p in signature.parameters.values() if p.kind not in (p.VAR_KEYWORD, p.VAR_POSITIONAL)]
    run.__signature__ = signature.replace(parameters=kept)
    return run


def use_layer(layer: Any) -> None:
    """One call on a short sequence."""
    if isinstance(layer, torch.nn.Module):
        size = layer.input_size if layer.input_size and layer.input_size < 100 else D
        layer(torch.rand(1, 2, size))


@pytest.mark.parametrize("name", LAYERS.names())
def test_options_of_a_layer(name):
    maker = LAYERS.load(name)
    given = {"d_model": D, "num_heads": HEADS, "backend": "reference"}  # to build no kernels
    own = {name: value for name, value in given.items() if name in inspect.signature(maker).parameters}
    assert not raw(making(maker, use_layer), own)


@pytest.mark.parametrize("cell", ["delta", "gated-slot-attention", "titans"])
def test_options_of_the_general_layer(cell):
    given = {"d_model": D, "num_heads": HEADS, "cell": cell, "backend": "reference"}
    assert not raw(making(layers.FastWeight, use_layer), given)


MODELS_ARGUMENTS = {
    "vocab_size": 7,
    "kind": "features",
    "input_size": 3,
    "output_size": 4,
    "layer": "delta-net",
    "d_model": D,
    "num_layers": 1,
    "num_heads": HEADS,
    "d_ff": 8,
    "units": D,
    "length": 4,
    "shape": (3,),
    "actions": 2,
    "pictures": False,
    "channels": 1,
    "side": 28,
    "ways": 2,
    "codes": 2,
    "normalisations": [[[0.0], [1.0]]],
    "features": 12,
    "memory": "delta",
    "cutoffs": (2, 4),
    "embedding": torch.nn.Embedding(7, 4),
    "blocks": [torch.nn.Identity()],
}
OTHERWISE = {
    "Block": {"layer": make_layer("delta-net", D, HEADS)},
    "CrossAttention": {"feature_map": None},
    "RetrievalModel": {"kind": "pairs"},
    "FewShotNetwork": {"memory": "blocks"},
    "NeuronNetwork": {"embedding": 4},
    "RecurrentModel": {"embedding": 4},
    "SNAILNetwork": {"embedding": 4},
}


@pytest.mark.parametrize("name", [name for name in models.__all__ if inspect.isclass(getattr(models, name))])
def test_options_of_a_model(name):
    model = getattr(models, name)
    own = OTHERWISE.get(name, {})
    parameters = inspect.signature(model).parameters.values()
    given = {p.name: {**MODELS_ARGUMENTS, **own}[p.name] for p in parameters if p.default is p.empty}
    assert not raw(making(model, lambda made: None), given)


def tensors() -> dict[str, Any]:
    """Arguments of functions by the names of parameters."""
    B, T, H, K = 2, 3, HEADS, 4
    shaped = {name: torch.rand(B, T, H, K) for name in ("q", "k", "v", "r", "a", "b", "w", "kk")}
    rates = {"beta": torch.rand(B, T, H), "g": -torch.rand(B, T, H), "scale": 0.5, "gate": None}
    traces = {name: torch.rand(B, T) for name in ("log_ratios", "discounts", "rewards", "values")}
    return {**shaped, **rates, **traces, "last_value": torch.rand(B)}


FUNCTIONS = [
    name for name, f in vars(functional).items() if inspect.isfunction(f) and f.__module__ == functional.__name__
]
FUNCTIONS = [name for name in FUNCTIONS if not name.startswith("_")]


@pytest.mark.parametrize("name", FUNCTIONS)
def test_arguments_of_a_memory_as_a_function(name):
    function, given = getattr(functional, name), tensors()
    if name in ("kimi_delta_attention", "gated_linear_attention"):
        given["g"] = -torch.rand_like(given["k"])
    parameters = inspect.signature(function).parameters.values()
    assert not raw(function, {p.name: given[p.name] for p in parameters if p.default is p.empty})


def test_the_message_of_a_memory_as_a_function_names_its_own_parameter():
    given = tensors()
    with pytest.raises(InputError, match=r"^g must be \[B, T, H\]"):
        functional.gated_delta_rule(given["q"], given["k"], given["v"], given["beta"][:1], given["beta"])
    with pytest.raises(InputError, match=r"^w must be"):
        functional.rwkv7(given["r"], given["beta"], *(given[name] for name in "kvab"))


def test_arguments_of_vtrace():
    assert not raw(
        vtrace, {name: tensors()[name] for name in ("log_ratios", "discounts", "rewards", "values", "last_value")}
    )


delta = Cell.from_name("delta")
LM = LanguageModel(7, d_model=D, num_layers=1, num_heads=HEADS)
TOKENS = torch.randint(0, 7, (2, 3))
STATE = make_layer("delta-net", D, HEADS).initial_state(2)
INPUTS = delta.Inputs(*(tensors()[name] for name in ("q", "k", "v", "beta")))
CALLS: dict[str, tuple[Callable[..., object], dict[str, Any]]] = {
    "scan": (scan, {"cell": delta, "inputs": INPUTS}),
    "explain": (fastweights.explain, {"cell": delta, "inputs": INPUTS}),
    "compile_step": (
        lambda module, weights: fastweights.compile_step(module, TOKENS[:1, :1], LM.initial_state(1), weights=weights),
        {"module": LM, "weights": "float32"},
    ),
    "Cell.from_function": (Cell.from_function, {"source": "delta"}),
    "Cell.from_name": (Cell.from_name, {"name": "delta"}),
    "Cell.from_loss": (Cell.from_loss, {"loss": inner.l2}),
    "make_layer": (
        lambda layer, d_model, num_heads: make_layer(layer, d_model, num_heads),
        {"layer": "lstm", "d_model": 8, "num_heads": 1},
    ),
    "make_layers": (
        lambda layer, num_layers, d_model, num_heads: list(layers.make_layers(layer, num_layers, d_model, num_heads)),
        {"layer": "lstm", "num_layers": 1, "d_model": 8, "num_heads": 1},
    ),
    "layer": (lambda **given: make_layer("delta-net", D, HEADS)(**given), {"x": torch.rand(2, 3, D)}),
    "initial_state": (make_layer("delta-net", D, HEADS).initial_state, {"batch_size": 2}),
    "model": (LM.forward, {"tokens": TOKENS}),
    "stream": (lambda **given: list(LM.stream(**given)), {"prompt": TOKENS, "length": 2}),
    "generate": (LM.generate, {"prompt": TOKENS, "length": 2}),
    "snapshots": (lambda **given: list(LM.snapshots(**given)), {"tokens": TOKENS, "every": 2}),
    "LanguageModel.load": (LM.load, {}),
    "load": (fastweights.load, {"run": "."}),
    "family": (fastweights.family, {"make": inner.power}),
    "select": (STATE.select, {"which": 0}),
    "to": (STATE.to, {"target": "cpu"}),
    "save": (STATE.save, {}),
    "state.load": (STATE.load, {}),
    "inner.power": (inner.power, {"p": 3.0}),
    "inner.huber": (inner.huber, {}),
    "inner.mlp": (inner.mlp, {}),
    "inner.scaled": (inner.scaled, {"q": 3.0}),
}
SIGNATURES = {
    "layer": layers.Layer.forward,
    "stream": LM.stream,
    "snapshots": LM.snapshots,
}


@pytest.mark.parametrize("name", CALLS)
def test_arguments_of_a_public_function(name, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    function, given = CALLS[name]
    parameters = [p for p in inspect.signature(SIGNATURES.get(name, function)).parameters if p != "self"]
    files = {p: tmp_path / "state.safetensors" for p in parameters if p == "file"}
    if files and name != "save":
        state = next(s for s in [LM.stream(TOKENS, 1)] if next(s) is not None).state if name.startswith("L") else STATE
        state.save(files["file"])
    wrong = [(p, what) for p in parameters for what in WRONG]
    found = {case: outcome(lambda c=case: function(**{**given, **files, c[0]: WRONG[c[1]]})) for case in wrong}
    assert not {case: message for case, message in found.items() if message}
    if name != "load":
        assert outcome(lambda: function(**given, **files)) == ""


def test_every_public_function_is_called_with_wrong_arguments():
    public = {name for name in fastweights.__all__ if inspect.isfunction(getattr(fastweights, name))}
    assert public <= {*CALLS}


@pytest.mark.parametrize("name", TASKS.names())
def test_options_of_a_task(name):
    task = TASKS.load(name)
    wrong = [(field.name, what) for field in fields(task) if field.init for what in WRONG]
    found = {case: outcome(lambda c=case: task(**{c[0]: WRONG[c[1]]})) for case in wrong}
    assert not {case: message for case, message in found.items() if message}


SETTINGS = sorted(path.stem for path in (Path(settings.__file__).parent).glob("[a-z]*.py"))


@pytest.mark.parametrize("name", SETTINGS)
def test_settings_of_training(name):
    module = import_module(f"fastweights.training.settings.{name}")
    kind = next(value for key, value in vars(module).items() if matches(key, name))
    needed = {"steps": 4, "batch_size": 2, "evaluate_every": 2, "learning_rate": 0.1, "unroll_length": 2, "window": 2}
    given = {field.name: needed[field.name] for field in fields(kind) if field.default is MISSING}
    assert not raw(kind, given)


@pytest.mark.parametrize("number", [np.int64(2), np.int32(2), np.uint8(2)])
def test_integers_of_numpy_are_integers(number):
    """Also where torch itself refuses them."""
    assert type(make_layer("lstm", 8, 1, layers=number).lstm.num_layers) is int


def test_a_message_is_one_line_of_bounded_length():
    @checked
    def run(x: int) -> int:
        return x

    for value in (torch.rand(100, 100), "a\nb" * 10_000, [*range(100_000)]):
        with pytest.raises(InputError) as error:
            run(value)
        assert len(str(error.value)) < 400
        assert "\n" not in str(error.value)
    with pytest.raises(InputError) as error:
        require(False, "x", "short\n", torch.rand(100, 100), 10_000 * "remedy ")
    assert len(str(error.value)) <= LONGEST
    assert "\n" not in str(error.value)


@pytest.mark.parametrize("call", ["layer", "model"])
def test_a_packed_sequence_is_refused_with_what_to_do(call):
    x = torch.randn(2, 10, D) if call == "layer" else torch.randint(0, 7, (2, 10))
    packed = pack_padded_sequence(x, torch.tensor([10, 7]), batch_first=True)
    run = make_layer("delta-net", D, HEADS) if call == "layer" else LM
    with pytest.raises(InputError, match=r"got PackedSequence.*lengths = torch.nn.utils.rnn.pad_packed_sequence"):
        run(packed)
    padded, lengths = pad_packed_sequence(packed, batch_first=True)
    run(padded, lengths=lengths)


@pytest.mark.parametrize("module", [functional.delta_rule, chunk_delta_rule])
@pytest.mark.parametrize("shape", [(), (HEADS,)])
def test_a_scale_may_be_a_tensor_that_learns(module, shape):
    given = [tensors()[name] for name in ("q", "k", "v", "beta")]
    scale = torch.rand(shape, requires_grad=True)
    own = module(*given, scale=scale)[0]
    by_hand = module(given[0] * scale.expand(HEADS)[:, None], *given[1:], scale=1.0)[0]
    torch.testing.assert_close(own, by_hand)
    found = (torch.autograd.grad(y.square().sum(), scale)[0] for y in (own, by_hand))
    torch.testing.assert_close(*found)
    for wrong in (torch.rand(HEADS + 1), torch.ones(HEADS, dtype=torch.int64)):
        with pytest.raises(InputError, match="scale must be a number, or a floating tensor"):
            module(*given, scale=wrong)


CALLS_WITH_OTHER_NAMES = [(here, name) for here in ("state", "reset", "lengths") for name in OTHER_NAMES[here]]


@pytest.mark.parametrize("kind", layer_names())
def test_options_of_layers_under_other_names(kind):
    accepted = layer_options(kind)
    wrong = [(here, name) for here in accepted for name in OTHER_NAMES.get(here, ()) if name not in accepted]
    for here, name in wrong:
        with pytest.raises(InputError, match=f"has no argument '{name}'. Use {here}."):
            make_layer(kind, 8, 2, **{name: 4})


@pytest.mark.parametrize(("here", "name"), CALLS_WITH_OTHER_NAMES)
def test_arguments_of_calls_under_other_names(here, name):
    layer, model = make_layer("delta-net", 8, 2), LanguageModel(5, d_model=8, num_heads=2, num_layers=1)
    for module, x in ((layer, torch.zeros(1, 3, 8)), (model, torch.zeros(1, 3, dtype=torch.long))):
        with pytest.raises(InputError, match=f"has no argument '{name}'. Use {here}."):
            module(x, **{name: torch.ones(1, 3)})


@pytest.mark.parametrize("function", [LanguageModel, LanguageModel.generate, make_layer])
def test_arguments_of_functions_under_other_names(function):
    accepted = list(inspect.signature(function).parameters)
    wrong = [(here, name) for here in accepted for name in OTHER_NAMES.get(here, ()) if name not in accepted]
    for here, name in wrong:
        with pytest.raises(InputError, match=f"has no argument '{name}'. Use {here}."):
            function(**{name: 4})


def test_a_misspelt_option_gets_the_nearest():
    with pytest.raises(InputError, match=r"delta-net has no argument 'qknorm'\. Use qk_norm\."):
        make_layer("delta-net", 8, 2, qknorm="l2")
