"""A new kind of experiment needs new files only: task, model, settings, training loop and recipe."""

import filecmp
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

import fastweights

FILES = {
    "tasks/kinds/bandits.py": '''"""Bandits: arms with different rewards."""

from typing import Any, ClassVar

import torch
from torch import Tensor

from fastweights.core.metric import Metric
from fastweights.tasks.kinds.task import Task


class Bandits(Task):
    """Arms with a fixed reward each."""

    main_metric: ClassVar[Metric] = Metric("reward", low_is_good=False)
    arms: int

    @property
    def arguments(self) -> tuple[Any, ...]:
        return (self.arms,)

    def pull(self, arms: Tensor) -> Tensor:
        """Rewards `[B]` of arms `[B]`."""
        return torch.arange(self.arms)[arms] / self.arms
''',
    "tasks/slot_machine.py": '''"""A row of arms."""

from dataclasses import dataclass

from fastweights.tasks.kinds.bandits import Bandits


@dataclass(frozen=True)
class SlotMachine(Bandits):
    """n -> n / arms.

    Args:
        arms: Number of arms.

    Source: an example of 2026.
    """

    arms: int = 4
''',
    "models/gambler.py": '''"""A policy over arms."""

import torch
from torch import nn


class Gambler(nn.Module):
    """p = softmax(w).

    Args:
        habit: Initial logit of the first arm.
    """

    def __init__(self, arms: int, habit: float = 0.0) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.zeros(arms))
        nn.init.constant_(self.weight[:1], habit)

    def forward(self, plays: int) -> torch.Tensor:
        return self.weight.log_softmax(0).expand(plays, -1)
''',
    "training/settings/gambling.py": '''"""Settings of `loops/gambling.py`."""

from dataclasses import dataclass

from fastweights.training.settings._training import Training, require_positive


@dataclass(frozen=True, kw_only=True)
class Gambling(Training):
    """Settings of policy gradients.

    Args:
        learning_rate: Learning rate of gradient ascent.
    """

    learning_rate: float

    def __post_init__(self) -> None:
        super().__post_init__()
        require_positive(self, ("learning_rate",))
''',
    "training/loops/gambling.py": '''"""Gambling: policy gradients on a bandit."""

import torch

from fastweights.training.run_folder.result import Result
from fastweights.training.session import Evaluation, Session


def train(session: Session) -> None:
    """Trains until the last step."""
    settings, task = session.settings, session.task
    model, optimiser = session.set_up(torch.optim.SGD(session.model.parameters(), settings.learning_rate))
    session.resume(())
    with session.running():
        while not session.progress.stopped:
            logarithms = model(settings.batch_size)
            arms = logarithms.exp().multinomial(1)
            loss = -(task.pull(arms[:, 0]) * logarithms.gather(1, arms)[:, 0]).mean()
            optimiser.zero_grad()
            session.fabric.backward(loss)
            optimiser.step()
            session.count(loss.item())
            if session.evaluation_is_due:
                session.record_evaluation(Evaluation(measure(model, task)))
            session.end_step()


def finish(session: Session) -> Result:
    """Expected reward of the policy."""
    won = measure(session.fabric.setup_module(session.model), session.task)
    return session.result(won, won, {"the best arm": 1 - 1 / session.task.arms})


def show(session: Session, result: Result, console) -> None:
    """Prints the result."""
    console.print(f"{session.name} wins {result.test['reward']:.3f} a play.")


@torch.no_grad()
def measure(model, task):
    reward = float((model(1).exp()[0] * task.pull(torch.arange(task.arms))).sum())
    return {"reward": reward, "loss": -reward}
''',
    "recipes/example2026/__init__.py": '"""An example."""\n',
    "recipes/example2026/casino.py": '''"""A casino: rewards of two initial policies."""

from fastweights.experiments.claim import Claim, above
from fastweights.experiments.experiment import Experiment, Preset, Trial
from fastweights.core.metric import Display
from fastweights.training.settings.gambling import Gambling


def trial(model, column, preset):
    options = {"habit": {"stubborn": 5.0, "open": 0.0}[model]}
    settings = Gambling(steps=40, batch_size=16, evaluate_every=10, learning_rate=0.5)
    return Trial("slot-machine", {"arms": int(column)}, "gambler", options, settings)


EXPERIMENT = Experiment(
    title="Winnings",
    source="An example of 2026",
    display=Display("reward, %", "percent"),
    models={"stubborn": "Stubborn", "open": "Open-minded"},
    columns={"3": "3 arms", "4": "4 arms"},
    published={},
    presets={name: Preset(("3", "4"), ("stubborn", "open")) for name in ("smoke", "cpu")},
    trial=trial,
    claims=(Claim("An open mind wins more.", "", above(("open", "3"), ("stubborn", "3"))),),
)
''',
}
NAME = "example2026/casino"
RUN = "runs/example2026/casino/smoke/open/3/seed-1"


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """Copy of the package with the additional files."""
    folder = tmp_path_factory.mktemp("package")
    shutil.copytree(
        Path(fastweights.__file__).parent, folder / "fastweights", ignore=shutil.ignore_patterns("__pycache__")
    )
    for name, text in FILES.items():
        path = folder / "fastweights" / name
        path.parent.mkdir(exist_ok=True)
        path.write_text(text)
    return folder


@pytest.fixture(scope="module")
def python(folder):
    """Function that runs Python with the copy of the package."""
    environment = os.environ | {"PYTHONPATH": str(folder), "OMP_NUM_THREADS": "1", "PYTEST_ADDOPTS": ""}

    def run(*arguments):
        command = [sys.executable, *map(str, arguments)]
        result = subprocess.run(command, capture_output=True, text=True, cwd=folder, env=environment, timeout=300)
        assert result.returncode == 0, result.stdout[-2000:] + result.stderr[-2000:]
        return result.stdout

    return run


@pytest.fixture(scope="module")
def output(python):
    """Output of the command of the new experiment."""
    return python("-m", "fastweights.cli", "reproduce", NAME, "--preset", "smoke", "--columns", "3", "--seeds", "2")


def test_no_file_of_the_library_is_edited(folder):
    def edited(compared):
        return [*compared.diff_files, *compared.left_only, *(f for c in compared.subdirs.values() for f in edited(c))]

    ignored = ["__pycache__"]
    assert not edited(filecmp.dircmp(Path(fastweights.__file__).parent, folder / "fastweights", ignored))


def test_the_new_parts_are_listed(python):
    assert "slot-machine" in python("-m", "fastweights.cli", "list", "tasks")
    assert NAME in python("-m", "fastweights.cli", "list", "experiments")


def test_the_new_experiment_runs_and_has_a_report(output, folder):
    assert "4 of 4: " in output
    text = (folder / "runs" / NAME / "smoke" / "report.md").read_text()
    numbers = ("Supported (ours): An open mind wins more.", "| the best arm | 66.67 |", "reward 0.")
    for part in (
        *numbers,
        "Learning rate of gradient ascent.",
        "Maximum number of training steps.",
        "Initial logit of the first arm.",
        "Number of arms.",
    ):
        assert part in text, text


@pytest.mark.slow
def test_runs_of_the_new_experiment_can_be_resumed_and_evaluated(output, python, folder):
    before = (folder / RUN / "result.json").read_bytes()
    assert "wins 0." in python("-m", "fastweights.cli", "evaluate", RUN)
    assert (folder / RUN / "result.json").read_bytes() == before
    (folder / RUN / "result.json").unlink()
    python("-m", "fastweights.cli", "reproduce", NAME, "--preset", "smoke", "--columns", "3", "--jobs", "2")
    assert (folder / RUN / "result.json").read_bytes() == before


def test_the_best_weights_are_those_with_the_highest_reward(output, python):
    """Only the metric of the task states that high rewards are good."""
    code = f"""
import fastweights
from pathlib import Path
from fastweights.training.run_folder.run import Run
model, task = fastweights.load({RUN!r})
assert (task.arms, len(model.weight)) == (3, 3)
run = Run(Path({RUN!r}))
won = [line["validation"]["reward"] for line in run.metrics()]
assert run.result().test["reward"] == max(won) > won[0], won
"""
    python("-c", code)


@pytest.mark.slow
def test_the_contract_tests_cover_the_new_experiment(python):
    tests = [Path(__file__).with_name(name) for name in ("test_experiments.py", "test_report_page.py")]
    out = python("-m", "pytest", "-q", "-k", "casino", *tests, "-p", "no:cacheprovider")
    assert int(out.splitlines()[-1].split(" passed")[0].split()[-1]) >= 5, out[-2000:]
