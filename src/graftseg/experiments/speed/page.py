"""A measurement as a table for people."""

from graftseg.experiments.speed.measure import Measurement, Times
from graftseg.experiments.speed.stopwatch import PHASES

APART = 0.1


def table(result: Measurement) -> str:
    """The split of the step, the whole step, memory, and how the two ways compare."""
    facts = result.facts
    size, batch = "x".join(map(str, facts["patch"])), facts["batch"]
    ways = [result.own] if result.usual is None else [result.own, result.usual]
    beside = f" ({facts['usual_warm_up']} the usual way)" if result.usual else ""
    heads = ["graftseg", "usual way"][: len(ways)]
    lines = [
        f"{facts['recipe']} on {facts['device']}: patches of {size}, {batch['labeled']} labeled and "
        f"{batch['unlabeled']} unlabeled a step, {', '.join(_words(result))}",
        "",
        _row("ms a step", heads),
        *(_row(name, [f"{way.split_ms[name]:.2f}" for way in ways]) for name in PHASES),
        _row("phases, one by one", [f"{sum(way.split_ms.values()):.2f}" for way in ways]),
        _row("whole step", [f"{way.step_ms:.2f}" for way in ways]),
        _row("steps a second", [f"{1000 / way.step_ms:.2f}" for way in ways]),
        _row("peak memory, MiB", [f"{way.peak_mib:.0f}" for way in ways]),
        "",
        f"Medians over rounds in turn: {facts['rounds']}, each of {facts['steps_a_round']} timed steps "
        f"({facts['rounds'] * facts['steps_a_round']} together) after {facts['warm_up']} to warm up{beside}.",
    ]
    if result.ratio is not None:
        low, high = _spread(result)
        lines.append(f"The usual way takes {result.ratio:.2f} times as long ({low:.2f} to {high:.2f} by round).")
        if high > (1 + APART) * low:
            lines.append("Rounds are more than a tenth apart: other programs ran; close them and time it again.")
    return "\n".join(lines)


def _words(result: Measurement) -> list[str]:
    facts = result.facts
    return [facts["precision"], *(name for name in ("compiled", "captured") if facts[name]), facts["data"]]


def _spread(result: Measurement) -> tuple[float, float]:
    """The smallest and the largest ratio of a round."""
    theirs = Times() if result.usual is None else result.usual
    ratios = [b / a for a, b in zip(result.own.steps, theirs.steps, strict=True)]
    return min(ratios), max(ratios)


def _row(name: str, cells: list[str]) -> str:
    return f"{name:<20}" + "".join(f"{cell:>12}" for cell in cells)
