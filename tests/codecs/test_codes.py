"""Pictures as the codes of a tokenizer that their codec carries."""

import json

import numpy as np
import pytest
import torch
from PIL import Image

from sddm.codecs import BLANK, Codes, Integers, Pixels
from sddm.data import Dataset, load
from sddm.data.codes import is_codes, read_codes, write_codes
from sddm.diffusion import Diffusion
from sddm.recipe import ModelConfig, suited
from sddm.tokenizers import VQGAN, VQGANSizes
from sddm.training import TrainingConfig
from tiny_pictures import CHANNELS, SIDE, SIZES, dataset, pictures

SMALL = {"width": 8, "layers": 1, "heads": 1, "mlp": 8}


def made(seed=0, height=SIDE, width=SIDE, sizes=SIZES):
    """A codec whose network is so steep that pictures differ in their codes."""
    torch.manual_seed(seed)
    network = VQGAN(sizes)
    features = network.encoder(torch.randn(4, sizes.channels, 8, 8))
    codes = features.permute(0, 2, 3, 1).reshape(-1, sizes.code_width).detach()
    network.quantizer.codebook.data = codes[torch.randperm(len(codes))[: sizes.codes]]
    return Codes.of(network, height, width)


def folder_of(codec, path, num=12, **numbers):
    tokens = codec.encode(pictures(num))
    write_codes(path, num, tokens.split(5), codec, numbers)
    return tokens


# ---- the codec


def test_a_position_holds_the_code_of_its_patch():
    codec = made(height=8, width=16)
    assert (codec.grid, codec.usual_grid(8), codec.length, codec.num_states) == ((2, 4), (2, 4), 8, 16)
    shown = np.concatenate([pictures(3), pictures(3, seed=1)], axis=2)
    tokens = codec.encode(shown)
    assert tokens.shape == (3, 8)
    grids = codec.network.encode(torch.from_numpy(shown))
    assert torch.equal(tokens.reshape(3, 2, 4), grids)
    assert np.array_equal(codec.decode(tokens), codec.network.decode(grids).numpy())


def test_making_a_codec_takes_no_part_of_torch_s_draws_and_its_network_is_not_trained():
    before = torch.get_rng_state()
    codec = Codes(SIDE, SIDE, SIZES)
    assert torch.equal(torch.get_rng_state(), before)
    assert not any(weight.requires_grad for weight in codec.network.parameters())


def test_codecs_with_other_networks_are_not_equal_and_their_data_have_another_fingerprint():
    assert made() == made() != made(seed=1)
    tokens = np.zeros((3, 4), np.uint8)
    prints = [Dataset(tokens, codec).fingerprint() for codec in (made(), made(), made(seed=1))]
    assert prints[0] == prints[1] != prints[2]


def test_pictures_that_are_given_pixel_by_pixel_are_encoded():
    codec, data = made(), dataset(6)
    assert torch.equal(codec.translated(data.tokens[:], data.codec, "squares"), codec.encode(pictures(6)))
    with pytest.raises(ValueError, match=r"squares holds what the model was not trained on: values must be an array"):
        codec.translated(torch.zeros(1, 12, dtype=torch.int64), Pixels(2, 2), "squares")
    with pytest.raises(ValueError, match="holds integers, but the model was trained on codes"):
        codec.translated(torch.zeros(1, 4, dtype=torch.int64), Integers(16), "numbers")


def test_samples_are_written_as_a_sheet_or_as_an_array_of_pictures(tmp_path):
    codec = made()
    tokens = codec.encode(pictures(5))
    codec.write(tokens, tmp_path / "sheet.png")
    codec.write(tokens, tmp_path / "made.npy")
    assert np.array_equal(np.load(tmp_path / "made.npy"), codec.decode(tokens))
    with Image.open(tmp_path / "sheet.png") as sheet:
        assert np.asarray(sheet)[0, 0].tolist() == codec.decode(tokens)[0, 0, 0].tolist()
    assert (codec.default_ending, codec.preview_ending, codec.text_ending) == (".png", ".png", None)


@pytest.mark.usefixtures("without_annotation_checks")
@pytest.mark.parametrize(
    ("act", "sentence"),
    [
        (lambda: Codes(30, 32, VQGANSizes()), "Pictures of 30 x 32 pixels cannot be cut"),
        (lambda: made().encode(np.zeros((1, 4, 8, 3), np.uint8)), r"uint8 of shape \(num, 8, 8, 3\).* \(1, 4, 8, 3\)"),
        (lambda: made().encode(np.zeros((1, 8, 8, 3))), "but it is float64"),
        (lambda: made().decode(torch.zeros(1, 5, dtype=torch.int64)), "tokens has 5 positions, but .* have 4 codes"),
        (lambda: made().decode(torch.full((1, 4), 16)), "tokens must hold tokens from 0 to 15"),
    ],
)
def test_what_is_no_picture_and_no_code_is_refused_in_a_sentence(act, sentence):
    with pytest.raises(ValueError, match=sentence):
        act()


# ---- conditions


def with_holes(path, opacity, channels=CHANNELS):
    shown = pictures(1, channels=channels)[0]
    Image.fromarray(np.concatenate([shown, opacity[..., None]], axis=-1)).save(path)
    return shown


def test_the_codes_of_patches_with_transparent_pixels_are_blank(tmp_path):
    codec, opacity = made(), np.full((SIDE, SIDE), 255, np.uint8)
    shown = with_holes(tmp_path / "whole.png", opacity)
    assert torch.equal(codec.read_condition(tmp_path / "whole.png", 4), codec.encode(shown[None]))
    opacity[5, 3] = 0  # one pixel of the patch below on the left
    opacity[0, 0] = 9  # seen, if hardly
    with_holes(tmp_path / "hole.png", opacity)
    known = codec.read_condition(tmp_path / "hole.png", 4)
    assert (known == BLANK).tolist() == [[False, False, True, False]]
    filled = shown.copy()
    filled[5, 3] = shown[opacity > 0].mean(axis=0).round()
    assert torch.equal(known.masked_fill(known == BLANK, 0), codec.encode(filled[None]) * (known != BLANK))


def test_nothing_is_known_of_a_picture_that_is_all_transparent(tmp_path):
    with_holes(tmp_path / "hole.png", np.zeros((SIDE, SIDE), np.uint8))
    assert made().read_condition(tmp_path / "hole.png", 4).tolist() == [[BLANK] * 4]


def test_a_grey_tokenizer_reads_grey(tmp_path):
    codec = made(sizes=VQGANSizes(filters=4, blocks=1, codes=4, code_width=4, channels=1))
    shown = pictures(1, channels=1)
    Image.fromarray(shown[0, ..., 0]).save(tmp_path / "grey.png")
    assert torch.equal(codec.read_condition(tmp_path / "grey.png", 4), codec.encode(shown))


def test_codes_may_be_given_as_an_array(tmp_path):
    np.save(tmp_path / "known.npy", np.array([[3, -1, -1, 0], [1, 1, 1, -1]]))
    assert made().read_condition(tmp_path / "known.npy", 4).tolist() == [[3, -1, -1, 0], [1, 1, 1, -1]]


def test_a_condition_that_is_no_picture_of_this_size_is_refused_in_a_sentence(tmp_path):
    Image.new("RGB", (9, 8)).save(tmp_path / "wide.png")
    with pytest.raises(ValueError, match=r"wide\.png' has 8 x 9 pixels, but the model makes pictures of 8 x 8"):
        made().read_condition(tmp_path / "wide.png", 4)
    (tmp_path / "text.png").write_text("no picture")
    with pytest.raises(ValueError, match=r"text\.png' is damaged or not a \.png picture"):
        made().read_condition(tmp_path / "text.png", 4)
    Image.new("RGB", (8, 8)).save(tmp_path / "cut.png")
    (tmp_path / "cut.png").write_bytes((tmp_path / "cut.png").read_bytes()[:40])
    with pytest.raises(ValueError, match=r"cut\.png' is damaged or not a \.png picture"):
        made().read_condition(tmp_path / "cut.png", 4)


# ---- a folder of codes


def test_a_folder_of_codes_is_data_with_its_tokenizer(tmp_path):
    codec = made()
    tokens = folder_of(codec, tmp_path / "codes", labels=torch.arange(12) % 5, groups=torch.arange(12) // 2)
    data = load(tmp_path / "codes")
    assert torch.equal(data.tokens[:], tokens)
    assert np.load(tmp_path / "codes" / "codes.npy").dtype == np.uint8
    assert data.codec == codec
    assert data.labels.tolist() == [row % 5 for row in range(12)]
    assert data.groups.tolist() == [row // 2 for row in range(12)]
    folder_of(codec, tmp_path / "plain")
    assert load(tmp_path / "plain").labels is None


def test_many_codes_are_read_from_the_disk_as_rows_are_needed(tmp_path, monkeypatch):
    codec = made()
    tokens = folder_of(codec, tmp_path / "codes")
    assert not load(tmp_path / "codes").tokens.in_file
    monkeypatch.setattr("sddm.formats.arrays.MAPPED_FROM", 8)
    data = load(tmp_path / "codes")
    assert data.tokens.in_file
    assert torch.equal(data.tokens[:], tokens)


def test_codes_take_the_smallest_type(tmp_path):
    sizes = VQGANSizes(filters=1, blocks=1, codes=300, code_width=2)
    codec = Codes(SIDE, SIDE, sizes)
    write_codes(tmp_path / "codes", 1, [torch.tensor([[299, 0, 1, 2]])], codec, {})
    assert np.load(tmp_path / "codes" / "codes.npy").dtype == np.uint16
    assert load(tmp_path / "codes").tokens[:].tolist() == [[299, 0, 1, 2]]


@pytest.mark.parametrize(
    ("name", "content", "sentence"),
    [
        ("codes.json", b"{", r"codes\.json' is damaged: .*Encode the pictures again"),
        ("codes.json", json.dumps({"format": 2, "height": 8, "width": 8}).encode(), "written by another version"),
        ("codes.json", json.dumps({"format": 1, "height": 8}).encode(), "is damaged: 'width'"),
        ("codes.json", json.dumps({"format": 1, "height": 16, "width": 8}).encode(), r"have 8 codes each"),
        ("codes.npy", b"nothing", "is not a numpy file"),
    ],
)
def test_a_damaged_folder_is_refused_in_a_sentence(tmp_path, name, content, sentence):
    folder_of(made(), tmp_path)
    (tmp_path / name).write_bytes(content)
    with pytest.raises(ValueError, match=sentence):
        load(tmp_path)


def test_labels_that_are_no_numbers_of_rows_are_refused_in_a_sentence(tmp_path):
    folder_of(made(), tmp_path)
    np.save(tmp_path / "labels.npy", np.zeros(12))
    with pytest.raises(ValueError, match="labels' must hold one whole number a row"):
        read_codes(tmp_path)
    np.save(tmp_path / "labels.npy", np.zeros(11, np.int64))
    with pytest.raises(ValueError, match="labels must hold one whole number for each of the 12 rows"):
        load(tmp_path)
    assert is_codes(tmp_path)
    assert not is_codes(tmp_path / "tokenizer")


# ---- models of codes


def test_a_transformer_of_codes_knows_rows_and_columns_unless_told_otherwise():
    data = Dataset(made().encode(pictures(8)), made())
    config, training = ModelConfig(**SMALL), TrainingConfig()
    assert suited(config, training, data)[0].grid == (2, 2)
    assert suited(ModelConfig(**SMALL, grid=(1, 4)), training, data)[0].grid == (1, 4)
    assert suited(ModelConfig(model="mlp-energy"), training, data)[0].grid is None
    assert suited(config, training, Dataset.from_tokens(np.array([[0, 1], [1, 0]])))[0].grid is None
    names = [name for name, _ in suited(config, training, data)[0].build(data).named_parameters()]
    assert sum("tables" in name for name in names) > 0


def test_a_model_of_codes_is_saved_with_its_tokenizer(tmp_path):
    codec = made()
    data = Dataset(codec.encode(pictures(8)), codec)
    diffusion = ModelConfig(**SMALL).build(data)
    diffusion.save_pretrained(tmp_path)
    again = Diffusion.from_pretrained(tmp_path)
    assert again.codec == codec
    tokens = data.tokens[:3]
    assert np.array_equal(again.decode(tokens), codec.decode(tokens))
