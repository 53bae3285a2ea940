"""A PNG writer: gray, RGB or RGBA, eight bits per channel."""

import struct
import zlib
from base64 import b64encode

import numpy as np
import numpy.typing as npt

Pixels = npt.NDArray[np.uint8]

SIGNATURE = b"\x89PNG\r\n\x1a\n"
COLOR_TYPES = {1: 0, 3: 2, 4: 6}
FILTER_UP = 2


def encode_png(pixels: Pixels) -> bytes:
    """Return pixels ``(H, W)`` gray, ``(H, W, 3)`` RGB or ``(H, W, 4)`` RGBA as a PNG file.

    Each row is stored as the difference from the row above, which compresses both smooth scans and flat overlays well.
    """
    height, width = pixels.shape[:2]
    channels = 1 if pixels.ndim == 2 else pixels.shape[2]
    rows = np.ascontiguousarray(pixels).reshape(height, width * channels)
    differences = np.diff(rows, axis=0, prepend=np.zeros((1, rows.shape[1]), np.uint8))
    filtered = np.insert(differences, 0, FILTER_UP, axis=1)
    header = struct.pack(">IIBBBBB", width, height, 8, COLOR_TYPES[channels], 0, 0, 0)
    chunks = (b"IHDR", header), (b"IDAT", zlib.compress(filtered.tobytes(), 9)), (b"IEND", b"")
    return SIGNATURE + b"".join(_chunk(kind, content) for kind, content in chunks)


def data_uri(pixels: Pixels) -> str:
    """Return a PNG as a data URI."""
    return "data:image/png;base64," + b64encode(encode_png(pixels)).decode()


def _chunk(kind: bytes, content: bytes) -> bytes:
    return struct.pack(">I", len(content)) + kind + content + struct.pack(">I", zlib.crc32(kind + content))
