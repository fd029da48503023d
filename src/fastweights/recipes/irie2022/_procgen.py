"""Agents of ProcGen: networks and settings that the tables share."""

from collections.abc import Mapping
from typing import Any

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
    "lstm": {"layer": "lstm", "depth": 0, "d_model": 256, "heads": 1},
    "fake-srwm": {"layer": "fake-srwm", "heads": 8, "norm": "plain"},
    "delta-net": {"layer": "delta-net", "options": {"normaliser": "sum-5"}},
    "srwm": {"layer": "srwm", "heads": 8, "norm": "plain", "options": SOFTMAX},
    "reset-srwm": {"layer": "no-carry-srwm", "heads": 8, "norm": "plain", "options": SOFTMAX},
    "sr-delta-net": {"layer": "sr-delta-net", "heads": 8, "norm": "plain"},
}
"""Two blocks of D = 128 with 512 units: no LayerNorm in front of what is self-referential, as in the authors' code."""

EASY = {game: game.capitalize() for game in ("bigfish", "fruitbot", "leaper", "maze", "plunder", "starpilot")}
MEMORY = {game: game.capitalize() for game in ("dodgeball", "heist", "maze", "miner")}
TRAINING: dict[str, dict[str, Any]] = {
    "smoke": {"batch_size": 12, "steps": 1, "evaluate_every": 1, "unroll": 2, "episodes": 1, "longest": 3},
    "cpu": {
        "batch_size": 12,
        "steps": 4_000,
        "evaluate_every": 1_000,
        "unroll": 20,
        "episodes": 48,
        "longest": 1_000,
        "epsilon": 1e-5,
        "squares": 1.0,
    },
    "paper": {"batch_size": 48, "evaluate_every": 1_250, "episodes": 600},
}
SR_IS_BETTER = Claim(
    "The SRWM variant achieves a better training score than the DeltaNet baseline.",
    "Appendix C.1",
    above(("sr-delta-net", "memory"), ("delta-net", "memory")),
)
"""The report compares the scores on test levels, which the paper finds rather close."""

NOTES = (
    "48 environments take turns with the learner, which learns from all of them; the paper's 48 actors run beside a "
    "learner that takes 32 of their unrolls at a time. As in the public code, gradients through fast weights end after "
    "one step, those of the LSTM after an unroll.",
    "cpu sees through the smaller network of A3C. Gradients are sums over an update, and one of cpu has a tenth of the "
    "steps: its RMSProp has an epsilon of 1e-5 in place of 0.01.",
    "Scores are on the 600 levels of the paper's three sets for the test, by the likeliest action; the deviation is "
    "over seeds. Those on levels for training are the scores on validation data in runs.jsonl.",
    "In the authors' code blocks of self-referential layers have a LayerNorm that nothing goes through: the paper's "
    "numbers of parameters count it, ours do not.",
    "The SRWM that is reset begins anew every 50 steps, as the paper has it; the code behind its number does so at "
    "every step.",
)


def trial(model: str, games: Mapping[str, str], memory: bool, millions: int, preset: str) -> Trial:
    """The published settings, cut down for fewer cores."""
    unroll, levels = (100, 500) if memory else (50, 200)
    settings = dict(TRAINING[preset])
    if preset == "paper":
        settings |= {"unroll": unroll, "steps": millions * 1_000_000 // (settings["batch_size"] * unroll)}
    truncate = int(model not in ("lstm", "feed-forward"))
    training = ActorCritic(bootstrap_time_limits=False, learning_rate=6e-4, truncate=truncate, **settings)
    task = {"games": list(games), "distribution": "memory" if memory else "easy", "levels": levels}
    eye = {"vision": "a3c"} if preset == "cpu" else {}
    return Trial("procgen", task, "agent", {**NETWORKS[model], **eye}, training)


def one_for_all(
    title: str,
    place: str,
    memory: bool,
    published: Mapping[str, Any],
    claims: tuple[Claim, ...],
    by_game: Mapping[str, tuple[Any, ...]] | None = None,
) -> Experiment:
    """One agent for all games, easy ones or those that ask for a `memory`; with `by_game`, their scores one by one.

    The rows of `published` are the models, with a score as in `table`.
    """
    games, column, millions = (MEMORY, "memory", 800) if memory else (EASY, "easy", 300)
    models = {name: LABELS[name] for name in published}

    def trial_of(model: str, _: str, preset: str) -> Trial:
        return trial(model, games, memory, millions, preset)

    return Experiment(
        title=title,
        source=f"Irie, Schlag, Csordas and Schmidhuber 2022, {place}",
        display=Display("normalised test score, %", "percent"),
        models=models,
        columns={column: f"{len(games)} games, {column}"},
        published=table((column,), {name: (score,) for name, score in published.items()}),
        presets={
            "smoke": Preset((column,), ("sr-delta-net" if memory else "srwm",)),
            "cpu": Preset((column,), tuple(models)),
            "paper": Preset((column,), tuple(models), seeds=3),
        },
        trial=trial_of,
        claims=claims,
        details=games if by_game else {},
        published_details=table(tuple(games), by_game or {}),
        notes=NOTES,
    )
