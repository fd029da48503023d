"""A vision encoder with a memory, for few-shot classification."""

import inspect
from typing import Any, Literal, NamedTuple

import torch
from torch import Tensor, nn
from torch.nn.functional import one_hot

from fastweights.core.arguments import Probability, Size, checked
from fastweights.core.errors import require, require_name
from fastweights.layers import LayerKinds, layer_options, make_layer
from fastweights.layers.base.initialise import assign
from fastweights.models.snail_network import SNAILBlocks
from fastweights.models.stack import make_stack
from fastweights.registry import VISION_NETS

Memory = Literal["blocks", "layer", "snail"]
BRIGHTEST = 255


class Studied(NamedTuple):
    """Outputs in training of a network whose vision encoder has a separate loss."""

    outputs: Tensor  # [B, P, ways]
    features: Tensor  # [B, T, F]: of all images
    labels: Tensor  # [B, T]: the labels that came with them
    weight: float  # of that loss


class FewShotNetwork(nn.Module):
    """y_t = W h_t + b, h = memory([vision(x_t), one-hot(label given with x_t)]): few-shot image classification.

    The vision encoder processes all images of all episodes as one batch, over which it normalises in training.

    Source: Irie et al. 2022, Sec. 4.1 and Appendix B; SNAIL: Mishra et al. 2018.

    Args:
        channels: Number of channels of the images.
        side: Height and width of the images in pixels.
        ways: Number of labels.
        codes: Number of label codes: the labels, and a code for no label if the task needs one.
        normalisations: Mean and standard deviation of the channels, for each data set of the task.
        layer: A layer, as in `make_layer`, with `options`. Not for SNAIL.
        d_model: Size of the memory.
        depth: Number of blocks, or of layers of an LSTM.
        heads: Number of memories per layer.
        d_ff: Width of the feed-forward networks of blocks.
        dropout: Probability of dropping a unit of the blocks.
        vision: Vision encoder, from `fastweights list vision-nets`, with `vision_options`.
        memory: "blocks": a linear map, then a stack of blocks. "layer": the layer alone, applied to features and label.
            "snail": SNAIL, over `length` images.
        norm: Position of LayerNorm around the layers, from `fastweights list norms`.
        feed_forward_norm: Position of LayerNorm around the feed-forward networks.
        vision_loss: Weight in training of a separate loss of the vision encoder, which moves images of a class
            together; 0 for none. Without it training has a long plateau, in which the vision encoder has no useful
            memory to learn from, and the memory no useful features.
        length: Number of images per episode; only for SNAIL, which attends that far back.
    """

    @checked
    def __init__(
        self,
        channels: Size,
        side: Size,
        ways: Size,
        codes: Size,
        normalisations: list[list[list[float]]],
        layer: LayerKinds = "delta-net",
        d_model: Size = 256,
        depth: Size = 2,
        heads: Size = 16,
        d_ff: Size = 1024,
        dropout: Probability = 0.0,
        vision: str = "conv-4",
        memory: Memory = "blocks",
        norm: str = "pre",
        feed_forward_norm: str = "pre",
        vision_loss: float = 0.0,
        length: Size = 6,
        vision_options: dict[str, Any] | None = None,
        options: dict[str, Any] | None = None,
    ) -> None:
        super().__init__()
        kinds = {"blocks": _blocks, "layer": _layer, "snail": _snail}
        require_name("memory", memory, kinds)
        self.codes = codes
        self.vision_loss = vision_loss
        self.vision: Any = _make_vision(vision, channels, side, vision_options or {})
        sizes = {"layer": layer, "d_model": d_model, "depth": depth, "heads": heads, "d_ff": d_ff, "dropout": dropout}
        norms = {"norm": norm, "feed_forward_norm": feed_forward_norm, "options": options}
        width = self.vision.features + codes
        self.reader, self.memory, out = kinds[memory](width, length, **sizes, **norms)  # type: ignore[operator]
        self.head = nn.Linear(out, ways)
        # [data sets, 2, 1 or channels, 1, 1]
        self.normalisations = torch.tensor(normalisations, device="cpu")[..., None, None]
        self.register_buffer("moments", torch.empty(self.normalisations.shape), persistent=False)
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Sets the moments of the data sets. The parts of the network initialise themselves."""
        assign(self.get_buffer("moments"), self.normalisations)

    def forward(self, inputs: Any, answers: int) -> Tensor | Studied:
        """Maps the images of a task to outputs `[B, answers, ways]` for the last of them.

        In training with a `vision_loss` it also returns their features.
        """
        features = self.see(inputs.images, inputs.sources)
        h, _ = self.memory(self.read(features, inputs.labels))
        outputs: Tensor = self.head(h[:, -answers:])
        if self.training and self.vision_loss:
            return Studied(outputs, features, inputs.labels, self.vision_loss)
        return outputs

    def name(
        self, images: Tensor, labels: Tensor, state: Any = None, sources: Tensor | None = None
    ) -> tuple[Tensor, Any]:
        """Returns outputs for images uint8 `[B, T, channels, side, side]` with labels `[B, T]`, and the state.

        The state can be carried, so a sequence may be split over any number of calls. `sources` `[B, T]` are the
        indices of the data sets for the normalisation of the images; the first data set if None.
        """
        sources = torch.zeros_like(labels) if sources is None else sources
        h, state = self.memory(self.read(self.see(images, sources), labels), state)
        outputs: Tensor = self.head(h)
        return outputs, state

    def see(self, images: Tensor, sources: Tensor) -> Tensor:
        """Returns the features of the images, `[B, T, F]`."""
        pixels = self._normalised(images, sources).flatten(0, 1)
        features: Tensor = self.vision(pixels).unflatten(0, sources.shape)
        return features

    def read(self, features: Tensor, labels: Tensor) -> Tensor:
        """Returns the input of the memory, `[B, T, D]`, from features and labels."""
        codes = one_hot(labels, self.codes).to(features.dtype)
        inputs: Tensor = self.reader(torch.cat([features, codes], dim=-1))
        return inputs

    def _normalised(self, images: Tensor, sources: Tensor) -> Tensor:
        moments: Tensor = self.moments  # type: ignore[assignment]
        if len(moments) == 1:
            mean, deviation = moments[0]
        else:
            mean, deviation = moments[sources].unbind(2)
        # One expression, since every pass over the images takes time.
        return images.to(moments.dtype) / (BRIGHTEST * deviation) - mean / deviation


Parts = tuple[nn.Module, nn.Module, int]


def _make_vision(name: str, channels: int, side: int, options: dict[str, Any]) -> Any:
    make = VISION_NETS.load(name)
    accepted = [*inspect.signature(make).parameters][2:]
    for option in options:
        require(option in accepted, "vision_options", f"among {', '.join(accepted)} for {name}", repr(option))
    return make(channels, side, **options)


def _blocks(width: int, length: int, layer: LayerKinds, d_model: int, **sizes: Any) -> Parts:
    """A linear map, blocks, and the size of their output."""
    return nn.Linear(width, d_model), make_stack(layer, d_model, **sizes), d_model


def _layer(
    width: int,
    length: int,
    layer: LayerKinds,
    d_model: int,
    heads: int,
    depth: int,
    options: dict[str, Any] | None,
    **_: Any,
) -> Parts:
    """A layer alone, with a linear map in front if its input size is fixed."""
    accepted = layer_options(layer)
    size_options = {"layers": depth} if "layers" in accepted else {}
    if "input_size" in accepted:
        size_options["input_size"] = width
    reader = nn.Identity() if "input_size" in accepted else nn.Linear(width, d_model)
    # Several layers need blocks, so make_layer raises an error for them.
    return reader, make_layer(layer, d_model, heads, **size_options, **(options or {})), d_model  # type: ignore[arg-type]


def _snail(width: int, length: int, **_: Any) -> Parts:
    """SNAIL without its last linear map, which is the head of the network."""
    blocks = SNAILBlocks(width, length)
    return nn.Identity(), blocks, blocks.width
