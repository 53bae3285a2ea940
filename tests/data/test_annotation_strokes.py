import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from graftseg.core.errors import Code
from graftseg.data.annotation import RUN, apply_runs, parse_runs, runs_between
from user_errors import user_error

drawings = st.integers(1, 60).flatmap(
    lambda size: st.tuples(*[st.lists(st.integers(0, 3), min_size=size, max_size=size)] * 2)
)


@given(drawings)
def test_runs_turn_one_drawing_into_another(pair: tuple[list[int], list[int]]) -> None:
    before, after = (np.array(values, np.uint8) for values in pair)
    runs = runs_between(before, after)
    drawing = before.copy()
    apply_runs(drawing, runs)
    assert np.array_equal(drawing, after)
    assert int(runs["length"].sum()) == np.count_nonzero(before != after)


def test_a_run_has_nine_bytes_in_little_endian() -> None:
    content = (258).to_bytes(4, "little") + (3).to_bytes(4, "little") + bytes([2])
    assert parse_runs(content, 300, 3).tolist() == [(258, 3, 2)]
    assert RUN.itemsize == 9


@pytest.mark.parametrize(
    "runs",
    [[(9, 2, 1)], [(0, 0, 1)], [(0, 1, 3)], [(2**32 - 1, 2**32 - 1, 1)], [(0, 8, 1), (0, 8, 2)]],
    ids=["past the end", "no voxels", "unknown class", "overflow", "more voxels than the scan"],
)
def test_invalid_runs_are_refused(runs: list[tuple[int, int, int]]) -> None:
    with user_error(Code.LABEL_INVALID, "stroke"):
        parse_runs(np.array(runs, RUN).tobytes(), 10, 3)


@pytest.mark.parametrize("content", [b"", b"12345678"])
def test_other_bytes_are_refused(content: bytes) -> None:
    with user_error(Code.LABEL_INVALID, "stroke"):
        parse_runs(content, 10, 3)
