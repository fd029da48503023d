"""Episodes of trained agents, from their run folders."""

from contextlib import suppress
from pathlib import Path
from typing import Any

from fastweights.commands._arguments import require_kind
from fastweights.core.errors import InputError
from fastweights.core.files import write_atomically
from fastweights.experiments.load import load
from fastweights.experiments.load_run import trial_of
from fastweights.experiments.trust import TrustedCode
from fastweights.inspect.episode import Episode, analyze_episode
from fastweights.inspect.renderings import sheet
from fastweights.report.episodes import EPISODE
from fastweights.training.run_folder.run import Run
from fastweights.training.settings.actor_critic import ActorCritic

STEPS = 100
"""Maximum number of steps of an episode in a report."""


def render(folder: Path, layer: Any = None, seed: int = 0, max_steps: int = 300, env: str | None = None) -> Episode:
    """Records a test episode of an agent, or its first `max_steps` steps; `layer` and `env` are as in `load`.

    Raises:
        InputError: the folder is no run of an agent, or its environment is not installed.
    """
    trial = trial_of(Run.open(folder), TrustedCode(layer, env))
    settings = trial.training
    require_kind(isinstance(settings, ActorCritic), folder, str(trial.model).replace("-", " "), "an agent")
    assert isinstance(settings, ActorCritic)
    return analyze_episode(*load(folder, layer, env), seed, max_steps, settings.greedy)


def draw_episode(folder: Path) -> None:
    """Draws the episode of a run for a report, if its environment is installed."""
    with suppress(InputError):
        write_atomically(folder / EPISODE, sheet(render(folder, max_steps=STEPS), ""))
