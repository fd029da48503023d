"""Progress on the screen, and stopping in an orderly way."""

import signal
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Any

from rich.console import Console, ConsoleOptions
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn
from rich.segment import Segment

from fastweights.core.printable import printable


class Plain(Console):
    """A console without markup in texts: brackets and colons mean nothing, and control characters are escaped.

    Only styles that the program itself chooses reach the terminal. A reader that has gone raises `BrokenPipeError`.
    """

    def __init__(self, soft_wrap: bool = True) -> None:
        super().__init__(markup=False, emoji=False, soft_wrap=soft_wrap)

    def render(self, renderable: Any, options: ConsoleOptions | None = None) -> Iterator[Segment]:
        """The segments of what is printed, with `printable` texts."""
        for segment in super().render(renderable, options):
            shown = segment.text if segment.control else printable(segment.text, allowed="\n\t")
            yield Segment(shown, segment.style, segment.control)

    def on_broken_pipe(self) -> None:
        """As any file does."""
        raise


class Interrupted(Exception):
    """Training stopped on request, after a checkpoint."""


class Stop:
    """Whether somebody asked the process to stop."""

    requested = False


@contextmanager
def stop_on_signal() -> Iterator[Stop]:
    """Turns the first Ctrl-C or termination into a request that a loop can honour between two steps."""
    stop = Stop()

    def request(number: int, frame: FrameType | None) -> None:
        stop.requested = True
        # A second one ends the process as it always does.
        signal.signal(number, before[signal.Signals(number)])

    before = {number: signal.signal(number, request) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield stop
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


class Bar:
    """A progress bar on a terminal; anywhere else only the notes, a line each; nothing without a console."""

    def __init__(self, console: Console | None, total: int, done: int) -> None:
        self.console = console
        told = TextColumn("{task.description}", markup=False)
        columns = [BarColumn(), MofNCompleteColumn(), told, TimeRemainingColumn()]
        self.progress = Progress(*columns, console=console, disable=not (console and console.is_terminal))
        self.task = self.progress.add_task("", total=total, completed=done)

    def advance(self, description: str) -> None:
        """One step more."""
        if self.console:
            self.progress.update(self.task, advance=1, description=description)

    def note(self, line: str) -> None:
        """A line that stays."""
        if self.console:
            self.progress.console.print(line, highlight=False)

    def __enter__(self) -> "Bar":
        self.progress.start()
        return self

    def __exit__(self, *error: object) -> None:
        self.progress.stop()
