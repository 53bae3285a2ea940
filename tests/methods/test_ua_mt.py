"""Values of UA-MT by hand, and a mask that grows."""

from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import ValidationError
from torch import Tensor

from graftseg.core.types import Batch
from graftseg.methods.ua_mt import UaMt, UaMtConfig, masked_squared_difference
from method_fakes import Biased, Echo, at_step, black_batch, fakes, set_bias

START, END = at_step(0), at_step(6000)


def grey_batch(seed: int = 0) -> Batch:
    """Return unlabeled images of various intensities, so that ``Echo`` is certain of some voxels."""
    batch = black_batch()
    generator = torch.Generator().manual_seed(seed)
    return Batch(batch.labeled, 2 * torch.randn(2, 1, 16, 16, generator=generator))


def test_ua_mt_by_hand() -> None:
    method = UaMt(UaMtConfig(), fakes())
    set_bias(method.teacher, 0.75, 0.25)
    (early,) = method.objectives(black_batch(), START)
    (late,) = method.objectives(black_batch(), END)
    # the entropy of (3/4, 1/4) is 0.562; the limit rises from 0.752 ln 2 = 0.521 to ln 2 = 0.693
    assert early.terms["consistency"].item() == 0
    # ((0.5 - 0.75)² + (0.5 - 0.25)²) / 2
    assert late.terms["consistency"].item() == pytest.approx(0.0625, abs=1e-6)
    assert float(late.weights["consistency"]) == pytest.approx(0.1)
    assert not early.shows["M_certain"].any() and late.shows["M_certain"].all()


@settings(deadline=None, max_examples=20)
@given(st.integers(0, 6000), st.integers(0, 6000), st.integers(0, 99))
def test_mask_grows_with_the_ramp(one: int, other: int, seed: int) -> None:
    method, batch, masks = UaMt(UaMtConfig(passes=2), fakes(Echo)), grey_batch(seed), []
    for step in sorted((one, other)):
        torch.manual_seed(seed)
        (objective,) = method.objectives(batch, at_step(step))
        masks.append(objective.shows["M_certain"])
    early, late = masks
    assert not (early & ~late).any()


def test_mask_has_more_voxels_late_than_early() -> None:
    method, counts = UaMt(UaMtConfig(), fakes(Echo)), []
    for now in (START, END):
        torch.manual_seed(0)
        (objective,) = method.objectives(grey_batch(), now)
        counts.append(int(objective.shows["M_certain"].sum()))
    assert 0 < counts[0] < counts[1]


@pytest.mark.parametrize(("limit", "opens"), [("ln 2", False), ("ln K", True)])
def test_entropy_limit_of_four_classes(limit: Any, opens: bool) -> None:
    method = UaMt(UaMtConfig(entropy_limit=limit), fakes(classes=4))
    set_bias(method.teacher, 0.55, 0.15, 0.15, 0.15)
    (objective,) = method.objectives(black_batch(), END)
    # the entropy is 1.18, between ln 2 = 0.69 and ln 4 = 1.39
    assert objective.shows["M_certain"].all().item() is opens


class Counting(Biased):
    """A network that stores its inputs."""

    def __init__(self, classes: int) -> None:
        super().__init__(classes)
        self.seen: list[Tensor] = []

    def forward(self, images: Tensor) -> Tensor:
        self.seen.append(images)
        return super().forward(images)


def test_teacher_makes_eight_noisy_predictions_and_the_target() -> None:
    method = UaMt(UaMtConfig(), fakes(Counting))
    list(method.objectives(black_batch(), START))
    teacher = method.teacher
    assert isinstance(teacher, Counting)
    assert [len(images) for images in teacher.seen] == [2, 4, 4, 4, 4]
    assert len({float(image.sum()) for images in teacher.seen for image in images}) == 2 + 4 * 4


def test_uncertain_voxels_have_no_effect() -> None:
    torch.manual_seed(0)
    logits, others = torch.randn(2, 3, 4, 4), torch.randn(2, 3, 4, 4)
    M = torch.rand(2, 4, 4) < 0.5
    difference = (logits.softmax(1) - others.softmax(1)).square().sum(1)[M]
    assert masked_squared_difference(logits, others, M).item() == pytest.approx(float(difference.mean()) / 2, rel=1e-5)
    assert masked_squared_difference(logits, others, torch.zeros_like(M)).item() == 0


def test_odd_number_of_passes_is_rejected() -> None:
    with pytest.raises(ValidationError, match="multiple of 2"):
        UaMtConfig(passes=7)
