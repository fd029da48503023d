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
    """Worker processes, each of which answers one message after the other.

    The processes end with their parent, in whatever way it ends, since their pipes are closed then.

    Args:
        number: Number of worker processes.
        make_work: Called as `make_work(worker_id, num_restarts, *arguments)` in each process. It returns the function
            from messages to answers. Both are pickled.
        arguments: Further arguments of `make_work`. Tensors should be in shared memory.
    """

    def __init__(self, number: int, make_work: Callable[..., Work], arguments: tuple[Any, ...]) -> None:
        self.make_work, self.arguments = make_work, arguments
        self.num_restarts, self.answers = [-1] * number, [0] * number
        self.messages: list[Any] = [None] * number
        self.pipes: list[Connection] = [None] * number  # type: ignore[list-item]
        self.processes: list[Any] = [None] * number
        self.events: list[str] = []
        for worker_id in range(number):
            self._start(worker_id)

    def send(self, worker_id: int, message: Any) -> None:
        """Sends a message to a worker, which must have answered the last one."""
        self.messages[worker_id] = message
        try:
            self.pipes[worker_id].send(message)
        except OSError:
            self._replace(worker_id)

    def receive(self, worker_ids: list[int]) -> tuple[int, Any]:
        """Waits for the first answer of these workers; returns the number of the worker and the answer.

        Raises:
            ProcessDied: A process died before its first answer.
            InputError: A process raised it.
        """
        while True:
            ready = wait([self.pipes[worker_id] for worker_id in worker_ids])
            worker_id = next(worker_id for worker_id in worker_ids if self.pipes[worker_id] in ready)
            try:
                answer = self.pipes[worker_id].recv()
            except (EOFError, OSError):
                self._replace(worker_id)
                continue
            if isinstance(answer, Failed):
                raise (InputError if answer.input_error else RuntimeError)(answer.message)
            self.answers[worker_id] += 1
            return worker_id, answer

    def close(self) -> None:
        """Ends all processes."""
        for pipe, process in zip(self.pipes, self.processes, strict=True):
            pipe.close()
            process.kill()
        for process in self.processes:
            process.join()

    def _start(self, worker_id: int) -> None:
        self.num_restarts[worker_id] += 1
        self.answers[worker_id] = 0
        self.pipes[worker_id], child_end = get_context("spawn").Pipe()
        arguments = (child_end, self.make_work, worker_id, self.num_restarts[worker_id], *self.arguments)
        process = get_context("spawn").Process(target=_serve, args=arguments, daemon=True)
        process.start()
        # The parent closes this end, so that the end of the process is detected.
        child_end.close()
        self.processes[worker_id] = process

    def _replace(self, worker_id: int) -> None:
        """Starts a new process for a worker, and sends the pending message again."""
        self.processes[worker_id].join()
        name, done = f"Actor {worker_id + 1} died ({_why(self.processes[worker_id].exitcode)})", self.answers[worker_id]
        if not done:
            self.close()
            raise ProcessDied(f"{name} before its first rollout, and the run stopped.")
        self.events.append(f"{name} after {done} rollouts and was replaced.")
        self._start(worker_id)
        self.send(worker_id, self.messages[worker_id])


def _why(code: int) -> str:
    return signal.Signals(-code).name if code < 0 else f"exit status {code}"


def _serve(
    pipe: Connection, make_work: Callable[..., Work], worker_id: int, num_restarts: int, *arguments: Any
) -> None:
    """The main function of a worker process."""
    # The parent handles requests to stop, and ends the workers.
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, signal.SIG_IGN)
    torch.set_num_threads(1)
    try:
        work = make_work(worker_id, num_restarts, *arguments)
        while True:
            pipe.send(work(pipe.recv()))
    except (EOFError, BrokenPipeError, ConnectionResetError):
        os._exit(0)  # the parent has ended
    except Exception as error:
        pipe.send(Failed(" ".join(f"{error}".split()) or type(error).__name__, isinstance(error, InputError)))
