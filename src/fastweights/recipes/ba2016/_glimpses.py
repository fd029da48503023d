"""The common settings of the two experiments with glimpses: four networks, and the control signals of one of them."""

from typing import Any

from fastweights.experiments.experiment import Trial
from fastweights.training.settings.supervised import Supervised

MODELS = {"irnn": "IRNN", "lstm": "LSTM", "glimpse-network": "ConvNet", "multi-level-fast-weight-rnn": "Fast weights"}

SCHEDULES: dict[str, dict[str, list[bool]]] = {
    "coarse": {"store": [t % 6 == 1 for t in range(24)], "integrate": [t % 6 == 5 for t in range(24)]},
    "quadrant": {"store": [t % 6 == 0 < t for t in range(24)], "integrate": [t % 6 == 5 for t in range(24)]},
}
"""The time steps, of 24, before which the state is stored and cleared, and those that use the integration weights.

"coarse" stores the state after the first coarse glimpse of a quadrant, and the details start from an empty state. The
second coarse glimpse retrieves the stored state and integrates it with that of the details. "quadrant" stores the state
after each quadrant, the default of the layer.
"""

NOTES = (
    "The paper gives neither the order of the 24 glimpses nor the steps at which its control signals store and "
    "integrate. Here each quadrant has one coarse glimpse, four details, and the coarse glimpse again. The state is "
    "stored and cleared after the first, and integrated at the last.",
    "The ConvNet has three layers on the same 24 patches, without overlap: one per glimpse, one per quadrant, one for "
    "the image. The paper does not give more details of its ConvNet.",
)


def trial(
    task: str, task_options: dict[str, Any], model: str, units: int, rate: float, training: dict[str, Any]
) -> Trial:
    """One of the four networks with `units` features, trained on batches of 128 with a maximum gradient norm of 5."""
    settings = Supervised(batch_size=128, learning_rate=rate, max_grad_norm=5.0, **training)
    if model == "glimpse-network":
        return Trial(task, task_options, model, {"features": units}, settings)
    options: dict[str, Any] = {"layer": model, "units": units, "embedding": 100, "projection": 0, "hidden": 100}
    if model == "multi-level-fast-weight-rnn":
        options["signals"] = SCHEDULES["coarse"]
    return Trial(task, task_options, "recurrent-model", options, settings)
