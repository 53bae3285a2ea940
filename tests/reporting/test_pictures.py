import numpy as np
import pytest
from report_fakes import Page, decode_uri

from graftseg.data.slices import to_gray
from graftseg.reporting.pictures import (
    FILL_OPACITY,
    MAX_SIDE,
    Album,
    label_layer,
    outline_layer,
    rgb_table,
    shrink,
)

pytestmark = pytest.mark.usefixtures("fine_layers")


def test_shrink_takes_block_means() -> None:
    image = np.arange(16.0).reshape(4, 4)
    assert shrink(image, limit=2).tolist() == [[2.5, 4.5], [10.5, 12.5]]
    assert shrink(image, limit=4) is image


@pytest.mark.parametrize("shape", [(513, 20), (20, 1500), (1024, 1024)])
def test_pictures_are_bounded(shape: tuple[int, int]) -> None:
    assert max(shrink(np.zeros(shape)).shape) <= MAX_SIDE
    assert max(label_layer(np.zeros(shape, np.uint8)).shape) <= MAX_SIDE


def test_labels_become_filled_areas_with_opaque_borders() -> None:
    labels = np.zeros((8, 8), np.uint8)
    labels[2:6, 2:6] = 2
    layer = label_layer(labels)
    assert layer.shape == (384, 384, 4)
    assert layer[10, 10, 3] == 0  # background
    assert layer[192, 192].tolist() == [*rgb_table(3)[2].tolist(), FILL_OPACITY]
    assert layer[96, 192, 3] == layer[98, 192, 3] == 255  # the border is three pixels wide
    assert layer[99, 192, 3] == FILL_OPACITY
    assert layer[95, 192, 3] == 0  # and is inside


def test_neighboring_classes_both_have_a_border() -> None:
    labels = np.repeat([[1, 2]], 2, axis=0)
    layer = label_layer(labels)
    assert layer[10, 191].tolist() == [*rgb_table(3)[1].tolist(), 255]
    assert layer[10, 192].tolist() == [*rgb_table(3)[2].tolist(), 255]


def test_mask_outline_is_white_inside_and_black_outside() -> None:
    M = np.ones((8, 8), np.uint8)
    M[2:6, 2:6] = 0
    layer = outline_layer(M)
    assert layer[96, 192].tolist() == [255, 255, 255, 255]
    assert layer[95, 192].tolist() == [0, 0, 0, 255]
    assert layer[192, 192, 3] == layer[10, 10, 3] == 0


def test_album_embeds_a_scan_once() -> None:
    album, image = Album(), np.arange(6.0).reshape(2, 3)
    first, second = album.picture(image, alt="a"), album.picture(image, alt="b")
    other = album.picture(image, alt="c", aspect=2.0)
    assert 'id="scan-1"' in first
    assert '<use href="#scan-1">' in second
    assert "data:" not in second
    assert 'id="scan-2"' in other  # drawn in another size


def test_picture_has_title_aspect_and_layer() -> None:
    image, layer = np.arange(6.0).reshape(2, 3), label_layer(np.ones((2, 3), np.uint8))
    page = Page(Album().picture(image, layer, alt="<x>", aspect=1.5))
    assert page.text == "<x>"
    assert page.attributes("viewbox") == ["0 0 3 3"]
    shown = [decode_uri(address) for address in page.attributes("href")]
    np.testing.assert_array_equal(shown[0], to_gray(image))
    np.testing.assert_array_equal(shown[1], layer)


def test_picture_has_the_window_of_its_scan() -> None:
    page = Page(Album().picture(np.array([[0.0, 10.0, 20.0, 90.0]]), alt="x", window=(10.0, 20.0)))
    assert decode_uri(page.attributes("href")[0]).tolist() == [[0, 0, 255, 255]]
