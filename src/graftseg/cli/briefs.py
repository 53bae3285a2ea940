"""Short output of ``info`` and ``doctor``."""

from collections import Counter
from textwrap import wrap
from typing import Any

CASE_LISTS = ("labeled", "unlabeled", "held_out", "validation", "test")
LINE_WIDTH = 80


def brief(facts: dict[str, Any]) -> dict[str, Any]:
    """Return a shorter version of the output of ``info``."""
    if facts.get("kind") == "recipe":
        # a recipe stays complete, so that users can save and train it
        return {key: value for key, value in facts.items() if key != "kind"}
    if facts.get("kind") != "folds":
        # without dataset.json, the classes of a folder of scans have no names
        return {key: _counted(key, value) for key, value in facts.items() if (key, value) != ("classes", {})}
    left_out = ("format", "version", "figures", "baseline", "beside_baseline", "folds")
    short = {key: value for key, value in facts.items() if key not in left_out}
    sizes = [len(fold["held_out"]) for fold in facts["folds"]]
    return short | {"folds": len(sizes), "held_out_by_fold": sizes} | _dice(facts)


def machine_lines(facts: dict[str, Any]) -> list[str]:
    """Return the output of ``doctor`` as short lines, with the number of recipes in each folder."""
    counts = Counter(name.partition("/")[0] for name in facts["recipes"])
    texts = {
        "versions": ", ".join(f"{name} {version}" for name, version in facts["versions"].items()),
        **{f"extra {name}": installed for name, installed in facts["extras"].items()},
        "devices": ", ".join(facts["devices"]).replace(" 1 threads", " 1 thread"),
        "free disk": f"{facts['disk_free_gib']} GiB",
        "recipes": ", ".join(f"{folder} ({count})" for folder, count in counts.items()),
        "all recipes": "graftseg doctor --recipes",
    }
    return [
        line for name, text in texts.items() for line in wrap(f"{name}: {text}", LINE_WIDTH, subsequent_indent="  ")
    ]


def _counted(key: str, value: Any) -> Any:
    if isinstance(value, dict):
        return {inner_key: _counted(inner_key, inner) for inner_key, inner in value.items()}
    return len(value) if key in CASE_LISTS and isinstance(value, list) else value


def _dice(facts: dict[str, Any]) -> dict[str, Any]:
    """Return Dice of the run and its baseline in percent by class, and the difference with its interval."""
    dice: dict[str, Any] = {}
    for title, part in (("dice_percent", "figures"), ("dice_percent_of_baseline", "baseline")):
        if part in facts:
            means = {name: statistic["mean"] for name, statistic in facts[part]["dice"].items()}
            dice[title] = {name: None if mean is None else round(mean, 2) for name, mean in means.items()}
    if "beside_baseline" in facts:
        dice["dice_difference"] = {
            name: f"{effect['difference']:+.2f}"
            + ("" if effect["low"] is None else f" ({effect['low']:+.2f} to {effect['high']:+.2f})")
            for name, effect in facts["beside_baseline"]["dice"].items()
        }
    return dice
