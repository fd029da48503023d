"""The networks of the few-shot experiments."""

from typing import Any

MODELS = {
    "lstm": "LSTM",
    "snail": "SNAIL",
    "delta-net": "DeltaNet",
    "srwm": "SRWM",
    "fake-srwm": "Fake SRWM",
    "delta-net-res-12": "DeltaNet, Res-12",
    "srwm-res-12": "SRWM, Res-12",
    "snail-res-12": "SNAIL, Res-12",
}
RES_12 = "-res-12"
WIRING: dict[str, dict[str, Any]] = {
    "lstm": {"memory": "layer"},
    "snail": {"memory": "snail"},
    "delta-net": {"memory": "blocks", "norm": "pre"},
    "srwm": {"memory": "blocks", "norm": "raw-input"},
    "fake-srwm": {"memory": "blocks", "norm": "raw-input"},
}
"""Blocks as in the authors' code: LayerNorm before DeltaNet, but only on the skip connection of the SRWM."""

REDUCED_BLOCKS: dict[str, dict[str, Any]] = {
    "smoke": {"d_model": 16, "num_layers": 1, "num_heads": 2, "d_ff": 32},
    "cpu": {"d_model": 128, "num_layers": 2, "num_heads": 8, "d_ff": 256},
}
"""Sizes of reduced models, with heads of 16 as in the paper."""

SMALLER_BLOCKS: dict[str, dict[str, Any]] = {
    **REDUCED_BLOCKS,
    "cpu": {"d_model": 64, "num_layers": 2, "num_heads": 4, "d_ff": 128},
}
"""Sizes for long episodes."""

FEW_PHOTOGRAPHS: dict[str, Any] = {"rotations": True, "shift": 3}
"""Data augmentation for Mini-ImageNet with 100 images per class of 16 x 16 pixels.

Without it, Conv-4 overfits the training classes within 2,000 updates, and its validation accuracy falls after 500. With
one of the two the accuracy stops to rise, with both it does not.
"""

VISION: dict[str, dict[str, Any]] = {
    "smoke": {"vision_loss": 1.0, "normalise_features": True},
    "cpu": {"vision_loss": 1.0, "normalise_features": True},
    "paper": {},
}
"""Two changes, the same for all models, for training on a fortieth of the paper's episodes.

Without the loss of the vision encoder, the SRWM still ignored the images after 450,000 episodes with delayed labels.
Without normalised features it was at chance for thousands of training steps, because the features after a ReLU share a
large constant part.
"""


def network(
    model: str,
    length: int,
    blocks: dict[str, Any],
    lstm: dict[str, Any],
    width: int,
    features: dict[str, Any],
    vision_dropout: float = 0.0,
) -> dict[str, Any]:
    """Options of a `few-shot-network`.

    Args:
        model: A key of `MODELS`.
        length: Number of time steps of an episode, for SNAIL.
        blocks: Sizes of a memory in blocks.
        lstm: Sizes of an LSTM.
        width: Number of channels of Conv-4.
        features: Options of `VISION`.
        vision_dropout: Dropout of the vision encoder.
    """
    layer, res_12 = model.removesuffix(RES_12), model.endswith(RES_12)
    dropout = {"dropout": vision_dropout} if vision_dropout else {}
    vision = {
        "vision": "res-12" if res_12 else "conv-4",
        "vision_options": dropout if res_12 else {"width": width, **dropout},
        **features,
    }
    if layer == "snail":
        return {**WIRING[layer], **vision, "length": length}
    return {"layer": layer, **WIRING[layer], **vision, **(lstm if layer == "lstm" else blocks)}
