"""Reproduces an experiment of a paper, compared with the numbers of the paper.

It starts missing runs, resumes interrupted ones, and writes a report.
"""

import argparse
import sys
from pathlib import Path
from typing import Any

from fastweights.commands._arguments import path
from fastweights.commands._columns import columns
from fastweights.commands.report import print_report
from fastweights.core.docstrings import arguments
from fastweights.core.errors import ProcessDied, require, require_name
from fastweights.experiments.experiment import SANITY, Experiment
from fastweights.registry import EXPERIMENTS, hyphens
from fastweights.training.distributed.torchrun import num_launched
from fastweights.training.settings._training import PRECISIONS, Hardware, Training


def add(command: argparse.ArgumentParser) -> None:
    """Adds an experiment, the part of it to run, and the options of the machine."""
    names = {name: EXPERIMENTS.describe(name).summary for name in EXPERIMENTS.names()}
    command.epilog = f"experiments:\n{columns(names, '  ')}"
    command.add_argument(
        "name",
        metavar="NAME",
        help="Name of an experiment, from the list below or from 'fastweights list experiments'.",
    )
    _add_selection(command.add_argument_group("part of the experiment"))
    _add_hardware(command.add_argument_group("hardware"))
    runs = "Folder of all run folders and reports."
    output = command.add_argument_group("output")
    output.add_argument("--runs-dir", type=path, default=Path("runs"), metavar="DIR", help=runs)


def _add_selection(group: Any) -> None:
    settings = group.add_mutually_exclusive_group()
    preset = "Settings: smoke (seconds), cpu, paper (those of the paper), or another preset of the experiment."
    settings.add_argument("--preset", default="cpu", metavar="NAME", help=preset)
    sanity = "Check, in minutes, that each model can learn an easy version of the task with the settings of preset cpu."
    settings.add_argument("--sanity", action="store_true", help=sanity)
    group.add_argument("--models", nargs="+", metavar="MODEL", help="Models to train, instead of all.")
    group.add_argument("--columns", nargs="+", metavar="COLUMN", help="Columns of the table, instead of all.")
    group.add_argument("--seeds", type=int, metavar="N", help="Number of seeds, instead of that of the preset.")


def _add_hardware(group: Any) -> None:
    group.add_argument("--jobs", type=int, default=1, metavar="N", help="Number of runs at the same time.")
    group.add_argument("--cluster", choices=["local", "slurm"], default="local", help="Place of the runs.")
    group.add_argument("--device", choices=["auto", "cpu", "cuda", "mps"], help=_setting("device"))
    group.add_argument("--precision", choices=PRECISIONS, help=_setting("precision"))
    for name in ("devices", "gradient_accumulation_steps"):
        group.add_argument(f"--{hyphens(name)}", type=int, metavar="N", help=_setting(name))
    for name in ("gradient_checkpointing", "fsdp", "compile"):
        group.add_argument(f"--{hyphens(name)}", action=argparse.BooleanOptionalAction, help=_setting(name))


def _setting(name: str) -> str:
    """The description of a setting of training, with its default here."""
    return f"{arguments(Training.__doc__ or '')[name]} (default: that of the experiment)"


def run(options: argparse.Namespace) -> int:
    """Runs it; 1 if not all of it is done in the end, or a model is below its bound in a sanity check."""
    require_name("experiment", options.name, EXPERIMENTS.names())
    experiment: Experiment = EXPERIMENTS.load(options.name)
    if options.sanity and isinstance(experiment.sanity, str):
        print(f"{options.name} has no sanity check. {experiment.sanity}".rstrip())
        return 0
    from fastweights.experiments.plan import make_plan
    from fastweights.experiments.scheduler import reproduce
    from fastweights.training.progress import Interrupted, PlainConsole

    require(
        num_launched() == 1 or (options.jobs, options.cluster) == (1, "local"), "jobs", "1 under torchrun", options.jobs
    )
    devices = num_launched() if num_launched() > 1 else options.devices
    where = Hardware(**{name: getattr(options, name) for name in Hardware._fields})._replace(devices=devices)
    chosen = (options.models, options.columns, options.seeds, where)
    plan = make_plan(options.name, SANITY if options.sanity else options.preset, options.runs_dir, *chosen)
    console = PlainConsole(soft_wrap=False)
    if not console.is_terminal:
        console.width = 120
    try:
        complete = reproduce(plan, options.jobs, options.cluster, console)
    except (Interrupted, KeyboardInterrupt) as stop:
        print(f"{stop} Run the same command again to resume.".lstrip(), file=sys.stderr)
        return 130
    except ProcessDied as death:
        raise ProcessDied(f"{death} Run the same command again to resume.") from None
    print_report(plan.path)
    passed = print_checks(plan.path, experiment) if options.sanity else True
    return 0 if complete and passed else 1


def print_checks(path: Path, experiment: Experiment) -> bool:
    """Prints a line per model of a sanity check; whether all models that ran reached their bounds."""
    from fastweights.report.runs import collect
    from fastweights.report.sanity import checks

    measured = [
        check for check in checks(experiment, next(iter(collect(path).groups), None)) if check.reached is not None
    ]
    print(*measured, sep="\n")
    return all(check.passed for check in measured)
