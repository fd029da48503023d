"""Learning curves on test data, for two figures of the paper."""

from dataclasses import replace
from typing import Any

from fastweights.experiments.claim import Claim, above, places
from fastweights.experiments.experiment import Experiment, Preset, Trial
from fastweights.recipes.irie2022 import table_1
from fastweights.recipes.irie2022._networks import MODELS

SHOWN = ("srwm", "delta-net")


def figure(number: int, column: str, best: float) -> Experiment:
    """A figure: the SRWM with Conv-4 in a column of Table 1, with a test at every evaluation."""
    label = table_1.COLUMNS[column].label

    def trial(model: str, column: str, preset: str) -> Trial:
        one = table_1.trial(model, column, preset)
        # As many episodes as for validation, because the test is as frequent.
        episodes = {"test_size": one.task_options["validation_size"]}
        training: Any = one.training
        training = replace(training, test_curve=True)
        return one._replace(task_options={**one.task_options, **episodes}, training=training)

    return replace(
        table_1.EXPERIMENT,
        title=f"Training curves, {label}: test accuracy at every evaluation",
        source=f"Irie, Schlag, Csordas and Schmidhuber 2022, appendix B.3, Figure {number}",
        models={model: MODELS[model] for model in SHOWN},
        columns={column: label},
        published={place: score for place, score in table_1.EXPERIMENT.published.items() if place == ("srwm", column)},
        presets={
            "smoke": Preset((column,), ("srwm",)),
            "cpu": Preset((column,), SHOWN, seeds=3),
            "paper": Preset((column,), SHOWN),
        },
        trial=trial,
        claims=(
            Claim(
                "The trend is similar for all other models: DeltaNet is within two points.",
                f"Figure {number}",
                tuple(part for pair in (SHOWN, SHOWN[::-1]) for part in above(*places(column, *pair), by=-2.0)),
            ),
        ),
        notes=(
            f"The paper has a curve of the SRWM; its best test accuracy is {best} %. The paper states that the trend "
            "is similar for all other models. The published number is that of Table 1.",
            "The weights of the table are the best on validation data, as in all experiments.",
            *table_1.EXPERIMENT.notes,
        ),
        sanity="The check of irie2022/table-1 covers these networks and settings.",
    )
