"""Processes that each do a piece of work whenever they are told to; one that dies is replaced."""

import os
import signal
from collections.abc import Callable
from multiprocessing.connection import Connection, wait
from typing import Any, NamedTuple

import torch
from torch.multiprocessing import get_context

from fastweights.core.errors import Died, InputError

Work = Callable[[Any], Any]


class Failed(NamedTuple):
    """What a process has to say in place of an answer."""

    message: str
    input_error: bool


class Crew:
    """Seats with a process each, which answers one message after the other.

    The processes end with the one that started them, however that ends: they read from pipes whose other ends are
    closed then.

    Args:
        number: How many seats.
        begin: Called as `begin(seat, hired, *arguments)` in the process of a seat, `hired` being how many had the seat
            before; returns what makes an answer of a message. Both are pickled.
        arguments: Tensors among them should lie in shared memory.
    """

    def __init__(self, number: int, begin: Callable[..., Work], arguments: tuple[Any, ...]) -> None:
        self.begin, self.arguments = begin, arguments
        self.hired, self.answers = [-1] * number, [0] * number
        self.told: list[Any] = [None] * number
        self.pipes: list[Connection] = [None] * number  # type: ignore[list-item]
        self.processes: list[Any] = [None] * number
        self.news: list[str] = []
        for seat in range(number):
            self._hire(seat)

    def tell(self, seat: int, message: Any) -> None:
        """Gives a seat its next piece of work; not before it has answered the last."""
        self.told[seat] = message
        try:
            self.pipes[seat].send(message)
        except OSError:
            self._replace(seat)

    def hear(self, seats: list[int]) -> tuple[int, Any]:
        """The first of these seats that answers, and its answer.

        Raises:
            Died: A process died before it had done anything.
            InputError: What one raised.
        """
        while True:
            ready = wait([self.pipes[seat] for seat in seats])
            seat = next(seat for seat in seats if self.pipes[seat] in ready)
            try:
                answer = self.pipes[seat].recv()
            except (EOFError, OSError):
                self._replace(seat)
                continue
            if isinstance(answer, Failed):
                raise (InputError if answer.input_error else RuntimeError)(answer.message)
            self.answers[seat] += 1
            return seat, answer

    def close(self) -> None:
        """Ends all of them."""
        for pipe, process in zip(self.pipes, self.processes, strict=True):
            pipe.close()
            process.kill()
        for process in self.processes:
            process.join()

    def _hire(self, seat: int) -> None:
        self.hired[seat] += 1
        self.answers[seat] = 0
        self.pipes[seat], theirs = get_context("spawn").Pipe()
        given = (theirs, self.begin, seat, self.hired[seat], *self.arguments)
        process = get_context("spawn").Process(target=_serve, args=given, daemon=True)
        process.start()
        # Held by nobody else: so its end is heard of.
        theirs.close()
        self.processes[seat] = process

    def _replace(self, seat: int) -> None:
        """Somebody else takes a seat, and does what was to be done there."""
        self.processes[seat].join()
        name, done = f"Actor {seat + 1} died ({_why(self.processes[seat].exitcode)})", self.answers[seat]
        if not done:
            self.close()
            raise Died(f"{name} before it had done anything, and the run stopped.")
        self.news.append(f"{name} after {done} unrolls; another one takes its place.")
        self._hire(seat)
        self.tell(seat, self.told[seat])


def _why(code: int) -> str:
    return signal.Signals(-code).name if code < 0 else f"exit status {code}"


def _serve(pipe: Connection, begin: Callable[..., Work], seat: int, hired: int, *arguments: Any) -> None:
    """What a process does."""
    # Whoever started it hears of requests to stop, and ends it.
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, signal.SIG_IGN)
    torch.set_num_threads(1)
    try:
        work = begin(seat, hired, *arguments)
        while True:
            pipe.send(work(pipe.recv()))
    except (EOFError, BrokenPipeError, ConnectionResetError):
        os._exit(0)  # Nobody is there any more.
    except Exception as error:
        pipe.send(Failed(" ".join(f"{error}".split()) or type(error).__name__, isinstance(error, InputError)))
