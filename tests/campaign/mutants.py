"""Damaged copies of a file: seeded, so that every mutant can be made again."""

import random
import re
from collections.abc import Iterator

NUMBER = re.compile(rb"[-+]?\d+(?:\.\d+)?")
EXTREMES = (
    b"0",
    b"-1",
    b"1",
    b"7",
    b"255",
    b"65535",
    b"40000",
    b"2147483648",
    b"9223372036854775808",
    b"1e308",
    b"nan",
)
BINARY_EXTREMES = (0, 1, 2**7, 2**8 - 1, 2**15, 2**16 - 1, 2**31, 2**32 - 1)
HEADER_BYTES = 4096
"""Numbers are changed only in the first ``HEADER_BYTES`` bytes."""
LONG_NUMBER = 5000  # digits


def mutants(content: bytes, seed: int, count: int) -> Iterator[bytes]:
    """Yield ``count`` damaged copies of a file. A copy has one to three kinds of damage."""
    for index in range(count):
        generator = random.Random(f"{seed} {index}")
        mutant = content
        for damage in generator.choices(DAMAGES, k=generator.choice((1, 1, 1, 2, 3))):
            mutant = damage(mutant, generator)
        yield mutant


def flip_bits(content: bytes, generator: random.Random) -> bytes:
    """Flip one to eight bits anywhere, or in the header."""
    damaged = bytearray(content)
    end = len(content) if generator.random() < 0.5 else min(len(content), HEADER_BYTES)
    for _ in range(generator.randint(1, 8) if end else 0):
        damaged[generator.randrange(end)] ^= 1 << generator.randrange(8)
    return bytes(damaged)


def truncate(content: bytes, generator: random.Random) -> bytes:
    """Remove the end."""
    return content[: generator.randint(0, len(content))]


def delete(content: bytes, generator: random.Random) -> bytes:
    """Delete a span."""
    begin, end = _span(content, generator)
    return content[:begin] + content[end:]


def duplicate(content: bytes, generator: random.Random) -> bytes:
    """Insert a copy of a span after it, up to 16 times."""
    begin, end = _span(content, generator)
    return content[:end] + content[begin:end] * generator.choice((1, 1, 2, 16)) + content[end:]


def overwrite(content: bytes, generator: random.Random) -> bytes:
    """Overwrite a span by random bytes, or by a copy of another span."""
    begin, end = _span(content, generator)
    other = generator.randint(0, max(0, len(content) - (end - begin)))
    copied = content[other : other + end - begin]
    return content[:begin] + generator.choice((generator.randbytes(end - begin), copied)) + content[end:]


def change_number(content: bytes, generator: random.Random) -> bytes:
    """Change a decimal number of the header to an extreme, a similar or a very long number."""
    found = list(NUMBER.finditer(content, 0, HEADER_BYTES))
    if not found:
        return flip_bits(content, generator)
    match = generator.choice(found)
    long = str(generator.randint(1, 9)).encode() * generator.choice((20, LONG_NUMBER))
    similar = str(int(float(match[0][:15])) + generator.choice((-1, 1, 1000))).encode()
    number = generator.choice((generator.choice(EXTREMES), similar, long))
    return content[: match.start()] + number + content[match.end() :]


def change_binary(content: bytes, generator: random.Random) -> bytes:
    """Overwrite two or four bytes of the header by an extreme number, in any byte order."""
    size = generator.choice((2, 4))
    place = generator.randint(0, max(0, min(len(content), HEADER_BYTES) - size))
    number = (generator.choice(BINARY_EXTREMES) & ((1 << 8 * size) - 1)).to_bytes(size, "little")
    return content[:place] + generator.choice((number, number[::-1])) + content[place + size :]


DAMAGES = (flip_bits, flip_bits, truncate, delete, duplicate, overwrite, change_number, change_number, change_binary)


def _span(content: bytes, generator: random.Random) -> tuple[int, int]:
    begin = generator.randint(0, len(content))
    return begin, min(len(content), begin + generator.choice((1, 4, 16, 64, 512)))
