"""Tables by tabs and JSON lines, molecules and sequences: read, written back, and with gaps."""

import json

import pytest

from sddm.cli import main
from sddm.codecs import Characters, Columns
from sddm.data import load

FILES = {
    "table.tsv": 'colour\tsize\nred\t1\n"a\tb"\t2\nred\t2\n',
    "table.jsonl": '{"colour": "red", "size": 1}\n{"size": 2.5, "colour": null}\n{"colour": "blue", "size": 1}\n',
    "lines.jsonl": '{"text": "ab"}\n{"text": "bé"}\n\n',
    "molecules.smi": "SMILES name\nCCO ethanol\nC1CC1\tcyclopropane\nCC\n",
    "sequences.fasta": f">one, a protein\n{'MK' * 40}\nVL\n>two\nMKV\n",
}
VALUES = {
    "table.tsv": [["red", "1"], ["a\tb", "2"], ["red", "2"]],
    "table.jsonl": [["red", "1"], ["", "2.5"], ["blue", "1"]],
    "lines.jsonl": ["ab", "bé"],
    "molecules.smi": ["CCO", "C1CC1", "CC"],
    "sequences.fasta": ["MK" * 40 + "VL", "MKV"],
}


@pytest.fixture
def place(tmp_path):
    for name, content in FILES.items():
        (tmp_path / name).write_text(content, encoding="utf-8", newline="")
    return tmp_path


@pytest.mark.parametrize("name", FILES)
def test_a_file_is_read_written_and_read_again_as_it_was(name, place):
    data = load(place / name)
    assert isinstance(data.codec, Columns if "table" in name else Characters)
    assert data.codec.decode(data.tokens[:]) == VALUES[name]
    again = place / f"again.{name.partition('.')[2]}"
    data.codec.write(data.tokens[:], again)
    assert load(again).codec.decode(load(again).tokens[:]) == VALUES[name]
    assert load(again).fingerprint() == data.fingerprint()


def test_json_lines_keep_numbers_and_missing_values(place):
    data = load(place / "table.jsonl")
    data.codec.write(data.tokens[:], place / "again.jsonl")
    written = [json.loads(line) for line in (place / "again.jsonl").read_text().splitlines()]
    assert written == [
        {"colour": "red", "size": 1},
        {"colour": None, "size": 2.5},
        {"colour": "blue", "size": 1},
    ]


def test_sequences_are_written_with_headers_in_lines_of_sixty(place):
    data = load(place / "sequences.fasta")
    data.codec.write(data.tokens[:], place / "again.fasta")
    assert (place / "again.fasta").read_text().splitlines() == [
        ">sample_1",
        "MK" * 30,
        "MK" * 10 + "VL",
        ">sample_2",
        "MKV",
    ]


def test_windows_of_a_sequence_are_held_out_together(place):
    data = load(place / "sequences.fasta", window=3)
    assert data.codec.decode(data.tokens[:2]) == ["MKM", "KMK"]
    assert data.groups.tolist() == [0] * 27 + [1]


@pytest.mark.parametrize(
    ("data", "name", "content", "tokens"),
    [
        ("table.tsv", "c.tsv", "size\n\n2\n\t\n", None),
        ("table.tsv", "c.tsv", "size\tcolour\n2\t\n", [[-1, 1]]),
        ("table.jsonl", "c.jsonl", '{"size": 2.5}\n{"size": null}\n', [[-1, 1], [-1, -1]]),
        ("lines.jsonl", "c.jsonl", '{"text": "_b"}\n', [[-1, 1]]),
        ("molecules.smi", "c.smi", "CC_ what\n", [[1, 1, -1, -1, -1]]),
        ("sequences.fasta", "c.fasta", ">x\nM_\nV\n", [[2, -1, 3] + [-1] * 79]),
    ],
)
def test_conditions_are_read_from_the_same_formats(data, name, content, tokens, place):
    codec, length = load(place / data).codec, load(place / data).length
    (place / name).write_text(content)
    if tokens is None:
        with pytest.raises(ValueError, match="has 2 fields, but the header has 1"):
            codec.read_condition(place / name, length)
    else:
        assert codec.read_condition(place / name, length).tolist() == tokens


@pytest.mark.parametrize("name", FILES)
def test_samples_of_a_model_are_written_in_the_format_of_its_data(name, place, monkeypatch):
    monkeypatch.chdir(place)
    tiny = "--steps 2 --batch-size 2 --width 8 --layers 1 --heads 2 --mlp 8 --held-out 0.4"
    main(["train", "--data", name, "--out", "run", *tiny.split()])
    ending = name.partition(".")[2]
    main(["sample", "run", "--num", "3", "--steps", "2", "--out", f"made.{ending}"])
    assert (place / f"made.{ending}").stat().st_size > 0
