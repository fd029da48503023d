"""`torch.utils.flop_counter` counts what a scan computes, whatever runs it."""

import subprocess
import sys

import pytest
import torch
from torch import Tensor
from torch.utils._pytree import tree_map_only
from torch.utils.flop_counter import FlopCounterMode

from fastweights import Cell, functional, scan
from fastweights.testing import backends_of
from fastweights.testing.scan_checks import Shape, arguments

SHAPE = Shape(2, 16, 2, 32, 32)
STEPS = SHAPE.B * SHAPE.T * SHAPE.H


def shape_of(cell):
    """A state of order three is larger than a short sequence: its products in chunks need more steps to pay off."""
    orders = [len(slot.axes.split()) for slot in cell.slots["State"].values() if not slot.axes[:1].isdigit()]
    return SHAPE._replace(T=64) if max(orders, default=0) > 2 else SHAPE


def count(cell, backend):
    """Operations of the forward and of the backward pass, on a device where nothing is computed and no kernel built."""
    given = arguments(cell, shape_of(cell), torch.float32)
    given = tree_map_only(Tensor, lambda x: x.to("meta").requires_grad_(x.is_floating_point()), given)
    with FlopCounterMode(display=False) as counter:
        y, _ = scan(cell, given.inputs, given.state, given.params, backend=backend)
        forward = counter.get_total_flops()
        y.sum().backward()
    return forward, counter.get_total_flops() - forward


@pytest.mark.parametrize("name", Cell.names())
def test_backends_count_alike(name):
    """PyTorch counts products of matrices, and not outer products: so the reference counts least."""
    cell = Cell.from_name(name)
    found = {backend: count(cell, backend) for backend in backends_of(cell) if backend != "reference"}
    if "compiled" not in found:
        pytest.skip("it does not compile")
    for compiled, reference in zip(found["compiled"], count(cell, "reference"), strict=True):
        assert reference <= compiled
        # Products of single numbers, which PyTorch does not count: the Kalman filter of every number has the most, 23
        # times its products of matrices.
        assert compiled <= 24 * reference or not reference
    memory = sum(
        slot.shape({**cell.example_sizes, "K": 32, "V": 32}) == (32, 32) for slot in cell.slots["State"].values()
    )
    assert found["compiled"][0] >= STEPS * 2 * 2 * 32 * 32 * memory, "a matrix is written and read"
    assert found["compiled"][0] < found["compiled"][1] < 6 * found["compiled"][0]
    for chunkwise, compiled in zip(found.get("chunkwise", ()), found["compiled"], strict=False):
        assert compiled / 4 <= chunkwise <= 4 * compiled


def test_a_call_on_a_cpu_is_counted():
    B, T, H, K = 2, 9, 2, 8
    q, k, v = (torch.randn(B, T, H, K, requires_grad=True) for _ in range(3))
    with FlopCounterMode(display=False) as counter:
        y, _ = functional.delta_rule(q, k.softmax(-1), v, torch.rand(B, T, H))
        forward = counter.get_total_flops()
        y.sum().backward()
    assert forward >= 3 * 2 * B * T * H * K * K, "W k, the write, and W q"
    assert counter.get_total_flops() >= 3 * forward


@pytest.mark.parametrize("first", ["fastweights", "torch.utils.flop_counter"])
def test_the_counter_knows_the_scan_whatever_is_imported_first(first):
    second = {"fastweights": "torch.utils.flop_counter"}.get(first, "fastweights")
    code = (
        f"import {first}, {second}, torch; print(torch.ops.fastweights.scan in torch.utils.flop_counter.flop_registry)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "True"


def test_nobody_else_pays_for_it():
    code = "import sys, fastweights.layers, fastweights.models; print('torch.utils.flop_counter' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "False"
