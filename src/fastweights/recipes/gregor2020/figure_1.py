"""Learning to remember with different operators of neurons and synapses, over delays."""

import math

from fastweights.core.measurements import Detail
from fastweights.core.metric import Display
from fastweights.experiments.claim import Above, Claim, Each, below
from fastweights.experiments.experiment import Experiment, PairMap, Preset, Sanity
from fastweights.recipes.gregor2020._trials import GRID, LARGE, LSTMS, MORE, NETWORKS, NOTES, OPERATORS, label, trial

DELAYS = ("10", "20", "40", "80")
EARLY, FINAL = Detail("early", "80"), Detail("final", "80")
HALF = math.log2(27) / 2
"""Half of the bits per symbol at chance level. A pair of operators works if its loss is lower."""


def pairs(part: int, operator: str, detail: Detail) -> Each:
    """All pairs with an operator for bodies (part 0) or synapses (part 1), one sample per pair."""
    return Each(tuple((name, detail) for name in GRID if name.split("+")[part] == operator))


def best(part: int, operator: str, detail: Detail) -> tuple[Above, ...]:
    """Comparisons that hold if an operator is better than every other one, over all partners."""
    others = (pairs(part, other, detail) for other in OPERATORS if other != operator)
    return below(pairs(part, operator, detail), *others)


EXPERIMENT = Experiment(
    title="What neurons and synapses learn to remember",
    source="Gregor 2020, Sec. 7, Figure 1",
    display=Display("bits per past symbol, in one pass over the text"),
    models={name: label(name) for name in (*NETWORKS, *LSTMS)},
    columns={delay: f"delay {delay}" for delay in DELAYS},
    published={},
    presets={
        "smoke": Preset(("10",), ("lstm+gated", "lstm-16")),
        "cpu": Preset(DELAYS, (*GRID, *LARGE, *MORE, *LSTMS), seeds=3),
        "paper": Preset(DELAYS, (*GRID, *LARGE, *MORE, *LSTMS), seeds=3),
    },
    trial=trial,
    claims=(
        Claim(
            "For short delays, essentially all combinations succeed in reaching good performance (except MLP-tanh x "
            "MLP): 34 of 36.",
            "Sec. 7",
            tuple(part for name in GRID for part in below((name, Detail("final", "10")), HALF)),
            at_least=len(GRID) - 2,
        ),
        Claim(
            "For longer delays, the gated network for the weight update consistently performs the best.",
            "Sec. 7",
            best(1, "gated", FINAL),
        ),
        Claim(
            "MLP networks for weight updates generally fail.",
            "Sec. 7",
            tuple(Above(name, HALF) for name in pairs(1, "mlp", FINAL).places),
            at_least=4,
        ),
        Claim(
            "Early in training, for longer delays, the LSTM update on h produces stronger performance than MLP and "
            "GATED.",
            "Sec. 7",
            below(pairs(0, "lstm", EARLY), *(pairs(0, other, EARLY) for other in ("mlp", "mlp-tanh", "gated"))),
        ),
        Claim(
            "The larger state size (14 compared to 6) clearly works better.",
            "Sec. 7",
            tuple(Above((name, FINAL), (f"{name}-14", FINAL)) for name in ("lstm+gated", "gated+gated")),
        ),
        Claim(
            "For delays up to 80, the system works significantly better than the LSTMs.",
            "Sec. 7",
            below(("lstm+gated-14", FINAL), *((name, FINAL) for name in LSTMS)),
        ),
        Claim(
            "The performance does not increase with the number of neurons: by less than a tenth of a bit.",
            "Sec. 7",
            tuple(Above((name, FINAL), ("lstm+gated", FINAL), by=-0.1) for name in MORE),
        ),
    ),
    notes=NOTES,
    best=True,
    axis="delay",
    details={
        Detail(when, delay): f"training, {words}, delay {delay}"
        for delay in DELAYS
        for when, words in {"early": "first 200,000 symbols", "final": "at its end"}.items()
    },
    pairs=PairMap(
        ("bodies", OPERATORS),
        ("synapses", OPERATORS),
        lambda body, synapse: f"{body}+{synapse}",
        lines=("lstm+gated", "gated+gated"),
    ),
    sanity=Sanity(
        columns=("10",),
        models=(*GRID, *LSTMS),
        # Chance level is log2(27) = 4.75 bits. Pairs whose gradients vanish stay above 4.4.
        bound=4.0,
        task={"characters": 60_000},
        training={"steps": 4_000, "evaluate_every": 1_000},
    ),
)
