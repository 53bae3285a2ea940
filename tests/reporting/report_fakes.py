"""A small run folder, and a parser that checks a page."""

import json
import struct
import subprocess
import zlib
from base64 import b64decode
from html.parser import HTMLParser
from pathlib import Path
from shutil import which
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
import yaml

from graftseg.core.predictions import Manifest, PredictedCase
from graftseg.core.types import Geometry
from graftseg.data.scans import write_label, write_scan
from scoring import evaluate_folder

CLASSES = {1: "ring", 2: "<core>"}
CASES = ("a", "b<script>alert(1)&amp;", "c", "d")
SHAPE = (24, 20)
GEOMETRY = Geometry(SHAPE, ((1.5, 0, 0, 0), (0, 1.5, 0, 0), (0, 0, 1, 0), (0, 0, 0, 1)))


def write_facts(run: Path, **changes: Any) -> None:
    facts = {
        "format": 1,
        "status": "finished",
        "method": "bcp",
        "recipe": "demo-2d/bcp",
        "seed": 7,
        "store": {
            "path": "/home/someone/secret/demo/store",
            "identity": "ab" * 32,
            "classes": ["background", *CLASSES.values()],
            "labeled": ["l0", "l1"],
            "unlabeled": ["u0", "u1", "u2"],
        },
        "versions": {"graftseg": "0.1.0", "torch": "2.10.0"},
        "device": "cpu",
        "parameters": 12345,
        "started": "2025-01-01T00:00:00+00:00",
        "wall_seconds": 75.0,
        "steps": 20,
        "seconds_per_step": {"update": 0.01, "batch": 0.02, "forward": 0.03, "backward": 0.04},
        "checkpoint": "last",
    }
    run.mkdir(parents=True, exist_ok=True)
    (run / "run.json").write_text(json.dumps(facts | changes))


def write_log(run: Path, first: int = 10, second: int = 10) -> None:
    lines: list[dict[str, Any]] = []
    for step in range(first + second):
        stage, method = (0, "bcp-pretrain") if step < first else (1, "bcp")
        terms = {"L_pretrain": 2.0} if stage == 0 else {"L_in": 0.5, "L_out": 0.5}
        where = {"stage": stage, "method": method, "step": step, "global_step": step}
        lines.append({**where, "lr": 0.01, "terms": terms, "total": sum(terms.values())})
        if step % 5 == 4:
            lines.append({**where, "validation": {"dice": 0.5 + step / 100}})
    (run / "log.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))


def write_snapshots(run: Path, steps: tuple[int, ...] = (0, 5, 10, 15, 19)) -> None:
    (run / "snapshots").mkdir(exist_ok=True)
    rng = np.random.default_rng(0)
    watched = rng.random(SHAPE)
    M = np.ones(SHAPE, np.uint8)
    M[6:18, 5:15] = 0
    for step in steps:
        arrays: dict[str, npt.NDArray[Any]] = {"M": M, "method": np.array("bcp")}
        for name in ("mixed",) if step < 10 else ("in", "out"):
            arrays[f"X_{name}"], arrays[f"Y_{name}"] = rng.random(SHAPE), disc(5.0)
        if step >= 10:
            arrays["X_watch_0"], arrays["Y_watch_0"] = watched, disc(3.0 + step / 10)
        np.savez(run / "snapshots" / f"{step:06d}.npz", allow_pickle=False, **arrays)


def write_predictions(run: Path, references: Path, radii: dict[str, float]) -> Path:
    """Write discs of the given radii as predictions, with references of radius 8 and a scan of each case."""
    out, entries = run / "predictions", []
    for case, radius in radii.items():
        name = f"{case}.nii.gz"
        write_label(references / name, disc(8.0), GEOMETRY)
        write_label(out / name, disc(radius), GEOMETRY)
        image = references.parent / "images" / name
        write_scan(image, np.random.default_rng(1).random(SHAPE).astype(np.float32), GEOMETRY)
        entries.append(PredictedCase(case, (str(image),), name, 0.1))
    write_manifest(out, *entries)
    evaluate_folder(out, references, classes=CLASSES).write_csv(out / "metrics.csv")
    (out / "metrics.json").write_text(json.dumps({"references": str(references), "protocol": "standard"}))
    return out


def write_manifest(out: Path, *cases: PredictedCase) -> None:
    """Write the manifest of a folder of predictions."""
    Manifest("run", "", {}, tuple(CLASSES.values()), "", "cpu", {}, cases).save(out)


def write_run(folder: Path) -> Path:
    """Write a complete run; case d has the lowest Dice, then c, b and a."""
    run = folder / "run"
    write_facts(run)
    settings = {"about": "/home/someone/secret/data", "stages": [{"method": "bcp", "config": {"alpha": 0.5}}]}
    (run / "recipe.yaml").write_text(yaml.safe_dump(settings))
    write_log(run)
    write_snapshots(run)
    write_predictions(run, folder / "labels", dict(zip(CASES, (7.9, 7.0, 6.0, 5.0), strict=True)))
    return run


def disc(radius: float) -> npt.NDArray[np.uint8]:
    """Return a disc of class 1 with class 2 in its inner half."""
    x, y = np.meshgrid(*(np.arange(n) - n / 2 for n in SHAPE), indexing="ij")
    distance = np.hypot(x, y)
    return np.asarray(2 - np.digitize(distance, [radius / 2, radius]), np.uint8)


def in_chromium(path: Path) -> str:
    """Return the elements of a page after its scripts have run in a window of 1400 pixels, or skip the test."""
    program = which("chromium") or which("chromium-browser") or which("google-chrome")
    if program is None:
        pytest.skip("needs Chromium")
    profile = path.parent / "profile"
    options = ["--headless", "--no-sandbox", "--disable-gpu", f"--user-data-dir={profile}", "--window-size=1400,900"]
    command = [program, *options, "--dump-dom", path.as_uri()]
    return subprocess.run(command, capture_output=True, text=True, check=True, timeout=60).stdout


class Page(HTMLParser):
    """Parses a page, rejects unbalanced elements, and stores elements and texts."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.elements: list[tuple[str, dict[str, str]]] = []
        self.texts: list[tuple[str, str]] = []
        self.feed(text)
        self.close()
        assert self.open == [], f"left open: {self.open}"

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append((tag, {name: value or "" for name, value in attrs}))
        if tag not in ("meta", "input"):
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        if data.strip():
            self.texts.append((self.open[-1] if self.open else "", data))

    def attributes(self, name: str) -> list[str]:
        return [attributes[name] for _, attributes in self.elements if name in attributes]

    @property
    def text(self) -> str:
        return " ".join(data for element, data in self.texts if element not in ("style", "script"))


def decode_png(content: bytes) -> npt.NDArray[np.uint8]:
    """Decode a PNG with the filters None and Up, and check all checksums."""
    assert content[:8] == b"\x89PNG\r\n\x1a\n"
    place, chunks = 8, dict[bytes, bytes]()
    while place < len(content):
        (length,) = struct.unpack(">I", content[place : place + 4])
        kind, data = content[place + 4 : place + 8], content[place + 8 : place + 8 + length]
        (check,) = struct.unpack(">I", content[place + 8 + length : place + 12 + length])
        assert check == zlib.crc32(kind + data)
        chunks[kind] = data
        place += 12 + length
    assert list(chunks) == [b"IHDR", b"IDAT", b"IEND"]
    width, height, depth, color, *rest = struct.unpack(">IIBBBBB", chunks[b"IHDR"])
    assert (depth, rest) == (8, [0, 0, 0])
    channels = {0: 1, 2: 3, 6: 4}[color]
    raw = np.frombuffer(zlib.decompress(chunks[b"IDAT"]), np.uint8).reshape(height, 1 + width * channels)
    rows = np.zeros((height + 1, width * channels), np.uint8)
    for index, line in enumerate(raw):
        assert line[0] in (0, 2)
        rows[index + 1] = line[1:] + (rows[index] if line[0] == 2 else 0)
    return rows[1:].reshape((height, width) if channels == 1 else (height, width, channels))


def decode_uri(uri: str) -> npt.NDArray[np.uint8]:
    prefix = "data:image/png;base64,"
    assert uri.startswith(prefix)
    return decode_png(b64decode(uri[len(prefix) :]))
