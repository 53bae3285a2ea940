import math
from dataclasses import replace

import pytest
from report_fakes import Page

from graftseg.evaluation.scores import Evaluation, Row
from graftseg.methods import METHODS
from graftseg.reporting.facts import Provenance, case_counts, flatten, run_facts, run_section
from graftseg.reporting.notes import notes_section
from graftseg.reporting.results import UsedCheckpoint


def test_flatten_settings() -> None:
    settings = {
        "seed": 0,
        "network": {"channels": [16, 32], "kind": None, "extra": {}},
        "stages": [{"method": "bcp", "clean": True}, {"method": "<b>", "clean": False}],
        "data": "/home/someone/x/y",
        "empty": [],
    }
    assert dict(flatten(settings)) == {
        "seed": "0",
        "network.channels": "16, 32",
        "network.kind": "none",
        "network.extra": "none",
        "stages.0.method": "bcp",
        "stages.0.clean": "yes",
        "stages.1.method": "<b>",
        "stages.1.clean": "no",
        "data": "x/y",
        "empty": "none",
    }


@pytest.mark.parametrize(
    ("labeled", "unlabeled", "written"),
    [
        (4, 1040, "4 labeled and 1,040 unlabeled cases"),
        (2, 1, "2 labeled and 1 unlabeled case"),
        (4, 0, "4 labeled cases"),
        (1, 0, "1 labeled case"),
    ],
)
def test_case_counts(labeled: int, unlabeled: int, written: str) -> None:
    facts = {"store": {"labeled": ["l"] * labeled, "unlabeled": ["u"] * unlabeled}}
    assert case_counts(facts) == written
    assert f"trained with {written}, seed unknown." in notes_section(facts, None)


def test_settings_are_folded_away() -> None:
    page = Page(
        run_section(
            {"a": 1, "b": {"c": 2}}, run_facts([{"method": "bcp", "wall_seconds": None, "steps": None}], Provenance())
        )
    )
    assert "details" in {tag for tag, _ in page.elements}
    assert ("summary", "All 2 settings of the recipe") in page.texts
    assert "b.c" in page.text
    assert "Time" not in page.text


@pytest.mark.parametrize(
    ("protocol", "words"), [("standard", "the diagonal of the image"), ("paper", "an empty prediction scores 0")]
)
def test_empty_mask_rule_follows_the_protocol(protocol: str, words: str) -> None:
    evaluation = Evaluation((), "paper" if protocol == "paper" else "standard")
    assert words in notes_section({}, evaluation)


def test_notes_name_the_checkpoint() -> None:
    assert "No checkpoint was selected by its score." in notes_section({}, None)
    on_validation = notes_section({}, None, UsedCheckpoint("best on validation, step 40", "validation"))
    assert "“best on validation, step 40”, selected by its score." in on_validation
    averaged = notes_section({}, None, UsedCheckpoint("last, averaged with the baseline"))
    assert "“last, averaged with the baseline”: no checkpoint was selected by its score." in averaged
    assert "optimistic" not in averaged
    on_test = notes_section({}, None, UsedCheckpoint("best on test, step 40 (protocol paper)", "test"))
    assert (
        "“best on test, step 40 (protocol paper)”: selected on the test cases, so the scores are optimistic." in on_test
    )


def test_data_are_named_by_their_folder() -> None:
    named = dict(run_facts([{"store": {"path": "RUN/store", "channels": 2}}], Provenance("liver", "liver/imagesTs")))
    assert (named["Data"], named["Test scans"], named["Channels"]) == ("liver", "liver/imagesTs", "2")
    unnamed = dict(run_facts([{"store": {"path": "RUN/store"}}], Provenance()))
    assert (unnamed["Data"], unnamed["Test scans"], unnamed["Channels"]) == ("RUN/store", "", "")


def terms_of(*sections: str) -> list[str]:
    terms = [text for element, text in Page(notes_section({}, None, sections=sections)).texts if element == "dt"]
    return terms[terms.index("Variation") + 1 :]


def test_only_terms_that_occur_are_explained() -> None:
    drawn = ('<img alt="bcp X_in"><h3>graft</h3><b>X_labeled</b>', "L_labeled<p>The teachers, of graftseg bcp-pretrain")
    assert terms_of(*drawn) == ["bcp-pretrain", "graft", "X_labeled", "L_labeled"]
    assert terms_of("<p>teacher</p>", "Standard protocol, standard protocol") == ["Teacher", "Standard protocol"]
    assert "Terms of the method" not in notes_section({}, None)
    assert set(terms_of(*METHODS)) == METHODS.keys()


@pytest.mark.parametrize(("volume", "unit"), [(1.0, "Voxel"), (math.nan, "Pixel")])
def test_units_depend_on_the_scans(volume: float, unit: str) -> None:
    row = replace(Row("a", 1, "liver", *[0.5] * 12), volume_prediction_ml=volume, volume_reference_ml=volume)
    terms = [text for element, text in Page(notes_section({}, Evaluation((row,), "standard"))).texts if element == "dt"]
    assert f"{unit} and mm" in terms and ("Volume error" in terms) == (unit == "Voxel")
