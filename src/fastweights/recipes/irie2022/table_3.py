"""ProcGen: one agent for six games."""

from fastweights.experiments.experiment import Claim, Experiment, Preset, Trial, table
from fastweights.metric import SCORE
from fastweights.recipes.irie2022._procgen import EASY, LABELS, NOTES
from fastweights.recipes.irie2022._procgen import trial as procgen

MODELS = {name: LABELS[name] for name in ("feed-forward", "lstm", "fake-srwm", "delta-net", "srwm")}


def trial(model: str, column: str, preset: str) -> Trial:
    """One agent for all games."""
    return procgen(model, EASY, False, 300, preset)


EXPERIMENT = Experiment(
    title="ProcGen, easy: one agent for six games",
    source="Irie, Schlag, Csordas and Schmidhuber 2022, Sec. 4.3, Table 3",
    metric=SCORE.told("percent", "normalised test score, %"),
    models=MODELS,
    columns={"easy": "6 games, easy"},
    published=table(
        ("easy",),
        {
            "feed-forward": ((16.4, 1.6),),
            "lstm": ((15.7, 1.6),),
            "fake-srwm": ((15.3, 1.9),),
            "delta-net": ((18.6, 1.7),),
            "srwm": ((20.0, 1.8),),
        },
    ),
    presets={
        "smoke": Preset(("easy",), ("srwm",)),
        "cpu": Preset(("easy",), tuple(MODELS)),
        "paper": Preset(("easy",), tuple(MODELS), seeds=3),
    },
    trial=trial,
    claims=(
        Claim("The SRWM scores more than Fake SR.", lambda mean: mean("srwm", "easy") > mean("fake-srwm", "easy")),
        Claim("The SRWM scores more than the DeltaNet.", lambda mean: mean("srwm", "easy") > mean("delta-net", "easy")),
        Claim("The DeltaNet scores more than the LSTM.", lambda mean: mean("delta-net", "easy") > mean("lstm", "easy")),
    ),
    notes=NOTES,
)
