"""What two runs on the same cases say of the unlabeled scans, in words that claim no more than the cases show."""

import math

from graftseg.paired import Effect

LIKELY = 0.05
"""Below this p of Wilcoxon's test, and with an interval on one side of zero, a difference is more than chance."""
MATTERS = 0.5
"""Points of Dice below which a difference is of no use, however sure it is."""
FEWEST = 6
"""Cases from which on Wilcoxon's p can be that small."""
USABLE = 50.0
"""Mean Dice in percent that one of the two must reach for their difference to mean anything."""
ONE = "in this one training"
SEVERAL = "in these trainings"


def verdict(effect: Effect, trainings: str = ONE) -> str:
    """One sentence on the mean Dice, in percent, of a run (the second) and of its baseline (the first)."""
    if not effect.count:
        return "no class of the test cases could be scored"
    found = (
        f"mean Dice {effect.second:.2f} % with the unlabeled scans and {effect.first:.2f} % without, "
        f"{effect.difference:+.2f} points"
    )
    if math.isnan(effect.low):
        return f"{found}, in a single case, which shows nothing"
    sure = f"95 % interval {effect.low:+.2f} to {effect.high:+.2f}, p = {effect.p:.2g}"
    return f"{found} ({sure}), better in {effect.better} of {effect.count} cases: {_meaning(effect, trainings)}"


def _meaning(effect: Effect, trainings: str) -> str:
    if max(effect.first, effect.second) < USABLE:
        return "neither network is good enough for that to mean anything"
    if effect.count < FEWEST:
        return f"fewer than {FEWEST} cases cannot show whether they helped"
    if effect.low <= 0 <= effect.high or not effect.p < LIKELY:
        return "these cases do not show whether they helped"
    if abs(effect.difference) < MATTERS:
        return "too little to matter"
    return f"they {'helped' if effect.difference > 0 else 'did harm'}, {trainings}"
