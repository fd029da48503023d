"""The convolutional network of DQN."""

from fastweights.models.vision._convolutions import Convolutions


class Dqn(Convolutions):
    """x <- relu(conv(x)) three times, then relu(W x + b).

    It has a sixth of the arithmetic of `Impala`.

    Source: Mnih et al. 2015, Methods (Model architecture), with 512 features.

    Args:
        channels: Number of channels of the images.
        side: Height and width of the images in pixels.
        features: Number of features per image.

    Raises:
        InputError: `side` is below 36.
    """

    LAYERS = ((32, 8, 4), (64, 4, 2), (64, 3, 1))
