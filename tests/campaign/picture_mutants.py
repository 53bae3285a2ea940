"""Damaged copies of a file: changed bits first, then other damage."""

import random
from collections.abc import Callable, Iterator

EXTREMES = (
    b"\0",
    b"\xff",
    b"\x7f",
    b"\x80",
    b"\0" * 4,
    b"\xff" * 4,
    b"\x7f\xff\xff\xff",
    b"\xff\xff\xff\x7f",
    b"\0" * 8,
)


def mutants(content: bytes, seed: int, count: int) -> Iterator[bytes]:
    """Yield damaged copies. The first half has one changed bit each."""
    generator = random.Random(seed)
    for number in range(count):
        if number < count // 2:
            yield flipped(content, generator)
        else:
            yield generator.choice(DAMAGES)(content, generator)


def flipped(content: bytes, generator: random.Random) -> bytes:
    """Change one bit."""
    damaged = bytearray(content)
    damaged[generator.randrange(len(damaged))] ^= 1 << generator.randrange(8)
    return bytes(damaged)


def _truncated(content: bytes, generator: random.Random) -> bytes:
    return content[: generator.randrange(1, len(content))]


def _extreme(content: bytes, generator: random.Random) -> bytes:
    value, place = generator.choice(EXTREMES), generator.randrange(len(content))
    return content[:place] + value + content[place + len(value) :]


def _extreme_header(content: bytes, generator: random.Random) -> bytes:
    value, place = generator.choice(EXTREMES), generator.randrange(min(400, len(content)))
    return content[:place] + value + content[place + len(value) :]


def _without_block(content: bytes, generator: random.Random) -> bytes:
    place = generator.randrange(len(content))
    return content[:place] + content[place + generator.randrange(1, 64) :]


def _repeated_block(content: bytes, generator: random.Random) -> bytes:
    place = generator.randrange(len(content))
    return content[:place] + content[place : place + generator.randrange(1, 64)] + content[place:]


def _random_block(content: bytes, generator: random.Random) -> bytes:
    place, size = generator.randrange(len(content)), generator.randrange(1, 32)
    return content[:place] + generator.randbytes(size) + content[place + size :]


DAMAGES: tuple[Callable[[bytes, random.Random], bytes], ...] = (
    *(_truncated, _extreme, _extreme_header, _extreme_header, _without_block, _repeated_block, _random_block),
)
