"""CT has units, other scans have none."""

import numpy as np
import pytest
from planning_fakes import CPU, CT, MR, case, facts

from graftseg.data.intensity import IntensitySettings, normalize
from graftseg.planning.choices import tree_of
from graftseg.planning.facts import Facts
from graftseg.planning.intensities import ct_reason, intensity_choices
from graftseg.planning.plans import choose
from loops import for_each


def scans(*percentiles: tuple[float, ...], names: tuple[str, ...] = ()) -> Facts:
    return facts(*[case((32, 32, 32), (1, 1, 1), percentiles=p) for p in percentiles], names=names)


@for_each(
    ("known", "is_ct"),
    [
        (scans(CT), True),
        (scans(MR), False),
        (scans(CT, MR), False),
        (scans(*[CT] * 19, MR), True),
        (scans(MR, names=("CT",)), True),
        (scans(MR, names=("low-dose CT",)), True),
        (scans(CT, names=("MRI",)), False),
        (scans(CT, names=("Ectopic",)), False),
        (scans(CT, names=("CT", "PET")), False),
        (scans((-3.0, -2.0, -1.0, 0.0, 1.0, 2.0, 3.0)), False),
        (scans((-30000.0, -2.0, -1.0, 0.0, 1.0, 2.0, 3000.0)), False),
    ],
)
def test_ct_by_channel_names_or_values(known: Facts, is_ct: bool) -> None:
    assert (ct_reason(known) is not None) == is_ct
    choices = intensity_choices(known)
    settings = IntensitySettings.model_validate(tree_of(choices)["data"]["intensity"])
    assert settings.rule == ("window-zscore" if is_ct else "zscore")
    if is_ct:
        assert (settings.low, settings.high, settings.mean, settings.std) == (-151, 241, -151, 40)
    assert all(choice.reason for choice in choices.values())


def test_air_and_padding_are_zero() -> None:
    """Convolutions and crops pad with zeros, which must not look like an organ."""
    settings = IntensitySettings.model_validate(tree_of(intensity_choices(scans(CT)))["data"]["intensity"])
    seen = normalize(np.array([[-3000, -1000, -151, 9, 241, 3000]]), settings)
    np.testing.assert_array_equal(seen, np.array([[0, 0, 0, 4, 9.8, 9.8]], np.float32))


@pytest.mark.parametrize(
    ("known", "line", "odd"),
    [
        (scans(CT), "Intensities: window-zscore, CT (values reach down to", None),
        (scans(MR), "Intensities: zscore, each scan is scaled to mean 0 and standard deviation 1", None),
        (scans(CT, CT, MR), "Intensities: zscore, ", "1 of 3 scans"),
        (scans(*[CT] * 19, MR), "Intensities: window-zscore, ", "1 of 20 scans"),
        (scans(CT, MR), "Intensities: zscore, ", None),
    ],
)
def test_the_summary_names_the_rule_and_unusual_scans(known: Facts, line: str, odd: str | None) -> None:
    head = choose(known, CPU).head
    assert sum(text.startswith(line) for text in head) == 1
    warnings = [text for text in head if "look like CT" in text]
    assert [text.startswith(f"Warning: {odd} do not") for text in warnings] == ([True] if odd else [])
