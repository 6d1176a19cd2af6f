"""Sheets of pictures: every pixel where it belongs, enlarged without smoothing."""

import numpy as np
import pytest
from PIL import Image

from sddm.formats import sheet as sheets
from sddm.formats.sheet import GAP, SIDE, sheet, write_picture, written_here

PICTURES = np.random.RandomState(0).randint(0, 256, (5, 4, 6, 3)).astype(np.uint8)


def read(path):
    with Image.open(path) as image:
        return np.asarray(image)


def cut(page, num, columns, factor, height=4, width=6):
    """The pictures of a sheet, in their own size."""
    high, wide = factor * height + GAP, factor * width + GAP
    corners = [(place // columns * high, place % columns * wide) for place in range(num)]
    return np.stack([page[y : y + factor * height : factor, x : x + factor * width : factor] for y, x in corners])


@pytest.mark.parametrize("columns", [1, 2, 5])
def test_every_picture_stands_in_its_place_enlarged_by_a_whole_factor(columns, tmp_path):
    sheet(PICTURES, tmp_path / "new" / "sheet.png", columns)
    page = read(tmp_path / "new" / "sheet.png")
    rows = -(-5 // columns)
    factor = SIDE // max(4 * rows, 6 * columns)
    assert page.shape == (rows * (4 * factor + GAP) - GAP, columns * (6 * factor + GAP) - GAP, 3)
    assert np.array_equal(cut(page, 5, columns, factor), PICTURES)
    square = page[:factor, :factor]
    assert (square == square[0, 0]).all()


def test_a_sheet_is_about_square_and_white_where_no_picture_is(tmp_path):
    sheet(PICTURES, tmp_path / "sheet.png")
    page = read(tmp_path / "sheet.png")
    assert 0.5 < page.shape[0] / page.shape[1] < 2
    assert (page[-1, -1] == 255).all()


def test_a_grey_sheet_is_a_grey_file(tmp_path):
    sheet(PICTURES[..., :1], tmp_path / "sheet.png", columns=5)
    with Image.open(tmp_path / "sheet.png") as image:
        assert image.mode == "L"


def test_large_pictures_are_not_enlarged(tmp_path):
    sheet(np.zeros((1, SIDE + 1, 3, 1), np.uint8), tmp_path / "sheet.png")
    assert read(tmp_path / "sheet.png").shape == (SIDE + 1, 3)


def test_a_sheet_has_the_first_pictures_if_there_is_no_room_for_all(tmp_path, monkeypatch):
    monkeypatch.setattr(sheets, "MOST_PIXELS", 4 * (4 + GAP) * (6 + GAP))
    with pytest.warns(UserWarning, match=r"shows the first 4 of 5 pictures\. Name an \.npy file or a folder"):
        sheet(PICTURES, tmp_path / "sheet.png", columns=2)
    assert np.array_equal(cut(read(tmp_path / "sheet.png"), 4, 2, SIDE // 12), PICTURES[:4])


@pytest.mark.parametrize("channels", [1, 3])
def test_one_picture_is_written_pixel_for_pixel_and_known_as_ours(channels, tmp_path):
    write_picture(PICTURES[0, :, :, :channels], tmp_path / "1.png")
    assert np.array_equal(read(tmp_path / "1.png").reshape(4, 6, channels), PICTURES[0, :, :, :channels])
    assert written_here(tmp_path / "1.png")
    Image.fromarray(PICTURES[0]).save(tmp_path / "2.png")
    (tmp_path / "3.png").write_bytes(b"")
    assert not any(written_here(tmp_path / name) for name in ("2.png", "3.png", "4.png"))


@pytest.mark.usefixtures("without_annotation_checks")
@pytest.mark.parametrize(
    "pictures", [PICTURES[0], PICTURES.astype(float), PICTURES[..., :2], PICTURES[:0], PICTURES.tolist()]
)
def test_what_is_no_array_of_pictures_is_refused(pictures, tmp_path):
    with pytest.raises(
        ValueError, match=r"pictures must be an array of uint8 of shape \(num, height, width, channels\)"
    ):
        sheet(pictures, tmp_path / "sheet.png")
    with pytest.raises(ValueError, match="columns must be at least 1"):
        sheet(PICTURES, tmp_path / "sheet.png", columns=0)
    assert not list(tmp_path.iterdir())
