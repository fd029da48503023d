"""Associative retrieval with 50 units: test negative log-likelihood and learning curves."""

from dataclasses import replace

from fastweights.core.metric import Display
from fastweights.experiments.claim import Claim, Until, above, below
from fastweights.experiments.experiment import Preset, Sanity
from fastweights.recipes.ba2016.table_1 import EASY, FAST, LSTMS, MODELS
from fastweights.recipes.ba2016.table_1 import EXPERIMENT as TABLE_1

UNITS = "50"
HALF = 0.5
"""Loss, in nats, below the plateau of all learning curves."""

EXPERIMENT = replace(
    TABLE_1,
    title="Associative retrieval with 50 recurrent units: learning curves",
    source="Ba, Hinton, Mnih, Leibo and Ionescu 2016, Sec. 4.1, Figure 2",
    display=Display("test negative log-likelihood, nats", loss=True),
    columns={UNITS: TABLE_1.columns[UNITS]},
    published={},
    presets={
        "smoke": Preset((UNITS,), ("fast-weight-rnn", "lstm")),
        "cpu": Preset((UNITS,), tuple(MODELS), seeds=3),
        "paper": Preset((UNITS,), tuple(MODELS), seeds=3),
    },
    claims=(
        Claim(
            "The model with fast weights also converges faster than the LSTM models.",
            "Sec. 4.1",
            below(Until(FAST, UNITS, HALF), *(Until(model, UNITS, HALF) for model in LSTMS)),
        ),
        Claim("The IRNN stays on a plateau above one nat.", "Figure 2", above(("irnn", UNITS), 1.0)),
    ),
    notes=("The paper has curves and no numbers; compare the speed of convergence under Curves.", *TABLE_1.notes),
    sanity=Sanity(columns=(UNITS,), bound=0.8, **EASY),
)
