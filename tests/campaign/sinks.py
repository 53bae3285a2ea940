"""What hostile names may do to an output: be shown as text, and nothing else."""

import csv
import io
import json
import re
import unicodedata
from collections.abc import Iterator
from html import unescape
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import yaml
from payloads import Payload

from graftseg.core.errors import in_one_line
from graftseg.core.names import INVISIBLE, nfc

FORMULA = ("=", "+", "-", "@", "\t", "\r")
OWN_CODES = re.compile(r"\x1b\[(?:[0-9]{1,2}(?:;[0-9]{1,2})*)?m|\x1b\[\?25[lh]|\x1b\[2K|\x1b\[1A")
"""Codes that progress bars and tables print on a terminal. No payload contains one of them."""


def problem(payload: Payload, sink: str, content: str) -> str | None:
    """Return how a payload misbehaves in the content of a file or stream, or None."""
    checks = {".html": _html, ".svg": _html, ".csv": _csv, ".json": _json, ".jsonl": _json_lines, ".yaml": _yaml}
    return checks.get(Path(sink).suffix, _text)(payload, content)


def is_inside(payload: Payload, content: str) -> bool:
    """Return whether a payload reached an output."""
    return payload.mark in content


class Structure(HTMLParser):
    """Tags with attribute names, the texts of scripts, and all other texts and attribute values."""

    def __init__(self, content: str) -> None:
        super().__init__()
        self.tags: list[tuple[str, tuple[str, ...]]] = []
        self.scripts: list[str] = []
        self.texts: list[str] = []
        self._inside = ""
        self.feed(content)
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, tuple(name for name, _ in attrs)))
        self.texts += [value or "" for _, value in attrs]
        self._inside = tag

    def handle_endtag(self, tag: str) -> None:
        self.tags.append((f"/{tag}", ()))
        self._inside = ""

    def handle_data(self, data: str) -> None:
        (self.scripts if self._inside in ("script", "style") else self.texts).append(data)

    def handle_comment(self, data: str) -> None:
        self.tags.append(("comment", ()))

    def handle_decl(self, decl: str) -> None:
        self.tags.append((f"declaration {decl}", ()))

    def unknown_decl(self, data: str) -> None:
        self.tags.append(("unknown declaration", ()))


def structure_problem(content: str, reference: str) -> str | None:
    """Return the first tag in which a page differs from the same page with harmless names, or None."""
    tags, expected = Structure(content).tags, Structure(reference).tags
    if handlers := [names for _, names in tags if any(name.startswith("on") for name in names)]:
        return f"an event handler, {handlers[0]}"
    for index, (found, wanted) in enumerate(zip(tags, expected, strict=False)):
        if found != wanted:
            return f"tag {index} is {found} instead of {wanted}"
    return None if len(tags) == len(expected) else f"{len(tags)} instead of {len(expected)} tags"


def _html(payload: Payload, content: str) -> str | None:
    parsed = Structure(content)
    if any(payload.mark in script for script in parsed.scripts):
        return "inside of a script or style"
    texts = [text for text in parsed.texts if payload.mark in text]
    if not texts:
        return "outside of texts and attribute values"
    if found := _control(unescape("".join(texts)), "\n\t"):
        return f"the control character {found!a}"
    if payload.is_literal and not any(payload.text in text for text in texts):
        return "changed"
    return None


def _text(payload: Payload, content: str) -> str | None:
    content = OWN_CODES.sub("", content)
    lines = [line for line in content.split("\n") if payload.mark in line]
    found = _control(payload.text, "") if payload.text in content else _control("".join(lines), "\t")
    if found:
        return f"the control character {found!a}"
    if payload.is_literal and payload.text not in content.replace("\n", ""):
        return "changed"
    return None


def _csv(payload: Payload, content: str) -> str | None:
    cells = [cell for row in csv.reader(io.StringIO(content, newline=""), strict=True) for cell in row]
    found = [cell for cell in cells if payload.mark in cell]
    if formula := next((cell for cell in found if cell.startswith(FORMULA)), None):
        return f"a cell that starts with {formula[0]!a}"
    return None if any(_has_name(payload, cell) for cell in found) else "no cell with the exact name"


def _json(payload: Payload, content: str) -> str | None:
    return _exact(payload, json.loads(content))


def _json_lines(payload: Payload, content: str) -> str | None:
    return _exact(payload, [json.loads(line) for line in content.split("\n") if line])


def _yaml(payload: Payload, content: str) -> str | None:
    without_comments = "".join(line for line in content.splitlines(keepends=True) if line.lstrip()[:1] != "#")
    if payload.mark not in without_comments:
        # comments are broken into lines
        return _text(payload, re.sub(r"\n *#", "", content))
    return _exact(payload, yaml.safe_load(content))


def _exact(payload: Payload, content: Any) -> str | None:
    texts = [text for text in _strings(content) if payload.mark in text]
    return None if any(_has_name(payload, text) for text in texts) else "no text with the exact name"


def _has_name(payload: Payload, text: str) -> bool:
    """Return whether a text contains the name, or the name with escapes as in an error."""
    return nfc(payload.text) in nfc(text) or in_one_line(nfc(payload.text)) in text


def _strings(content: Any) -> Iterator[str]:
    if isinstance(content, str):
        yield content
    elif isinstance(content, dict):
        for key, value in content.items():
            yield from _strings(key)
            yield from _strings(value)
    elif isinstance(content, list):
        for value in content:
            yield from _strings(value)


def _control(text: str, allowed: str) -> str:
    """Return the first control character, line separator or bidirectional override, or an empty string."""
    kinds = ("Cc", "Zl", "Zp", "Cs")
    for one in text:
        if one not in allowed and (unicodedata.category(one) in kinds or ord(one) in INVISIBLE):
            return one
    return ""
