"""Headers of NRRD files (``.nrrd``, ``.nhdr``)."""

import re
from pathlib import Path

import numpy as np

from graftseg.data.formats.header_text import Fields, Header, VoxelFile, header_lines, unreadable_header
from graftseg.data.formats.scan import Floats, unsupported

MAGIC = b"NRRD000"
_NAMES = {
    "i1": "signed char, int8, int8_t",
    "u1": "uchar, unsigned char, uint8, uint8_t",
    "i2": "short, short int, signed short, signed short int, int16, int16_t",
    "u2": "ushort, unsigned short, unsigned short int, uint16, uint16_t",
    "i4": "int, signed int, int32, int32_t",
    "u4": "uint, unsigned int, uint32, uint32_t",
    "i8": "longlong, long long, long long int, signed long long, signed long long int, int64, int64_t",
    "u8": "ulonglong, unsigned long long, unsigned long long int, uint64, uint64_t",
    "f4": "float",
    "f8": "double",
}
TYPES = {name: dtype for dtype, names in _NAMES.items() for name in names.split(", ")}
ENCODINGS = {"raw": "raw", "gzip": "zlib", "gz": "zlib", "bzip2": "bzip2", "bz2": "bzip2"}
ENCODINGS |= dict.fromkeys(("text", "txt", "ascii"), "text")
NON_CHANNEL_KINDS = ("domain", "space", "time", "none", "???")  # kinds of axes that are not channels
_ANATOMICAL = re.compile(r"(?i)(right-anterior|left-anterior|left-posterior)-superior(-time)?|(ras|las|lps)t?")
"""Values of the field ``space`` that define the axes in the patient, such as right-anterior-superior."""
_OTHER_SPACES = {"scanner-xyz": 3, "3d-right-handed": 3, "3d-left-handed": 3}
_OTHER_SPACES |= {f"{name}-time": 4 for name in _OTHER_SPACES}
_VECTOR = re.compile(r"\(([^()]{1,400})\)|(none)")
USED_FIELDS = {
    *{"type", "dimension", "sizes", "encoding", "endian", "datafile", "lineskip", "byteskip", "kinds", "centers"},
    *{"space", "spacedimension", "spacedirections", "spaceorigin", "spacings", "axismins", "axismaxs"},
}


def read_nrrd(path: Path, head: bytes) -> Header:
    """Read the header in the first bytes of a file."""
    fields, end = nrrd_fields(path, head)
    count = fields.axes("dimension")
    all_sizes = fields.sizes("sizes", count)
    voxels = _voxels(fields, end)
    kinds = fields.text("kinds", "domain " * count).lower().split()
    if len(kinds) != count:
        raise fields.invalid("kinds", f"has {len(kinds)} words for {count} axes")
    spatial = [axis for axis, kind in enumerate(kinds) if kind in NON_CHANNEL_KINDS]
    vector_axes = [axis for axis in range(count) if axis not in spatial]
    if len(vector_axes) > 1 or any("matrix" in kinds[axis] or kinds[axis] == "complex" for axis in vector_axes):
        finding = f"unsupported kinds of axes: {' '.join(kinds)!a:.80}"
        raise unsupported(fields.path, finding, "save one real number per voxel and channel")
    sizes = tuple(all_sizes[axis] for axis in spatial)
    channels, channel_axis = (all_sizes[vector_axes[0]], vector_axes[0]) if vector_axes else (1, 0)
    is_placed = "spacedirections" in fields.values and bool(_ANATOMICAL.fullmatch(fields.text("space")))
    grid = _grid(fields, count, spatial)
    return Header(voxels, sizes, channels, channel_axis, *grid, is_placed, "time" in kinds)


def nrrd_fields(path: Path, head: bytes) -> tuple[Fields, int]:
    """Return the fields up to the first empty line, and the end of the header."""
    fields, end, is_ended = Fields(path), 0, False
    for line, place in header_lines(head)[1:]:
        end = place
        if is_ended := not line:
            break
        name, _, value = line.partition(":")
        name = name.replace(" ", "").lower().replace("centerings", "centers")
        # lines with "#" are comments, and "key:=value" is custom metadata
        if name in USED_FIELDS and not value.startswith("="):
            fields.add(name, value)
    if not is_ended and "datafile" not in fields.values:
        raise unreadable_header(path, "it has no end")
    if "type" not in fields.values:
        raise unreadable_header(path, "it has no type")
    return fields, end


def _voxels(fields: Fields, end: int) -> VoxelFile:
    type_name, encoding = " ".join(fields.text("type").lower().split()), fields.text("encoding").lower()
    if type_name not in TYPES or encoding not in ENCODINGS:
        finding = f"unsupported voxel type {type_name!a:.40} or encoding {encoding!a:.40}"
        raise unsupported(fields.path, finding, "save one real number per voxel and channel, raw or with gzip")
    encoding, dtype = ENCODINGS[encoding], np.dtype(TYPES[type_name])
    endian = fields.text("endian").lower()
    if endian not in ("little", "big") and (endian or (dtype.itemsize > 1 and encoding != "text")):
        raise fields.invalid("endian", "is neither little nor big")
    lines, skip = fields.integer("lineskip", 0), fields.integer("byteskip", 0)
    if lines < 0 or skip < -1 or ((lines or skip) and encoding != "raw"):
        raise unsupported(fields.path, f"{lines} lines and {skip} bytes to skip", "save the scan without skipped data")
    name = fields.text("datafile")
    path = fields.data_file(name) if name else fields.path
    dtype = dtype.newbyteorder(">" if endian == "big" else "<")
    return VoxelFile(path, encoding, dtype, 0 if name else end, lines, skip)


def _grid(fields: Fields, count: int, spatial: list[int]) -> tuple[Floats, Floats, Floats]:
    """Return spacing, origin and directions of the spatial axes in LPS coordinates."""
    spacing, origin, directions = np.ones(len(spatial)), np.zeros(len(spatial)), np.eye(len(spatial))
    world = _world_axes(fields)
    if world == 0:
        return _plain_grid(fields, count, spatial)
    if world != len(spatial):
        finding = f"{len(spatial)} spatial axes in a space of {world} dimensions"
        raise unsupported(fields.path, finding, 'mark the axis of the channels as "vector" in the field kinds')
    if "spacings" in fields.values:
        raise fields.invalid("spacings", "must not be combined with space")
    # LPS has the opposite directions of RAS
    space = fields.text("space").lower()
    signs = np.ones(world)
    if _ANATOMICAL.fullmatch(space):
        signs[0] = -1 if space.startswith("r") else 1
        signs[1] = -1 if "anterior" in space or space[1] == "a" else 1
    if "spaceorigin" in fields.values:
        stored = _vectors(fields, "spaceorigin", 1, world)[0]
        origin = np.zeros(world) if np.isnan(stored).any() else stored * signs
    if "spacedirections" in fields.values:
        vectors = _vectors(fields, "spacedirections", count, world)[spatial]
        if np.isnan(vectors).any():
            raise fields.invalid("spacedirections", "has no direction of a spatial axis")
        with np.errstate(all="ignore"):
            spacing = np.sqrt(sum(vectors[:, axis] ** 2 for axis in range(world)))
            directions = (vectors * (1.0 / spacing)[:, None] * signs).T
    return spacing, origin, directions


def _plain_grid(fields: Fields, count: int, spatial: list[int]) -> tuple[Floats, Floats, Floats]:
    """Return spacing, origin and directions of axes without a space."""
    steps, low = (
        fields.floats(name, count)[spatial] if name in fields.values else np.full(len(spatial), np.nan)
        for name in ("spacings", "axismins")
    )
    if np.isnan(steps).any() and "axismaxs" in fields.values:
        raise unsupported(fields.path, "axis maxs without spacings", "save the scan with spacings")
    origin = np.zeros(len(spatial))
    if np.isfinite(steps).all() and np.isfinite(low).all():
        centers = fields.text("centers", "cell " * count).lower().split()
        if len(centers) != count:
            raise fields.invalid("centers", f"has {len(centers)} words for {count} axes")
        origin = low + np.array([0.0 if centers[axis] == "node" else 0.5 for axis in spatial]) * steps
    return np.where(np.isnan(steps), 1.0, steps), origin, np.eye(len(spatial))


def _world_axes(fields: Fields) -> int:
    """Return the number of dimensions of the space, or 0 if the header has no space."""
    space = fields.text("space").lower()
    if _ANATOMICAL.fullmatch(space):
        return 4 if space.endswith(("t", "time")) else 3
    if space and space not in _OTHER_SPACES:
        raise fields.invalid("space", "is unknown")
    if space and "spacedimension" in fields.values:
        raise fields.invalid("spacedimension", "must not be combined with space")
    return _OTHER_SPACES.get(space) or (fields.axes("spacedimension") if "spacedimension" in fields.values else 0)


def _vectors(fields: Fields, name: str, count: int, world: int) -> Floats:
    """Return the vectors of a field as rows. The vector ``none`` becomes NaN."""
    vectors = _VECTOR.findall(text := fields.text(name))
    if len(vectors) != count or _VECTOR.sub("", text).strip():
        raise fields.invalid(name, f"is not {count} vectors")
    rows = [[np.nan] * world if none else fields.parse_floats(name, inner.split(","), world) for inner, none in vectors]
    return np.array(rows)
