"""ProcGen: one agent for four games that ask for a memory."""

from fastweights.experiments.experiment import Claim, Experiment, Preset, Trial, table
from fastweights.metric import SCORE
from fastweights.recipes.irie2022._procgen import LABELS, MEMORY, NOTES
from fastweights.recipes.irie2022._procgen import trial as procgen

MODELS = {name: LABELS[name] for name in ("delta-net", "sr-delta-net")}


def trial(model: str, column: str, preset: str) -> Trial:
    """One agent for all games."""
    return procgen(model, MEMORY, True, 800, preset)


EXPERIMENT = Experiment(
    title="ProcGen, memory: one agent for four games",
    source="Irie, Schlag, Csordas and Schmidhuber 2022, Appendix C.1, Table 5",
    metric=SCORE.told("percent", "normalised test score, %"),
    models=MODELS,
    columns={"memory": "4 games, memory"},
    published=table(
        ("memory",),
        {
            "delta-net": ((38.0, 4.1),),
            "sr-delta-net": ((38.5, 3.2),),
        },
    ),
    presets={
        "smoke": Preset(("memory",), ("sr-delta-net",)),
        "cpu": Preset(("memory",), tuple(MODELS)),
        "paper": Preset(("memory",), tuple(MODELS), seeds=3),
    },
    trial=trial,
    claims=(
        Claim(
            "The SR-DeltaNet scores more than the DeltaNet.",
            lambda mean: mean("sr-delta-net", "memory") > mean("delta-net", "memory"),
        ),
    ),
    notes=NOTES,
)
