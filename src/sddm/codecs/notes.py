"""Music as tokens: the pitch, or the silence, of each voice in each step."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from einops import rearrange
from jaxtyping import Bool, Int, Int16, Integer
from torch import Tensor

from sddm import _checks, _files
from sddm.codecs.base import MAX_LENGTH, Codec, ConditionReaders, Encoded, Readers, Tokens, Writers
from sddm.codecs.excerpt import BLANK, Excerpt, window_around
from sddm.codecs.kept import begun, kept
from sddm.formats.midi import MAX_BYTES, MAX_STEPS_PER_BEAT, read_parts
from sddm.formats.midi_writer import check_tempo, write_midi
from sddm.formats.parts import find_voices, length, melody
from sddm.formats.piano_roll import MAX_ROLLS, draw_roll
from sddm.formats.pieces import ENDINGS, Named, Selection, of_archive, of_file, of_folder, windows
from sddm.formats.score import PITCHES, REST, Score, checked, from_notes, merged, sounding, voice_names
from sddm.formats.sound import write_wav

MAX_VOICES = 16
BY_VOICE = "num (steps voices) -> num voices steps"
MAX_BEATS = 255
"""The most beats of a bar that a MIDI file can say."""
WINDOW, WINDOW_OF_VOICES = 256, 64
"""Steps of a row, of one voice and of several, unless they are given."""


class Notes(Codec):
    """Music on a grid: position `step * voices + voice` holds what this voice does in this step.

    held: whether a note that goes on has a token of its own, 129. If so, every `sddm.formats.score.Score` has its own
        tokens. If not, as in the paper, a note repeats its pitch in each of its steps, and a note that is struck again
        at once is a longer note. Tokens 0 to 127 are pitches, 128 is a rest.
    key: what scrambles the tokens, in the paper so that no order is left: token = key[value].
    steps_per_beat, beats_per_bar, tempo: the grid, the length of a bar, and how many beats a minute has when it is
        heard. A beat is a quarter note.

    >>> Notes().decode(torch.tensor([[60, 60, 62, 128]])).tolist()
    [[[60, 129, 62, 128]]]
    """

    ordered = True
    preview = 4
    single = frozenset({".mid", ".wav"})

    def __init__(
        self,
        voices: int = 1,
        steps_per_beat: int = 4,
        beats_per_bar: int = 4,
        held: bool = False,
        key: Sequence[int] | None = None,
        tempo: float = 120.0,
    ) -> None:
        self.voices = _checks.whole(voices, "voices", 1, MAX_VOICES)
        self.steps_per_beat = _checks.whole(steps_per_beat, "steps_per_beat", 1, MAX_STEPS_PER_BEAT)
        self.beats_per_bar = _checks.whole(beats_per_bar, "beats_per_bar", 1, MAX_BEATS)
        self.tempo = check_tempo(tempo)
        self.held = bool(held)
        self.num_states = PITCHES + 1 + self.held
        self.key = None if key is None else [int(token) for token in key]
        _checks.require(
            self.key is None or sorted(self.key) == list(range(self.num_states)),
            f"key must hold each token from 0 to {self.num_states - 1} once.",
        )
        self._tokens = np.array(range(self.num_states) if self.key is None else self.key)
        self._values = np.argsort(self._tokens)

    @property
    def voice_names(self) -> list[str]:
        """What the voices are called."""
        return voice_names(self.voices)

    @property
    def steps_per_bar(self) -> int:
        return self.steps_per_beat * self.beats_per_bar

    def encode(self, values: Sequence[Score] | Integer[np.ndarray, "num voices steps"]) -> Tokens:
        """The tokens of scores of one length."""
        shapes = {np.shape(score) for score in values}
        _checks.require(
            len(shapes) == 1 and len(next(iter(shapes))) == 2,
            f"values must hold scores (voices, steps) of one length, but they have shapes {sorted(shapes)[:4]}.",
        )
        scores = np.stack([checked(score, "values") for score in values])
        _checks.require(
            scores.shape[1] == self.voices,
            f"values has {scores.shape[1]} voices, but these notes have {self.voices}.",
        )
        if not self.held:
            scores = sounding(scores.reshape(-1, scores.shape[2])).reshape(scores.shape)
        return torch.from_numpy(self._tokens[scores].transpose(0, 2, 1).reshape(len(scores), -1).astype(np.int64))

    def decode(self, tokens: Tokens) -> Int16[np.ndarray, "num voices steps"]:
        """Scores. They may hold HELD where nothing was struck before, which is a rest."""
        values = self._values[self.check(tokens).numpy()].astype(np.int16)
        scores = values.reshape(len(tokens), self._steps(tokens.shape[1]), self.voices).transpose(0, 2, 1)
        flat = scores.reshape(-1, scores.shape[2])
        return (flat if self.held else merged(flat)).reshape(scores.shape)

    def translated(self, tokens: Tokens, source: Codec, name: str) -> Tokens:
        if isinstance(source, Notes):
            mine, others = (
                f"{codec.voices} voice{'s' * (codec.voices > 1)} with {codec.steps_per_beat} steps a beat"
                for codec in (self, source)
            )
            _checks.require(
                mine == others,
                f"{name} was read as {others}, but the model was trained on {mine}. Read it with "
                f"--voices {self.voices} --steps-per-beat {self.steps_per_beat}.",
            )
        return super().translated(tokens, source, name)

    def transposed(self, tokens: Tokens, semitones: Int[Tensor, "num"]) -> Tokens:
        token_of, value_of = (torch.from_numpy(table).to(tokens.device) for table in (self._tokens, self._values))
        values = value_of[tokens]
        pitched = values < PITCHES
        lowest = values.where(pitched, PITCHES - 1).amin(dim=1)
        highest = values.where(pitched, 0).amax(dim=1)
        by = semitones.to(tokens.device).clamp(-lowest, PITCHES - 1 - highest)
        return token_of[torch.where(pitched, values + by[:, None], values)]

    def usual_known(self, length: int) -> str | None:
        """Nothing, any prefix, any spans, and of several voices any one."""
        if length < max(3, 2 * self.voices):
            return None
        single = [f"mask:{voice}-{length - 1}/{self.voices}@{1 / self.voices:g}" for voice in range(self.voices)]
        return "+".join(["nothing", "prefix", "spans", *(single if self.voices > 1 else [])])

    # ---- reading

    @classmethod
    def files(cls) -> Readers:
        return {**dict.fromkeys(ENDINGS, _reader(of_file)), ".zip": _reader(of_archive)}

    @classmethod
    def folders(cls) -> Readers:
        """The windows of each file are a group."""
        return dict.fromkeys(ENDINGS, _reader(of_folder))

    def condition_readers(self) -> ConditionReaders:
        """A MIDI file gives the voices that it has. Those that it does not have are blank."""
        return {**dict.fromkeys(ENDINGS, self._read_condition), **super().condition_readers()}

    def _read_condition(self, path: Path, track: str | int | None = None) -> list[list[int]]:
        with path.open("rb") as file:
            parts = read_parts(file.read(MAX_BYTES + 1), str(path), self.steps_per_beat)
        steps = length(parts)
        _checks.require(steps > 0, f"{str(path)!r} has no steps. Give a file that holds music.")
        if self.voices == 1:
            return self.encode([melody(parts, track, str(path))[None]]).tolist()
        found = find_voices(parts, self.voices, track, str(path))
        score = np.stack([from_notes(notes or [], steps) for notes in found])
        tokens = self.encode([score]).reshape(steps, self.voices)
        tokens[:, [notes is None for notes in found]] = BLANK
        return [tokens.flatten().tolist()]

    def shortened(self, row: list[int], length: int, name: str) -> list[int]:
        if len(row) > length:
            steps, others = (positions // self.voices for positions in (length, len(row)))
            warnings.warn(f"{name!r} has {others} steps, but samples have {steps}. The first {steps} of it are used.")
        return row[:length]

    def read_prefix(self, text: str, length: int) -> Tokens:
        raise ValueError(
            "A prefix of music is not text. Name a MIDI file with --condition, and with --give how many of its steps "
            "are kept."
        )

    def kept(
        self, known: Tokens, give: int | None = None, fill: str | None = None, keep_voice: str | None = None
    ) -> Int[Tensor, "num written"]:
        """What all rules keep of pieces. `sddm.codecs.kept` says what they are.

        With `fill` or `keep_voice` the piece ends where it ended; otherwise what follows its end is generated. A note
        of which only the end is kept begins there.
        """
        steps, end = self._steps(known.shape[1]), self._end(known)
        there = (rearrange(known, BY_VOICE, voices=self.voices) != BLANK).any(dim=0).numpy()
        mask = np.zeros_like(there)
        mask[:, :end] = kept(there[:, :end], self.voice_names, self.steps_per_bar, give, fill, keep_voice)
        last = end if give is None and (fill, keep_voice) != (None, None) else steps
        rows = self._begun(known, mask)[:, : last * self.voices]
        _checks.require(bool((rows == BLANK).any()), "All of the piece is kept. Leave something to generate.")
        return rows

    def excerpt(
        self,
        path: Path,
        length: int,
        give: int | None = None,
        fill: str | None = None,
        keep_voice: str | None = None,
        **options: Any,
    ) -> Excerpt:
        """Of a longer piece, bars are filled in a window around them. After its end, or after a window or more that is
        given, half a window is generated, and the half before is the context. All else is kept as it is."""
        window, voices, rules = self._steps(length), self.voices, (give, fill, keep_voice)
        known = self.read_condition(path, max(length, MAX_LENGTH // voices * voices), **options)
        steps = self._end(known)
        if rules == (None, None, None) and steps >= window:
            give = steps
        goes_on = give is not None and give >= window and fill is None
        filled = fill is not None and give is None
        whole = keep_voice is None and bool((known[:, : steps * voices] != BLANK).all())
        if not (whole and (goes_on or filled)):
            return super().excerpt(path, length, *rules, **options)
        known = known[:, : max(length, (steps + window) * voices)]
        rows = self.kept(known, give, fill)
        if filled and steps <= window:
            return Excerpt(rows, rows)
        if goes_on and give is not None:
            new = max(1, window // 2)
            rows, start = rows[:, : (give + new) * voices], give + new - window
        else:
            (blank,) = np.nonzero((rows == BLANK).any(dim=0).numpy())
            first, last = int(blank[0]) // voices, int(blank[-1]) // voices + 1
            start = window_around(first, last, steps, window, self.steps_per_bar)
        first, last = (step // self.steps_per_bar + 1 for step in (start, start + window - 1))
        warnings.warn(
            f"{str(path)!r} has {steps} steps, but samples have {window}. The model sees bars {first} to {last}. What "
            "is kept of the others is written as it is."
        )
        inside = np.zeros((voices, self._steps(known.shape[1])), dtype=bool)
        inside[:, start : start + window] = True
        part = slice(start * voices, (start + window) * voices)
        seen = self._begun(F.pad(rows, (0, known.shape[1] - rows.shape[1]), value=BLANK), inside)[:, part]
        return Excerpt(rows, seen, part.start)

    def _end(self, known: Tokens) -> int:
        """The steps of pieces up to the last one of which something is known."""
        there = rearrange(known != BLANK, BY_VOICE, voices=self.voices).any(dim=0).any(dim=0)
        return int(there.nonzero().max()) + 1 if bool(there.any()) else 0

    def _begun(self, known: Tokens, mask: Bool[np.ndarray, "voices steps"]) -> Tokens:
        """What a mask keeps. A note of which only the end is kept begins there."""
        tokens = rearrange(known, BY_VOICE, voices=self.voices).numpy()
        scores = np.stack([begun(score, mask) for score in np.where(tokens == BLANK, REST, self._values[tokens])])
        rows = np.where(mask & (tokens != BLANK), self._tokens[scores], BLANK)
        return rearrange(torch.from_numpy(rows.astype(np.int64)), "num voices steps -> num (steps voices)")

    def _steps(self, positions: int) -> int:
        _checks.require(
            positions % self.voices == 0,
            f"A piece has {positions} positions, which are not whole steps of {self.voices} voices.",
        )
        return positions // self.voices

    # ---- writing

    def writers(self) -> Writers:
        grid = {name: getattr(self, name) for name in ("steps_per_beat", "tempo", "beats_per_bar")}
        return {
            ".mid": lambda tokens, path: write_midi(self.decode(tokens)[0], path, names=self.voice_names, **grid),
            **super().writers(),
            ".wav": lambda tokens, path: write_wav(self.decode(tokens)[0], path, self.steps_per_beat, self.tempo),
            ".png": lambda tokens, path: draw_roll(list(self.decode(tokens)), path, steps_per_bar=self.steps_per_bar),
        }

    def beside(self, path: Path) -> list[Path]:
        return [path.with_suffix(ending) for ending in (".wav", ".png")] if path.suffix.lower() == ".mid" else []

    def write_beside(self, tokens: Tokens, path: Path, given: Bool[Tensor, "num dim"] | None = None) -> None:
        """A sound and a picture beside each .mid file. If no sound can be made, a warning says so. A picture that was
        written alone is drawn again to mark what was given."""
        scores, heard = list(self.decode(tokens)), True
        masks: list[Any] = [None] * len(scores)
        if given is not None:
            masks = list(rearrange(given.cpu(), BY_VOICE, voices=self.voices).numpy())
            if path.suffix.lower() == ".png":
                self._draw(scores[:MAX_ROLLS], path, masks[:MAX_ROLLS])
        for score, mask, file in zip(scores, masks, self.files_of(path, len(tokens)), strict=False):
            if file.suffix.lower() == ".mid":
                self._draw([score], file.with_suffix(".png"), [mask])
                heard = heard and self._write_sound(score, file.with_suffix(".wav"))

    def _draw(self, scores: Sequence[Score], path: Path, masks: Sequence[Any]) -> None:
        with _files.replacing(path) as aside:
            draw_roll(scores, aside, masks, steps_per_bar=self.steps_per_bar)

    def _write_sound(self, score: Score, path: Path) -> bool:
        try:
            with _files.replacing(path) as aside:
                write_wav(score, aside, self.steps_per_beat, self.tempo)
        except ValueError as error:
            warnings.warn(f"No sound was written. {error}")
            return False
        return True


def scrambling(num_states: int) -> list[int]:
    """A random order of the tokens, always the same one."""
    return [int(token) for token in np.random.RandomState(0).permutation(num_states)]


def _reader(opened: Callable[[Any], Iterator[Named]]) -> Callable[..., Encoded]:
    """A reader of what `opened` gives for a path or for a list of paths."""

    def read(
        source: Path | Sequence[Path],
        window: int | None = None,
        steps_per_beat: int = 4,
        voices: int = 1,
        track: str | int | None = None,
        held: bool = False,
        scramble: bool = False,
        beats_per_bar: int = 4,
    ) -> Encoded:
        _checks.whole(voices, "voices", 1, MAX_VOICES)
        _checks.whole(steps_per_beat, "steps_per_beat", 1, MAX_STEPS_PER_BEAT)
        _checks.whole(beats_per_bar, "beats_per_bar", 1, MAX_BEATS)
        window = (WINDOW if voices == 1 else WINDOW_OF_VOICES) if window is None else window
        _checks.whole(window, "window", 1, MAX_LENGTH // voices)
        place = source if isinstance(source, Path) else source[0].parent
        selection = Selection(window, steps_per_beat, voices, track)
        scores, groups, report = windows(opened(source), selection, None if opened is of_file else repr(str(place)))
        if not report.whole:
            warnings.warn(report.text)
        key = scrambling(PITCHES + 1 + held) if scramble else None
        codec = Notes(voices, steps_per_beat, beats_per_bar, held, key)
        tokens = codec.encode(scores).numpy().astype(np.uint8)
        return Encoded(tokens, codec, groups if len(set(groups)) > 1 else None)

    return read
