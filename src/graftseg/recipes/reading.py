"""YAML as people write it, in which a key that stands twice is a mistake."""

from collections.abc import Iterator, Sequence
from copy import deepcopy
from difflib import get_close_matches
from functools import lru_cache
from typing import Any

import yaml


class NotYamlError(ValueError):
    """A text that is no YAML, or has a value that its tag does not allow."""


class RepeatedKeyError(ValueError):
    """A key that a mapping has twice; lines count from 1."""

    def __init__(self, key: str, first: int, second: int) -> None:
        super().__init__(f"the key {key} is given twice, in lines {first} and {second}")


def read_yaml(text: str) -> Any:
    """The values of a text; of a key that is given twice the parser alone would silently keep the last."""
    return deepcopy(_parsed(text))


# recipes rest on a few shared parts, which a table of them reads again and again
@lru_cache(maxsize=256)
def _parsed(text: str) -> Any:
    """The same, not to be changed by those who ask."""
    try:
        return _constructed(yaml.SafeLoader(text))
    except RepeatedKeyError:
        raise
    except (yaml.YAMLError, ValueError, RecursionError) as error:
        raise NotYamlError(" ".join(str(error).split())) from None
    except (LookupError, AttributeError, TypeError):
        # what the parser raises for a value like !!bool foo
        raise NotYamlError("a value does not fit the tag before it") from None


def _constructed(loader: yaml.SafeLoader) -> Any:
    try:
        root = loader.get_single_node()
        for key, first, second in _repeated(root):
            raise RepeatedKeyError(key, first, second)
        return None if root is None else loader.construct_document(root)
    finally:
        loader.dispose()


def _repeated(root: yaml.Node | None) -> Iterator[tuple[str, int, int]]:
    """Keys that stand twice in a mapping, with both lines; what is named by an anchor is looked at once."""
    pending, seen = [root], set[int]()
    while pending:
        node = pending.pop(0)
        if not isinstance(node, yaml.CollectionNode) or id(node) in seen:
            continue
        seen.add(id(node))
        if isinstance(node, yaml.MappingNode):
            yield from _repeated_here([key for key, _ in node.value])
            pending += [value for _, value in node.value]
        else:
            pending += node.value


def _repeated_here(keys: list[yaml.Node]) -> Iterator[tuple[str, int, int]]:
    lines: dict[tuple[str, str], int] = {}
    for key in keys:
        if isinstance(key, yaml.ScalarNode):
            line, name = key.start_mark.line + 1, (key.tag, key.value)
            if name in lines:
                yield key.value, lines[name], line
            lines[name] = line


CLOSE = 0.75
"""How much alike two names are of which one may be meant by the other, between 0 and 1."""


def likely(given: str, known: Sequence[str]) -> str:
    """The known name that is most like the given one, or else those of its folder, in a phrase; empty for none."""
    folder, slash, name = given.lower().partition("/")
    beside = [name.partition("/")[2] for name in known if name.startswith(f"{folder}/")]
    if beside and not name:
        return f"{folder}/ has {', '.join(beside)}"
    by_letters = {name.lower(): name for name in known}
    if close := get_close_matches(given.lower(), by_letters, 1, CLOSE):
        return f"perhaps {by_letters[close[0]]} is meant"
    return f"{folder}/ has {', '.join(beside)}" if slash and beside else ""
