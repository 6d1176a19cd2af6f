"""Sound: as long as the score, as high as its notes, and silent where it rests."""

import wave

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from midi_files import scores
from sddm.formats import sound
from sddm.formats.score import HELD, REST
from sddm.formats.sound import RATE, write_wav
from sddm.formats.sound_font import SoundFont


def heard(score, path, *arguments):
    write_wav(np.array(score), path, *arguments)
    with wave.open(str(path)) as file:
        assert (file.getnchannels(), file.getsampwidth(), file.getframerate()) == (2, 2, RATE)
        return np.frombuffer(file.readframes(file.getnframes()), "<i2").reshape(-1, 2)


@settings(max_examples=10)
@given(scores(), st.integers(1, 8), st.floats(40, 400))
def test_a_sound_lasts_as_long_as_the_score_to_the_sample(tmp_path_factory, score, steps_per_beat, tempo):
    samples = heard(score, tmp_path_factory.getbasetemp() / "a.wav", steps_per_beat, tempo)
    assert len(samples) == round(score.shape[1] * 60 / (steps_per_beat * tempo) * RATE)


@pytest.mark.parametrize("pitch", [36, 45, 57, 60, 69, 72, 81, 96, 108, 120])
def test_a_note_sounds_at_its_pitch_and_begins_in_its_step(pitch, tmp_path):
    samples = heard([[REST] * 4 + [pitch] + [HELD] * 7], tmp_path / "a.wav").mean(axis=1)
    begins, ends = 4 * RATE // 8, 12 * RATE // 8  # eight steps a second
    assert np.abs(samples[: begins - 100]).max() < 0.01 * np.abs(samples).max()
    assert np.abs(samples[begins : begins + RATE // 20]).max() > 0.1 * np.abs(samples).max()
    spectrum = np.abs(np.fft.rfft(samples[begins:ends] * np.hanning(ends - begins)))
    hertz = 440 * 2 ** ((pitch - 69) / 12)
    near = slice(round(hertz / 1.3), round(hertz * 1.3))  # a bin is 1 Hz: the second is whole
    assert near.start + spectrum[near].argmax() == pytest.approx(hertz, rel=0.01, abs=1)  # 17 cents
    assert spectrum[near].max() > 0.5 * spectrum.max()


def test_all_voices_are_heard(tmp_path):
    samples = heard([[69] + [HELD] * 7, [60] + [HELD] * 7], tmp_path / "a.wav").mean(axis=1)
    spectrum = np.abs(np.fft.rfft(samples * np.hanning(len(samples))))
    floor = np.median(spectrum[200:500])
    assert all(spectrum[hertz - 2 : hertz + 3].max() > 100 * floor for hertz in (440, 262))


@pytest.mark.parametrize("voices", [1, 4])
def test_silence_is_silent(voices, tmp_path):
    samples = heard(np.full((voices, 12), REST), tmp_path / "a.wav")
    assert len(samples) == 1.5 * RATE
    assert not samples.any()


def test_a_sound_is_loud_and_ends_without_a_crack(tmp_path):
    samples = heard([[60] * 8], tmp_path / "a.wav")
    assert np.abs(samples).max() == pytest.approx(sound.PEAK * (2**15 - 1), abs=1)
    assert not samples[-1].any()


def test_every_pitch_can_be_played(tmp_path):
    assert len(heard([list(range(128))], tmp_path / "a.wav", 4, 480.0)) == 4 * RATE


def test_music_of_hours_does_not_become_a_sound(tmp_path):
    with pytest.raises(ValueError, match="The music lasts 5000 seconds, but at most 900 become a sound"):
        write_wav(np.full((1, 40_000), REST), tmp_path / "a.wav")
    assert not list(tmp_path.iterdir())


@pytest.fixture
def without_piano(monkeypatch):
    sound._piano.cache_clear()
    monkeypatch.setattr(sound, "find_spec", lambda name: None)
    yield
    sound._piano.cache_clear()


def test_what_is_not_installed_is_named(without_piano, tmp_path):
    with pytest.raises(ValueError, match=r'Install it with pip install "sddm\[music\]"\.$'):
        write_wav(np.array([[60]]), tmp_path / "a.wav")


@pytest.mark.parametrize("content", [b"", b"RIFF", b"RIFF" + bytes(100), bytes(10_000)])
def test_a_damaged_sound_font_is_answered_by_a_sentence(content, tmp_path):
    (tmp_path / "a.sf2").write_bytes(content)
    with pytest.raises(ValueError, match="is damaged or not a sound font with preset 0"):
        SoundFont.read(tmp_path / "a.sf2")
