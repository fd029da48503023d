"""ProcGen: an agent for one game."""

from fastweights.core.measurements import OnValidation
from fastweights.core.metric import Display
from fastweights.experiments.claim import Claim, above, places
from fastweights.experiments.experiment import Experiment, Preset, Trial, table
from fastweights.recipes.irie2022._procgen import LABELS, NO_SANITY, NOTES
from fastweights.recipes.irie2022._procgen import trial as procgen

MODELS = {name: LABELS[name] for name in ("fake-srwm", "srwm")}
BASELINES = ("random actions", "a constant action")
GAMES = {"bigfish": "Bigfish", "starpilot": "Starpilot"}
DETAILS = {OnValidation(game): f"{label}, training levels" for game, label in GAMES.items()}


def trial(model: str, column: str, preset: str) -> Trial:
    """An agent for one game."""
    return procgen(model, {column: GAMES[column]}, False, 50, preset)


EXPERIMENT = Experiment(
    title="ProcGen, easy: experts for one game",
    source="Irie, Schlag, Csordas and Schmidhuber 2022, Sec. 4.3, Table 4",
    display=Display("return on test levels"),
    models=MODELS,
    columns=GAMES,
    published=table(tuple(GAMES), {"fake-srwm": ((15.8, 1.7), (52.9, 1.2)), "srwm": (None, (57.3, 1.6))}),
    presets={
        "smoke": Preset(("bigfish",), ("srwm",)),
        "cpu": Preset(("starpilot",), tuple(MODELS)),
        "paper": Preset(tuple(GAMES), tuple(MODELS), seeds=3),
    },
    trial=trial,
    details=DETAILS,
    published_details=table(tuple(DETAILS), {"fake-srwm": ((28.9, 0.9), (59.8, 0.7)), "srwm": (None, (64.0, 1.9))}),
    claims=(
        Claim(
            "On Starpilot, the self-modification mechanism yields improvements even in the single task case.",
            "Sec. 4.3",
            above(*places("starpilot", "srwm", "fake-srwm")),
        ),
        *(
            Claim(
                f"The agent learns {GAMES[game]}: its return is above that of random actions and of a constant action.",
                "",
                above(("srwm", game), *((baseline, game) for baseline in BASELINES)),
            )
            for game in GAMES
        ),
    ),
    notes=(*NOTES, "Agents for six games are those of Tables 3 and 6."),
    sanity=NO_SANITY,
)
