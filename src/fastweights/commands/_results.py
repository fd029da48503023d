"""Output that several commands share."""

from collections.abc import Sequence
from typing import Any


def show(run: Any, trial: Any, session: Any, result: Any) -> None:
    """Prints the results of a run with the baselines, and the path of its learning curve."""
    from fastweights.experiments.trial import loop_of
    from fastweights.report.learning_curve import draw_learning_curve
    from fastweights.training.progress import PlainConsole

    console = PlainConsole()
    loop_of(trial).show(session, result, console)
    metric, evaluations = session.task.main_metric, session.progress.evaluations
    curve = draw_learning_curve(run.path, run.metrics_at(evaluations), metric, result.baselines)
    console.print(f"\nRun folder: {run.path}. Learning curve: {curve}.")


def rates(traces: Sequence[Any]) -> str:
    """A line for every memory that has learning rates: how far each rate ranges over steps and heads."""
    ranges = {trace.name: trace.rate_ranges for trace in traces if trace.rates}
    lines = [
        f"{name}: {', '.join(f'{rate} {low:.2f} to {high:.2f}' for rate, (low, high) in rates.items())}"
        for name, rates in ranges.items()
    ]
    return "\n".join(["Rates over steps and heads:", *lines]) if lines else ""


def memories(count: int) -> str:
    """The number of memories in words."""
    return f"{count} {'memory' if count == 1 else 'memories'}"
