"""One dropout of words for all reduced word-level language models, chosen on validation data."""

from fastweights.core.metric import Display
from fastweights.experiments.experiment import Experiment, Preset, Trial
from fastweights.recipes.schlag2021.table_2 import EXPERIMENT as TABLE_2
from fastweights.recipes.schlag2021.table_2 import trial as table_2

MODELS = {model: TABLE_2.models[model] for model in ("transformer", "linear", "delta")}
COLUMNS = {"0": "none", "0.1": "0.1", "0.2": "0.2", "0.3": "0.3"}


def trial(model: str, column: str, preset: str) -> Trial:
    """A small model of Table 2 with another dropout of words."""
    one = table_2(model, "small", preset)
    return one._replace(model_options={**one.model_options, "word_dropout": float(column)})


EXPERIMENT = Experiment(
    title="Word dropout for small word-level language models",
    source="The search behind schlag2021/table-2",
    display=Display("validation perplexity", data="validation"),
    models=MODELS,
    columns=COLUMNS,
    published={},
    presets={
        "smoke": Preset(("0", "0.1"), ("delta",)),
        "cpu": Preset(tuple(COLUMNS), tuple(MODELS), seeds=2),
    },
    trial=trial,
    notes=(
        "The papers train on 100 million words without such dropout. Preset cpu trains on 0.3 million words for nine "
        "epochs, and the Transformer overfits. All models have the same probability.",
    ),
    sanity="A search needs no check: each dropout is a column, so that a model that never learns is visible.",
)
