"""Processes of torchrun: rank 0 is the program, and the others execute its orders together with it.

Orders are JSON in the store of torchrun, so that no process has to be in time, and no code is transferred.
"""

import json
import os
import signal
from collections.abc import Callable
from contextlib import suppress
from datetime import timedelta
from functools import cache
from itertools import count
from typing import Any

from fastweights.core.errors import InputError, ProcessDied

PATIENCE = timedelta(seconds=10)
"""Time that a failed process waits for the others to fail as well."""

FOREVER = timedelta(days=365)


Execute = Callable[[dict[str, Any]], None]
"""A function that all processes call with an order."""


def num_launched() -> int:
    """Number of processes that torchrun started for this program; 1 without torchrun."""
    return int(os.environ["WORLD_SIZE"]) if "TORCHELASTIC_RUN_ID" in os.environ else 1


def is_follower() -> bool:
    """Whether this process executes the orders of rank 0."""
    return num_launched() > 1 and _rank() > 0


def follow_rank_0(execute: Execute) -> int:
    """Executes orders until rank 0 ends; returns the exit status."""
    from fastweights.training.progress import Interrupted

    # While it waits for the store, Python handles no signal.
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    for number in count():
        order = json.loads(_store().get(f"order {number}"))
        if order is None:
            break
        # Rank 0 reports errors that all processes raise.
        with suppress(InputError, Interrupted):
            _together(number, execute, order)
    return 0


def run_on_all_ranks(execute: Execute, order: dict[str, Any]) -> None:
    """Calls `execute(order)` in this process and in all that `follow_rank_0`.

    Raises:
        ProcessDied: One of them failed and the others did not.
    """
    number = next(_numbers())
    written = json.dumps(order)
    _store().set(f"order {number}", written)
    _together(number, execute, json.loads(written))


def end_ranks() -> None:
    """Ends this process, and the others if it is rank 0."""
    if num_launched() > 1:
        if not is_follower():
            _store().set(f"order {next(_numbers())}", json.dumps(None))
        _leave()


def _together(number: int, execute: Execute, order: dict[str, Any]) -> None:
    try:
        execute(order)
    except ProcessDied:
        # torchrun ends the remaining processes, which must first report the reason.
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        raise
    except Exception as error:
        _end(number)
        if not _all_ended(number):
            raise ProcessDied(str(error)) from error
        raise
    _end(number)


def _end(number: int) -> None:
    _store().set(f"end {number} {_rank()}", b"")


def _all_ended(number: int) -> bool:
    import torch.distributed as dist

    try:
        _store().wait([f"end {number} {rank}" for rank in range(num_launched())], PATIENCE)
    except dist.DistStoreError:
        return False
    return True


def _leave() -> None:
    import torch.distributed as dist

    if dist.is_initialized():
        dist.destroy_process_group()


def _rank() -> int:
    return int(os.environ["RANK"])


@cache
def _store() -> Any:
    from torch.distributed.distributed_c10d import PrefixStore
    from torch.distributed.rendezvous import rendezvous

    store = PrefixStore("fastweights", next(rendezvous("env://"))[0])
    store.set_timeout(FOREVER)
    return store


@cache
def _numbers() -> Any:
    return count()
