"""Sizes of the memories of a trial, from its options alone."""

from fastweights.experiments.experiment import Trial
from fastweights.registry import FEATURE_MAPS


def sizes(trial: Trial) -> dict[str, int]:
    """The size of a head, and the number of features per head if the options name a feature map.

    Empty for a model without heads.
    """
    options = trial.model_options
    if "num_heads" not in options:
        return {}
    head = options["d_model"] // options["num_heads"]
    name = options.get("options", {}).get("feature_map")
    return {"head": head, **({"features": _features(name, head)} if name else {})}


def _features(name: str, head: int) -> int:
    """The number of features of a map by name, whose trailing number is its one option."""
    stem, _, number = name.rpartition("-")
    made = FEATURE_MAPS.load(stem)(head, int(number)) if number.isdigit() else FEATURE_MAPS.load(name)(head)
    return int(made.output_size)
