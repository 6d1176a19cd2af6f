"""Which parts of a piece are its melody or its voices."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from midi_files import scores
from sddm.formats.parts import Part, find_voices, length, melody, named, voices
from sddm.formats.score import HELD, REST, Note, notes_of
from sddm.formats.unusable import UnusableError


def part(*notes, name="", drums=False, end=None):
    notes = [Note(*note) for note in notes]
    return Part(name, 0, drums, notes, max((note.end for note in notes), default=0) if end is None else end)


def line(*pitches, name="", drums=False):
    """Notes of one step."""
    return part(*((step, step + 1, pitch) for step, pitch in enumerate(pitches)), name=name, drums=drums)


TUNE, BASS, DRUMS = line(72, 74, 76, 77), line(40, 41, 40, 41), line(90, 90, 90, 90, drums=True)
CHORDS = part(*((step, step + 1, pitch) for step in range(4) for pitch in (80, 84, 87)))
MORE = line(71, 71, 71, 71)


# ---- one melody


def test_the_most_melodic_part_is_high_and_sounds_alone_for_the_most_time():
    assert melody([BASS, DRUMS, CHORDS, TUNE]).tolist() == [72, 74, 76, 77]
    rare = part((0, 1, 100), end=4)
    assert melody([rare, BASS]).tolist() == [40, 41, 40, 41]
    assert melody([BASS, DRUMS]).tolist() == [40, 41, 40, 41]


@pytest.mark.parametrize("name", ["Melody", "LEAD VOCALS", "solo guitar", "Singing"])
def test_a_part_called_a_melody_is_one(name):
    called = line(30, 30, name=name)
    assert melody([TUNE, called]).tolist() == [30, 30, REST, REST]


def test_a_melody_is_as_long_as_the_piece():
    assert melody([line(60), part(end=3)]).tolist() == [60, REST, REST]
    assert length([]) == 0


def test_of_chords_the_highest_note_is_the_melody_until_the_next_begins():
    chords = part((0, 3, 60), (0, 2, 64), (2, 4, 55), (2, 4, 50))
    assert melody([chords]).tolist() == [64, HELD, 55, HELD]


@pytest.mark.parametrize("track", ["violin", "VIO", 2, "2", " 2 "])
def test_a_track_is_named_by_a_part_of_its_name_or_by_its_number(track):
    piano, violin = line(60, name="Piano"), line(70, 71, name="Violin I")
    assert named([piano, violin, part(name="Viola")], track) == [violin]
    assert melody([piano, violin], track).tolist() == [70, 71]


@pytest.mark.parametrize("track", ["cello", 0, 3, 9, "9", -1])
def test_a_track_that_is_not_there_is_answered_with_those_there_are(track):
    piano = line(60, name="Piano")
    with pytest.raises(
        UnusableError, match=r"'a\.mid' has no track .* Those with notes are 2 \('Piano'\)\.$"
    ) as caught:
        melody([part(), piano, part()], track, "a.mid")
    assert caught.value.reason == f"no track {track!r} with notes"


@pytest.mark.parametrize(
    ("parts", "reason"),
    [([DRUMS], "drums only"), ([part(end=4)], "no notes"), ([], "no notes"), ([DRUMS, part()], "drums only")],
)
def test_a_piece_without_a_melody_is_answered_by_a_sentence(parts, reason):
    for find in (lambda: melody(parts, name="a.mid"), lambda: voices(parts, 4, name="a.mid")):
        with pytest.raises(UnusableError, match=f"^'a.mid' holds {reason}. Give a piece with a melody.$") as caught:
            find()
        assert caught.value.reason == reason


def test_drums_may_be_named():
    assert melody([TUNE, DRUMS], 2).tolist() == [90] * 4


# ---- several voices


def test_the_first_parts_with_notes_are_the_voices_from_high_to_low():
    assert voices([part(), BASS, DRUMS, TUNE, MORE], 2).tolist() == [[72, 74, 76, 77], [40, 41, 40, 41]]
    assert voices([BASS, MORE, TUNE], 3)[:, 0].tolist() == [72, 71, 40]


def test_tracks_called_like_the_voices_are_these():
    tracks = [line(40, name="Soprano"), line(80, name="BASS"), line(60, name="tenor"), line(50, name="Alto")]
    assert voices([*tracks, MORE], 4)[:, 0].tolist() == [40, 50, 60, 80]
    assert voices([part(name="voice 2", end=2), line(50, name="Voice 1")], 2).tolist() == [[50, REST], [REST, REST]]
    assert find_voices([part(name="title"), line(50, 51, name="Alto")], 4) == [
        None,
        [(0, 1, 50), (1, 2, 51)],
        None,
        None,
    ]


def test_one_track_that_happens_to_be_called_like_a_voice_is_not():
    band = [line(80, name="guitar"), line(40, name="bass"), line(60, name="keys"), line(70, name="organ")]
    assert voices(band, 4)[:, 0].tolist() == [80, 70, 60, 40]


def test_chords_are_split_by_pitch():
    assert voices([CHORDS], 3).tolist() == [[87] * 4, [84] * 4, [80] * 4]
    assert voices([TUNE, CHORDS], 4)[:, 0].tolist() == [87, 84, 80, 72]


def test_a_voice_that_moves_while_others_hold_stays_itself():
    hymn = part((0, 4, 72), (0, 2, 67), (2, 4, 69), (0, 4, 64), (0, 1, 48), (1, 4, 50))
    assert voices([hymn], 4).tolist() == [
        [72, HELD, HELD, HELD],
        [67, HELD, 69, HELD],
        [64, HELD, HELD, HELD],
        [48, 50, HELD, HELD],
    ]


def test_a_soprano_that_meets_the_held_alto_stays_the_soprano():
    """Below the held note is no room for three notes, so the highest of them is above it."""
    chord = part((0, 2, 67), (0, 4, 62), (0, 2, 57), (0, 2, 45), (2, 4, 62), (2, 4, 58), (2, 4, 43))
    assert voices([chord], 4).tolist() == [
        [67, HELD, 62, HELD],
        [62, HELD, HELD, HELD],
        [57, HELD, 58, HELD],
        [45, HELD, 43, HELD],
    ]


def test_notes_beyond_the_number_of_voices_are_left_out():
    assert voices([CHORDS], 2).tolist() == [[87] * 4, [84] * 4]
    crossing = part((0, 4, 60), (1, 3, 62), (2, 3, 64))
    assert voices([crossing], 2).tolist() == [[60, HELD, HELD, HELD], [REST, 62, HELD, REST]]


def test_a_track_of_chords_may_be_named():
    assert voices([TUNE, CHORDS._replace(name="piano"), BASS], 3, "piano")[:, 0].tolist() == [87, 84, 80]


def test_too_few_voices_are_answered_by_a_sentence():
    with pytest.raises(UnusableError, match=r"^'a.mid' has 1 voices, but 4 are needed. Ask for fewer voices.$"):
        voices([TUNE], 4, name="a.mid")
    assert find_voices([TUNE], 4) == [TUNE.notes, None, None, None]


@given(scores(voices=st.integers(2, 4)))
def test_the_notes_of_any_voices_that_do_not_cross_are_found_in_one_track(score):
    score = np.where(score < REST, score // 6 + 24 * np.arange(len(score), 0, -1)[:, None], score)
    together = part(*(note for voice in score for note in notes_of(voice)), end=score.shape[1])
    if together.notes:
        found = find_voices([together], len(score))
        assert sorted(note for notes in found for note in notes or []) == sorted(together.notes)
        full = (np.array([len(notes_of(voice)) for voice in score]) > 0).all() and (score != REST).all()
        if full:
            assert np.array_equal(voices([together], len(score)), score)
