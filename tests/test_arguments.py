"""Invalid arguments of public functions give an error of one line, which translates names of other libraries."""

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
    """An empty text if a call runs or fails with an error of one line; else the raw error."""
    try:
        call()
    except InputError as error:
        message = str(error)
        return "" if "\n" not in message and len(message) <= LONGEST else f"a long message: {message!r}"
    except Exception as error:
        return f"{type(error).__name__}: {error}"
    return ""


def raw(run: Callable[..., object], valid: Mapping[str, Any]) -> dict[tuple[str, str], str]:
    """Raw errors of calls with one invalid argument each."""
    assert outcome(partial(run, **valid)) == "", "the valid arguments are rejected"
    run(**valid)
    wrong = {
        (name, kind_of_value): {**valid, name: value}
        for name in inspect.signature(run).parameters
        for kind_of_value, value in WRONG.items()
    }
    messages = {case: outcome(partial(run, **arguments)) for case, arguments in wrong.items()}
    return {case: message for case, message in messages.items() if message}


def make_and_use(make: Callable[..., Any], use: Callable[[Any], object]) -> Callable[..., object]:
    """A function with the parameters of `make` that also uses the result."""

    def run(**arguments: Any) -> object:
        return use(make(**arguments))

    signature = inspect.signature(make)
    parameters = [p for p in signature.parameters.values() if p.kind not in (p.VAR_KEYWORD, p.VAR_POSITIONAL)]
    run.__signature__ = signature.replace(parameters=parameters)
    return run


def use_layer(layer: Any) -> None:
    """One call on a short sequence."""
    if isinstance(layer, torch.nn.Module):
        size = layer.input_size if layer.input_size and layer.input_size < 100 else D
        layer(torch.rand(1, 2, size))


@pytest.mark.parametrize("name", LAYERS.names())
def test_layer_rejects_invalid_options(name):
    maker = LAYERS.load(name)
    valid = {"d_model": D, "num_heads": HEADS, "backend": "reference"}  # to build no kernels
    accepted = {name: value for name, value in valid.items() if name in inspect.signature(maker).parameters}
    assert not raw(make_and_use(maker, use_layer), accepted)


@pytest.mark.parametrize("cell", ["delta", "gated-slot-attention", "titans"])
def test_general_layer_rejects_invalid_options(cell):
    valid = {"d_model": D, "num_heads": HEADS, "cell": cell, "backend": "reference"}
    assert not raw(make_and_use(layers.FastWeight, use_layer), valid)


MODEL_ARGUMENTS = {
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
    "from_pixels": False,
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
OTHER_ARGUMENTS = {
    "Block": {"layer": make_layer("delta-net", D, HEADS)},
    "CrossAttention": {"feature_map": None},
    "RetrievalModel": {"kind": "pairs"},
    "FewShotNetwork": {"memory": "blocks"},
    "NeuronNetwork": {"embedding": 4},
    "RecurrentModel": {"embedding": 4},
    "SNAILNetwork": {"embedding": 4},
}


@pytest.mark.parametrize("name", [name for name in models.__all__ if inspect.isclass(getattr(models, name))])
def test_model_rejects_invalid_options(name):
    model = getattr(models, name)
    others = OTHER_ARGUMENTS.get(name, {})
    parameters = inspect.signature(model).parameters.values()
    valid = {p.name: {**MODEL_ARGUMENTS, **others}[p.name] for p in parameters if p.default is p.empty}
    assert not raw(make_and_use(model, lambda result: None), valid)


def tensors() -> dict[str, Any]:
    """Valid arguments of functions, by name of the parameter."""
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
def test_functional_rejects_invalid_arguments(name):
    function, valid = getattr(functional, name), tensors()
    if name in ("kimi_delta_attention", "gated_linear_attention"):
        valid["g"] = -torch.rand_like(valid["k"])
    parameters = inspect.signature(function).parameters.values()
    assert not raw(function, {p.name: valid[p.name] for p in parameters if p.default is p.empty})


def test_error_of_a_functional_names_its_parameter():
    valid = tensors()
    with pytest.raises(InputError, match=r"^g must be \[B, T, H\]"):
        functional.gated_delta_rule(valid["q"], valid["k"], valid["v"], valid["beta"][:1], valid["beta"])
    with pytest.raises(InputError, match=r"^w must be"):
        functional.rwkv7(valid["r"], valid["beta"], *(valid[name] for name in "kvab"))


def test_vtrace_rejects_invalid_arguments():
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
    "scan_last_states": (fastweights.scan_last_states, {"cell": delta, "inputs": INPUTS, "n": 1}),
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
    "layer": (lambda **valid: make_layer("delta-net", D, HEADS)(**valid), {"x": torch.rand(2, 3, D)}),
    "initial_state": (make_layer("delta-net", D, HEADS).initial_state, {"batch_size": 2}),
    "model": (LM.forward, {"tokens": TOKENS}),
    "stream": (lambda **valid: list(LM.stream(**valid)), {"prompt": TOKENS, "length": 2}),
    "generate": (LM.generate, {"prompt": TOKENS, "length": 2}),
    "snapshots": (lambda **valid: list(LM.snapshots(**valid)), {"tokens": TOKENS, "every": 2}),
    "LanguageModel.load": (LM.load, {}),
    "load": (fastweights.load, {"run": "."}),
    "family": (fastweights.family, {"make": inner.power}),
    "select": (STATE.select, {"index": 0}),
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
def test_public_function_rejects_invalid_arguments(name, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    function, valid = CALLS[name]
    parameters = [p for p in inspect.signature(SIGNATURES.get(name, function)).parameters if p != "self"]
    files = {p: tmp_path / "state.safetensors" for p in parameters if p == "file"}
    if files and name != "save":
        state = next(s for s in [LM.stream(TOKENS, 1)] if next(s) is not None).state if name.startswith("L") else STATE
        state.save(files["file"])
    wrong = [(p, kind_of_value) for p in parameters for kind_of_value in WRONG]
    messages = {case: outcome(lambda c=case: function(**{**valid, **files, c[0]: WRONG[c[1]]})) for case in wrong}
    assert not {case: message for case, message in messages.items() if message}
    if name != "load":
        assert outcome(lambda: function(**valid, **files)) == ""


def test_every_public_function_has_a_test_of_invalid_arguments():
    public = {name for name in fastweights.__all__ if inspect.isfunction(getattr(fastweights, name))}
    assert public <= {*CALLS}


@pytest.mark.parametrize("name", TASKS.names())
def test_task_rejects_invalid_options(name):
    task = TASKS.load(name)
    wrong = [(field.name, kind_of_value) for field in fields(task) if field.init for kind_of_value in WRONG]
    messages = {case: outcome(lambda c=case: task(**{c[0]: WRONG[c[1]]})) for case in wrong}
    assert not {case: message for case, message in messages.items() if message}


SETTINGS = sorted(path.stem for path in (Path(settings.__file__).parent).glob("[a-z]*.py"))


@pytest.mark.parametrize("name", SETTINGS)
def test_training_settings_reject_invalid_options(name):
    module = import_module(f"fastweights.training.settings.{name}")
    kind = next(value for key, value in vars(module).items() if matches(key, name))
    needed = {"steps": 4, "batch_size": 2, "evaluate_every": 2, "learning_rate": 0.1, "rollout_length": 2, "window": 2}
    valid = {field.name: needed[field.name] for field in fields(kind) if field.default is MISSING}
    assert not raw(kind, valid)


@pytest.mark.parametrize("number", [np.int64(2), np.int32(2), np.uint8(2)])
def test_integers_of_numpy_are_integers(number):
    """Also for parameters for which torch rejects them."""
    assert type(make_layer("lstm", 8, 1, num_layers=number).lstm.num_layers) is int


def test_error_message_is_one_line_of_bounded_length():
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
def test_error_for_a_packed_sequence_has_a_remedy(call):
    x = torch.randn(2, 10, D) if call == "layer" else torch.randint(0, 7, (2, 10))
    packed = pack_padded_sequence(x, torch.tensor([10, 7]), batch_first=True)
    run = make_layer("delta-net", D, HEADS) if call == "layer" else LM
    with pytest.raises(InputError, match=r"got PackedSequence.*lengths = torch.nn.utils.rnn.pad_packed_sequence"):
        run(packed)
    padded, lengths = pad_packed_sequence(packed, batch_first=True)
    run(padded, lengths=lengths)


@pytest.mark.parametrize("module", [functional.delta_rule, chunk_delta_rule])
@pytest.mark.parametrize("shape", [(), (HEADS,)])
def test_scale_may_be_a_trainable_tensor(module, shape):
    valid = [tensors()[name] for name in ("q", "k", "v", "beta")]
    scale = torch.rand(shape, requires_grad=True)
    output = module(*valid, scale=scale)[0]
    by_hand = module(valid[0] * scale.expand(HEADS)[:, None], *valid[1:], scale=1.0)[0]
    torch.testing.assert_close(output, by_hand)
    gradients = (torch.autograd.grad(y.square().sum(), scale)[0] for y in (output, by_hand))
    torch.testing.assert_close(*gradients)
    for wrong in (torch.rand(HEADS + 1), torch.ones(HEADS, dtype=torch.int64)):
        with pytest.raises(InputError, match="scale must be a number, or a floating tensor"):
            module(*valid, scale=wrong)


CALLS_WITH_OTHER_NAMES = [
    (our_name, name) for our_name in ("state", "reset", "lengths") for name in OTHER_NAMES[our_name]
]


@pytest.mark.parametrize("kind", layer_names())
def test_options_of_other_libraries_are_translated(kind):
    accepted = layer_options(kind)
    wrong = [
        (our_name, name) for our_name in accepted for name in OTHER_NAMES.get(our_name, ()) if name not in accepted
    ]
    for our_name, name in wrong:
        with pytest.raises(InputError, match=f"has no argument '{name}'. Use {our_name}."):
            make_layer(kind, 8, 2, **{name: 4})


@pytest.mark.parametrize(("our_name", "name"), CALLS_WITH_OTHER_NAMES)
def test_arguments_of_calls_of_other_libraries_are_translated(our_name, name):
    layer, model = make_layer("delta-net", 8, 2), LanguageModel(5, d_model=8, num_heads=2, num_layers=1)
    for module, x in ((layer, torch.zeros(1, 3, 8)), (model, torch.zeros(1, 3, dtype=torch.long))):
        with pytest.raises(InputError, match=f"has no argument '{name}'. Use {our_name}."):
            module(x, **{name: torch.ones(1, 3)})


@pytest.mark.parametrize("function", [LanguageModel, LanguageModel.generate, make_layer])
def test_arguments_of_functions_of_other_libraries_are_translated(function):
    accepted = list(inspect.signature(function).parameters)
    wrong = [
        (our_name, name) for our_name in accepted for name in OTHER_NAMES.get(our_name, ()) if name not in accepted
    ]
    for our_name, name in wrong:
        with pytest.raises(InputError, match=f"has no argument '{name}'. Use {our_name}."):
            function(**{name: 4})


def test_error_suggests_the_nearest_option():
    with pytest.raises(InputError, match=r"delta-net has no argument 'qknorm'\. Use qk_norm\."):
        make_layer("delta-net", 8, 2, qknorm="l2")
