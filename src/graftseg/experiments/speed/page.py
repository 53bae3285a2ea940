"""A measurement as a text table."""

from graftseg.experiments.speed.measure import Measurement
from graftseg.experiments.speed.stopwatch import PHASES

MAX_SPREAD = 0.1  # a warning is printed if the ratios of two rounds differ by more than this fraction


def table(result: Measurement) -> str:
    """Return a table with the times of the phases and of a step, the memory, and the ratio of both implementations."""
    facts = result.facts
    size, batch = "x".join(map(str, facts["patch"])), facts["batch"]
    both = [result.graftseg] if result.usual is None else [result.graftseg, result.usual]
    usual_warm_up = f" ({facts['usual_warm_up']} for the usual way)" if result.usual else ""
    heads = ["graftseg", "usual way"][: len(both)]
    settings = [facts["precision"], *(name for name in ("compiled", "captured") if facts[name]), facts["data"]]
    lines = [
        f"{facts['recipe']} on {facts['device']}: patches of {size}, {batch['labeled']} labeled and "
        f"{batch['unlabeled']} unlabeled per step, {', '.join(settings)}",
        "",
        _row("ms per step", heads),
        *(_row(name, [f"{times.split_ms[name]:.2f}" for times in both]) for name in PHASES),
        _row("sum of the phases", [f"{sum(times.split_ms.values()):.2f}" for times in both]),
        _row("whole step", [f"{times.step_ms:.2f}" for times in both]),
        _row("steps per second", [f"{1000 / times.step_ms:.2f}" for times in both]),
        _row("peak memory, MiB", [f"{times.peak_mib:.0f}" for times in both]),
        "",
        f"Medians over {facts['rounds']} round{'s' * (facts['rounds'] > 1)} of {facts['steps_a_round']} timed steps "
        f"({facts['rounds'] * facts['steps_a_round']} in total) after {facts['warm_up']} warm-up steps{usual_warm_up}.",
    ]
    if result.usual is not None:
        ratios = [usual / ours for ours, usual in zip(result.graftseg.steps, result.usual.steps, strict=True)]
        low, high = min(ratios), max(ratios)
        lines.append(f"The usual way takes {result.ratio:.2f} times as long ({low:.2f} to {high:.2f} by round).")
        if high > (1 + MAX_SPREAD) * low:
            lines.append("The ratios of the rounds differ by more than 10 %: close other programs and measure again.")
    return "\n".join(lines)


def _row(name: str, cells: list[str]) -> str:
    return f"{name:<20}" + "".join(f"{cell:>12}" for cell in cells)
