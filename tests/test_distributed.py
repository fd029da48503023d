"""Training in several processes: DistributedDataParallel over a layer of a user's rule, whose scan is compiled."""

import sys

import pytest
import torch
import torch.distributed as dist
from torch import nn
from torch.multiprocessing import spawn
from torch.nn.parallel import DistributedDataParallel

import my_memories
from fastweights.layers import make_layer

PROCESSES = 2


def make() -> nn.Module:
    torch.manual_seed(1)
    return make_layer(my_memories.fading, 12, num_heads=3, backend="compiled").double()


def batch() -> torch.Tensor:
    return torch.randn(2 * PROCESSES, 5, 12, dtype=torch.float64, generator=torch.Generator().manual_seed(2))


def work(rank: int, folder: str, layer: nn.Module) -> None:
    dist.init_process_group("gloo", init_method=f"file://{folder}/store", rank=rank, world_size=PROCESSES)
    layer = DistributedDataParallel(layer)
    layer(batch().chunk(PROCESSES)[rank])[0].square().mean().backward()
    torch.save([p.grad for p in layer.parameters()], f"{folder}/{rank}.pt")
    dist.destroy_process_group()


@pytest.mark.slow
def test_processes_share_the_gradient_of_the_whole_batch(tmp_path, monkeypatch):
    monkeypatch.setenv("GLOO_SOCKET_IFNAME", "lo" if sys.platform == "linux" else "lo0")
    layer = make()
    spawn(work, (str(tmp_path), layer), nprocs=PROCESSES)
    layer(batch())[0].square().mean().backward()
    want = [p.grad for p in layer.parameters()]
    for rank in range(PROCESSES):
        torch.testing.assert_close(torch.load(tmp_path / f"{rank}.pt", weights_only=True), want)
