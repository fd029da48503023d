"""Evaluates a run on held-out data, compared with the baselines."""

import argparse

from fastweights.commands._arguments import add_env, add_run
from fastweights.commands._results import show


def add(command: argparse.ArgumentParser) -> None:
    """Adds a run."""
    add_run(command)
    add_env(command)


def run(options: argparse.Namespace) -> int:
    """Measures and prints the results."""
    from fastweights.experiments.run_trial import measure_run
    from fastweights.experiments.trust import TrustedCode
    from fastweights.training.run_folder.run import Run

    run = Run.open(options.folder)
    show(run, *measure_run(run, TrustedCode(options.layer, options.env)))
    return 0
