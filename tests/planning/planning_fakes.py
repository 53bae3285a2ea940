"""Facts about fictitious scans."""

from collections.abc import Sequence

from hypothesis import strategies as st

from graftseg.core.types import Split
from graftseg.data.fingerprint import CaseFingerprint, Fingerprint
from graftseg.planning.cost import ABSENT_GPU, GIB, Target
from graftseg.planning.draft import StepTimer
from graftseg.planning.facts import Facts, Foreground, PieceCount

CPU = Target("cpu", 16 * GIB, "a CPU", present=False)
GPU = Target("cuda", ABSENT_GPU, "a GPU", present=False)
MR = (0.0, 5.0, 40.0, 80.0, 150.0, 400.0, 900.0)
CT = (-1000.0, -990.0, -400.0, 20.0, 60.0, 300.0, 1200.0)


def case(
    shape: Sequence[int],
    spacing: Sequence[float],
    split: Split = "labeled",
    *,
    orientation: str = "RAS",
    channels: int = 1,
    percentiles: tuple[float, ...] = MR,
    number: int = 0,
) -> CaseFingerprint:
    """Return a scan of this shape, spacing and orientation."""
    return CaseFingerprint(
        name=f"case{number}",
        split=split,
        shape=tuple(shape),
        spacing=tuple(spacing),
        orientation=orientation[: len(shape)],
        percentiles=(percentiles,) * channels,
        mean=(100.0,) * channels,
        std=(50.0,) * channels,
        label_counts={0: 100, 1: 10} if split == "labeled" else {},
        content=str(number),
    )


def facts(
    *cases: CaseFingerprint,
    classes: int = 2,
    pieces: Sequence[PieceCount] | None = None,
    slice_pieces: Sequence[PieceCount] | None = None,
    names: tuple[str, ...] = (),
    test_count: int = 0,
    label_detail: tuple[float, ...] = (),
) -> Facts:
    """Return the facts about such scans; by default every class is one piece."""
    whole = (PieceCount(), *[PieceCount(10, 10)] * (classes - 1))
    return Facts(
        Fingerprint(cases),
        ("background", *(f"class {value}" for value in range(1, classes))),
        names,
        Foreground(-150.4, 240.2, 40.0),
        tuple(pieces or whole),
        tuple(slice_pieces or whole),
        test_count,
        label_detail=label_detail,
    )


def usual(
    shape: Sequence[int] = (64, 64, 48),
    spacing: Sequence[float] = (1.0, 1.0, 1.0),
    labeled: int = 4,
    unlabeled: int = 8,
) -> list[CaseFingerprint]:
    """Return labeled and unlabeled scans of the same shape and spacing."""
    splits = _splits(labeled, unlabeled)
    return [case(shape, spacing, split, number=number) for number, split in enumerate(splits)]


def _splits(labeled: int, unlabeled: int) -> list[Split]:
    both: tuple[Split, Split] = ("labeled", "unlabeled")
    return [split for split, count in zip(both, (labeled, unlabeled), strict=True) for _ in range(count)]


@st.composite
def any_facts(draw: st.DrawFn) -> Facts:
    """Draw facts: 2-D and 3-D, thin and thick, small and large, few and many scans."""
    axes = draw(st.integers(2, 3))
    sizes = st.tuples(*[st.integers(16, 512)] * axes)
    steps = st.tuples(*[st.floats(0.3, 8)] * axes)
    channels, classes = draw(st.integers(1, 3)), draw(st.integers(2, 6))
    orientation = draw(st.sampled_from(["RAS", "LPS", "PIR", "ASR"]))
    labeled, unlabeled = draw(st.integers(1, 30)), draw(st.sampled_from([0, 1, 2, 7, 300]))
    kinds = draw(st.lists(st.tuples(sizes, steps), min_size=1, max_size=3))
    percentiles = draw(st.sampled_from([MR, CT]))
    splits = _splits(labeled, unlabeled)
    scans = []
    for number, split in enumerate(splits):
        shape, spacing = kinds[number % len(kinds)]
        turned = orientation if axes == 3 else "RA"
        scans.append(
            case(
                shape,
                spacing,
                split,
                orientation=turned,
                channels=channels,
                percentiles=percentiles,
                number=number,
            )
        )
    pieces = [PieceCount(10, draw(st.integers(0, 10))) for _ in range(classes)]
    return facts(
        *scans,
        classes=classes,
        pieces=pieces,
        slice_pieces=pieces[::-1],
        label_detail=draw(st.sampled_from([(), (0.95,) * 5, (0.95, 0.92, 0.85, 0.8, 0.7)])),
        test_count=draw(st.sampled_from([0, 1, 5, 6])),
    )


def steps_of(seconds: float, supervised: float = 0.75) -> StepTimer:
    """Return a timer: a step with unlabeled images takes ``seconds``, a supervised step this fraction of it."""
    return lambda recipes: [seconds if recipe.batches.unlabeled else supervised * seconds for recipe in recipes]
