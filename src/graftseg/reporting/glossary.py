"""The words of the page that come from the method, in a sentence each, folded away."""

from graftseg.reporting.markup import Html, tag

WORDS = {
    "bcp": "bidirectional copy-paste: crops of unlabeled scans are pasted into labeled ones and the other way round.",
    "bcp-pretrain": "the first stage of it: copy-paste between labeled scans alone.",
    "X_mixed": "a training image of the first stage: a crop of one labeled scan in another.",
    "X_in": "inward: a labeled scan with a crop of an unlabeled one pasted into it.",
    "X_out": "outward: an unlabeled scan with a crop of a labeled one pasted into it.",
    "L_in, L_out": (
        "the losses on X_in and X_out. Where a voxel comes from a labeled scan, its label counts in full; elsewhere "
        "the pseudo-label counts by the weight alpha."
    ),
    "Teacher": "a running average of the network in training (the student); what it decides is the pseudo-label.",
    "Standard protocol": (
        "the rule for empty masks: a prediction that misses a class gets overlap 0 and the worst possible distance. "
        "The paper protocol gives it a distance of 0, as published code does."
    ),
}


def glossary() -> Html:
    """The words to unfold."""
    items = [part for word, meaning in WORDS.items() for part in (tag("dt", word), tag("dd", meaning))]
    return tag("details", tag("summary", "Words of the method"), tag("dl", *items, class_="notes"))
