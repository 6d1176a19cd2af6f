"""From a folder of MIDI files to a completion that can be heard, by the commands of the guide."""

import re
import shlex
import wave
from pathlib import Path

import numpy as np
import pytest
import torch
from matplotlib import image

from enumerated import seeded
from sddm.cli import main
from sddm.codecs import Notes
from sddm.commands import train
from sddm.data import Dataset, load
from sddm.diffusion import Diffusion
from sddm.formats.midi import read_parts
from sddm.formats.midi_writer import write_midi
from sddm.formats.parts import melody
from sddm.formats.score import from_notes, merged, sounding
from sddm.recipe import ModelConfig, suited
from sddm.training import TrainingConfig
from sddm.training.batches import Epochs, transposed

GUIDE = (Path(__file__).parents[2] / "docs" / "music.md").read_text(encoding="utf-8")
SECONDS_A_STEP = 60 / 120 / 4


def tune(seed, steps=256):
    pitches = torch.randint(60, 72, (1, steps // 2), generator=seeded(seed)).repeat_interleave(2, dim=1)
    return merged(pitches.numpy())


@pytest.fixture
def place(tmp_path, monkeypatch, at_full_speed):
    """Six tunes, another one to complete, and chorales that need no corpus."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "songs").mkdir()
    for number in range(6):
        write_midi(tune(number), Path("songs") / f"{number}.mid")
    write_midi(tune(9), Path("tune.mid"))
    write_midi(tune(8, 64), Path("soprano.mid"))
    codec = Notes(voices=4)
    scores = np.stack([np.concatenate([tune(4 * i + v, 64) for v in range(4)]) for i in range(6)])
    chorales = Dataset(codec.encode(scores), codec, groups=list(range(6)), name="chorales")
    other = load  # for everything else
    monkeypatch.setattr(train, "load", lambda data, **o: chorales if data == "chorales" else other(data, **o))
    return tmp_path


def commands():
    """The command lines of the guide, with two steps of training in place of two thousand."""
    lines = [line.partition("#")[0].strip() for line in re.findall(r"^sddm (?:train|sample) .*$", GUIDE, re.MULTILINE)]
    return [shlex.split(line.replace("--steps 2000", "--steps 2 --batch-size 4"))[1:] for line in lines]


def read(path):
    parts = read_parts(Path(path).read_bytes(), str(path), 4)
    return melody(parts)


def test_the_commands_of_the_guide_run_and_leave_what_they_say(place, capsys):
    lines = commands()
    assert len(lines) == 7
    for line in lines:
        main(line)
    assert "warning" not in capsys.readouterr().err
    for name in ("completion", "filled", "harmonised"):
        with wave.open(f"{name}.wav") as sound:
            steps = 64 if name == "harmonised" else 256
            assert sound.getnframes() == round(steps * SECONDS_A_STEP * sound.getframerate())
        assert Path(f"{name}.png").stat().st_size > 1_000
    assert sorted(path.name for path in Path("filled").glob("*.mid")) == ["1.mid", "2.mid", "3.mid"]
    assert len(list(Path("new").glob("*.wav"))) == 4
    truth = sounding(from_notes_of("tune.mid", 256))[0]
    assert np.array_equal(sounding(from_notes_of("completion.mid", 256))[0][:32], truth[:32])
    bars = np.arange(256) // 16 + 1
    for path, open_bars in (("filled.mid", range(8, 13)), ("filled/2.mid", (2, 4, 6, 8))):
        kept = ~np.isin(bars, list(open_bars))
        made = sounding(from_notes_of(path, 256))[0]
        assert np.array_equal(made[kept], truth[kept])
        assert not np.array_equal(made, truth)
    soprano = sounding(from_notes_of("soprano.mid", 64))[0]
    parts = read_parts(Path("harmonised.mid").read_bytes(), "harmonised.mid", 4)
    assert np.array_equal(sounding(from_notes(parts[0].notes, 64)[None])[0], soprano)


def from_notes_of(path, steps):
    voice = read(path)
    return np.pad(voice, (0, max(0, steps - len(voice))), constant_values=128)[None, :steps]


def test_a_model_of_music_is_ordered_and_learns_to_complete_unless_told_otherwise(place):
    data = load("songs")
    model, training = suited(ModelConfig(), TrainingConfig(), data)
    assert (model.ordered, training.optimizer, training.known) == (True, "muon", "nothing+prefix+spans")
    assert suited(ModelConfig(), TrainingConfig(known="nothing"), data)[1].known == "nothing"
    of_voices = suited(ModelConfig(), TrainingConfig(), Dataset(torch.zeros(2, 64, dtype=torch.int64), Notes(4)))[1]
    assert "mask:0-63/4" in of_voices.known
    assert of_voices.known_rule.draw(4, 64, seeded(0)).shape == (4, 64)


@pytest.mark.parametrize("options", [{}, {"held": True}, {"scramble": True}])
def test_transposed_rows_are_the_same_music_in_another_key(place, options):
    data = load("songs", **options)
    batches = Epochs(data, 6, 0)
    moved = transposed(batches, data.codec, 5, seed=0)
    before, after = (data.codec.decode(rows(3).x0)[:, 0].astype(int) for rows in (batches, moved))
    pitched = before < 128
    assert np.array_equal(after[~pitched], before[~pitched])
    shifts = [set((after - before)[row][pitched[row]]) for row in range(6)]
    assert all(len(shift) == 1 for shift in shifts)
    assert len(set.union(*shifts)) > 1
    assert set.union(*shifts) <= set(range(-5, 6))
    assert torch.equal(moved(3).x0, transposed(batches, data.codec, 5, seed=0)(3).x0)


def test_what_was_trained_on_a_grid_is_saved_with_the_model(place, capsys):
    sizes = "--steps 1 --batch-size 4 --width 8 --layers 1 --heads 1"
    main(shlex.split(f"train --data songs {sizes} --steps-per-beat 2 --window 64"))
    diffusion = Diffusion.from_pretrained("runs/songs/model")
    assert diffusion.codec == Notes(steps_per_beat=2)
    assert diffusion.length == 64
    assert "sddm sample runs/songs --num 16 --out samples. Score" in capsys.readouterr().err
    main(shlex.split("evaluate runs/songs --samples 4 --rows 2 --num-times 8 --steps 2"))


@pytest.fixture
def model(place):
    """A model of tunes, and one of four voices, that have learnt nothing."""
    sizes = "--steps 1 --batch-size 4 --width 8 --layers 1 --heads 1"
    main(shlex.split(f"train --data songs {sizes} --window 64"))
    main(shlex.split(f"train --data chorales {sizes}"))
    return place


def refused(line, capsys):
    capsys.readouterr()
    with pytest.raises(SystemExit) as stopped:
        main(shlex.split(line))
    assert stopped.value.code == 2
    return capsys.readouterr().err


def test_nothing_of_the_user_is_replaced(model, capsys):
    """Neither a sound beside the new file, nor a folder that holds more than samples."""
    Path("mine.wav").write_text("mine")
    said = refused("sample runs/songs --out mine.mid", capsys)
    assert "'mine.wav' exists. Name another file, or pass --overwrite" in said
    said = refused("sample runs/songs --num 2 --out songs --overwrite", capsys)
    assert "'songs' holds what is no sample, such as '0.mid', and is not replaced" in said
    assert len(list(Path("songs").iterdir())) == 6
    assert Path("mine.wav").read_text() == "mine"
    main(shlex.split("sample runs/songs --num 3 --out new --steps 2"))
    main(shlex.split("sample runs/songs --num 2 --out new --steps 2 --overwrite"))
    assert sorted(path.name for path in Path("new").iterdir()) == [
        f"{number}.{ending}" for number in (1, 2) for ending in ("mid", "png", "wav")
    ]


def test_a_short_piece_is_filled_and_harmonised_in_its_own_length(model, capsys):
    short = np.concatenate([tune(7, 40), np.full((1, 4), 128)], axis=1)
    write_midi(short, Path("short.mid"))
    main(shlex.split("sample runs/songs --condition short.mid --fill 2 --out filled.mid"))
    main(shlex.split("sample runs/chorales --condition short.mid --keep-voice 1 --out harmonised.mid"))
    for path in ("filled.mid", "harmonised.mid"):
        parts = read_parts(Path(path).read_bytes(), path, 4)
        assert parts[0].end == 44
        kept = np.arange(44) // 16 != 1 if path == "filled.mid" else np.full(44, True)
        made = sounding(from_notes(parts[0].notes, 44)[None])[0]
        assert np.array_equal(made[kept], sounding(short)[0][kept])
    for rules, match in (
        ("--fill 4", "the piece has bars 1 to 3 only"),
        ("--give 45", "the piece has 44 steps"),
        ("--give 8 --track oboe", "has no track 'oboe' with notes"),
    ):
        assert match in refused(f"sample runs/songs --condition short.mid {rules} --out a.mid", capsys)
    said = refused("sample runs/chorales --condition short.mid --keep-voice alto --out a.mid", capsys)
    assert "keep_voice names the alto, but the piece has no notes for it: it has the soprano only" in said
    said = refused("sample runs/songs --condition tune.mid --fill 2:5 --out a.mid", capsys)
    assert "reaches from bar 2 to bar 5, which is 64 steps, but samples have 64, with some context" in said
    assert not Path("a.mid").exists()


def test_a_picture_alone_shows_what_was_given(model):
    main(shlex.split("sample runs/songs --condition tune.mid --give 32 --num 2 --out given.png"))
    main(shlex.split("sample runs/songs --num 2 --out free.png"))
    grey = [(image.imread(name)[..., :3] == np.float32(0xE9 / 255)).mean() for name in ("given.png", "free.png")]
    assert grey[0] > grey[1]


def test_bars_of_a_long_piece_are_filled_and_it_goes_on_after_its_end(model, capsys):
    main(shlex.split("sample runs/songs --condition tune.mid --fill 12:13 --steps 4 --out filled.mid"))
    assert "The model sees bars 11 to 14" in capsys.readouterr().err
    truth, filled = (sounding(from_notes_of(name, 256))[0] for name in ("tune.mid", "filled.mid"))
    kept = ~np.isin(np.arange(256) // 16 + 1, (12, 13))
    assert np.array_equal(filled[kept], truth[kept])
    main(shlex.split("sample runs/songs --condition tune.mid --steps 4 --out longer.mid"))
    with wave.open("longer.wav") as sound:
        assert sound.getnframes() == round((256 + 32) * SECONDS_A_STEP * sound.getframerate())
    assert np.array_equal(sounding(from_notes_of("longer.mid", 288))[0][:256], truth)
