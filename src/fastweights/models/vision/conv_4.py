"""Four convolutions."""

from torch import Tensor, nn

from fastweights.core.arguments import Probability, Size, checked
from fastweights.models.dropout import Dropout
from fastweights.models.vision._convolutions import ChannelsLast


class Conv4(ChannelsLast):
    """x <- relu(dropout(maxpool(BN(conv(x))))), four times, with convolutions of 3 x 3: halves each side every time.

    Source: Vinyals et al. 2016; Irie et al. 2022, Appendix B (64 channels for Omniglot, 32 for colours; code).

    Args:
        channels: Number of channels of the images.
        side: Height and width of the images in pixels.
        width: Number of channels per layer.
        dropout: Dropout probability.
    """

    @checked
    def __init__(self, channels: Size, side: Size, width: Size = 64, dropout: Probability = 0.0) -> None:
        super().__init__(*(layer for n in range(4) for layer in _block(width if n else channels, width, dropout)))
        self.features = width * (side // 16) ** 2

    def forward(self, images: Tensor) -> Tensor:
        """Maps images `[n, channels, side, side]` to `[n, features]`."""
        maps: Tensor = super().forward(images)
        return maps.flatten(1)


def _block(channels: int, width: int, dropout: float) -> list[nn.Module]:
    conv_size = nn.Conv2d(channels, width, 3, padding=1)
    return [conv_size, nn.BatchNorm2d(width), nn.MaxPool2d(2), Dropout(dropout), nn.ReLU()]
