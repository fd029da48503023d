"""Several processes that train one model, each with a device of its own and a part of every batch."""

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
from fastweights.core.errors import Died, InputError
from fastweights.training.distributed.hardware import make_fabric
from fastweights.training.progress import Interrupted
from fastweights.training.settings._training import Training

APART = 1_000_003
"""Between the seeds of two processes: runs of neighbouring seeds have no process in common."""

LOST = ("closed by peer", "reset by peer", "Broken pipe", "gloo", "NCCL")
"""What errors say if messages no longer arrive."""

GONE = "A process that shared the training died, and the others stopped."


def share(settings: Training, work: Callable[..., None], *arguments: Any) -> None:
    """Calls `work(fabric, *arguments)` here, or in as many new processes as there are devices.

    Raises:
        Interrupted: Somebody asked to stop, and all processes did.
        InputError: What one of them raised.
        Died: One of them is no more.
    """
    if settings.devices == 1:
        work(make_fabric(settings), *arguments)
    else:
        _spawn(make_fabric(settings), work, arguments)


def join(settings: Training, work: Callable[..., None], *arguments: Any) -> None:
    """Calls `work(fabric, *arguments)` here, as one of the processes that torchrun started, all of which do.

    Raises:
        Died: One of them is no more.
    """
    with _deaths():
        make_fabric(settings).launch(partial(_call, work, arguments))


def _call(work: Callable[..., None], arguments: tuple[Any, ...], fabric: Fabric) -> None:
    work(fabric, *arguments)


def _spawn(fabric: Fabric, work: Callable[..., None], arguments: tuple[Any, ...]) -> None:
    with _passed_on() as asked, _port_of_its_own():
        try:
            # As one object: Fabric looks into arguments, and does not like what it finds there.
            said = fabric.launch(partial(_work, work, arguments, torch.get_num_threads()))
        except ProcessException as error:
            _tell(str(error), bool(asked))
    if said:
        raise Interrupted(said)


def seed_apart(fabric: Fabric, seed: int) -> None:
    """Other random numbers for every process; those of the first are as if it were alone."""
    if fabric.global_rank:
        torch.manual_seed((seed + APART * fabric.global_rank) % (1 << 63))


def part_of(fabric: Fabric, batch: Any) -> Any:
    """The rows of a batch, a tensor or several, that are this process's; all where there are fewer than processes."""

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
    """What a checkpoint needs of all processes: the carried state of the whole batch, and everybody's random numbers.

    So nothing in it but random numbers depends on how many there are.
    """
    if fabric.world_size == 1:
        return tensors
    return {name: _gathered(fabric, name, tensor) for name, tensor in tensors.items()}


def own(fabric: Fabric, tensors: dict[str, Tensor]) -> dict[str, Tensor]:
    """This process's part of what `gather` made, in however many processes that was; none of what there was not."""
    parts = {name: _own(fabric, name, tensor) for name, tensor in tensors.items()}
    return {name: part for name, part in parts.items() if part is not None}


def _gathered(fabric: Fabric, name: str, tensor: Tensor) -> Tensor:
    if not name.startswith(("state.", "random.")):
        return whole(tensor)
    mine = fabric.to_device(tensor.detach()).contiguous()
    all_of_them = [torch.empty_like(mine) for _ in range(fabric.world_size)]
    dist.all_gather(all_of_them, mine)
    # Members take turns, as in `part_of`.
    return torch.stack(all_of_them, 1).flatten(0, 1) if name.startswith("state.") else torch.stack(all_of_them)


def _own(fabric: Fabric, name: str, tensor: Tensor) -> Tensor | None:
    if name.startswith("state."):
        return part_of(fabric, tensor)
    if not name.startswith("random."):
        return tensor
    rows = tensor.reshape(-1, tensor.shape[-1])
    # Cloned: torch.set_rng_state reads a part of a tensor from where the whole begins.
    return rows[fabric.global_rank].clone() if fabric.global_rank < len(rows) else None


def _work(work: Callable[..., None], arguments: tuple[Any, ...], threads: int, fabric: Fabric) -> str:
    """What a process does; why it stopped, if it was asked to."""
    torch.set_num_threads(max(threads // fabric.world_size, 1))
    try:
        with _deaths():
            work(fabric, *arguments)
    except Interrupted as stop:
        return str(stop)
    return ""


@contextmanager
def _deaths() -> Iterator[None]:
    """Tells by what the library for messages says that another process is no more."""
    try:
        yield
    except RuntimeError as error:
        if any(sign in str(error) for sign in LOST):
            raise Died(GONE) from error
        raise


@contextmanager
def _passed_on() -> Iterator[list[int]]:
    """Passes requests to stop on to the processes, which write a checkpoint together; yields those that came."""
    asked: list[int] = []

    def pass_on(number: int, frame: FrameType | None) -> None:
        asked.append(number)
        for child in active_children():
            if child.pid is not None:
                os.kill(child.pid, signal.SIGTERM)

    before = {number: signal.signal(number, pass_on) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield asked
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


@contextmanager
def _port_of_its_own() -> Iterator[None]:
    """Forgets the port that Fabric chose and left in the environment: by the next training it may be another's."""
    given = os.environ.get("MASTER_PORT")
    try:
        yield
    finally:
        if given is None:
            os.environ.pop("MASTER_PORT", None)


def _tell(error: str, asked: bool) -> None:
    """What a process that ended too early comes to: they end without a word if they are stopped between two updates."""
    if asked:
        raise Interrupted("Stopped.") from None
    line = error.strip().rpartition("\n")[2]
    kind, _, message = line.partition(": ")
    if kind.endswith("Died") or "terminated with" in line:
        raise Died(GONE) from None
    raise (InputError(message) if kind.endswith("InputError") else RuntimeError(line)) from None
