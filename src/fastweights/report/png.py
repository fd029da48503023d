"""Images as PNG files."""

import struct
import zlib

import numpy as np
from numpy.typing import NDArray


def png(image: NDArray[np.uint8]) -> bytes:
    """The bytes of a PNG file of an image `[1 or 3, height, width]`."""
    channels, height, width = image.shape
    rows = np.ascontiguousarray(image.transpose(1, 2, 0)).reshape(height, -1)
    lines = np.concatenate([np.zeros((height, 1), np.uint8), rows], axis=1).tobytes()
    header = struct.pack(">IIBBBBB", width, height, 8, 0 if channels == 1 else 2, 0, 0, 0)
    parts = [(b"IHDR", header), (b"IDAT", zlib.compress(lines)), (b"IEND", b"")]
    return b"\x89PNG\r\n\x1a\n" + b"".join(
        struct.pack(">I", len(content)) + kind + content + struct.pack(">I", zlib.crc32(kind + content))
        for kind, content in parts
    )
