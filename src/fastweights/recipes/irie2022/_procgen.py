"""Agents of ProcGen: networks and settings of the tables."""

from collections.abc import Mapping
from typing import Any

from fastweights.core.measurements import Detail, Key, OnValidation
from fastweights.core.metric import Display
from fastweights.experiments.claim import Claim, above
from fastweights.experiments.experiment import Experiment, Preset, Trial, table
from fastweights.training.settings.actor_critic import ActorCritic

LABELS = {
    "feed-forward": "Feed-forward",
    "lstm": "LSTM",
    "fake-srwm": "Fake SR",
    "delta-net": "DeltaNet",
    "srwm": "SRWM",
    "reset-srwm": "SRWM, reset",
    "sr-delta-net": "SR-DeltaNet",
}
SOFTMAX = {"feature_map": "softmax"}
NETWORKS: dict[str, dict[str, Any]] = {
    "feed-forward": {"layer": None},
    "lstm": {"layer": "lstm", "num_layers": 0, "d_model": 256, "num_heads": 1},
    "fake-srwm": {"layer": "fake-srwm", "num_heads": 8, "norm": "plain", "options": SOFTMAX},
    "delta-net": {"layer": "delta-net", "options": {"qk_norm": "sum-5"}},
    "srwm": {"layer": "srwm", "num_heads": 8, "norm": "plain", "options": SOFTMAX},
    "reset-srwm": {"layer": "no-carry-srwm", "num_heads": 8, "norm": "plain", "options": SOFTMAX},
    "sr-delta-net": {"layer": "sr-delta-net", "num_heads": 8, "norm": "plain", "options": SOFTMAX},
}
"""Two blocks of D = 128 with 512 units, without LayerNorm before self-referential layers, as in the authors' code. Each
self-referential matrix reads softmax(x), as stated for reinforcement learning (appendix B.2 and Eq. 5)."""

EASY = {game: game.capitalize() for game in ("bigfish", "fruitbot", "leaper", "maze", "plunder", "starpilot")}
MEMORY = {game: game.capitalize() for game in ("dodgeball", "heist", "maze", "miner")}
TRAINING: dict[str, dict[str, Any]] = {
    "smoke": {
        "batch_size": 12,
        "steps": 1,
        "evaluate_every": 1,
        "rollout_length": 2,
        "episodes": 1,
        "max_episode_steps": 3,
    },
    "cpu": {
        "batch_size": 24,
        "steps": 5_000,
        "evaluate_every": 500,
        "rollout_length": 20,
        "episodes": 48,
        "test_episodes": 192,
        "greedy": False,
        "max_episode_steps": 1_000,
        "epsilon": 1e-5,
        "initial_square_avg": 0.01,
    },
    "paper": {
        "batch_size": 32,
        "environments": 48,
        "mode": "impala",
        "num_actors": 4,
        "evaluate_every": 1_250,
    },
}
ON_TRAINING_LEVELS = OnValidation("score")
"""Key of the score on training levels."""

SR_IS_BETTER = Claim(
    "The SRWM variant achieves a better training score than the DeltaNet baseline.",
    "Appendix C.1",
    above(("sr-delta-net", ON_TRAINING_LEVELS), ("delta-net", ON_TRAINING_LEVELS)),
)

NOTES = (
    "In preset paper 48 environments act in 4 processes instead of the paper's 48, in parallel to a learner that takes "
    "the oldest 32 of their rollouts. In preset cpu acting and learning alternate. As in the public code, gradients "
    "through fast weights end after one step, those of the LSTM after a rollout.",
    "Preset cpu has the smaller vision encoder of A3C and 2.4 M steps. Gradients are sums over the time steps of a "
    "batch: 480 in preset cpu instead of 1,600. Its RMSProp has an epsilon of 1e-5 instead of 0.01. Its mean of "
    "squares starts at 0.01, about the square of a gradient: with 1, the first 500 training steps would change "
    "almost nothing.",
    "In preset cpu episodes use random actions of the policy, because so early in training the likeliest action is "
    "almost always the same. In Bigfish a constant action leads to a corner, where an agent survives.",
    "All scores are of the last weights, and in preset paper with the likeliest action. A test score is the mean over "
    "the paper's three sets of 200 levels. Preset paper evaluates 200 episodes of every game on each set, and on the "
    "training levels. The deviation is over seeds; the paper's is over the nine pairs of a seed and a set.",
    "In the authors' code, blocks of self-referential layers have an unused LayerNorm: the paper's numbers of "
    "parameters count it, ours do not.",
    "Fake SR reads softmax(x), like the y part of the SRWM; in the public code it reads x. The public code of "
    "SR-DeltaNet does not run, so that ours follows the text.",
    "The state of the SRWM with resets is set to its initial value every 50 steps, as in the paper's text; the code "
    "behind the paper's number does so at every step.",
)


SETS: dict[Key, str] = {
    ON_TRAINING_LEVELS: "training levels",
    **{Detail("score", str(first)): f"levels {first} to {first + 199}" for first in (1000, 1200, 1400)},
}
"""Labels of the scores by set of levels."""


def _returns(game: str, label: str) -> dict[Key, str]:
    """Labels of the returns of a game."""
    return {OnValidation(game): f"{label}, training levels", game: f"{label}, test levels"}


def trial(model: str, games: Mapping[str, str], memory: bool, millions: int, preset: str) -> Trial:
    """The published settings, reduced for fewer cores except in preset paper."""
    rollout, levels = (100, 500) if memory else (50, 200)
    settings = dict(TRAINING[preset])
    if preset == "paper":
        settings |= {"rollout_length": rollout, "steps": millions * 1_000_000 // (settings["batch_size"] * rollout)}
        settings |= {"episodes": 20 * len(games), "test_episodes": 200 * len(games)}
    bptt_length = int(model not in ("lstm", "feed-forward"))
    fixed: dict[str, Any] = {"bootstrap_time_limits": False, "keep": "last", "bptt_length": bptt_length}
    training = ActorCritic(**{"learning_rate": 6e-4, **fixed, **settings})
    task = {"games": list(games), "distribution": "memory" if memory else "easy", "levels": levels}
    vision = {"vision": "a3c"} if preset == "cpu" else {}
    return Trial("procgen", task, "agent", {**NETWORKS[model], **vision}, training)


NO_SANITY = "An agent with images as observations needs hours before its score differs from that of random actions."


def one_for_all(
    title: str,
    place: str,
    memory: bool,
    published: Mapping[str, tuple[Any, Any]],
    claims: tuple[Claim, ...],
    by_game: Mapping[str, tuple[Any, ...]] | None = None,
) -> Experiment:
    """One agent for all games of a distribution.

    Args:
        title: Title of the table.
        place: Its place in the paper.
        memory: Whether the games are those of the memory distribution, or the easy ones.
        published: Scores on training levels and on test levels, by model.
        claims: Sentences of the paper.
        by_game: Returns by model, if there is a row for each game: on training and test levels, game by game.
    """
    games, column, millions = (MEMORY, "memory", 800) if memory else (EASY, "easy", 300)
    models = {name: LABELS[name] for name in published}

    each = {name: text for game, label in games.items() for name, text in _returns(game, label).items()}
    details = {**SETS, **(each if by_game else {})}
    training = table((ON_TRAINING_LEVELS,), {name: scores[:1] for name, scores in published.items()})

    def trial_of(model: str, _: str, preset: str) -> Trial:
        return trial(model, games, memory, millions, preset)

    return Experiment(
        title=title,
        source=f"Irie, Schlag, Csordas and Schmidhuber 2022, {place}",
        display=Display("normalised test score, %", "percent"),
        models=models,
        columns={column: f"{len(games)} games, {column}"},
        published=table((column,), {name: scores[1:] for name, scores in published.items()}),
        presets={
            "smoke": Preset((column,), ("sr-delta-net" if memory else "srwm",)),
            "cpu": Preset((column,), tuple(models)),
            "paper": Preset((column,), tuple(models), seeds=3),
        },
        trial=trial_of,
        sanity=NO_SANITY,
        claims=claims,
        details=details,
        plain=each.keys(),
        published_details=training | table(tuple(each), by_game or {}),
        notes=NOTES,
    )
