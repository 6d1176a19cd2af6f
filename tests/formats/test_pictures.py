"""Folders of picture files: what anybody's files hold becomes squares of one size, or is left out and counted."""

import io
import struct
import tracemalloc
import zlib

import numpy as np
import pytest
from PIL import Image

from sddm.data import load
from sddm.formats import pictures as files
from sddm.formats.pictures import MOST_PIXELS, read_squares, resized, usual_size
from sddm.formats.sheet import write_picture

NOISE = np.random.RandomState(0).randint(0, 256, (8, 8, 3)).astype(np.uint8)
GREY = NOISE[..., 0]
EDGE = 2
"""A scaled value is rounded twice, once along each axis."""


def one(path, size=8, grey=False):
    """The only picture that is read of this file."""
    squares = read_squares([path], size, grey)
    assert len(squares.pictures) == 1
    return squares.pictures[0]


def saved(image, path, **options):
    path.parent.mkdir(parents=True, exist_ok=True)
    (Image.fromarray(image) if isinstance(image, np.ndarray) else image).save(path, **options)
    return path


# ---- pixels


@pytest.mark.parametrize("ending", [".png", ".bmp", ".webp", ".gif"])
def test_a_picture_of_the_right_size_keeps_its_pixels(ending, tmp_path):
    lossless = {"lossless": True} if ending == ".webp" else {}
    assert np.array_equal(one(saved(NOISE, tmp_path / f"a{ending}", **lossless)), NOISE)
    assert np.array_equal(one(saved(NOISE, tmp_path / f"b{ending.upper()}", **lossless)), NOISE)


@pytest.mark.parametrize("ending", [".jpg", ".jpeg"])
def test_a_photograph_is_read(ending, tmp_path):
    flat = np.full((64, 64, 3), (200, 40, 90), np.uint8)
    # JPEG rounds three numbers by which each colour is made: two units at most here, and none of the square is another.
    assert np.abs(one(saved(flat, tmp_path / f"a{ending}", quality=100)).astype(int) - flat[0, 0]).max() <= EDGE


def test_of_a_film_the_first_picture_is_read(tmp_path):
    frames = [Image.fromarray(np.full((8, 8), value, np.uint8)) for value in (10, 200)]
    frames[0].save(tmp_path / "a.gif", save_all=True, append_images=frames[1:])
    assert (one(tmp_path / "a.gif") == 10).all()


@pytest.mark.parametrize(("height", "width"), [(8, 14), (15, 8), (8, 9)])
def test_the_square_is_cut_from_the_middle(height, width, tmp_path):
    wide = np.random.RandomState(1).randint(0, 256, (height, width, 3)).astype(np.uint8)
    top, left = (height - 8) // 2, (width - 8) // 2
    assert np.array_equal(one(saved(wide, tmp_path / "a.png")), wide[top : top + 8, left : left + 8])


def test_fine_stripes_become_an_even_grey_and_not_a_pattern(tmp_path):
    stripes = np.zeros((70, 70, 3), np.uint8)
    stripes[:, ::2] = 254
    inner = one(saved(stripes, tmp_path / "a.png"), 10)[:, 1:-1].astype(int)
    # The filter spans 42 columns, whose weights add up to 1, and is smooth: what is left of the finest pattern is less
    # than the weight of one column, of which a pixel has 1/7.
    assert np.abs(inner - 127).max() < 254 / 7


def test_an_even_picture_stays_even_at_any_size(tmp_path):
    path = saved(np.full((13, 13, 3), 77, np.uint8), tmp_path / "a.png")
    for size in (1, 5, 40):
        assert (one(path, size) == 77).all()


def test_what_is_transparent_becomes_white(tmp_path):
    alpha = np.dstack([NOISE, np.full((8, 8), 255, np.uint8)])
    alpha[:4, :, 3], alpha[4, :, 3] = 0, 51
    found = one(saved(alpha, tmp_path / "a.png")).astype(int)
    assert (found[:4] == 255).all()
    assert np.array_equal(found[5:], NOISE[5:])
    assert np.abs(found[4] - (0.2 * NOISE[4] + 0.8 * 255)).max() <= 1


def test_palettes_with_and_without_transparency_are_looked_up(tmp_path):
    image = Image.fromarray(np.arange(64, dtype=np.uint8).reshape(8, 8), "P")
    image.putpalette(NOISE.reshape(-1).tolist())
    assert np.array_equal(one(saved(image, tmp_path / "a.png")), NOISE)
    found = one(saved(image, tmp_path / "b.png", transparency=0))
    assert (found[0, 0] == 255).all()
    assert np.array_equal(found.reshape(-1, 3)[1:], NOISE.reshape(-1, 3)[1:])


def test_of_sixteen_bits_the_upper_eight_are_kept(tmp_path):
    path = saved(GREY.astype(np.uint16) * 256 + 255, tmp_path / "a.png")
    assert np.array_equal(one(path)[..., 0], GREY)


@pytest.mark.parametrize(
    ("mode", "ending"), [("1", ".png"), ("L", ".png"), ("LA", ".png"), ("CMYK", ".jpg"), ("L", ".jpg")]
)
def test_every_way_to_hold_white_is_white(mode, ending, tmp_path):
    assert (one(saved(Image.new("RGB", (8, 8), "white").convert(mode), tmp_path / f"a{ending}")) == 255).all()


@pytest.mark.parametrize("turned", range(1, 9))
def test_a_picture_is_turned_as_the_camera_says(turned, tmp_path):
    exif = Image.Exif()
    exif[0x0112] = turned
    # The standard's table: which side of the scene the first row and the first column of the file are.
    upright = {
        1: NOISE,
        2: NOISE[:, ::-1],
        3: NOISE[::-1, ::-1],
        4: NOISE[::-1],
        5: NOISE.transpose(1, 0, 2),
        6: np.rot90(NOISE, -1),
        7: NOISE[::-1, ::-1].transpose(1, 0, 2),
        8: np.rot90(NOISE),
    }[turned]
    assert np.array_equal(one(saved(NOISE, tmp_path / "a.png", exif=exif)), upright)


def test_a_large_photograph_that_is_read_in_a_part_of_its_size_is_cut_and_turned_like_any_other(tmp_path):
    corners = np.array([[[250, 0, 0], [0, 250, 0]], [[0, 0, 250], [120, 120, 120]]], np.uint8)
    large = np.pad(corners.repeat(800, axis=0).repeat(800, axis=1), ((0, 0), (300, 300), (0, 0)), "edge")
    exif = Image.Exif()
    exif[0x0112] = 6
    found = one(saved(large, tmp_path / "a.jpg", quality=100, exif=exif)).astype(int)
    apart = found[np.ix_([0, 7], [0, 7])]  # 3.5 pixels from the edges between colours; the filter reaches 3
    assert np.abs(apart - np.rot90(corners, -1)).max() <= EDGE


# ---- grey


def test_pictures_are_grey_only_if_all_are(tmp_path):
    paths = [saved(GREY, tmp_path / "a.png"), saved(np.dstack([GREY] * 3), tmp_path / "b.png")]
    squares = read_squares(paths, 8)
    assert squares.pictures.shape == (2, 8, 8, 1)
    assert np.array_equal(squares.pictures[1, ..., 0], GREY)
    paths.append(saved(NOISE, tmp_path / "c.png"))
    squares = read_squares(paths, 8)
    assert squares.pictures.shape == (3, 8, 8, 3)
    assert np.array_equal(squares.pictures[0], np.dstack([GREY] * 3))


def test_grey_is_the_brightness_of_television(tmp_path):
    found = read_squares([saved(NOISE, tmp_path / "a.png")], 8, grey=True).pictures[0]
    brightness = NOISE.astype(float) @ [0.299, 0.587, 0.114]
    assert found.shape == (8, 8, 1)
    assert np.abs(found[..., 0] - brightness).max() <= 1
    assert np.array_equal(resized(NOISE[None], None, True)[0], found)


def test_pictures_of_an_array_are_treated_as_those_of_files(tmp_path):
    wide = np.random.RandomState(2).randint(0, 256, (3, 9, 20, 3)).astype(np.uint8)
    paths = [saved(picture, tmp_path / f"{number}.png") for number, picture in enumerate(wide)]
    for grey in (False, True):
        assert np.array_equal(resized(wide, 4, grey), read_squares(paths, 4, grey).pictures)
    assert resized(wide, None, False) is wide
    assert np.array_equal(resized(wide[..., :1], 9, True), resized(wide[..., :1], 9, False))


# ---- sizes


def test_the_usual_size_is_32_or_less_if_half_of_the_pictures_are_smaller(tmp_path):
    sides = [(28, 28), (28, 30), (40, 28), (900, 700), (1, 1)]
    paths = [saved(np.zeros((*side, 3), np.uint8), tmp_path / f"{i}.png") for i, side in enumerate(sides)]
    assert usual_size(paths) == 28
    assert usual_size(paths[3:4]) == 32
    (tmp_path / "bad.png").write_bytes(b"")
    assert usual_size([tmp_path / "bad.png"]) == 32
    assert load(tmp_path).length == 28 * 28


# ---- labels


def test_sub_folders_are_the_labels_if_every_picture_is_in_one(tmp_path):
    for name in ("cat/a.png", "cat/old/b.png", "ant/c.png"):
        saved(NOISE, tmp_path / name)
    data = load(tmp_path, size=8)
    assert data.labels.tolist() == [0, 1, 1]  # in the order of the paths
    assert "Labels from 0: 'ant', 'cat'." in data.report
    saved(NOISE, tmp_path / "d.png")
    assert load(tmp_path, size=8).labels is None


def test_a_folder_in_a_folder_is_no_label(tmp_path):
    saved(NOISE, tmp_path / "all" / "a.png")
    saved(NOISE, tmp_path / "all" / "b.png")
    assert load(tmp_path, size=8).labels is None


# ---- what cannot be used


def bomb(width, height):
    """A small .png file whose head declares a huge picture."""

    def chunk(kind, data):
        return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))

    head = struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0)
    return (
        b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", head) + chunk(b"IDAT", zlib.compress(bytes(10_000))) + chunk(b"IEND", b"")
    )


def content(image, **options):
    file = io.BytesIO()
    Image.fromarray(image).save(file, **options)
    return file.getvalue()


BAD = {
    "empty.png": (b"", "not a picture"),
    "text.jpg": (b"no picture at all", "not a picture"),
    "cut.png": (content(NOISE, format="PNG")[:-60], "damaged"),
    "cut.jpg": (content(np.tile(NOISE, (9, 9, 1)), format="JPEG")[:-600], "damaged"),
    "other.png": (content(NOISE, format="TIFF"), "not a picture"),
    "large.png": (bomb(9_000, 9_000), "of more than 67 megapixels"),
    "huge.png": (bomb(60_000, 60_000), "of more than 67 megapixels"),
}


def test_bad_pictures_are_left_out_and_named_and_cost_no_memory(tmp_path, recwarn):
    for name, (data, _) in BAD.items():
        (tmp_path / name).write_bytes(data)
    saved(NOISE, tmp_path / "good.png")
    tracemalloc.start()
    data = load(tmp_path, size=8)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert np.array_equal(data.codec.decode(data.tokens[:]), NOISE[None])
    assert data.report.startswith("1 of 8 picture files were read as squares of 8 x 8 pixels. Files left out: ")
    for reason in {reason for _, reason in BAD.values()}:
        names = sorted(name for name, (_, other) in BAD.items() if other == reason)
        assert f"{len(names)} {reason} (such as '{names[0]}')" in data.report
    assert peak < 1 << 24
    assert not recwarn.list


def test_a_picture_is_known_by_what_it_holds_and_not_by_its_ending(tmp_path):
    (tmp_path / "a.jpg").write_bytes(content(NOISE, format="PNG"))
    assert np.array_equal(one(tmp_path / "a.jpg"), NOISE)


def test_a_folder_without_a_picture_that_can_be_used_is_answered_by_a_sentence(tmp_path):
    for name, (data, _) in BAD.items():
        (tmp_path / name).write_bytes(data)
    with pytest.raises(
        ValueError, match=r"None of the 7 picture files of '.*' can be used: 3 not a picture \(such as "
    ):
        load(tmp_path)


def test_the_limit_of_pixels_is_one_that_memory_holds():
    assert MOST_PIXELS * 4 <= 1 << 28  # bytes, of red, green, blue and opacity


def test_a_single_picture_is_no_data_set(tmp_path):
    write_picture(NOISE, tmp_path / "a.png")
    with pytest.raises(ValueError, match=r"'.*a\.png' is one sample, but a data set has many\. Name a folder of \.png"):
        load(tmp_path / "a.png")


def test_progress_is_shown_of_many_pictures_only(tmp_path, capsys, monkeypatch):
    paths = [saved(NOISE, tmp_path / f"{number}.png") for number in range(3)]
    read_squares(paths, 8)
    assert capsys.readouterr().err == ""
    monkeypatch.setattr(files, "MANY", 3)
    read_squares(paths, 8)
    assert "3/3" in capsys.readouterr().err
