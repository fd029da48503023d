"""Images as arrays: the formats of MNIST (idx) and of the CMU faces (PGM), the formats of pillow, and scaling by area.

A transparent image is composed on white, or on black if its visible parts are nearly white. The EXIF orientation is
applied. Of an animation, the first frame is read.
"""

import io
import logging
import re
import struct
import zlib
from functools import cache
from math import prod
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fastweights.core.errors import InputError, require
from fastweights.tasks.sources.data_files import gunzip

log = logging.getLogger("fastweights")

Bytes = NDArray[np.uint8]

IDX_HEADER = b"\x00\x00\x08"
"""First bytes of an idx file of unsigned bytes."""

LARGEST_IMAGE = 1 << 25
"""Maximum number of bytes of a file and of pixels, since a few bytes may decompress to billions of pixels."""

LONGEST_SIDE = 1 << 14

FORMATS = ("PNG", "JPEG", "PPM", "BMP", "GIF", "TIFF", "WEBP")
"""Formats that are read with pillow, without those that start programs."""

GREY = ("1", "L", "LA", "La", "I;16", "I;16L", "I;16B", "I;16N")
"""The modes of pillow without colours."""

NEARLY_WHITE = 16
"""Mean distance from white, in 255 levels, below which the visible parts of an image are invisible on white."""

DAMAGED = (
    *(ArithmeticError, LookupError, OSError, EOFError, RuntimeError, SyntaxError, TypeError, ValueError),
    *(struct.error, zlib.error),
)
"""Exceptions of pillow for damaged images, besides its own classes."""

_GAP = rb"(?:\s|#[^\n]*\n)+"
_PGM = re.compile(rb"P([25])" + 3 * (_GAP + rb"(\d{1,9})") + rb"\s")


def read_idx(content: bytes, name: str, axes: int) -> Bytes:
    """The array in a gzipped idx file of unsigned bytes with so many axes; `InputError` if it is anything else."""
    raw = gunzip(content, name)
    good = len(raw) >= 4 + 4 * axes and raw[:3] == IDX_HEADER and raw[3] == axes
    require(good, name, f"an idx file of bytes with {axes} axes", f"one that begins with {raw[:4].hex() or 'nothing'}")
    shape = [int(n) for n in np.frombuffer(raw, ">u4", axes, offset=4)]
    length = len(raw) - 4 - 4 * axes
    require(prod(shape) == length, name, f"{prod(shape):,} bytes of {shape} after its header", f"{length:,}")
    return np.frombuffer(raw, np.uint8, offset=4 + 4 * axes).reshape(shape)


def read_image(content: bytes, name: str) -> Bytes:
    """A grey image `[height, width]`, white is 255: PGM by itself, any other format with pillow (extra `vision`).

    `InputError` for more than `LARGEST_IMAGE` bytes, in the file or unpacked, or `LONGEST_SIDE` pixels on a side.
    """
    return read_channels(content, name, channels=1)[0]


def read_channels(content: bytes, name: str, channels: int = 0) -> Bytes:
    """An image `[channels, height, width]`: 1 for grey, 3 for red, green and blue; as many as it has itself if 0.

    `InputError` as in `read_image`.
    """
    got = f"{len(content):,}"
    require(len(content) <= LARGEST_IMAGE, name, f"an image file of at most {LARGEST_IMAGE:,} bytes", got)
    if content[:2] in (b"P2", b"P5"):
        return np.repeat(read_pgm(content, name)[None], channels or 1, axis=0)
    return _read_with_pillow(content, name, channels)


def read_pgm(content: bytes, name: str) -> Bytes:
    """A PGM image `[height, width]`, in numbers (P2) or bytes (P5), scaled so that white is 255."""
    header = _PGM.match(content)
    require(header is not None, name, "a PGM image", f"one that begins with {content[:16]!r}")
    assert header is not None
    kind, width, height, white = (int(group) for group in header.groups())
    require(1 <= white < 1 << 16, name, "an image of 8 or 16 bits", f"a white of {white}")
    _require_size(name, width, height)
    pixels = _numbers(content[header.end() :], name) if kind == 2 else _integers(content[header.end() :], white)
    require(len(pixels) == width * height > 0, name, f"{width} x {height} pixels", f"{len(pixels):,}")
    require(int(pixels.max()) <= white, name, f"an image with values up to {white}", int(pixels.max()))
    return (pixels.reshape(height, width).astype(np.uint32) * 255 // white).astype(np.uint8)


def _integers(content: bytes, white: int) -> NDArray[Any]:
    size = 1 if white < 256 else 2
    return np.frombuffer(content, f">u{size}", len(content) // size)


def _numbers(text: bytes, name: str) -> NDArray[np.int64]:
    words = text.split()
    good = all(word.isdigit() and len(word) < 10 for word in words)
    require(good, name, "decimal numbers after its header", repr(next((w for w in words if not w.isdigit()), b"")[:16]))
    return np.array(words, dtype=np.int64)


def _read_with_pillow(content: bytes, name: str, channels: int) -> Bytes:
    try:
        from PIL import Image
    except ImportError:
        remedy = "For other formats: pip install 'fastweights[vision]'."
        raise InputError(f"{name} must be a PGM image, got {content[:4]!r}. {remedy}") from None
    try:
        image = Image.open(io.BytesIO(content), formats=FORMATS)
        _require_size(name, *image.size)
        grey = channels == 1 or (not channels and image.mode in GREY)
        require(image.mode not in ("I", "F"), name, "an image of 8 or 16 bits", f"pixels of mode {image.mode}")
        pixels = _opaque(_upright(image), "L" if grey else "RGB")
        return pixels[None] if grey else np.ascontiguousarray(pixels.transpose(2, 0, 1))
    except InputError:
        raise
    except (*DAMAGED, Image.DecompressionBombError) as error:
        raise InputError(
            f"{name} must be an image, got {len(content):,} bytes: {' '.join(str(error).split())}."
        ) from None


def _upright(image: Any) -> Any:
    """The image with its EXIF orientation applied; unchanged if the EXIF data are damaged."""
    from PIL import ImageOps

    image.load()
    try:
        return ImageOps.exif_transpose(image)
    except (SyntaxError, ValueError, TypeError, KeyError, struct.error):
        return image


def _opaque(image: Any, mode: str) -> Bytes:
    """Bytes in grey `[height, width]` or in colours `[height, width, 3]`, without transparency."""
    from PIL import Image

    if image.mode.startswith("I;16"):
        return _of_sixteen_bits(image, mode)
    if not image.has_transparency_data:
        return np.asarray(image.convert(mode))
    image = _with_alpha(image)
    ground = _ground(np.asarray(image.convert("L")), np.asarray(image.getchannel("A")))
    return np.asarray(Image.alpha_composite(Image.new("RGBA", image.size, (*3 * [ground], 255)), image).convert(mode))


def _of_sixteen_bits(image: Any, mode: str) -> Bytes:
    """The upper 8 bits, where pillow would clip nearly all pixels to white."""
    levels, clear = np.asarray(image), image.info.get("transparency")
    upper = (levels >> 8).astype(np.uint8)
    if clear is not None:
        alpha = np.where(levels == clear, 0, 255).astype(np.uint8)
        upper = np.where(alpha, upper, _ground(upper, alpha)).astype(np.uint8)
    return upper if mode == "L" else np.stack(3 * [upper], axis=-1)


def _with_alpha(image: Any) -> Any:
    """The image in mode RGBA."""
    clear = image.info.get("transparency")
    if isinstance(clear, tuple) and max(clear) > 255:  # of 16 bits, where pillow keeps the upper 8 of the pixels
        image.info["transparency"] = tuple(level >> 8 for level in clear)
    return (image.convert("LA") if image.mode == "La" else image).convert("RGBA")


def _ground(levels: Bytes, alpha: Bytes) -> int:
    """The background: white, or black if the image would be invisible on white."""
    visible = alpha.astype(np.int64)
    contrast = int((visible * (255 - levels.astype(np.int64))).sum())
    if visible.sum() > 0 and contrast < NEARLY_WHITE * visible.sum() and alpha.min() < 255:
        _warn_once("Transparent images whose visible parts are nearly white are put on black, all others on white.")
        return 0
    return 255


@cache
def _warn_once(message: str) -> None:
    log.warning(message)


def _require_size(name: str, width: int, height: int) -> None:
    fits = max(width, height) <= LONGEST_SIDE and width * height <= LARGEST_IMAGE
    require(
        fits,
        name,
        f"an image of at most {LARGEST_IMAGE:,} pixels, and {LONGEST_SIDE:,} per side",
        f"{width:,} x {height:,}",
    )


def scale_by_area(image: Bytes, height: int, width: int) -> Bytes:
    """Scales an image; every new pixel is the rounded mean of the area that it covers."""
    sums = _cover(height, image.shape[0]) @ image @ _cover(width, image.shape[1]).T
    return np.floor((2 * sums + image.size) / (2 * image.size)).astype(np.uint8)


def _cover(new: int, old: int) -> NDArray[np.float64]:
    """Overlap of each old pixel with each new one along one axis, `[new, old]`, where an old pixel has length `new`.

    The overlaps are integers, so that their sums are exact, and the image is the same on every platform.
    """
    first, second = np.arange(new)[:, None] * old, np.arange(old) * new
    return np.maximum(np.minimum(first + old, second + new) - np.maximum(first, second), 0).astype(np.float64)
