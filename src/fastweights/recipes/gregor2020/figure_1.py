"""Learning to remember, by what updates neurons and synapses: how well, how soon, and from how far back."""

import math
from collections.abc import Callable
from statistics import fmean

from fastweights.experiments.experiment import Claim, Experiment, Pairs, Preset
from fastweights.metric import BITS
from fastweights.recipes.gregor2020._lives import GRID, LARGE, LSTMS, MORE, NETWORKS, NOTES, OPERATORS, label, trial

DELAYS = ("10", "20", "40", "80")
NOTHING = math.log2(27)
"""Bits a symbol of who knows nothing."""

Mean = Callable[[str, str], float]


def works(mean: Mean, detail: str) -> dict[str, bool]:
    """Which pairs are nearer to the best one than to nothing."""
    found = {name: mean(name, detail) for name in GRID}
    return {name: bits < (min(found.values()) + NOTHING) / 2 for name, bits in found.items()}


def of(mean: Mean, detail: str, part: int, operator: str) -> float:
    """The mean over all pairs with an operator for bodies (part 0) or synapses (part 1)."""
    return fmean(mean(name, detail) for name in GRID if name.split("+")[part] == operator)


def is_best(mean: Mean, detail: str, part: int, operator: str) -> bool:
    """Whether an operator is better than all others in that mean."""
    return of(mean, detail, part, operator) == min(of(mean, detail, part, other) for other in OPERATORS)


def mlps_fail(mean: Mean) -> bool:
    """Whether most pairs with MLP synapses do, at delay 80."""
    fails = [not fine for name, fine in works(mean, "final_80").items() if name.endswith("+mlp")]
    return sum(fails) > len(fails) / 2


EXPERIMENT = Experiment(
    title="What neurons and synapses learn to remember",
    source="Gregor 2020, Sec. 7, Figure 1",
    metric=BITS.told("plain", "bits a symbol of the past, in a text read once"),
    models={name: label(name) for name in (*NETWORKS, *LSTMS)},
    columns={delay: f"delay {delay}" for delay in DELAYS},
    published={},
    presets={
        "smoke": Preset(("10",), ("lstm+gated", "lstm-16")),
        "cpu": Preset(("10", "80"), (*GRID, *LARGE, *MORE, *LSTMS)),
        "paper": Preset(DELAYS, (*GRID, *LARGE, *MORE, *LSTMS), seeds=3),
    },
    trial=trial,
    claims=(
        Claim(
            "At delay 10 all pairs but one or two work in the end.",
            lambda mean: sum(works(mean, "final_10").values()) >= len(GRID) - 2,
        ),
        Claim("At delay 80 GATED synapses are best in the end.", lambda mean: is_best(mean, "final_80", 1, "gated")),
        Claim("At delay 80 most pairs with MLP synapses fail.", mlps_fail),
        Claim("At delay 80 LSTM bodies are best early.", lambda mean: is_best(mean, "early_80", 0, "lstm")),
        Claim(
            "At delay 80 LSTM bodies and GATED synapses are better with 14 components than with 6.",
            lambda mean: mean("lstm+gated-14", "final_80") < mean("lstm+gated", "final_80"),
        ),
        Claim(
            "At delay 80 the same with 14 components is better than both LSTMs.",
            lambda mean: mean("lstm+gated-14", "final_80") < min(mean(name, "final_80") for name in LSTMS),
        ),
        Claim(
            "At delay 80 more hidden neurons gain less than a tenth of a bit.",
            lambda mean: min(mean(name, "final_80") for name in MORE) > mean("lstm+gated", "final_80") - 0.1,
        ),
    ),
    notes=NOTES,
    axis="delay",
    details={
        f"{when}_{delay}": f"the life, {words}, delay {delay}"
        for delay in DELAYS
        for when, words in {"early": "first 200,000 symbols", "final": "at its end"}.items()
    },
    pairs=Pairs(
        ("bodies", OPERATORS),
        ("synapses", OPERATORS),
        lambda body, synapse: f"{body}+{synapse}",
        lines=("lstm+gated", "gated+gated"),
    ),
)
