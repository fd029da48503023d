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
"""Blocks as in the authors' code: LayerNorm in front of DeltaNet, and beside the SRWM, on what goes round it."""

REDUCED_BLOCKS: dict[str, dict[str, Any]] = {
    "smoke": {"d_model": 16, "num_layers": 1, "num_heads": 2, "d_ff": 32},
    "cpu": {"d_model": 128, "num_layers": 2, "num_heads": 8, "d_ff": 256},
}
"""With heads of 16, as in the paper."""

SMALLER_BLOCKS: dict[str, dict[str, Any]] = {
    **REDUCED_BLOCKS,
    "cpu": {"d_model": 64, "num_layers": 2, "num_heads": 4, "d_ff": 128},
}
"""For episodes of more than a few pictures."""

FEW_PHOTOGRAPHS: dict[str, Any] = {"rotations": True, "shift": 3}
"""For Mini-ImageNet with 100 pictures of a class, of 16 pixels. Without them Conv-4 learns the training classes by
heart within 2,000 updates, and gets worse at others from 500 on; with one of them it stops getting better, with both
it does not."""

VISION: dict[str, dict[str, Any]] = {
    "smoke": {"vision_loss": 1.0, "normalise_features": True},
    "cpu": {"vision_loss": 1.0, "normalise_features": True},
    "paper": {},
}
"""Two helps for training on a fortieth of the paper's episodes, for all models alike. Without the loss of the vision
encoder, the SRWM had not learned to look at the images after 450,000 episodes with delayed labels. Without normalised
features it was at chance for thousands of training steps: the features behind a ReLU share one large constant part."""


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

    `blocks` or `lstm` are sizes of the memory, `width` is the number of channels of Conv-4, and `features` are the
    options of `VISION`.
    """
    layer, res_12 = model.removesuffix(RES_12), model.endswith(RES_12)
    seen = {"dropout": vision_dropout} if vision_dropout else {}
    vision = {
        "vision": "res-12" if res_12 else "conv-4",
        "vision_options": seen if res_12 else {"width": width, **seen},
        **features,
    }
    if layer == "snail":
        return {**WIRING[layer], **vision, "length": length}
    return {"layer": layer, **WIRING[layer], **vision, **(lstm if layer == "lstm" else blocks)}
