"""Layers and models as ONNX programs: results of onnxruntime equal those of the modules."""

from importlib.util import find_spec

import pytest
import torch
from torch.utils._pytree import tree_leaves

from fastweights import Cell, LanguageModel, make_layer
from fastweights.adapters import onnx as adapter
from fastweights.core.errors import InputError
from fastweights.layers import Bidirectional, PeriodicReset
from fastweights.testing.tolerance import error, tolerance

NEEDED = ("onnx", "onnxscript", "onnxruntime")
pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(not all(map(find_spec, NEEDED)), reason="needs fastweights[onnx]"),
    pytest.mark.filterwarnings("ignore"),
]
D, H = 8, 2
CLOSE = tolerance(torch.float32).forward
LAYERS = {
    **dict.fromkeys(("delta-net", "gated-delta", "kda", "sum"), "LinearAttention"),
    **dict.fromkeys(("lstm", "srwm", "delta-rnn", "gated-oja", "neural-turing-machine"), "Scan"),
    "softmax-attention": "",
}
"""One layer of each kind with the ONNX operator of its memory: linear attention with and without decays, scans with and
without slow weights, and an ordinary layer. `every_layer_in_onnx.py` exports all layers."""


def operators(file):
    import onnx

    model = onnx.load(file)
    return {node.op_type for part in (model.graph, *model.functions) for node in part.node}


def check(module, file, inputs):
    """Asserts that program and module agree from any state, for one and for many time steps."""
    session = adapter.open_session(file)
    names = [entry.name for entry in session.get_inputs()]
    for batch, steps in ((1, 1), (3, 9)):
        before = module(inputs(batch, 4))[1]
        x = inputs(batch, steps)
        values = [x, *tree_leaves(before)]
        got = session.run(None, {name: value.detach().numpy() for name, value in zip(names, values, strict=True)})
        for one, other in zip(got, tree_leaves(module(x, before)), strict=True):
            assert error(torch.from_numpy(one).double(), other.double()) < CLOSE


def features(batch, steps):
    return torch.randn(batch, steps, D)


@pytest.mark.parametrize("name", LAYERS)
@torch.no_grad()
def test_exported_layers_equal_their_modules(name, tmp_path):
    layer, file = make_layer(name, D, H).eval(), tmp_path / "layer.onnx"
    adapter.export(layer, features(2, 3), file)
    assert operators(file) & {"LinearAttention", "Scan"} == {*filter(None, [LAYERS[name]])}
    check(layer, file, features)


@torch.no_grad()
def test_an_exported_model_with_two_memories_equals_its_module(tmp_path):
    model = LanguageModel(5, ["delta-net", "delta-rnn"], D, num_layers=2, num_heads=H, conv_size=3).eval()

    def tokens(batch, steps):
        return torch.randint(5, (batch, steps))

    adapter.export(model, tokens(2, 3), tmp_path / "model.onnx")
    assert {"LinearAttention", "Scan"} <= operators(tmp_path / "model.onnx")
    check(model, tmp_path / "model.onnx", tokens)


@torch.no_grad()
def test_resets_inside_a_layer_are_exported(tmp_path):
    layer = PeriodicReset(make_layer("delta-net", D, H), 3).eval()
    adapter.export(layer, features(2, 3), tmp_path / "layer.onnx")
    check(layer, tmp_path / "layer.onnx", features)


@torch.no_grad()
def test_older_opsets_export_without_the_attention_operator(tmp_path):
    layer = make_layer("delta-net", D, H).eval()
    adapter.export(layer, features(2, 3), tmp_path / "layer.onnx", opset=18)
    assert "LinearAttention" not in operators(tmp_path / "layer.onnx")
    check(layer, tmp_path / "layer.onnx", features)


def test_decays_of_exactly_0_are_exported(tmp_path):
    """The logarithm of such a decay is infinite."""
    layer = make_layer("gated-delta", D, H).eval()
    with torch.no_grad():
        for parameter in layer.parameters():
            parameter.mul_(1e4)
    adapter.export(layer, features(2, 3), tmp_path / "layer.onnx")
    check(layer, tmp_path / "layer.onnx", features)


def test_a_runtime_without_an_operator_is_refused_in_one_line(tmp_path):
    import onnx

    node = onnx.helper.make_node("NoSuchOperator", ["x"], ["y"])
    x, y = (onnx.helper.make_tensor_value_info(name, onnx.TensorProto.FLOAT, [1]) for name in "xy")
    model = onnx.helper.make_model(onnx.helper.make_graph([node], "g", [x], [y]), ir_version=10)
    onnx.save(model, tmp_path / "other.onnx")
    with pytest.raises(
        InputError, match=r"onnxruntime must be a version that runs .*other.onnx, got .*NoSuchOperator"
    ) as refusal:
        adapter.open_session(tmp_path / "other.onnx")
    assert "\n" not in str(refusal.value)


def test_an_operation_that_onnx_lacks_is_named_in_one_line(tmp_path):
    class Odd(torch.nn.Module):
        def initial_state(self, batch):
            return (torch.zeros(batch, D),)

        def forward(self, x, state):
            return torch.special.bessel_j0(x), state

    with pytest.raises(
        InputError, match=r"module must be a module with operations that ONNX has, got .*bessel_j0"
    ) as refusal:
        adapter.export(Odd().eval(), features(2, 3), tmp_path / "odd.onnx")
    assert "\n" not in str(refusal.value)


@pytest.mark.parametrize("initial_state", ["learned", "constant"])
def test_initial_states_other_than_0_are_exported(initial_state, tmp_path, caplog):
    """A successful export logs no warning."""
    state = Cell.from_name("delta").State(torch.eye(D // H))
    layer = make_layer("delta-net", D, H, initial_state=state if initial_state == "constant" else initial_state).eval()
    adapter.export(layer, features(2, 3), tmp_path / "layer.onnx")
    check(layer, tmp_path / "layer.onnx", features)
    assert "Failed to convert" not in caplog.text


def test_modules_that_cannot_be_exported_are_refused(tmp_path):
    layer = make_layer("delta-net", D, H)
    with pytest.raises(InputError, match=r"Call module.eval\(\) first"):
        adapter.export(layer, features(2, 3), tmp_path / "layer.onnx")
    with pytest.raises(InputError, match=r"x must be an example .*, got \[1, 3, 8\]"):
        adapter.export(layer.eval(), features(1, 3), tmp_path / "layer.onnx")
    for opset in (9, 99):
        with pytest.raises(InputError, match=rf"opset must be from 18 to \d+, which this onnx knows, got {opset}"):
            adapter.export(layer, features(2, 3), tmp_path / "layer.onnx", opset=opset)
    for module in (torch.nn.Identity().eval(), Bidirectional(layer, make_layer("delta-net", D, H)).eval()):
        with pytest.raises(InputError, match="module must be a module that takes and returns a state of tensors"):
            adapter.export(module, features(2, 3), tmp_path / "layer.onnx")
    assert not (tmp_path / "layer.onnx").exists()
