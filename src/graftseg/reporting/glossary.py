"""Terms of the methods that a page explains: methods, training images and losses."""

import re
from collections.abc import Iterable

TAG = re.compile(r"<[^>]*>")
TERMS = {
    "supervised": "training on labeled scans only.",
    "mean-teacher": "the network learns to agree with the teacher on unlabeled scans.",
    "ua-mt": "uncertainty-aware mean teacher: agreement with the teacher only where the teacher is certain.",
    "sassnet": "a discriminator compares predicted signed distances of labeled and unlabeled scans.",
    "dtc": "dual-task consistency: predicted classes and predicted signed distances learn to agree.",
    "urpc": "uncertainty-rectified pyramid consistency: the levels of the decoder learn to agree.",
    "mc-net": "mutual consistency: several decoders learn to agree.",
    "dan": "deep adversarial network: a discriminator compares predictions for labeled and unlabeled scans.",
    "advent": "entropy minimization: the network learns to be certain on unlabeled scans.",
    "advent-adversarial": "a discriminator compares the entropy of predictions for labeled and unlabeled scans.",
    "mixup": "labeled and unlabeled scans are superimposed.",
    "fg-cutmix": "fine-grained CutMix: small patches are exchanged between training images.",
    "ss-net": "smoothness under adversarial noise, and separation of the classes in feature space.",
    "coranet-pretrain": "the first stage of coranet, on labeled scans only.",
    "coranet": "the agreement of a conservative and a radical branch decides where pseudo-labels are certain.",
    "bcp-pretrain": "pre-training on labeled scans only, with or without copy-paste between them.",
    "bcp": "bidirectional copy-paste: crops of unlabeled scans are pasted into labeled scans and vice versa.",
    "graft": "training on labeled scans and on unlabeled scans with pseudo-labels, with or without copy-paste.",
    "X_labeled": "a training image from labeled scans.",
    "X_unlabeled": "a training image from unlabeled scans.",
    "X_mixed": "a training image that combines several scans.",
    "X_in": "inward: a labeled scan with a crop of an unlabeled scan pasted into it.",
    "X_out": "outward: an unlabeled scan with a crop of a labeled scan pasted into it.",
    "X_noisy": "a training image with adversarial noise.",
    "X_distance": "the predicted signed distances of an unlabeled scan.",
    "X_entropy": "the entropy of the prediction for an unlabeled scan.",
    "L_pretrain": "the loss of the first stage.",
    "L_labeled": "the loss on labeled scans.",
    "L_unlabeled": "the loss on unlabeled scans with pseudo-labels.",
    "L_in": "the loss on X_in. Voxels from the labeled scan count more than voxels with a pseudo-label.",
    "L_out": "the loss on X_out. Voxels from the labeled scan count more than voxels with a pseudo-label.",
    "L_direct": "the loss on labeled scans that are not superimposed.",
    "L_sup": "the loss on labeled scans.",
    "L_certain": "the loss on unlabeled scans at voxels with a certain pseudo-label.",
    "L_uncertain": "the loss on unlabeled scans at the other voxels, which learn the probabilities of the teacher.",
    "L_v": "the change of the prediction under adversarial noise.",
    "L_l": "the distance of labeled voxels from the prototypes of their class.",
    "L_u": "the distance of unlabeled voxels from the prototypes of the predicted class.",
    "Teacher": (
        "a running average of the network in training (the student). The predictions of the teacher are the "
        "pseudo-labels."
    ),
    "Standard protocol": (
        "the rule for empty masks: a prediction that misses a class gets overlap 0 and the worst possible distance. In "
        "the paper protocol, the distance is 0. The published code also uses 0."
    ),
}
"""Explanations by term, in the order of the page."""


def terms_in(sections: Iterable[str]) -> dict[str, str]:
    """Return the explanations of the terms that occur in the text of rendered sections."""
    text = TAG.sub(" ", " ".join(sections))
    return {term: meaning for term, meaning in TERMS.items() if _pattern(term).search(text)}


def _pattern(term: str) -> re.Pattern[str]:
    """Return a pattern of the whole term. The first letter of a sentence may be a capital letter."""
    first = f"[{term[0].lower()}{term[0].upper()}]" if " " in term or term.isalpha() else term[0]
    return re.compile(rf"(?<![\w-]){first}{re.escape(term[1:])}(?![\w-])")
