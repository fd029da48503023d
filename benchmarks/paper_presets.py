"""Estimates the cost of each preset `paper` from the time of training steps of some of its runs.

    python benchmarks/paper_presets.py                                       # page from stored measurements
    python benchmarks/paper_presets.py ba2016/table-1 gregor2020/figure-1    # new measurements of these

A measurement is the median time of a training step, without evaluations, of a few runs spread over the table.
Measurements are stored in `benchmarks/paper_presets.json`. The page is `docs/how-to/paper-presets.md`.
"""

import argparse
import json
import statistics
import tempfile
import time
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

import torch

from fastweights.core.errors import InputError
from fastweights.experiments.experiment import Experiment, Preset, Trial
from fastweights.experiments.trial import build, loop_of, make_task
from fastweights.registry import EXPERIMENTS
from fastweights.report.verdicts import PAPER, paper_items
from fastweights.training.distributed.hardware import make_fabric
from fastweights.training.run_folder.environment import environment
from fastweights.training.run_folder.run import Run
from fastweights.training.session import Session
from fastweights.training.settings.actor_critic import ActorCritic

STORED = Path(__file__).with_suffix(".json")
PAGE = Path(__file__).parents[1] / "docs" / "how-to" / "paper-presets.md"
HOURS_A_DAY, DAYS_A_YEAR = 24, 365
CORES = {"two_cores": 2, "one_h100": 1}
"""Runs in parallel, by device."""

SHARES = 16
"""Actors of A3C, among which a batch is divided."""


class Estimate(NamedTuple):
    """Costs estimated from the sizes of models and texts, and from runs of reduced presets."""

    two_cores: str
    one_h100: str


ESTIMATES = {
    "ba2016/figure-2": Estimate("21 h", "no gain"),
    "ba2016/figure-5": Estimate("30 h", "no gain"),
    "ba2016/table-1": Estimate("2 days", "no gain"),
    "ba2016/table-2": Estimate("10 h", "no gain"),
    "ba2016/table-3": Estimate("1 day", "no gain"),
    "gregor2020/figure-1": Estimate("3.5 days", "no gain"),
    "irie2021/figure-1": Estimate("8 months", "4 days"),
    "irie2021/figure-2": Estimate("2.6 years", "15 days"),
    "irie2021/figure-3": Estimate("8 months", "4 days"),
    "irie2021/figure-4": Estimate("2.6 years", "15 days"),
    "irie2021/table-1": Estimate("3.7 years", "9 days"),
    "irie2021/table-2": Estimate("85 days", "25 h"),
    "irie2021/table-3": Estimate("2 years", "10 days"),
    "irie2022/figure-4": Estimate("5 months", "12 h"),
    "irie2022/figure-6": Estimate("33 h", "2 h"),
    "irie2022/figure-7": Estimate("12 days", "5 h"),
    "irie2022/table-1": Estimate("6 years", "19 days"),
    "irie2022/table-2": Estimate("2.3 years", "3 days"),
    "irie2022/table-3": Estimate("6 months", "3 weeks"),
    "irie2022/table-4": Estimate("1 month", "3 days"),
    "irie2022/table-5": Estimate("7 months", "4 weeks"),
    "irie2022/table-6": Estimate("7 months", "4 weeks"),
    "irie2022/table-7": Estimate("7 months", "4 weeks"),
    "schlag2021/figure-2": Estimate("200 h", "15 h"),
    "schlag2021/figure-3": Estimate("1 h", "minutes"),
    "schlag2021/figure-4": Estimate("20 h", "2 h"),
    "schlag2021/figure-5": Estimate("80 h", "5 h"),
    "schlag2021/table-1": Estimate("17 years", "10 days"),
    "schlag2021/table-2": Estimate("4.2 years", "7 days"),
    "schlag2021/table-3": Estimate("2 years", "80 h"),
    "schlag2021/table-4": Estimate("1.3 years", "52 h"),
    "schlag2021/table-5": Estimate("1.3 years", "56 h"),
}


class Enough(Exception):
    """Ends the training after the requested number of steps."""


class Timed(Session):
    """Session that ends after `requested` training steps, and records the time of each.

    The time is wall-clock time on a GPU, and CPU time on a CPU, which depends little on other programs.
    """

    requested = 0

    def __init__(self, *arguments: Any) -> None:
        super().__init__(*arguments)
        self.moments: list[float] = []

    def count(self, loss: float, details: str = "") -> None:
        super().count(loss, details)
        self.moments.append(time.perf_counter() if torch.cuda.is_available() else time.process_time())
        if len(self.moments) > self.requested:
            raise Enough


def seconds_per_step(trial: Trial, steps: int) -> float:
    """Median time of a training step, without the first tenth, which includes the first calls of kernels."""
    settings = replace(trial.training, evaluate_every=trial.training.steps)
    if isinstance(settings, ActorCritic) and settings.mode == "hogwild":
        settings = replace(settings, mode="synchronous", batch_size=settings.batch_size // SHARES)
    task = make_task(trial.task, trial.task_options)
    with tempfile.TemporaryDirectory() as folder:
        run = Run(Path(folder) / "run")
        session = Timed(make_fabric(settings), build(trial, task), task, settings, run, "timed", _begin(run, task))
        session.requested = steps
        with suppress(Enough):
            loop_of(trial).train(session)
    times = [after - before for before, after in zip(session.moments, session.moments[1:], strict=False)]
    return statistics.median(times[len(times) // 10 :])


def _begin(run: Run, task: Any) -> Any:
    return lambda: run.begin("paper-presets", {}, task.facts(), task.main_metric)


def measure(name: str, steps: int, runs: int) -> dict[str, Any]:
    """Times of training steps of some runs of a table."""
    experiment: Experiment = EXPERIMENTS.load(name)
    places = experiment.presets[PAPER].places
    last = len(places) - 1
    chosen = dict.fromkeys(places[round(n * last / max(runs - 1, 1))] for n in range(runs))
    times = {f"{m}, {c}": seconds_per_step(experiment.trial(m, c, PAPER), steps) for m, c in chosen}
    machine = {part: environment()[part] for part in ("processor", "cores", "gpu", "revision")}
    device = "one_h100" if torch.cuda.is_available() else "two_cores"
    return {"device": device, "seconds": times, "steps": steps, **machine}


def total_steps(experiment: Experiment, preset: Preset) -> int:
    """Number of training steps of all runs of a preset."""
    return preset.seeds * sum(experiment.trial(*place, PAPER).training.steps for place in preset.places)


def duration(hours: float) -> str:
    """A duration in the most readable unit: minutes, hours, days or years."""
    days = hours / HOURS_A_DAY
    if days >= DAYS_A_YEAR:
        return f"{days / DAYS_A_YEAR:.1f} years"
    return f"{days:.0f} days" if days >= 3 else f"{hours:.0f} h" if hours >= 2 else f"{hours * 60:.0f} min"


def row(name: str, measured: dict[str, Any]) -> list[str]:
    """Row of a preset, with measured costs in bold."""
    experiment: Experiment = EXPERIMENTS.load(name)
    preset, costs = experiment.presets[PAPER], ESTIMATES[name]._asdict()
    steps = total_steps(experiment, preset)
    for device in costs:
        measurement = measured.get(f"{name} {device}")
        if measurement:
            hours = statistics.fmean(measurement["seconds"].values()) * steps / 3600 / CORES[device]
            costs[device] = f"**{duration(hours)}**"
    return [f"`{name}`", f"{len(preset.places) * preset.seeds:,}", f"{steps:,}", *costs.values()]


HEAD = """# Cost of the presets of the papers

This page helps you to decide which experiments to run in full: `fastweights reproduce NAME --preset paper`. Each row
has the number of runs, their training steps, and the time on two CPU cores and on one H100.

Bold costs are measured: the median time of a training step in a few runs spread over the table, times all training
steps. Two cores run two runs in parallel (`--jobs 2`). Evaluations are not included. Measured costs are upper bounds
where training stops early: runs of the figures of Schlag et al. end after 1,000 to 20,000 of their 100,000 training
steps. The other costs are estimates from sizes of models and texts and from reduced presets, with an error of up to a
factor of two. "No gain" means that training steps are too small for a GPU.

"""
TAIL = """
`python benchmarks/paper_presets.py NAME ...` measures presets on your machine and writes this page.
"""


def page(measured: dict[str, Any]) -> str:
    """The whole page in Markdown."""
    header = ["experiment", "runs", "training steps", "two cores", "one H100"]
    lines = [header, ["---", "---:", "---:", "---:", "---:"], *(row(name, measured) for name in paper_items())]
    return HEAD + "".join(f"| {' | '.join(line)} |\n" for line in lines) + TAIL


def main() -> None:
    """Measures the given presets, and writes the page."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument(
        "names", nargs="*", choices=[*paper_items(), []], metavar="NAME", help="experiments to measure (default: none)"
    )
    parser.add_argument("--steps", type=int, default=30, help="training steps per run (default: %(default)s)")
    parser.add_argument("--runs", type=int, default=6, help="runs per table (default: %(default)s)")
    options = parser.parse_args()
    torch.set_num_threads(1)
    measured = json.loads(STORED.read_text()) if STORED.is_file() else {}
    for name in options.names:
        try:
            measurement = measure(name, options.steps, options.runs)
        except InputError as missing:
            print(f"{name}: {missing}")
            continue
        measured[f"{name} {measurement.pop('device')}"] = measurement
        print(name, measurement["seconds"])
        STORED.write_text(json.dumps(measured, indent=1) + "\n")
    PAGE.write_text(page(measured))


if __name__ == "__main__":
    main()
