"""The convolutional network of A3C."""

from fastweights.models.vision._convolutions import Convolutions


class A3c(Convolutions):
    """x <- relu(conv(x)) twice, then relu(W x + b).

    A third of the arithmetic of `Dqn`.

    Source: Mnih et al. 2016, Sec. 8 (Experimental Setup), there as in Mnih et al. 2013.

    Args:
        channels: Of the pictures.
        side: Pixels of a side.
        features: How many numbers a picture becomes.

    Raises:
        InputError: `side` is below 20.
    """

    LAYERS = ((16, 8, 4), (32, 4, 2))
