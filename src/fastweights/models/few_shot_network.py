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
from fastweights.models.blocks import Blocks
from fastweights.models.snail_network import SNAILBlocks
from fastweights.models.stack import make_stack
from fastweights.registry import VISION_ENCODERS

Memory = Literal["blocks", "layer", "snail"]
BRIGHTEST = 255


class OutputsAndFeatures(NamedTuple):
    """Outputs in training of a network whose vision encoder has a separate loss."""

    outputs: Tensor  # [B, P, ways]
    features: Tensor  # [B, T, F]: of all images
    labels: Tensor  # [B, T]: the labels that came with them
    weight: float  # of that loss


class FewShotNetwork(nn.Module):
    """Few-shot image classifier: a vision encoder with a memory.

        h_t = "memory"([e(x_t), "onehot"(l_t)])
        y_t = W h_t + b

    e is the vision encoder and l_t the label that is given with image x_t. The encoder processes all images of all
    episodes as one batch, over which it normalises in training.

    Source: Irie et al. 2022 (arXiv:2202.05780), Sec. 4.1 and Appendix B; SNAIL: Mishra et al. 2018 (arXiv:1707.03141).

    Args:
        channels: Number of channels of the images.
        side: Height and width of the images in pixels.
        ways: Number of labels.
        codes: Number of label codes: the labels, and a code for no label if the task needs one.
        normalisations: Mean and standard deviation of the channels, for each data set of the task.
        layer: Layer, as in `make_layer`, or several that alternate. Not for SNAIL.
        d_model: Size D of the memory.
        num_layers: Number of blocks, or of layers of an LSTM.
        num_heads: Number of heads per layer.
        d_ff: Width of the feed-forward networks of the blocks.
        dropout: Dropout probability of the blocks.
        vision: Vision encoder, from `fastweights list vision-encoders`.
        memory: "blocks": a linear map and a stack of blocks. "layer": the layer alone, whose input is the features and
            the label. "snail": SNAIL over `length` images.
        norm: Position of LayerNorm around the layers, from `fastweights list norms`.
        feed_forward_norm: Position of LayerNorm around the feed-forward networks.
        normalise_features: Whether the features have mean 0 and variance 1 per channel: over all images of the batch in
            training, with running statistics in evaluation, without gain and bias. Features after a ReLU share a large
            constant part. A memory that reads them directly, such as the SRWM, then sees nearly identical keys and
            learns nothing for thousands of training steps.
        vision_loss: Weight of an additional loss in training that moves the features of a class closer together; 0 for
            none. It shortens the initial plateau of the training loss.
        length: Number of images per episode, only for SNAIL.
        vision_options: Options of the vision encoder, by name.
        options: Options of the layers, by name.

    Example:
        >>> model = FewShotNetwork(
        ...     1,
        ...     28,
        ...     5,
        ...     6,
        ...     [[[0.5], [0.5]]],
        ...     d_model=16,
        ...     num_layers=1,
        ...     num_heads=2,
        ...     d_ff=32,
        ... )
        >>> images = torch.zeros(2, 6, 1, 28, 28, dtype=torch.uint8)
        >>> outputs, state = model.classify(
        ...     images, labels=torch.zeros(2, 6, dtype=torch.long)
        ... )
        >>> outputs.shape
        torch.Size([2, 6, 5])
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
        num_layers: Size = 2,
        num_heads: Size = 16,
        d_ff: Size = 1024,
        dropout: Probability = 0.0,
        vision: str = "conv-4",
        memory: Memory = "blocks",
        norm: str = "pre",
        feed_forward_norm: str = "pre",
        normalise_features: bool = False,
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
        blocks = Blocks(
            layer=layer,
            d_model=d_model,
            num_layers=num_layers,
            num_heads=num_heads,
            d_ff=d_ff,
            dropout=dropout,
            norm=norm,
            feed_forward_norm=feed_forward_norm,
            options=options,
        )
        features = self.vision.features
        self.feature_norm = nn.BatchNorm1d(features, affine=False) if normalise_features else nn.Identity()
        self.input_projection, self.memory, out = kinds[memory](features + codes, length, blocks)
        self.head = nn.Linear(out, ways)
        self.normalisations = normalisations
        moments = torch.tensor(normalisations, device="cpu")[..., None, None]
        # [data sets, 2, 1 or channels, 1, 1]
        self.register_buffer("moments", torch.empty(moments.shape), persistent=False)
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Sets the moments of the data sets. The parts of the network initialise themselves."""
        moments = torch.tensor(self.normalisations, device="cpu")[..., None, None]
        assign(self.get_buffer("moments"), moments)

    def forward(self, inputs: Any, answers: int) -> Tensor | OutputsAndFeatures:
        """Computes the outputs for the last images of the episodes of a task.

        Args:
            inputs: Inputs of a task, with `images`, `labels` and `sources`.
            answers: Number P of images at the end that have outputs.

        Returns:
            The logits `[B, P, ways]`. In training with a `vision_loss`: a record of the logits, the features and the
            labels.
        """
        features = self.encode_images(inputs.images, inputs.sources)
        h, _ = self.memory(self.join_inputs(features, inputs.labels))
        outputs: Tensor = self.head(h[:, -answers:])
        if self.training and self.vision_loss:
            return OutputsAndFeatures(outputs, features, inputs.labels, self.vision_loss)
        return outputs

    def classify(
        self, images: Tensor, labels: Tensor, state: Any = None, sources: Tensor | None = None
    ) -> tuple[Tensor, Any]:
        """Classifies images, with a state that can be carried: a sequence may be split over any number of calls.

        Args:
            images: Images, uint8 `[B, T, channels, side, side]`.
            labels: Codes of the labels that are given with the images, int `[B, T]`.
            state: State before the first image. None: the initial state.
            sources: Indices of the data sets for the normalisation of the images, int `[B, T]`. None: the first data
                set.

        Returns:
            The logits `[B, T, ways]` and the state after the last image.
        """
        sources = torch.zeros_like(labels) if sources is None else sources
        h, state = self.memory(self.join_inputs(self.encode_images(images, sources), labels), state)
        outputs: Tensor = self.head(h)
        return outputs, state

    def encode_images(self, images: Tensor, sources: Tensor) -> Tensor:
        """Encodes images.

        Args:
            images: Images, uint8 `[B, T, channels, side, side]`.
            sources: Indices of the data sets for the normalisation, int `[B, T]`.

        Returns:
            The features `[B, T, F]`.
        """
        pixels = self._normalised(images, sources).flatten(0, 1)
        features: Tensor = self.vision(pixels).unflatten(0, sources.shape)
        return features

    def join_inputs(self, features: Tensor, labels: Tensor) -> Tensor:
        """Combines features and labels to the inputs of the memory.

        Args:
            features: Features of the images, `[B, T, F]`.
            labels: Codes of the labels that are given with the images, int `[B, T]`.

        Returns:
            The inputs of the memory, `[B, T, D]`.
        """
        codes = one_hot(labels, self.codes).to(features.dtype)
        features = self.feature_norm(features.flatten(0, 1)).view_as(features)
        inputs: Tensor = self.input_projection(torch.cat([features, codes], dim=-1))
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
    make = VISION_ENCODERS.load(name)
    accepted = [*inspect.signature(make).parameters][2:]
    for option in options:
        require(option in accepted, "vision_options", f"among {', '.join(accepted)} for {name}", repr(option))
    return make(channels, side, **options)


def _blocks(width: int, length: int, blocks: Blocks) -> Parts:
    """A linear map, the stack, and the size of its output."""
    return nn.Linear(width, blocks.d_model), make_stack(blocks), blocks.d_model


def _layer(width: int, length: int, blocks: Blocks) -> Parts:
    """One layer, behind a linear map unless the layer takes an input of another size."""
    known = layer_options(blocks.layer)
    is_recurrent_network = {"num_layers", "input_size"} <= {*known}
    own = {"num_layers": blocks.num_layers} if is_recurrent_network else {}
    if "input_size" in known:
        own["input_size"] = width
    projection = nn.Identity() if "input_size" in known else nn.Linear(width, blocks.d_model)
    # Several layers are for blocks: make_layer refuses them.
    layer: Any = blocks.layer
    return (
        projection,
        make_layer(layer, blocks.d_model, blocks.num_heads, **own, **(blocks.options or {})),
        blocks.d_model,
    )


def _snail(width: int, length: int, blocks: Blocks) -> Parts:
    """SNAIL without its last map, which every memory has behind it."""
    snail = SNAILBlocks(width, length)
    return nn.Identity(), snail, snail.width
