"""Associative retrieval with 50 units: the test negative log-likelihood, and how training gets there."""

from dataclasses import replace

from fastweights.experiments.experiment import Claim, Preset
from fastweights.metric import LOSS
from fastweights.recipes.ba2016.table_1 import EXPERIMENT as TABLE_1
from fastweights.recipes.ba2016.table_1 import MODELS

UNITS = "50"
OTHERS = ("lstm", "associative-lstm")

EXPERIMENT = replace(
    TABLE_1,
    title="Associative retrieval with 50 recurrent units: learning curves",
    source="Ba, Hinton, Mnih, Leibo and Ionescu 2016, Sec. 4.1, Figure 2",
    metric=LOSS.told("plain", "test negative log-likelihood, nats"),
    columns={UNITS: TABLE_1.columns[UNITS]},
    published={},
    presets={
        "smoke": Preset((UNITS,), ("fast-weight-rnn", "lstm")),
        "cpu": Preset((UNITS,), tuple(MODELS), seeds=3),
        "paper": Preset((UNITS,), tuple(MODELS), seeds=3),
    },
    claims=(
        Claim(
            "Fast weights come to a lower loss than the LSTMs.",
            lambda mean: mean("fast-weight-rnn", UNITS) < min(mean(model, UNITS) for model in OTHERS),
        ),
        Claim("The IRNN does not begin to learn.", lambda mean: mean("irnn", UNITS) > 1),
    ),
    notes=("The paper has curves and no numbers; which of them gets down sooner is to be seen below.", *TABLE_1.notes),
)
