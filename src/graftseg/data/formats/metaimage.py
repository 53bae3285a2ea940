"""Headers of MetaImage files (``.mha``, ``.mhd``)."""

from pathlib import Path

import numpy as np

from graftseg.data.formats.header_text import Fields, Header, VoxelFile, header_lines, unreadable_header
from graftseg.data.formats.scan import unsupported

TYPES = {
    "char": "i1",
    "ascii_char": "i1",
    "uchar": "u1",
    "short": "i2",
    "ushort": "u2",
    "int": "i4",
    "uint": "u4",
    "long": "i4",
    "ulong": "u4",
    "long_long": "i8",
    "ulong_long": "u8",
    "float": "f4",
    "double": "f8",
}
"""Numpy types by the name of a MetaImage type, without ``MET_`` and ``_ARRAY``."""
LOCAL = "LOCAL"  # value of ElementDataFile if the voxels follow the header
DIRECTIONS = ("transformmatrix", "rotation", "orientation")
ORIGINS = ("origin", "offset", "position")
SPACINGS = ("elementspacing", "elementsize")
"""Alternative names of three fields. As in ITK, the first listed name that the header contains is used."""
USED_FIELDS = {
    *{"ndims", "dimsize", "elementtype", "elementnumberofchannels", "elementdatafile", "headersize"},
    *{"binarydata", "compresseddata", "compresseddatasize", "binarydatabyteordermsb", "elementbyteordermsb"},
    *{*DIRECTIONS, *ORIGINS, *SPACINGS},
}


def read_metaimage(path: Path, head: bytes) -> Header:
    """Read the header in the first bytes of a file."""
    fields, end = metaimage_fields(path, head)
    count = fields.axes("ndims")
    sizes = fields.sizes("dimsize", count)
    spacing, origin, directions = np.ones(count), np.zeros(count), np.eye(count)
    if name := fields.first(SPACINGS):
        spacing = fields.floats(name, count)
    if name := fields.first(ORIGINS):
        origin = fields.floats(name, count)
    if directions_name := fields.first(DIRECTIONS):
        directions = fields.floats(directions_name, count * count).reshape(count, count).T
    channels = fields.integer("elementnumberofchannels", 1)
    if not 1 <= channels <= 2**16:
        raise fields.invalid("elementnumberofchannels", f"is {channels}")
    return Header(_voxels(fields, end), sizes, channels, 0, spacing, origin, directions, directions_name is not None)


def metaimage_fields(path: Path, head: bytes) -> tuple[Fields, int]:
    """Return the fields up to ElementDataFile, which ends the header, and the end of the header."""
    fields = Fields(path)
    for line, end in header_lines(head):
        separator = min((place for sign in "=:" if (place := line.find(sign)) >= 0), default=-1)
        name = line[: max(separator, 0)].strip().lower()
        if name in USED_FIELDS:
            fields.add(name, line[separator + 1 :])
        if name == "elementdatafile":
            return fields, end
    raise unreadable_header(path, "ElementDataFile is missing" if "ndims" in fields.values else "not NRRD or MetaImage")


def _voxels(fields: Fields, end: int) -> VoxelFile:
    type_name = fields.text("elementtype").lower().removeprefix("met_").removesuffix("_array")
    if type_name not in TYPES:
        finding = f"unsupported voxel type {type_name!a:.40}" if type_name else "the header has no ElementType"
        raise unsupported(fields.path, finding, "save one real number per voxel and channel")
    is_big = fields.is_true(fields.first(("binarydatabyteordermsb", "elementbyteordermsb")) or "elementbyteordermsb")
    dtype = np.dtype(TYPES[type_name]).newbyteorder(">" if is_big else "<")
    encoding = "raw" if fields.is_true("binarydata", default=True) else "text"
    if fields.is_true("compresseddata"):
        encoding = "zlib"
    elif fields.integer("compresseddatasize", 0) > 0:
        raise fields.invalid("compresseddata", "is missing, although there is a compresseddatasize")
    skip = fields.integer("headersize", 0)
    name = fields.text("elementdatafile")
    is_local = name.upper() == LOCAL
    if skip < -1 or (skip and encoding != "raw") or (skip > 0 and is_local):
        raise unsupported(fields.path, f"HeaderSize is {skip}", "save the scan without HeaderSize")
    return VoxelFile(
        fields.path if is_local else fields.data_file(name), encoding, dtype, end if is_local else 0, skip=skip
    )
