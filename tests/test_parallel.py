"""A sequence split over processes has the results and gradients of one process."""

import sys

import pytest
import torch
import torch.distributed as dist
from torch import nn
from torch.multiprocessing import spawn
from torch.nn.parallel import DistributedDataParallel
from torch.utils._pytree import tree_leaves

import my_memories
from fastweights import Cell, scan
from fastweights.layers import make_layer
from fastweights.parallel import scan_over_ranks
from fastweights.testing.samples import Shape, sample_inputs, sample_params, sample_state
from fastweights.testing.tolerance import TOLERANCES, error

CELLS = ["sum", "delta", "gated-delta", "gated", "linear-attention", "delta-rnn", "srwm"]
SHAPE = Shape(2, 9, 2, 4, 3)
CUTS = {2: [0, 4, 9], 3: [0, 1, 6, 9]}
EXACT = TOLERANCES[torch.float64]


def arguments_of(name):
    """Cell, inputs, state, params and resets."""
    torch.manual_seed(1)
    cell = Cell.from_function(name)
    records = sample_inputs(cell, SHAPE, torch.float64), sample_state(cell, SHAPE, torch.float64)
    params = sample_params(cell, SHAPE, torch.float64)
    inputs, state, params = (r and type(r)(*(leaf.requires_grad_() for leaf in r)) for r in (*records, params))
    reset = torch.zeros(SHAPE.B, SHAPE.T, dtype=torch.bool)
    reset[0, 7] = True
    return cell, inputs, state, params, reset


def loss_of(y, state, start):
    """Scalar loss in which every time step has a different weight."""
    steps = torch.arange(start, start + y.shape[1], dtype=y.dtype).view(1, -1, 1, 1)
    return (y * (steps + 1).sin()).sum() + sum(leaf.square().sum() for leaf in tree_leaves(state))


def results(y, state, inputs, first, params):
    """Outputs with states, and the gradients of all leaves."""
    leaves = [*inputs, *tree_leaves(first), *(params or ())]
    return [y, *tree_leaves(state)], [torch.zeros_like(x) if x.grad is None else x.grad for x in leaves]


def work(rank, size, folder):
    """Runs all cells in one of several processes, and saves the results."""
    torch.set_num_threads(1)
    dist.init_process_group("gloo", init_method=f"file://{folder}/store", rank=rank, world_size=size)
    by_name = {}
    for name in CELLS:
        cell, inputs, state, params, reset = arguments_of(name)
        here = slice(*CUTS[size][rank : rank + 2])
        mine = type(inputs)(*(x.detach()[:, here].requires_grad_() for x in inputs))
        y, after = scan_over_ranks(cell, mine, state, params, reset[:, here])
        loss_of(y, after if rank == size - 1 else (), here.start).backward()
        by_name[name] = results(y, after, mine, state, params)
    torch.save(by_name, f"{folder}/{rank}.pt")
    dist.destroy_process_group()


@pytest.fixture(scope="module", params=[2, pytest.param(3, marks=pytest.mark.slow)])
def together(request, tmp_path_factory):
    """Results of the processes, in the order of their ranks."""
    folder = tmp_path_factory.mktemp("ranks")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("GLOO_SOCKET_IFNAME", "lo" if sys.platform == "linux" else "lo0")
        spawn(work, (request.param, str(folder)), nprocs=request.param)
    return [torch.load(folder / f"{rank}.pt", weights_only=True) for rank in range(request.param)]


@pytest.mark.parametrize("name", CELLS)
def test_processes_have_the_results_and_gradients_of_one(name, together):
    """Outputs, last state, and gradients of inputs, first state and slow weights, with resets."""
    cell, inputs, state, params, reset = arguments_of(name)
    y, after = scan(cell, inputs, state, params, reset, backend="reference")
    loss_of(y, after, 0).backward()
    outputs, gradients = results(y, after, inputs, state, params)
    parts = [by_name[name] for by_name in together]
    assert error(torch.cat([out[0] for out, _ in parts], dim=1), outputs[0]) < EXACT.forward
    for got, want in zip(parts[-1][0][1:], outputs[1:], strict=True):
        assert error(got, want) < EXACT.forward
    count = len(inputs)
    for place, want in enumerate(gradients):
        pieces = [gradient[place] for _, gradient in parts]
        got = torch.cat(pieces, dim=1) if place < count else torch.stack(pieces).sum(0)
        assert error(got, want, least=1e-6) < EXACT.gradient, place


PROCESSES = 2


def make() -> nn.Module:
    torch.manual_seed(1)
    return make_layer(my_memories.fading, 12, num_heads=3, backend="compiled").double()


def batch() -> torch.Tensor:
    return torch.randn(2 * PROCESSES, 5, 12, dtype=torch.float64, generator=torch.Generator().manual_seed(2))


def distributed_work(rank: int, folder: str, layer: nn.Module) -> None:
    dist.init_process_group("gloo", init_method=f"file://{folder}/store", rank=rank, world_size=PROCESSES)
    layer = DistributedDataParallel(layer)
    layer(batch().chunk(PROCESSES)[rank])[0].square().mean().backward()
    torch.save([p.grad for p in layer.parameters()], f"{folder}/{rank}.pt")
    dist.destroy_process_group()


@pytest.mark.slow
def test_distributed_data_parallel_has_the_gradient_of_the_batch(tmp_path, monkeypatch):
    monkeypatch.setenv("GLOO_SOCKET_IFNAME", "lo" if sys.platform == "linux" else "lo0")
    layer = make()
    spawn(distributed_work, (str(tmp_path), layer), nprocs=PROCESSES)
    layer(batch())[0].square().mean().backward()
    want = [p.grad for p in layer.parameters()]
    for rank in range(PROCESSES):
        torch.testing.assert_close(torch.load(tmp_path / f"{rank}.pt", weights_only=True), want)
