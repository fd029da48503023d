"""Reproduces an experiment of a paper, compared with the numbers of the paper.

It starts missing runs, resumes interrupted ones, and writes a report.
"""

import argparse
import sys
from pathlib import Path

from fastweights.commands._arguments import folder
from fastweights.commands.report import print_report
from fastweights.core.errors import ProcessDied, require, require_name
from fastweights.experiments.experiment import SANITY, Experiment
from fastweights.registry import EXPERIMENTS
from fastweights.training.distributed.torchrun import launched
from fastweights.training.settings._training import PRECISIONS, Hardware


def add(command: argparse.ArgumentParser) -> None:
    """Adds an experiment, the part of it to run, and the options of the machine."""
    names = "\n".join(f"  {name:<22} {EXPERIMENTS.describe(name).summary}" for name in EXPERIMENTS.names())
    command.epilog, command.formatter_class = f"experiments:\n{names}", argparse.RawDescriptionHelpFormatter
    command.add_argument("name", metavar="NAME", help="one of the experiments below")
    settings = command.add_mutually_exclusive_group()
    settings.add_argument(
        "--preset",
        default="cpu",
        help="smoke (seconds), cpu (default), paper (settings of the paper), or another preset of the experiment",
    )
    settings.add_argument(
        "--sanity", action="store_true", help="check in minutes that preset cpu holds back none of the compared models"
    )
    command.add_argument("--models", nargs="+", metavar="MODEL", help="only these of its models")
    command.add_argument("--columns", nargs="+", metavar="COLUMN", help="only these of its columns")
    command.add_argument("--seeds", type=int, metavar="N", help="number of seeds; the preset's if left out")
    command.add_argument(
        "--jobs", type=int, default=1, metavar="N", help="number of parallel processes; default: %(default)s"
    )
    devices = ["auto", "cpu", "cuda", "mps"]
    command.add_argument("--device", choices=devices, help="device of training; by default that of the recipe")
    command.add_argument("--devices", type=int, metavar="N", help="number of processes per run, each with one device")
    parts = "number of gradient accumulation steps per batch"
    command.add_argument("--gradient-accumulation-steps", type=int, metavar="N", help=parts)
    again = "recompute activations of blocks in the backward pass (gradient checkpointing)"
    command.add_argument("--gradient-checkpointing", action="store_const", const=True, help=again)
    each = "shard weights and optimizer state over the devices (FSDP)"
    command.add_argument("--fsdp", action="store_const", const=True, help=each)
    program = "compile blocks with torch.compile, which can be slower on a CPU"
    command.add_argument("--compile", action="store_const", const=True, help=program)
    half = "bf16-mixed for mixed precision, which can be slower on a CPU"
    command.add_argument("--precision", choices=PRECISIONS, help=f"{half}; by default that of the recipe")
    clusters = ["local", "slurm"]
    command.add_argument(
        "--cluster", choices=clusters, default="local", help="where runs are started; default: %(default)s"
    )
    command.add_argument("--folder", type=folder, default=Path("runs"), metavar="DIR", help="default: %(default)s")


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
        launched() == 1 or (options.jobs, options.cluster) == (1, "local"), "jobs", "1 under torchrun", options.jobs
    )
    devices = launched() if launched() > 1 else options.devices
    hardware = (
        options.gradient_accumulation_steps,
        options.gradient_checkpointing,
        options.fsdp,
        options.compile,
        options.precision,
    )
    where = Hardware(options.device, devices, *hardware)
    chosen = (options.models, options.columns, options.seeds, where)
    plan = make_plan(options.name, SANITY if options.sanity else options.preset, options.folder, *chosen)
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

    found = [check for check in checks(experiment, next(iter(collect(path).groups), None)) if check.reached is not None]
    print(*found, sep="\n")
    return all(check.passed for check in found)
