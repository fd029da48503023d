"""Every layer of the library as an ONNX program: `python -m pytest -n 2 tests/every_layer_in_onnx.py`.

An export takes ten seconds of CPU time, so `test_onnx.py` has one layer of each kind.
"""

import pytest
import torch

from fastweights import make_layer
from fastweights.adapters import onnx as adapter
from fastweights.layers import layer_names
from test_onnx import D, H, check, features, pytestmark  # noqa: F401


@pytest.mark.parametrize("name", layer_names())
@torch.no_grad()
def test_exported_layers_equal_their_modules(name, tmp_path):
    layer = make_layer(name, D, H).eval()
    adapter.export(layer, features(2, 3), tmp_path / "layer.onnx")
    check(layer, tmp_path / "layer.onnx", features)
