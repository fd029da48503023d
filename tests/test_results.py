"""Committed runs: the documented command gives the same runs, since their settings are those of the recipes."""

import json
from pathlib import Path

import pytest

from fastweights.experiments.experiment import FREE
from fastweights.experiments.job import Job
from fastweights.experiments.reuse import anywhere
from fastweights.registry import EXPERIMENTS

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
    for path in sorted(RESULTS.rglob("config.json")):
        config = json.loads(path.read_text(encoding="utf-8"))["config"]
        if config["preset"] != FREE:
            runs.setdefault(config["experiment"], []).append(config)
    return runs


RUNS = committed()


def is_todays(config):
    """Whether a run has a place in today's preset, with today's settings."""
    experiment = EXPERIMENTS.load(config["experiment"])
    if (config["model"], config["column"]) not in experiment.preset(config["preset"]).places:
        return False
    job = Job(*(config[part] for part in PARTS))
    return anywhere(config)["trial"] == anywhere(job.facts(job.trial(experiment)))["trial"]


@pytest.mark.parametrize("name", RUNS)
def test_committed_runs_have_the_settings_of_their_recipe(name):
    other = [tuple(config[part] for part in PARTS[1:]) for config in RUNS[name] if not is_todays(config)]
    assert bool(other) == (name in REPLACED), other
