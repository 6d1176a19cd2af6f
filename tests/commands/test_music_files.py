"""From a folder of MIDI files to a completion that can be heard, by the commands of the guide."""

import re
import shlex
import wave
from pathlib import Path

import numpy as np
import pytest
import torch

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
    (tmp_path / "tunes").mkdir()
    for number in range(6):
        write_midi(tune(number), Path("tunes") / f"{number}.mid")
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
    data = load("tunes")
    model, training = suited(ModelConfig(), TrainingConfig(), data)
    assert (model.ordered, training.optimizer, training.known) == (True, "muon", "nothing+prefix+spans")
    assert suited(ModelConfig(), TrainingConfig(known="nothing"), data)[1].known == "nothing"
    of_voices = suited(ModelConfig(), TrainingConfig(), Dataset(torch.zeros(2, 64, dtype=torch.int64), Notes(4)))[1]
    assert "mask:0-63/4" in of_voices.known
    assert of_voices.known_rule.draw(4, 64, seeded(0)).shape == (4, 64)


@pytest.mark.parametrize("options", [{}, {"held": True}, {"scramble": True}])
def test_transposed_rows_are_the_same_music_in_another_key(place, options):
    data = load("tunes", **options)
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


def test_what_was_trained_on_a_grid_is_saved_with_the_model(place):
    sizes = "--steps 1 --batch-size 4 --width 8 --layers 1 --heads 1"
    main(shlex.split(f"train --data tunes {sizes} --steps-per-beat 2 --window 64"))
    diffusion = Diffusion.from_pretrained("runs/tunes/model")
    assert diffusion.codec == Notes(steps_per_beat=2)
    assert diffusion.length == 64
    main(shlex.split("evaluate runs/tunes --samples 4 --rows 2 --num-times 8 --steps 2"))
