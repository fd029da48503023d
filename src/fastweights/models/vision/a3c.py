"""The convolutional network of A3C."""

from fastweights.models.vision._convolutions import Convolutions


class A3c(Convolutions):
    """x <- relu(conv(x)) twice, then relu(W x + b).

    It has a third of the arithmetic of `Dqn`.

    Source: Mnih et al. 2016, Sec. 8 (Experimental Setup), there as in Mnih et al. 2013.

    Args:
        channels: Number of channels of the images.
        side: Height and width of the images in pixels.
        features: Number of features per image.

    Raises:
        InputError: `side` is below 20.
    """

    LAYERS = ((16, 8, 4), (32, 4, 2))
