"""A plan: an experiment, a preset and a folder, and the jobs that follow from them."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from fastweights.core.errors import require, require_name
from fastweights.experiments.experiment import Experiment
from fastweights.experiments.job import ANYWHERE, Job
from fastweights.registry import EXPERIMENTS
from fastweights.training.settings._training import Hardware

MOST_SEEDS = 1000


@dataclass(frozen=True)
class Plan:
    """The runs of an experiment to execute.

    Args:
        name: Name of the experiment.
        preset: Preset.
        folder: Folder of all experiments.
        models: Models to run.
        columns: Columns to run.
        seeds: Number of seeds.
        where: Settings of hardware.
    """

    name: str
    preset: str
    folder: Path
    models: tuple[str, ...]
    columns: tuple[str, ...]
    seeds: int
    where: Hardware = ANYWHERE

    @property
    def experiment(self) -> Experiment:
        return _experiment(self.name)

    @property
    def path(self) -> Path:
        """The folder of this experiment and preset."""
        return self.folder / self.name / self.preset

    @property
    def jobs(self) -> list[Job]:
        """All jobs, ordered by seed, so that the table fills evenly."""
        all_places = self.experiment.preset(self.preset).places
        places = [(m, c) for m, c in all_places if m in self.models and c in self.columns]
        return [Job(self.name, self.preset, m, c, seed) for seed in range(1, self.seeds + 1) for m, c in places]


def make_plan(
    name: str,
    preset: str,
    folder: Path,
    models: Sequence[str] | None = None,
    columns: Sequence[str] | None = None,
    seeds: int | None = None,
    where: Hardware = ANYWHERE,
) -> Plan:
    """The plan from the flags of `reproduce`.

    Raises:
        InputError: The experiment, the preset, a model or a column does not exist, or the preset skips all of them.
    """
    experiment: Experiment = EXPERIMENTS.load(name)
    default = experiment.preset(preset)
    chosen_models = _chosen("models", models, default.models)
    chosen_columns = _chosen("columns", columns, default.columns)
    require(seeds is None or 1 <= seeds <= MOST_SEEDS, "seeds", f"from 1 to {MOST_SEEDS:,}", seeds)
    plan = Plan(name, preset, folder, chosen_models, chosen_columns, default.seeds if seeds is None else seeds, where)
    got = f"{', '.join(chosen_models)} and {', '.join(chosen_columns)}, which it skips"
    require(bool(plan.jobs), "models and columns", f"models and columns of preset {preset}", got)
    for job in plan.jobs:
        job.trial(experiment, where)
    return plan


def _chosen(parameter: str, names: Sequence[str] | None, known: Sequence[str]) -> tuple[str, ...]:
    for name in names or ():
        require_name(parameter, name, known)
    return tuple(name for name in known if names is None or name in names)


@cache
def _experiment(name: str) -> Experiment:
    # Looked up once: the progress display asks for it once per run and poll, and a look-up reads all recipes.
    experiment: Experiment = EXPERIMENTS.load(name)
    return experiment
