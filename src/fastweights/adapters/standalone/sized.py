"""Strings of bytes in the weight file, each behind its size."""

from collections.abc import Iterable


def sized(parts: Iterable[bytes]) -> bytes:
    """Every part behind its size: 7 bits per byte, lowest first, and 128 is added to all bytes but the last.

    >>> sized([b"ab", b"c" * 130])[:6]
    b'\\x02ab\\x82\\x01c'
    """
    return b"".join(_size(len(part)) + part for part in parts)


def _size(size: int) -> bytes:
    return bytes([size]) if size < 128 else bytes([size % 128 + 128]) + _size(size // 128)
