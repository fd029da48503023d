"""Progress output, and stopping on request."""

import signal
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Any

from rich.console import Console, ConsoleOptions
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn
from rich.segment import Segment

from fastweights.core.printable import printable


class PlainConsole(Console):
    """A console that prints texts literally, without markup and with escaped control characters.

    Only styles of the program reach the terminal. A closed pipe raises `BrokenPipeError`.
    """

    def __init__(self, soft_wrap: bool = True) -> None:
        super().__init__(markup=False, emoji=False, soft_wrap=soft_wrap)

    def render(self, renderable: Any, options: ConsoleOptions | None = None) -> Iterator[Segment]:
        """Yields the segments of the output, with `printable` texts."""
        for segment in super().render(renderable, options):
            shown = segment.text if segment.control else printable(segment.text, allowed="\n\t")
            yield Segment(shown, segment.style, segment.control)

    def on_broken_pipe(self) -> None:
        """Raises the error, as any file does."""
        raise


class Interrupted(Exception):
    """Training stopped on request, after a checkpoint."""


class Stop:
    """Whether a stop of the process was requested."""

    requested = False


@contextmanager
def stop_on_signal() -> Iterator[Stop]:
    """Turns the first Ctrl-C or SIGTERM into a request that a loop handles between two steps."""
    stop = Stop()

    def request(number: int, frame: FrameType | None) -> None:
        stop.requested = True
        # A second signal ends the process as usual.
        signal.signal(number, before[signal.Signals(number)])

    before = {number: signal.signal(number, request) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield stop
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


class Bar:
    """A progress bar on a terminal; elsewhere only the notes, one line each; nothing without a console."""

    def __init__(self, console: Console | None, total: int, done: int) -> None:
        self.console = console
        text = TextColumn("{task.description}", markup=False)
        columns = [BarColumn(), MofNCompleteColumn(), text, TimeRemainingColumn()]
        self.progress = Progress(*columns, console=console, disable=not (console and console.is_terminal))
        self.task = self.progress.add_task("", total=total, completed=done)

    def advance(self, description: str) -> None:
        """Advances the bar by one step."""
        if self.console:
            self.progress.update(self.task, advance=1, description=description)

    def note(self, line: str) -> None:
        """Prints a line above the bar."""
        if self.console:
            self.progress.console.print(line, highlight=False)

    def __enter__(self) -> "Bar":
        self.progress.start()
        return self

    def __exit__(self, *error: object) -> None:
        self.progress.stop()
