"""Processes that torchrun started: the first of them is the program, and the others carry out with it what it orders.

They hear of it through the store that torchrun has for them, in which nobody has to be in time. An order is JSON: who
reaches the store can have a model trained, but can not hand over code.
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

from fastweights.core.errors import Died, InputError

PATIENCE = timedelta(seconds=10)
"""How long a process that failed waits for the others to fail as well."""

FOREVER = timedelta(days=365)


CarryOut = Callable[[dict[str, Any]], None]
"""What all processes do together, by an order."""


def launched() -> int:
    """How many processes torchrun started for this program; 1 without torchrun."""
    return int(os.environ["WORLD_SIZE"]) if "TORCHELASTIC_RUN_ID" in os.environ else 1


def follows() -> bool:
    """Whether this process is one of those that do what the first one orders."""
    return launched() > 1 and _rank() > 0


def follow(carry_out: CarryOut) -> int:
    """What such a process does, until the first one is done; returns the exit status."""
    from fastweights.training.progress import Interrupted

    # While it waits in the store, Python hears no signal.
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    for number in count():
        order = json.loads(_store().get(f"order {number}"))
        if order is None:
            break
        # What all processes complain of, the first one says.
        with suppress(InputError, Interrupted):
            _together(number, carry_out, order)
    return 0


def lead(carry_out: CarryOut, order: dict[str, Any]) -> None:
    """Calls `carry_out(order)` in all processes: those that `follow` it.

    Raises:
        Died: One of them failed and the others did not.
    """
    number = next(_numbers())
    written = json.dumps(order)
    _store().set(f"order {number}", written)
    _together(number, carry_out, json.loads(written))


def dismiss() -> None:
    """This process is at its end, and so are the others if it is the first."""
    if launched() > 1:
        if not follows():
            _store().set(f"order {next(_numbers())}", json.dumps(None))
        _leave()


def _together(number: int, carry_out: CarryOut, order: dict[str, Any]) -> None:
    try:
        carry_out(order)
    except Died:
        # torchrun ends those that are left: not before they have said why.
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        raise
    except Exception as error:
        _end(number)
        if not _all_ended(number):
            raise Died(str(error)) from error
        raise
    _end(number)


def _end(number: int) -> None:
    _store().set(f"end {number} {_rank()}", b"")


def _all_ended(number: int) -> bool:
    import torch.distributed as dist

    try:
        _store().wait([f"end {number} {rank}" for rank in range(launched())], PATIENCE)
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
