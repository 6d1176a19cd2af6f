"""Pictures as tokens: levels of channels of pixels, from arrays and back to sheets, files and arrays."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from PIL import Image

from sddm.codecs import Pixels
from sddm.data import Dataset, load
from sddm.formats import arrays
from sddm.recipe import ModelConfig, suited
from sddm.training import TrainingConfig

PICTURES = np.random.RandomState(0).randint(0, 256, (5, 4, 6, 3)).astype(np.uint8)


def read(path):
    with Image.open(path) as image:
        return np.asarray(image)


# ---- meaning


def test_a_position_is_a_channel_of_a_pixel_row_by_row():
    codec = Pixels(4, 6)
    tokens = codec.encode(PICTURES)
    for row, column, channel in [(0, 0, 0), (0, 0, 2), (1, 0, 0), (3, 5, 1)]:
        assert torch.equal(tokens[:, (row * 6 + column) * 3 + channel], torch.tensor(PICTURES[:, row, column, channel]))
    assert np.array_equal(codec.decode(tokens), PICTURES)


@pytest.mark.parametrize("levels", [2, 3, 16, 100, 255, 256])
def test_levels_share_the_values_evenly_and_keep_black_and_white(levels):
    codec = Pixels(16, 16, channels=1, levels=levels)
    values = np.arange(256, dtype=np.uint8).reshape(1, 16, 16, 1)
    tokens = codec.encode(values)
    counts = tokens.flatten().bincount()
    assert len(counts) == levels
    assert int(counts.max() - counts.min()) <= 1
    assert (tokens.diff() >= 0).all()
    decoded = codec.decode(tokens)
    assert torch.equal(codec.encode(decoded), tokens)
    assert (int(decoded.min()), int(decoded.max())) == (0, 255)
    # A level's values span less than 256 / levels + 1, and the one that stands for them is among them.
    assert np.abs(decoded.astype(int) - values).max() < 256 / levels + 1


def test_every_number_of_levels_survives_decoding_and_encoding():
    for levels in range(2, 257):
        tokens = torch.arange(256)[None] % levels
        codec = Pixels(16, 16, channels=1, levels=levels)
        assert torch.equal(codec.encode(codec.decode(tokens)), tokens)


def test_pictures_of_more_levels_are_translated_and_of_another_size_refused():
    fine, coarse = Pixels(4, 6), Pixels(4, 6, levels=4)
    tokens = coarse.translated(fine.encode(PICTURES), fine, "data")
    assert torch.equal(tokens, coarse.encode(PICTURES))
    small = Pixels(8, 8, channels=1)
    with pytest.raises(
        ValueError,
        match=r"data holds colour pictures of 4 x 6 pixels, but the model was trained on grey pictures of 8 x 8 "
        r"pixels\. Read it with --size 8 --grey, or name other data\.",
    ):
        small.translated(tokens, coarse, "data")
    with pytest.raises(ValueError, match=r"of 4 x 6 pixels\. Name other data\.$"):
        coarse.translated(torch.zeros(1, 64, dtype=torch.int64), small, "data")


def test_a_model_of_pictures_knows_rows_and_columns_unless_told_otherwise():
    codec = Pixels(4, 6)
    data = Dataset(codec.compact(PICTURES), codec)
    model, training = suited(ModelConfig(), TrainingConfig(), data)
    assert model.grid == (4, 18)
    assert replace(model, width=8, layers=1).build(data).model.network.places.tables == (4, 18)
    assert suited(ModelConfig(grid=(8, 9)), training, data)[0].grid == (8, 9)
    assert suited(ModelConfig(model="mlp-energy"), training, data)[0].grid is None
    text = Dataset.from_tokens(np.eye(3, dtype=int))
    assert suited(ModelConfig(), TrainingConfig(), text)[0].grid is None


# ---- arrays


@pytest.mark.parametrize("channels", [1, 3])
def test_an_array_of_pixels_is_told_from_tokens_by_its_axes(channels, tmp_path):
    pictures = PICTURES[..., :channels]
    np.save(tmp_path / "a.npy", pictures)
    np.savez(tmp_path / "a.npz", x=pictures, y=np.arange(3))
    for data in (load(tmp_path / "a.npy"), load(tmp_path / "a.npz", key="x")):
        assert data.codec == Pixels(4, 6, channels)
        assert np.array_equal(data.codec.decode(data.tokens[:]), pictures)


def test_without_an_axis_of_channels_pictures_are_grey(tmp_path):
    np.save(tmp_path / "a.npy", PICTURES[..., 0])
    data = load(tmp_path / "a.npy")
    assert data.codec == Pixels(4, 6, 1)
    assert np.array_equal(data.codec.decode(data.tokens[:])[..., 0], PICTURES[..., 0])


@pytest.mark.parametrize("axes", [3, 4])
def test_a_large_array_of_pixels_stays_in_its_file(axes, tmp_path, monkeypatch):
    monkeypatch.setattr(arrays, "MAPPED_FROM", 0)
    np.save(tmp_path / "a.npy", PICTURES if axes == 4 else PICTURES[..., 0])
    data = load(tmp_path / "a.npy")
    assert data.tokens.in_file
    assert torch.equal(data.tokens[1:3], torch.from_numpy(PICTURES[1:3, ..., : 3 if axes == 4 else 1].reshape(2, -1)))


def test_arrays_take_the_options_of_pictures(tmp_path):
    np.save(tmp_path / "a.npy", np.full((2, 9, 12, 3), 200, np.uint8))
    data = load(tmp_path / "a.npy", size=3, levels=4, grey=True)
    assert data.codec == Pixels(3, 3, 1, 4)
    assert (data.tokens[:] == 3).all()  # 200 * 4 // 256


@pytest.mark.parametrize(
    ("array", "options", "match"),
    [
        (PICTURES.astype(np.int64), {}, r"holds int64 of shape \(5, 4, 6, 3\)\. Pictures are uint8 .*astype"),
        (PICTURES.transpose(0, 3, 1, 2), {}, r"shape \(5, 3, 4, 6\), .* Save array\.transpose\(0, 2, 3, 1\)\."),
        (np.zeros((2, 4, 4, 4), np.uint8), {}, r"shape \(2, 4, 4, 4\), .* Save red, green and blue, or grey, alone\."),
        (PICTURES[:0], {}, r"holds uint8 of shape \(0, 4, 6, 3\)"),
        (np.zeros((2, 300, 300), np.uint8), {}, r"grey pictures of 300 x 300 .* 90000 positions, but at most 65536"),
        (PICTURES, {"size": 148}, r"colour pictures of 148 x 148 pixels have 65712 positions, but at most 65536"),
        (PICTURES, {"size": 0}, "size must be at least 1, but it is 0"),
        (PICTURES, {"levels": 1}, "levels must be at least 2, but it is 1"),
        (PICTURES, {"levels": 257}, "levels must be at most 256, but it is 257"),
        (PICTURES[0, 0], {"size": 8}, r"are for pictures \(num, height, width, channels\), but '.*' holds an array of"),
        (PICTURES[0, 0], {"grey": True}, r"size, levels and grey are for pictures"),
    ],
)
def test_an_array_that_holds_no_pictures_is_answered_by_a_sentence(array, options, match, tmp_path):
    np.save(tmp_path / "a.npy", array)
    with pytest.raises(ValueError, match=match):
        load(tmp_path / "a.npy", **options)


def test_more_pixels_than_are_possible_are_refused_before_a_folder_is_read(tmp_path):
    for number in range(2):
        Image.fromarray(PICTURES[number]).save(tmp_path / f"{number}.png")
    with pytest.raises(ValueError, match="colour pictures of 200 x 200 pixels have 120000 positions"):
        load(tmp_path, size=200)
    assert load(tmp_path, size=200, grey=True).length == 40_000


@pytest.mark.usefixtures("without_annotation_checks")
@pytest.mark.parametrize(
    ("make", "match"),
    [
        (lambda: Pixels(2, 2, channels=2), r"channels must be 1 \(grey\) or 3 \(colour\), but it is 2"),
        (lambda: Pixels(0, 2), "height must be at least 1"),
        (lambda: Pixels(4, 6).encode(PICTURES[:, :3]), r"values must be an array of uint8 of shape \(num, 4, 6, 3\)"),
        (lambda: Pixels(4, 6).encode(PICTURES / 255), "one picture a row, but it is float64 of shape"),
        (
            lambda: Pixels(1, 2).decode(torch.zeros(1, 5, dtype=torch.int64)),
            "has 5 positions, but colour pictures of 1",
        ),
    ],
)
def test_what_is_no_picture_is_answered_by_a_sentence(make, match):
    with pytest.raises(ValueError, match=match):
        make()


# ---- writing


def test_samples_are_a_sheet_an_array_or_the_files_of_a_folder(tmp_path):
    codec = Pixels(4, 6)
    tokens = codec.encode(PICTURES)
    codec.write(tokens, tmp_path / "sheet.png")
    assert read(tmp_path / "sheet.png").size > 5 * PICTURES[0].size
    codec.write(tokens, tmp_path / "s.npy")
    assert np.array_equal(np.load(tmp_path / "s.npy"), PICTURES)
    codec.write(tokens, tmp_path / "folder")
    assert sorted(path.name for path in (tmp_path / "folder").iterdir()) == [f"{i}.png" for i in range(1, 6)]
    for i in range(5):
        assert np.array_equal(read(tmp_path / "folder" / f"{i + 1}.png"), PICTURES[i])
    again = load(tmp_path / "s.npy")
    assert torch.equal(again.tokens[:], tokens)
    assert codec.preview_ending == ".png"


def test_only_pictures_that_were_written_here_are_taken_for_samples(tmp_path):
    codec = Pixels(4, 6)
    codec.write(codec.encode(PICTURES), tmp_path / "folder")
    assert all(codec.wrote(path) for path in (tmp_path / "folder").iterdir())
    Image.fromarray(PICTURES[0]).save(tmp_path / "1.png")
    (tmp_path / "2.png").mkdir()
    (tmp_path / "folder" / "1.png").rename(tmp_path / "mine.png")
    assert not any(codec.wrote(tmp_path / name) for name in ("1.png", "2.png", "3.png", "mine.png"))


# ---- conditions


@pytest.mark.parametrize("levels", [16, 256])
def test_transparent_pixels_of_a_condition_are_blanks(levels, tmp_path):
    codec = Pixels(4, 6, levels=levels)
    opacity = np.full((4, 6), 255, np.uint8)
    opacity[:2, 3:] = 0
    Image.fromarray(np.dstack([PICTURES[0], opacity])).save(tmp_path / "c.png")
    known = codec.read_condition(tmp_path / "c.png", codec.length).reshape(4, 6, 3)
    assert (known[:2, 3:] == -1).all()
    there = torch.from_numpy(opacity > 0)
    assert torch.equal(known[there], codec.encode(PICTURES[:1]).reshape(4, 6, 3)[there])


def test_a_condition_of_grey_pictures_is_grey(tmp_path):
    codec = Pixels(4, 6, channels=1)
    Image.fromarray(np.dstack([PICTURES[0, ..., 0], np.arange(24, dtype=np.uint8).reshape(4, 6)])).save(
        tmp_path / "c.png"
    )
    known = codec.read_condition(tmp_path / "c.png", 24)
    assert known.shape == (1, 24)
    assert (known == -1).sum() == 1  # what is not fully transparent is known


def test_an_array_of_a_condition_holds_values_and_blanks_or_tokens(tmp_path):
    codec = Pixels(4, 6, levels=16)
    values = PICTURES.astype(np.int16)
    values[:, 2] = -1
    np.save(tmp_path / "c.npy", values)
    tokens = codec.encode(PICTURES).reshape(5, 4, 18)
    tokens[:, 2] = -1
    assert torch.equal(codec.read_condition(tmp_path / "c.npy", 72), tokens.reshape(5, 72))
    np.save(tmp_path / "c.npy", tokens.reshape(5, 72).numpy())
    assert torch.equal(codec.read_condition(tmp_path / "c.npy", 72), tokens.reshape(5, 72))
    np.save(tmp_path / "c.npy", PICTURES[..., 0])
    grey = Pixels(4, 6, channels=1)
    assert torch.equal(grey.read_condition(tmp_path / "c.npy", 24), grey.encode(PICTURES[..., :1]))


@pytest.mark.parametrize(
    ("array", "match"),
    [
        (PICTURES[:, :3], r"must hold whole numbers of shape \(num, 4, 6, 3\), but it holds uint8 of shape \(5, 3, 6"),
        (PICTURES / 255, "but it holds float64"),
        (PICTURES.astype(int) + 1, "must hold values from 0 to 255, and -1 as a blank, but it holds values from"),
        (PICTURES.astype(int) - 2, "but it holds values from -2"),
        (PICTURES[..., 0], r"but it holds uint8 of shape \(5, 4, 6, 1\)"),
        (np.full((1, 72), 16), "holds token 16 at position 0"),
    ],
)
def test_a_bad_array_of_a_condition_is_answered_by_a_sentence(array, match, tmp_path):
    codec = Pixels(4, 6, levels=16)
    np.save(tmp_path / "c.npy", array)
    with pytest.raises(ValueError, match=match):
        codec.read_condition(tmp_path / "c.npy", 72)


def test_a_picture_of_a_condition_that_cannot_be_used_is_answered_by_a_sentence(tmp_path):
    codec = Pixels(6, 4)
    Image.fromarray(PICTURES[0]).save(tmp_path / "c.png")
    with pytest.raises(
        ValueError, match=r"has 4 x 6 pixels, but samples are colour pictures of 6 x 4 pixels\. Resize it\."
    ):
        codec.read_condition(tmp_path / "c.png", 72)
    (tmp_path / "c.png").write_bytes((tmp_path / "c.png").read_bytes()[:-40])
    with pytest.raises(ValueError, match=r"'.*c\.png' is damaged \(.*\)\. Save it again\."):
        codec.read_condition(tmp_path / "c.png", 72)
