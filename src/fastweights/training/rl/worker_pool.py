"""A pool of worker processes that answer messages. A process that dies is replaced."""

import os
import signal
from collections.abc import Callable
from multiprocessing.connection import Connection, wait
from typing import Any, NamedTuple

import torch
from torch.multiprocessing import get_context

from fastweights.core.errors import InputError, ProcessDied

Work = Callable[[Any], Any]


class Failed(NamedTuple):
    """The error of a process, in place of an answer."""

    message: str
    input_error: bool


class WorkerPool:
    """Seats with one process each, which answers one message after the other.

    The processes end with their parent, in whatever way it ends, since their pipes are closed then.

    Args:
        number: Number of seats.
        begin: Called as `begin(seat, hired, *arguments)` in the process of a seat, where `hired` is the number of its
            predecessors; returns the function from messages to answers. Both are pickled.
        arguments: Further arguments of `begin`. Tensors should be in shared memory.
    """

    def __init__(self, number: int, begin: Callable[..., Work], arguments: tuple[Any, ...]) -> None:
        self.begin, self.arguments = begin, arguments
        self.hired, self.answers = [-1] * number, [0] * number
        self.messages: list[Any] = [None] * number
        self.pipes: list[Connection] = [None] * number  # type: ignore[list-item]
        self.processes: list[Any] = [None] * number
        self.news: list[str] = []
        for seat in range(number):
            self._hire(seat)

    def tell(self, seat: int, message: Any) -> None:
        """Sends a message to a seat, which must have answered the last one."""
        self.messages[seat] = message
        try:
            self.pipes[seat].send(message)
        except OSError:
            self._replace(seat)

    def hear(self, seats: list[int]) -> tuple[int, Any]:
        """Waits for the first answer of these seats; returns the seat and the answer.

        Raises:
            ProcessDied: A process died before its first answer.
            InputError: A process raised it.
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
        """Ends all processes."""
        for pipe, process in zip(self.pipes, self.processes, strict=True):
            pipe.close()
            process.kill()
        for process in self.processes:
            process.join()

    def _hire(self, seat: int) -> None:
        self.hired[seat] += 1
        self.answers[seat] = 0
        self.pipes[seat], theirs = get_context("spawn").Pipe()
        arguments = (theirs, self.begin, seat, self.hired[seat], *self.arguments)
        process = get_context("spawn").Process(target=_serve, args=arguments, daemon=True)
        process.start()
        # The parent closes this end, so that the end of the process is detected.
        theirs.close()
        self.processes[seat] = process

    def _replace(self, seat: int) -> None:
        """Starts a new process for a seat, and sends the pending message again."""
        self.processes[seat].join()
        name, done = f"Actor {seat + 1} died ({_why(self.processes[seat].exitcode)})", self.answers[seat]
        if not done:
            self.close()
            raise ProcessDied(f"{name} before its first rollout, and the run stopped.")
        self.news.append(f"{name} after {done} rollouts and was replaced.")
        self._hire(seat)
        self.tell(seat, self.messages[seat])


def _why(code: int) -> str:
    return signal.Signals(-code).name if code < 0 else f"exit status {code}"


def _serve(pipe: Connection, begin: Callable[..., Work], seat: int, hired: int, *arguments: Any) -> None:
    """The main function of a worker process."""
    # The parent handles requests to stop, and ends the workers.
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, signal.SIG_IGN)
    torch.set_num_threads(1)
    try:
        work = begin(seat, hired, *arguments)
        while True:
            pipe.send(work(pipe.recv()))
    except (EOFError, BrokenPipeError, ConnectionResetError):
        os._exit(0)  # the parent has ended
    except Exception as error:
        pipe.send(Failed(" ".join(f"{error}".split()) or type(error).__name__, isinstance(error, InputError)))
