"""Hostile texts for names: markup, templates, terminal codes, formulas, paths and odd Unicode."""

from dataclasses import dataclass
from random import Random

MARK = "@@"
TEMPLATES = {
    "tag": "<b>@@</b>",
    "image": "<img src=x onerror=alert(1)>@@",
    "script": "<script>alert('@@')</script>",
    "end of script": "</script><script>@@</script>",
    "end of title": "</title></style><i>@@",
    "double quote": '"@@" onmouseover="a',
    "single quote": "'@@' onfocus='a",
    "comment": "<!--@@-->",
    "cdata": "<![CDATA[@@]]>",
    "entity": "&lt;@@&#60;&amp;",
    "svg": "<svg/onload=alert(1)>@@",
    "jinja": "{{7*7}}@@{% raw %}",
    "format": "{0}{x}@@{}",
    "percent": "%s%d%n@@%(x)s",
    "rich": "[red]@@[/red]",
    "rich end": "[/]@@[link=http://x]",
    "dollar": "${HOME}@@`id`$(id)",
    "color": "\x1b[38;5;213m@@",
    "clear": "a\x1b[2J@@",
    "title": "\x1b]0;x\x07@@",
    "c1": "\x9b31m@@",
    "backspace": "aaaa\b\b\b\b@@",
    "bell": "\x07@@",
    "override": "a\u202e@@",
    "isolate": "a\u2066@@\u2069",
    "newline": "a\ngraftseg: @@",
    "return": "a\rgraftseg: @@",
    "line separator": "a\u2028@@",
    "next line": "a\x85@@",
    "tab": "\ta\t@@",
    "formula": "=1+1@@",
    "plus": "+1@@",
    "minus": "-1@@",
    "at": "@SUM(A1)@@",
    "tab formula": "\t=1@@",
    "return formula": "\r=1@@",
    "quoted formula": '"=1@@',
    "cell": 'a","=1@@',
    "semicolon": "a;=1@@",
    "long": "@@" + "n" * 150,
    "dashes": "--out=@@",
    "emoji": "\U0001f468\u200d\U0001f469\u200d\U0001f467@@",
    "marks": "e" + "\u0301" * 20 + "@@",
    "zero width": "a\u200b@@\ufeff",
    "yaml": "a: [@@, *x] # &y",
    "yaml tag": "!!python/object:os.system @@",
    "null word": "null@@",
    "spaces": "  a  @@  b",
    "parent": "../@@",
    "deep": "../../../../@@",
    "absolute": "/tmp/@@",
    "backslash": "..\\@@",
    "inner backslash": "a\\@@",
    "url": "//x.y/@@",
    "nul": "a\x00@@",
}
LITERAL = ("jinja", "format", "percent", "rich", "rich end", "dollar")
"""Payloads that must be shown as they are, because a template, a format or a markup would change them."""


@dataclass(frozen=True)
class Payload:
    """A hostile text with a random ``mark`` inside, by which it is found in outputs."""

    kind: str
    text: str
    mark: str

    @property
    def is_literal(self) -> bool:
        """Whether the text must be shown unchanged."""
        return self.kind in LITERAL


def payloads(random: Random, number: int, *, for_files: bool = False, without: str = "") -> list[Payload]:
    """Draw different payloads. ``for_files`` leaves out texts that no file can have as its name."""
    excluded = "/\x00" if for_files else without
    templates = {name: text for name, text in TEMPLATES.items() if not set(excluded) & set(text)}
    if for_files:
        # files whose name starts with a dot are hidden
        templates = {name: text for name, text in templates.items() if not text.startswith(".")}
    return [_payload(random, kind, templates[kind]) for kind in random.sample(sorted(templates), number)]


def harmless(payload: Payload, place: int) -> Payload:
    """Return a harmless text of the same length that sorts by ``place``."""
    text = f"n{place:03d}".ljust(len(payload.text), "x")
    return Payload("harmless", text, text)


def _payload(random: Random, kind: str, template: str) -> Payload:
    mark = "q" + "".join(random.choice("bcdfghjkmpqrstvwz") for _ in range(7))
    return Payload(kind, template.replace(MARK, mark), mark)
