"""What is to be reproduced: an experiment, a preset, a folder, and the runs that follow from them."""

from dataclasses import dataclass
from pathlib import Path

from fastweights.catalogue import EXPERIMENTS
from fastweights.errors import require, require_name
from fastweights.experiment import Experiment
from fastweights.recipes._trial import Job

MOST_SEEDS = 1000


@dataclass(frozen=True)
class Plan:
    """What to reproduce, and where."""

    name: str
    preset: str
    folder: Path
    models: tuple[str, ...]
    seeds: int

    @property
    def experiment(self) -> Experiment:
        experiment: Experiment = EXPERIMENTS.load(self.name)
        return experiment

    @property
    def path(self) -> Path:
        """The folder of this experiment and preset."""
        return self.folder / self.name / self.preset

    @property
    def jobs(self) -> list[Job]:
        """All models with the first seed, then with the next: the table fills evenly."""
        places = [(m, c) for m, c in self.experiment.preset(self.preset).places if m in self.models]
        return [Job(self.name, self.preset, m, c, seed) for seed in range(1, self.seeds + 1) for m, c in places]


def make_plan(name: str, preset: str, folder: Path, models: list[str] | None, seeds: int | None) -> Plan:
    """The plan that the flags describe; `InputError` for what there is not."""
    experiment: Experiment = EXPERIMENTS.load(name)
    default = experiment.preset(preset)
    for model in models or ():
        require_name("models", model, default.models)
    require(seeds is None or 1 <= seeds <= MOST_SEEDS, "seeds", f"from 1 to {MOST_SEEDS:,}", seeds)
    chosen = tuple(model for model in default.models if models is None or model in models)
    return Plan(name, preset, folder, chosen, default.seeds if seeds is None else seeds)
