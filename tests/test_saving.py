"""Layers, states and exported programs can be loaded in another process."""

import copy
import io
import pickle
import subprocess
import sys
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pytest
import torch
from safetensors.torch import save_file
from torch import Tensor
from torch.export import Dim
from torch.utils._pytree import tree_leaves, tree_map

import my_memories
from fastweights import Cell, FastWeight, FastWeightProgrammer, InputError, LanguageModel, family, make_layer, scan
from fastweights.layers import layer_names
from fastweights.models.blocks import Blocks
from fastweights.models.stack import make_stack
from fastweights.signature import Key, Matrix, Value
from fastweights.state import register_state
from tiers import base_of, in_tiers

D, T, LONG = 8, 6, 150
OWN = [my_memories.fading, my_memories.leaky, my_memories.member, my_memories.bounded, my_memories.cell]
OWN += [
    my_memories.Wrapped,
    my_memories.Squashed(torch.tanh),
    f"{my_memories.__file__}:fading",
    f"{my_memories.__file__}:leaky_family(0.25)",
]


@pytest.fixture(scope="module")
@torch.no_grad()
def loaded_parts(tmp_path_factory):
    """Names of the parts that another process could load and continue with."""
    folder = tmp_path_factory.mktemp("saved")
    torch.manual_seed(0)
    layers = [by_definition(make_layer(own, D, num_heads=2)) for own in OWN]
    layer, x = make_layer("delta-net", D, num_heads=2), torch.randn(2, LONG, D)
    model = LanguageModel(5, ["gated-delta", my_memories.fading], D, num_layers=3, num_heads=2).eval()
    tokens = torch.randint(5, (2, T))
    nested = model(tokens)[1]
    torch.save(layers, folder / "layers.pt")
    torch.save(model.state_dict(), folder / "model.pt")
    torch.save((layer(x)[1], nested), folder / "states.pt")
    nested.save(folder / "nested.safetensors")
    torch.export.save(exported(layer, x), folder / "layer.pt2")
    torch.export.save(exported(model, tokens), folder / "model.pt2")
    want = {"layer": layer(x)[0], "layers": [own(x[:, :T])[0] for own in layers], "continued": model(tokens, nested)[0]}
    torch.save(want, folder / "outputs.pt")
    torch.save((x, tokens), folder / "inputs.pt")
    command = [sys.executable, Path(__file__).with_name("on_another_day.py"), folder]
    done = subprocess.run(command, capture_output=True, text=True, cwd=folder, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout.split()


def by_definition(layer):
    """Layer with the reference backend, which needs no kernel."""
    for module in layer.modules():
        if hasattr(module, "backend"):
            module.backend = "reference"
    return layer


def exported(module, inputs):
    """Exported program for any batch size and any number of time steps, with a state."""
    state = module.initial_state(len(inputs))
    batch, time = Dim("batch", min=1, max=4096), Dim("time", min=1, max=1 << 16)
    shapes = ({0: batch, 1: time}, tree_map(lambda leaf: {0: batch}, state))
    return torch.export.export(module, (inputs, state), dynamic_shapes=shapes)


@pytest.mark.parametrize(
    "part",
    [
        *("layers", "states-are-read-with-weights_only", "state-continues", "program-of-a-layer"),
        *("program-names-what-to-import", "program-of-a-model"),
    ],
)
def test_another_process_continues_bit_identically(loaded_parts, part):
    assert part in loaded_parts


def test_a_program_supports_any_length_and_gradients():
    layer = make_layer("delta-net", D, num_heads=2)
    program = exported(layer, torch.randn(2, LONG, D)).module()
    for batch, steps in ((1, 1), (3, 2), (1, 700)):
        x, state = torch.randn(batch, steps, D, requires_grad=True), layer.initial_state(batch)
        torch.testing.assert_close(program(x, state)[0], layer(x, state)[0])
        gradients = [torch.autograd.grad(run(x, state)[0].square().sum(), x)[0] for run in (program, layer)]
        torch.testing.assert_close(*gradients)


ANY = {name: lambda name=name: make_layer(name, 16, num_heads=2) for name in layer_names()}
ANY |= {
    "a two-layer lstm with a learned initial state": lambda: make_layer(
        "lstm", 16, 2, num_layers=2, initial_state="learned"
    ),
    "a short window": lambda: make_layer("softmax-attention", 16, num_heads=2, window_size=5),
    "a stack": lambda: make_stack(
        Blocks(layer="delta-net", d_model=16, num_layers=1, num_heads=2, d_ff=32, conv_size=3, positions="ascending")
    ),
    "an LSTM as slow network": lambda: FastWeightProgrammer(
        make_layer("lstm", 16, num_heads=2), make_layer("delta-rnn", 16, num_heads=2), 16
    ),
}


# These layers have code of their own for calls without a state. The others share that of the delta net.
OWN_START = ["delta-net", "irnn", "lstm", "softmax-attention", "transformer-xl", "no-carry-srwm", "a stack"]
CASES = {(name, True): {base_of(name)} if name in layer_names() else {name} for name in ANY}
CASES |= {(name, False): {f"{name} without a state"} for name in OWN_START}


@pytest.mark.parametrize("case", in_tiers(CASES), ids=lambda case: case[0])
def test_programs_of_all_layers_support_sizes_resets_and_lengths(case):
    name, has_state = case
    torch.manual_seed(0)
    layer = ANY[name]().double().eval()
    batch, time = Dim("batch", min=1, max=4096), Dim("time", min=1, max=1 << 16)

    def arguments(b, t, state):
        x, reset = torch.randn(b, t, 16, dtype=torch.float64), torch.rand(b, t) < 0.3
        return x, state if has_state else None, reset, torch.randint(t + 1, (b,))

    example = arguments(2, 21, layer.initial_state(2).detach())
    of_state = tree_map(lambda leaf: {0: batch}, example[1]) if has_state else None
    axes = ({0: batch, 1: time}, of_state, {0: batch, 1: time}, {0: batch})
    program = torch.export.export(layer, example, dynamic_shapes=axes).module()
    for b, t in ((1, 1), (3, 40)):
        x, *rest = arguments(b, t, layer(torch.randn(b, 7, 16, dtype=torch.float64))[1].detach())
        for mine, theirs in zip(tree_leaves(program(x, *rest)), tree_leaves(layer(x, *rest)), strict=True):
            torch.testing.assert_close(mine, theirs)


def test_a_programmer_with_output_feedback_needs_a_fixed_length():
    slow, fast = make_layer("lstm", D, num_heads=1, input_size=2 * D), make_layer("delta", D, num_heads=2)
    layer, x = FastWeightProgrammer(slow, fast, D, output_feedback=True), torch.randn(2, T, D)
    torch.testing.assert_close(torch.export.export(layer, (x,)).module()(x)[0], layer(x)[0])
    with pytest.raises(InputError, match=r"x must be a sequence with a fixed number of steps.* got a dynamic one"):
        torch.export.export(layer, (x,), dynamic_shapes=({1: Dim("time", min=1, max=64)},))


UNNAMED = {"a lambda": lambda W, k, v: W + torch.outer(v, k), "a nested function": my_memories.make_leaky(0.5)}
UNNAMED["a lambda"].__annotations__ = {"W": Matrix, "k": Key, "v": Value}
UNNAMED["an object with a lambda in it"] = my_memories.Squashed(lambda W: W.clamp(-1, 1))


@pytest.mark.parametrize("function", UNNAMED.values(), ids=UNNAMED)
def test_functions_without_an_address_are_copied_but_not_pickled(function):
    layer = FastWeight(D, 2, function, backend="reference")
    x = torch.randn(2, T, D)
    torch.testing.assert_close(copy.deepcopy(layer)(x)[0], layer(x)[0])
    remedy = "Define it at the top level of a module, or in a `family`, or save state_dict"
    with pytest.raises(InputError, match=f"cell must be .* got .*{remedy}"):
        pickle.dumps(layer)


def test_inputs_of_a_rule_are_pickled_and_copied():
    inputs = Cell.from_function(my_memories.leaky).Inputs(*torch.randn(3, 1, 2, 1, 4).unbind())
    for copied in (pickle.loads(pickle.dumps(inputs)), copy.deepcopy(inputs)):
        assert type(copied) is type(inputs)
        assert all(map(torch.equal, copied, inputs))


class Greedy(NamedTuple):
    """A state whose fields have the names of methods."""

    save: Tensor
    to: Tensor

    def detach(self):
        """A method of the user."""
        return "mine"


@pytest.mark.parametrize("which", [1, -2, np.int64(1), torch.tensor(1)], ids=repr)
def test_selecting_one_index_gives_a_batch_of_one(which):
    state = make_layer("delta-net", 16, 4).initial_state(3)._replace(W=torch.arange(3.0).view(3, 1))
    assert torch.equal(state.select(which).W, torch.tensor([[1.0]]))
    for beyond in (3, -4):
        with pytest.raises(InputError, match="index must be from -3 to 2, for a batch of 3, got"):
            state.select(beyond)


def test_methods_of_states_do_not_hide_fields():
    state = register_state(Greedy)(torch.ones(2), torch.zeros(2))
    assert torch.equal(state.save, torch.ones(2))
    assert torch.equal(state.to, torch.zeros(2))
    assert state.detach() == "mine"
    assert len(state.select(0).save) == 1
    assert state.index(state.save) == tuple.index(state, state.save) == 0


LAYERS = {
    "lstm": lambda: make_layer("lstm", D, num_heads=2),
    "two-layer lstm": lambda: make_layer("lstm", D, num_heads=2, num_layers=2),
    "delta-net": lambda: make_layer("delta-net", D, num_heads=2),
    "other heads": lambda: make_layer("delta-net", D, num_heads=4),
    "behind a convolution": lambda: LanguageModel(5, "delta-net", D, num_layers=1, num_heads=2, conv_size=3),
    "a stack": lambda: LanguageModel(5, "delta-net", D, num_layers=1, num_heads=2),
    "a deeper stack": lambda: LanguageModel(5, "delta-net", D, num_layers=2, num_heads=2),
    "another stack": lambda: LanguageModel(5, "lstm", D, num_layers=1, num_heads=2),
    "integers": lambda: make_layer("no-carry-srwm", D, num_heads=2),
}


@pytest.mark.parametrize("owner", LAYERS)
def test_the_state_of_another_layer_is_refused_in_one_line(owner, tmp_path):
    file = tmp_path / "state.safetensors"
    LAYERS[owner]().initial_state(3).save(file)
    for other, make in LAYERS.items():
        if other == owner:
            assert all(len(leaf) == 3 for leaf in tree_leaves(make().initial_state(1).load(file)))
        else:
            with pytest.raises(InputError, match=r"must be .* got .* Load it as the state of the layer") as refusal:
                make().initial_state(1).load(file)
            assert "\n" not in str(refusal.value)


@pytest.mark.parametrize("damage", ["missing", "truncated", "flipped", "another file", "two batches"])
def test_a_damaged_state_is_refused(damage, tmp_path):
    file, state = tmp_path / "state.safetensors", LAYERS["lstm"]().initial_state(2)
    state.save(file)
    content = file.read_bytes()
    match damage:
        case "missing":
            file.unlink()
        case "truncated":
            file.write_bytes(content[:-1])
        case "flipped":
            file.write_bytes(content[:-9] + bytes([content[-9] ^ 1]) + content[-8:])
        case "another file":
            save_file({"h": torch.ones(2)}, file)
        case "two batches":
            state._replace(h=torch.zeros(3, *state.h.shape[1:])).save(file)
    with pytest.raises(InputError, match=r"must be .* got"):
        state.load(file)


def test_loaded_states_keep_their_dtypes_and_use_the_layers_device(tmp_path):
    layer = make_layer("no-carry-srwm", D, num_heads=2).double()
    _, state = layer(torch.randn(2, T, D).double())
    state.save(tmp_path / "state.safetensors")
    loaded = layer.to("meta").initial_state(1).load(tmp_path / "state.safetensors")
    for mine, theirs in zip(tree_leaves(loaded), tree_leaves(state), strict=True):
        assert (mine.dtype, mine.device.type) == (theirs.dtype, "meta")


def test_a_scan_continues_from_a_saved_state(tmp_path):
    k, v = torch.randn(2, 1, T, 2, 4).unbind()
    x = my_memories.BoundedInputs(k, v)
    whole, _ = scan(my_memories.bounded, x)
    _, state = scan(my_memories.bounded, tree_map(lambda leaf: leaf[:, :3], x))
    state.save(tmp_path / "state.safetensors")
    rest, _ = scan(
        my_memories.bounded, tree_map(lambda leaf: leaf[:, 3:], x), state.load(tmp_path / "state.safetensors")
    )
    torch.testing.assert_close(rest, whole[:, 3:])


@family
def scaled(gain):
    def rule(W: Matrix, k: Key, v: Value) -> Matrix:
        return W + gain * torch.outer(v, k)

    return rule


def test_a_layer_of_a_family_is_saved_with_torch():
    layer, file = make_layer(scaled(0.5), D, num_heads=2), io.BytesIO()
    torch.save(layer, file)
    file.seek(0)
    assert torch.load(file, weights_only=False).cell is layer.cell
