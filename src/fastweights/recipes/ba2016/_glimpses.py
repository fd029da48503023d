"""What the two experiments with glimpses have in common: four networks, and the signals of one of them."""

from typing import Any

from fastweights.experiments.experiment import Trial
from fastweights.training.settings.supervised import Supervised

MODELS = {"irnn": "IRNN", "lstm": "LSTM", "glimpse-network": "ConvNet", "multi-level-fast-weight-rnn": "Fast weights"}

SCHEDULES: dict[str, dict[str, list[bool]]] = {
    "coarse": {"store": [t % 6 == 1 for t in range(24)], "integrate": [t % 6 == 5 for t in range(24)]},
    "quadrant": {"store": [t % 6 == 0 < t for t in range(24)], "integrate": [t % 6 == 5 for t in range(24)]},
}
"""Before which of the 24 steps the state is stored and wiped out, and at which the integration weights are used.

"coarse": the state after the first coarse glimpse of a quadrant is stored, so that the details are read from an empty
state; the second coarse glimpse brings it back, to be integrated with what the details gave. "quadrant": the state is
stored when a quadrant is done, as the layer does by itself.
"""

NOTES = (
    "The paper gives neither the order of the 24 glimpses nor the steps at which its control signals store and "
    "integrate. Here each quadrant is shown coarse, in four details, and coarse again; the state is stored and wiped "
    "after the first, and integrated at the last.",
    "The ConvNet has three layers on the same 24 patches, without overlap: one a glimpse, one a quadrant, one the "
    "image. The paper does not say more of its own.",
)


def trial(
    task: str, task_options: dict[str, Any], model: str, units: int, rate: float, training: dict[str, Any]
) -> Trial:
    """Any of the four networks with `units` features, in batches of 128 and with a clip of 5."""
    settings = Supervised(batch_size=128, learning_rate=rate, max_grad_norm=5.0, **training)
    if model == "glimpse-network":
        return Trial(task, task_options, model, {"features": units}, settings)
    options: dict[str, Any] = {"layer": model, "units": units, "embedding": 100, "projection": 0, "hidden": 100}
    if model == "multi-level-fast-weight-rnn":
        options["signals"] = SCHEDULES["coarse"]
    return Trial(task, task_options, "recurrent-model", options, settings)
