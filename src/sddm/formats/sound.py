"""Scores as sound: a piano, whose tones come from the sound font that the package pretty_midi carries."""

from __future__ import annotations

import wave
from functools import lru_cache
from importlib.util import find_spec
from pathlib import Path

import numpy as np
from jaxtyping import Float32

from sddm import _checks
from sddm.formats.midi_writer import check_tempo
from sddm.formats.score import Score, checked, notes_of
from sddm.formats.sound_font import SoundFont

RATE = 44_100
"""Samples of each of the two channels in a second."""
MAX_SECONDS = 900
FADE = 0.01
"""So many seconds at the end fade out, so that a cut note does not crack."""
PEAK = 0.8
"""The largest value of a sound, of at most 1."""
FILE = "TimGM6mb.sf2"


def write_wav(score: Score, path: Path, steps_per_beat: int = 4, tempo: float = 120.0) -> None:
    """A .wav file of 16 bits, in stereo, that lasts exactly as long as the steps of the score: what rings on is cut."""
    samples = (_rendered(score, steps_per_beat, tempo).T * np.float32(2**15 - 1)).round().astype("<i2")
    with path.open("wb") as file, wave.open(file, "wb") as writer:
        writer.setnchannels(2)
        writer.setsampwidth(2)
        writer.setframerate(RATE)
        writer.writeframes(samples.tobytes())


def _rendered(score: Score, steps_per_beat: int, tempo: float) -> Float32[np.ndarray, "2 samples"]:
    """The sound of a score, between -1 and 1."""
    score = checked(score)
    step = 60 / (_checks.whole(steps_per_beat, "steps_per_beat", 1) * check_tempo(tempo))
    seconds = score.shape[1] * step
    _checks.require(
        seconds <= MAX_SECONDS,
        f"The music lasts {seconds:.0f} seconds, but at most {MAX_SECONDS} become a sound. Write fewer steps.",
    )
    piano = _piano()
    sound = np.zeros((2, round(seconds * RATE)), dtype=np.float32)
    tones: dict[tuple[int, int], Float32[np.ndarray, "2 tone"]] = {}
    for note in (note for voice in score for note in notes_of(voice)):
        key, steps = note.pitch, note.end - note.start
        if (key, steps) not in tones:
            tones[key, steps] = piano.tone(key, steps * step, RATE)
        tone = tones[key, steps]
        place = sound[:, round(note.start * step * RATE) :][:, : tone.shape[1]]
        place += tone[:, : place.shape[1]]
    fading = min(sound.shape[1], round(FADE * RATE))
    sound[:, sound.shape[1] - fading :] *= np.linspace(1, 0, fading, dtype=np.float32)
    loudest = float(np.abs(sound).max(initial=0))
    return sound * np.float32(PEAK / loudest) if loudest else sound


@lru_cache(maxsize=1)
def _piano() -> SoundFont:
    package = find_spec("pretty_midi")
    if package is None or not package.submodule_search_locations:
        raise ValueError('Sound is made with a file in pretty_midi. Install it with pip install "sddm[music]".')
    font = Path(package.submodule_search_locations[0], FILE)
    _checks.require(font.is_file(), f"pretty_midi has no sound font {str(font)!r}. Install it again.")
    return SoundFont.read(font)
