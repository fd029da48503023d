"""Committed runs: the documented command gives the same runs, since their settings are those of the recipes."""

from itertools import chain
from pathlib import Path

import pytest

from fastweights.experiments.experiment import FREE
from fastweights.experiments.job import Job
from fastweights.experiments.reuse import without_hardware
from fastweights.registry import EXPERIMENTS
from fastweights.training.run_folder.runs_file import RUNS, read_runs

RESULTS = Path(__file__).parents[1] / "docs" / "results"
PARTS = ("experiment", "preset", "model", "column", "seed")

REPLACED = {
    "ba2016/table-1": "an IRNN with 100 units that is not cut off",
    "gregor2020/figure-1": "synapses that pass on the hidden half of an LSTM only",
    "gregor2020/rates": "synapses that pass on the hidden half of an LSTM only",
    "irie2021/table-1": "training streams that are longer than the evaluated text",
    "irie2022/figure-4": "heads of 16 and normalised features",
    "irie2022/rates": "heads of 16 and normalised features",
    "irie2022/table-1": "heads of 16 and normalised features",
    "irie2022/table-2": "heads of 16 and normalised features",
    "schlag2021/table-4": "training streams that are longer than the evaluated text",
}
"""Experiments with committed runs of other settings, which new runs are about to replace: what the new ones have."""


def committed():
    """The settings of all committed runs of experiments, by the name of the experiment."""
    runs = {}
    for run in chain.from_iterable(map(read_runs, sorted(RESULTS.rglob(RUNS)))):
        config = run.config()["config"]
        if config["preset"] != FREE:
            runs.setdefault(config["experiment"], []).append(config)
    return runs


COMMITTED = committed()


def is_todays(config):
    """Whether a run has a place in today's preset, with today's settings."""
    experiment = EXPERIMENTS.load(config["experiment"])
    if (config["model"], config["column"]) not in experiment.preset(config["preset"]).places:
        return False
    job = Job(*(config[part] for part in PARTS))
    return without_hardware(config)["trial"] == without_hardware(job.facts(job.trial(experiment)))["trial"]


@pytest.mark.parametrize("name", COMMITTED)
def test_committed_runs_have_the_settings_of_their_recipe(name):
    other = [tuple(config[part] for part in PARTS[1:]) for config in COMMITTED[name] if not is_todays(config)]
    assert bool(other) == (name in REPLACED), other
