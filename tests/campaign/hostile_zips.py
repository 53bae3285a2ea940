"""Zips of DICOM slices with hostile names, kinds of entries and damage."""

import io
import stat
import struct
import zipfile
import zlib
from collections.abc import Callable
from pathlib import Path
from random import Random

from dicom_data import dicom_slice, write_dicom

EVIL = "evil-entry"
NAMES = {
    "plain": "a.dcm",
    "parent": f"../{EVIL}.dcm",
    "deep": f"../../../../{EVIL}.dcm",
    "inner parent": f"a/../../{EVIL}.dcm",
    "absolute": f"/{EVIL}.dcm",
    "home": f"~/{EVIL}.dcm",
    "drive": f"C:\\{EVIL}.dcm",
    "backslash": f"..\\..\\{EVIL}.dcm",
    "network": f"\\\\host\\{EVIL}.dcm",
    "empty": "",
    "dot": ".",
    "dots": "..",
    "slash": "/",
    "hidden": ".a.dcm",
    "device name": "CON.dcm",
    "colors": "\x1b[31ma.dcm",
    "newline": "a\nb.dcm",
    "bell": "a\x07.dcm",
    "override": "a\u202emcd.exe.dcm",
    "markup": "<script>alert(1)</script>.dcm",
    "rich": "[red]a[/red].dcm",
    "format": "{0}%s.dcm",
    "long": "a" * 5000 + ".dcm",
    "deep folders": "a/" * 2000 + "a.dcm",
    "spaces": " a .dcm ",
    "no suffix": "a",
    "stream": "a.dcm:evil",
}
MODES = {
    "file": stat.S_IFREG | 0o644,
    "link": stat.S_IFLNK | 0o777,
    "device": stat.S_IFBLK | 0o666,
    "character device": stat.S_IFCHR | 0o666,
    "pipe": stat.S_IFIFO | 0o666,
    "set user": stat.S_IFREG | 0o6777,
    "folder": stat.S_IFDIR | 0o755,
    "none": 0,
}


def _entries(random: Random, folder: Path, name: str) -> list[tuple[str, bytes]]:
    """Return a series of four slices, of which one has the hostile name, and maybe a copy of a name."""
    contents = [write_dicom(folder / f"{z}.dcm", dicom_slice(z)).read_bytes() for z in range(4)]
    names = [name, "b.dcm", "c.dcm", "d.dcm"]
    match random.choice(["single", "single", "twice", "case", "also a folder"]):
        case "twice":
            names[2] = "b.dcm"
        case "case":
            names[2] = "B.DCM"
        case "also a folder":
            names[2] = "b.dcm/c.dcm"
    return list(zip(names, contents, strict=True))


def hostile_zip(path: Path, random: Random) -> str:
    """Write a zip with a random name, kind of entry and damage. Return what was drawn."""
    name, mode, damage = (random.choice(list(choices)) for choices in (NAMES, MODES, DAMAGES))
    stream = io.BytesIO()
    methods = (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED, zipfile.ZIP_DEFLATED, zipfile.ZIP_BZIP2, zipfile.ZIP_LZMA)
    with zipfile.ZipFile(stream, "w") as archive:
        for index, (entry, content) in enumerate(_entries(random, path.parent / "slices", NAMES[name])):
            info = zipfile.ZipInfo("placeholder")
            info.filename, info.compress_type = entry, random.choice(methods)
            info.external_attr = (MODES[mode] if index == 0 else MODES["file"]) << 16
            target = b"/etc/passwd" if mode == "link" and index == 0 else content
            _write(archive, info, target)
    path.write_bytes(DAMAGES[damage](random, bytearray(stream.getvalue())))
    return f"{name}, {mode}, {damage}"


def _write(archive: zipfile.ZipFile, info: zipfile.ZipInfo, content: bytes) -> None:
    import warnings

    with warnings.catch_warnings():
        # two entries with one name
        warnings.simplefilter("ignore")
        archive.writestr(info, content)


def _set(content: bytearray, signature: bytes, at: int, form: str, value: int) -> bytearray:
    """Change a field of the first record with a signature."""
    begin = content.index(signature) + at
    content[begin : begin + struct.calcsize(form)] = struct.pack(form, value)
    return content


LOCAL, CENTRAL, END = b"PK\3\4", b"PK\1\2", b"PK\5\6"
Damage = Callable[[Random, bytearray], bytes | bytearray]
DAMAGES: dict[str, Damage] = {
    "none": lambda _, content: content,
    "still none": lambda _, content: content,
    "wrong checksum": lambda _, content: _set(content, CENTRAL, 16, "<I", 7),
    "encrypted": lambda _, content: _set(content, CENTRAL, 8, "<H", 1),
    "encrypted locally": lambda _, content: _set(content, LOCAL, 6, "<H", 1),
    "unknown method": lambda _, content: _set(content, CENTRAL, 10, "<H", 99),
    "too small": lambda _, content: _set(content, CENTRAL, 24, "<I", 10),
    "too large": lambda _, content: _set(content, CENTRAL, 24, "<I", 2**31),
    "compressed size": lambda _, content: _set(content, CENTRAL, 20, "<I", 2**31),
    "overlap": lambda _, content: (
        content[: content.rindex(CENTRAL) + 42] + bytes(4) + content[content.rindex(CENTRAL) + 46 :]
    ),
    "offset": lambda _, content: _set(content, CENTRAL, 42, "<I", 2**31),
    "name length": lambda _, content: _set(content, CENTRAL, 28, "<H", 65535),
    "extra length": lambda _, content: _set(content, CENTRAL, 30, "<H", 65535),
    "comment length": lambda _, content: _set(content, END, 20, "<H", 65535),
    "count": lambda random, content: _set(content, END, 10, "<H", random.randrange(65535)),
    "directory size": lambda _, content: _set(content, END, 12, "<I", 2**31),
    "directory offset": lambda _, content: _set(content, END, 16, "<I", 2**31),
    "local name": lambda _, content: _set(content, LOCAL, 30, "<B", 0),
    "disk": lambda _, content: _set(content, END, 4, "<H", 9),
    "prefix": lambda random, content: random.randbytes(99) + content,
    "suffix": lambda random, content: content + random.randbytes(99),
    "comment": lambda _, content: _set(content, END, 20, "<H", 30000) + b"PK\5\6" * 7500,
    "no end": lambda _, content: content[: content.index(END)],
    "no directory": lambda _, content: content[: content.index(CENTRAL)],
    "half": lambda _, content: content[: len(content) // 2],
    "directory cut": lambda _, content: content[: content.rindex(CENTRAL) + 20] + content[content.index(END) :],
    "two zips": lambda _, content: content + content,
    "empty": lambda _, content: b"",
    "only an end": lambda _, content: content[content.index(END) :],
    "flipped bytes": lambda random, content: _flip(random, content),
    "compressed again": lambda _, content: zlib.compress(content),
}


def _flip(random: Random, content: bytearray) -> bytearray:
    for _ in range(5):
        content[random.randrange(len(content))] ^= 1 << random.randrange(8)
    return content
