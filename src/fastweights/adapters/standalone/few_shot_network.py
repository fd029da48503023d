"""A program that classifies images of new classes by examples."""

from struct import pack
from typing import Any

import torch
from torch import Tensor, nn

from fastweights.adapters.standalone.standalone_program import StandaloneProgram
from fastweights.compiler.network.network_call import NetworkCall
from fastweights.core.errors import require
from fastweights.models import FewShotNetwork


class FewShotStep(nn.Module):
    """One time step of a few-shot network: an image and the code of its label.

    Args:
        network: The few-shot network.
    """

    def __init__(self, network: FewShotNetwork) -> None:
        super().__init__()
        self.network = network

    def forward(self, image: Tensor, label: Tensor, state: Any) -> tuple[Tensor, Any]:
        """Maps an image uint8 `[1, 1, channels, side, side]`, a code int `[1, 1]` and a state to logits and a state."""
        return self.network.classify(image, label, state)


def program(network: FewShotNetwork, task: Any) -> StandaloneProgram:
    """The step of a few-shot network, and the facts of its task that the program needs."""
    data_sets = len(task.normalisations)
    remedy = "Use fastweights classify."
    require(data_sets == 1, "model", "a model for images with one normalisation", f"one with {data_sets}", remedy)
    channels, side = task.shape
    arguments = {
        "image": torch.zeros(1, 1, channels, side, side, dtype=torch.uint8),
        "label": torch.zeros(1, 1, dtype=torch.long),
        "state": network.memory.initial_state(1),  # type: ignore[operator]
    }
    text = pack("<qq", task.no_label, task.labels == "delayed")
    calls = {"step": NetworkCall(FewShotStep(network).eval(), arguments, ["logits"])}
    return StandaloneProgram(
        main="few_shot_network",
        calls=calls,
        text=text,
        usage="./run network.weights < episode.txt",
        in_python="fastweights classify",
    )
