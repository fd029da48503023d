"""ProcGen: an agent for one game."""

from fastweights.core.metric import Display
from fastweights.experiments.claim import Claim, above, places
from fastweights.experiments.experiment import Experiment, Preset, Trial, table
from fastweights.recipes.irie2022._procgen import LABELS, NOTES
from fastweights.recipes.irie2022._procgen import trial as procgen

MODELS = {name: LABELS[name] for name in ("fake-srwm", "srwm")}
RANDOM = "random actions"
GAMES = {"bigfish": "Bigfish", "starpilot": "Starpilot"}


def trial(model: str, column: str, preset: str) -> Trial:
    """An expert."""
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
        "cpu": Preset(("bigfish",), tuple(MODELS)),
        "paper": Preset(tuple(GAMES), tuple(MODELS), seeds=3),
    },
    trial=trial,
    claims=(
        Claim(
            "On Starpilot, the self-modification mechanism yields improvements even in the single task case.",
            "Sec. 4.3",
            above(*places("starpilot", "srwm", "fake-srwm")),
        ),
        *(
            Claim(
                f"{GAMES[game]} is learned: the return is above twice that of random actions.",
                "",
                above(("srwm", game), (RANDOM, game), times=2.0),
            )
            for game in GAMES
        ),
    ),
    notes=(*NOTES, "Agents for six games are those of Tables 3 and 6."),
)
