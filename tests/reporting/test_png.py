import hypothesis.extra.numpy as arrays
import hypothesis.strategies as st
import numpy as np
import numpy.typing as npt
from hypothesis import given, settings
from report_fakes import decode_png, decode_uri

from graftseg.reporting.pictures import data_uri, encode_png

SIDES = st.integers(1, 9)
SHAPES = st.one_of(st.tuples(SIDES, SIDES), st.tuples(SIDES, SIDES, st.sampled_from([3, 4])))


@settings(deadline=None)
@given(arrays.arrays(np.uint8, SHAPES))
def test_decodes_back(pixels: npt.NDArray[np.uint8]) -> None:
    np.testing.assert_array_equal(decode_png(encode_png(pixels)), pixels)
    np.testing.assert_array_equal(decode_uri(data_uri(pixels)), pixels)


def test_transposed_pixels_are_written_as_they_look() -> None:
    pixels = np.arange(12, dtype=np.uint8).reshape(3, 4).T
    np.testing.assert_array_equal(decode_png(encode_png(pixels)), pixels)
