"""Distributed training: several processes train one model, each with its device and a part of every batch."""

import os
import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from multiprocessing import active_children
from types import FrameType
from typing import Any

import torch
import torch.distributed as dist
from lightning_fabric import Fabric
from torch import Tensor
from torch.multiprocessing.spawn import ProcessException
from torch.utils._pytree import tree_map_only

from fastweights.core.dtensor import whole
from fastweights.core.errors import InputError, ProcessDied
from fastweights.training.distributed.hardware import make_fabric
from fastweights.training.progress import Interrupted
from fastweights.training.settings._training import Training

APART = 1_000_003
"""Difference between the seeds of two processes, so that runs of neighbouring seeds share none."""

LOST = ("closed by peer", "reset by peer", "Broken pipe", "gloo", "NCCL")
"""Parts of error messages that mean a lost connection."""

GONE = "A process of the training died, and the others stopped."


def share(settings: Training, work: Callable[..., None], *arguments: Any) -> None:
    """Calls `work(fabric, *arguments)` in this process, or in one new process per device.

    Raises:
        Interrupted: A stop was requested, and all processes stopped.
        InputError: A process raised it.
        ProcessDied: A process ended unexpectedly.
    """
    if settings.devices == 1:
        work(make_fabric(settings), *arguments)
    else:
        _spawn(make_fabric(settings), work, arguments)


def join(settings: Training, work: Callable[..., None], *arguments: Any) -> None:
    """Calls `work(fabric, *arguments)` in this process, as one of the processes of torchrun.

    Raises:
        ProcessDied: A process ended unexpectedly.
    """
    with _detect_deaths():
        make_fabric(settings).launch(partial(_call, work, arguments))


def _call(work: Callable[..., None], arguments: tuple[Any, ...], fabric: Fabric) -> None:
    work(fabric, *arguments)


def _spawn(fabric: Fabric, work: Callable[..., None], arguments: tuple[Any, ...]) -> None:
    with _forward_signals() as signals, _restored_port():
        try:
            # As one object, since Fabric inspects arguments.
            reason = fabric.launch(partial(_work, work, arguments, torch.get_num_threads()))
        except ProcessException as error:
            _raise_cause(str(error), bool(signals))
    if reason:
        raise Interrupted(reason)


def seed_apart(fabric: Fabric, seed: int) -> None:
    """Seeds every process differently; the first has the seed of a single process."""
    if fabric.global_rank:
        torch.manual_seed((seed + APART * fabric.global_rank) % (1 << 63))


def part_of(fabric: Fabric, batch: Any) -> Any:
    """The rows of a batch of this process; all rows if there are fewer than processes."""

    def rows(tensor: Tensor) -> Tensor:
        return tensor if len(tensor) < fabric.world_size else tensor[fabric.global_rank :: fabric.world_size]

    return tree_map_only(Tensor, rows, batch)


def mean_over(fabric: Fabric, value: float) -> float:
    """The mean of a number over all processes."""
    if fabric.world_size == 1:
        return value
    total = fabric.all_reduce(torch.tensor(value, dtype=torch.float64))
    assert isinstance(total, Tensor)
    return float(total)


def gather(fabric: Fabric, tensors: dict[str, Tensor]) -> dict[str, Tensor]:
    """Gathers the carried state of the whole batch and the random states of all processes for a checkpoint.

    So only the random states depend on the number of processes.
    """
    if fabric.world_size == 1:
        return tensors
    return {name: _gathered(fabric, name, tensor) for name, tensor in tensors.items()}


def scatter(fabric: Fabric, tensors: dict[str, Tensor]) -> dict[str, Tensor]:
    """The part of this process of gathered tensors, for any number of processes that gathered them."""
    parts = {name: _shard_of(fabric, name, tensor) for name, tensor in tensors.items()}
    return {name: part for name, part in parts.items() if part is not None}


def _gathered(fabric: Fabric, name: str, tensor: Tensor) -> Tensor:
    if not name.startswith(("state.", "random.")):
        return whole(tensor)
    own = fabric.to_device(tensor.detach()).contiguous()
    all_of_them = [torch.empty_like(own) for _ in range(fabric.world_size)]
    dist.all_gather(all_of_them, own)
    # Members are interleaved, as in `part_of`.
    return torch.stack(all_of_them, 1).flatten(0, 1) if name.startswith("state.") else torch.stack(all_of_them)


def _shard_of(fabric: Fabric, name: str, tensor: Tensor) -> Tensor | None:
    if name.startswith("state."):
        return part_of(fabric, tensor)
    if not name.startswith("random."):
        return tensor
    rows = tensor.reshape(-1, tensor.shape[-1])
    # A clone, since torch.set_rng_state ignores the offset of a view.
    return rows[fabric.global_rank].clone() if fabric.global_rank < len(rows) else None


def _work(work: Callable[..., None], arguments: tuple[Any, ...], threads: int, fabric: Fabric) -> str:
    """Runs the work in a process; returns the reason if a stop was requested."""
    torch.set_num_threads(max(threads // fabric.world_size, 1))
    reason = ""
    try:
        with _detect_deaths():
            work(fabric, *arguments)
    except Interrupted as stop:
        reason = str(stop)
    # At the exit of Python, the threads of an existing group may abort the process.
    dist.destroy_process_group()
    return reason


@contextmanager
def _detect_deaths() -> Iterator[None]:
    """Converts errors of lost connections to `ProcessDied`."""
    try:
        yield
    except RuntimeError as error:
        if any(sign in str(error) for sign in LOST):
            raise ProcessDied(GONE) from error
        raise


@contextmanager
def _forward_signals() -> Iterator[list[int]]:
    """Forwards requests to stop to the processes, which write a checkpoint together; yields the list of them."""
    signals: list[int] = []

    def pass_on(number: int, frame: FrameType | None) -> None:
        signals.append(number)
        for child in active_children():
            if child.pid is not None:
                os.kill(child.pid, signal.SIGTERM)

    before = {number: signal.signal(number, pass_on) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield signals
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


@contextmanager
def _restored_port() -> Iterator[None]:
    """Restores the port in the environment, since that of Fabric may be in use at the next training."""
    previous = os.environ.get("MASTER_PORT")
    try:
        yield
    finally:
        if previous is None:
            os.environ.pop("MASTER_PORT", None)


def _raise_cause(error: str, stop_requested: bool) -> None:
    """Raises the cause of a process that ended early. A process that is stopped between two steps reports none."""
    if stop_requested:
        raise Interrupted("Stopped.") from None
    line = error.strip().rpartition("\n")[2]
    kind, _, message = line.partition(": ")
    if kind.endswith("ProcessDied") or "terminated with" in line:
        raise ProcessDied(GONE) from None
    raise (InputError(message) if kind.endswith("InputError") else RuntimeError(line)) from None
