"""Images as PNG files."""

import struct
import zlib

import numpy as np
from numpy.typing import NDArray

COLOUR_TYPES = {1: 0, 3: 2, 4: 6}
"""The code of PNG for the number of channels."""


def png(image: NDArray[np.uint8]) -> bytes:
    """An image as a PNG file: `[C, height, width]` with 1 channel (grey), 3 (RGB) or 4 (RGB and opacity)."""
    channels, height, width = image.shape
    rows = np.ascontiguousarray(image.transpose(1, 2, 0)).reshape(height, -1)
    lines = np.concatenate([np.zeros((height, 1), np.uint8), rows], axis=1).tobytes()
    header = struct.pack(">IIBBBBB", width, height, 8, COLOUR_TYPES[channels], 0, 0, 0)
    parts = [(b"IHDR", header), (b"IDAT", zlib.compress(lines)), (b"IEND", b"")]
    return b"\x89PNG\r\n\x1a\n" + b"".join(
        struct.pack(">I", len(content)) + kind + content + struct.pack(">I", zlib.crc32(kind + content))
        for kind, content in parts
    )
