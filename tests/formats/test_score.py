"""Scores: one notation for each piece, and notes, piano rolls and transpositions of it."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from midi_files import scores
from sddm.formats.score import (
    HELD,
    REST,
    Note,
    checked,
    from_notes,
    merged,
    normal,
    notes_of,
    sounding,
    transposed,
    voice_names,
)


def score(*voices):
    return np.array(voices)


@given(scores())
def test_a_score_has_one_notation(music):
    assert np.array_equal(normal(music), music)
    assert (music[:, 0] != HELD).all()
    after_rest = (music[:, :-1] == REST) & (music[:, 1:] == HELD)
    assert not after_rest.any()


def test_what_holds_on_without_a_note_is_a_rest():
    assert normal(score([HELD, HELD, 60, HELD, REST, HELD])).tolist() == [[REST, REST, 60, HELD, REST, REST]]


@given(scores())
def test_notes_say_all_that_a_voice_plays(music):
    for voice in music:
        assert np.array_equal(from_notes(notes_of(voice), len(voice)), voice)


def test_notes_that_are_struck_again_are_two():
    assert notes_of(np.array([60, HELD, 60, REST, 62])) == [Note(0, 2, 60), Note(2, 3, 60), Note(4, 5, 62)]


@given(scores(held=False))
def test_a_piano_roll_becomes_a_score_and_the_same_piano_roll_again(music):
    roll = sounding(music)
    assert np.array_equal(sounding(merged(roll)), roll)
    assert np.array_equal(merged(roll), normal(merged(roll)))


def test_a_piano_roll_repeats_the_pitch_of_a_note():
    assert sounding(score([60, HELD, HELD, REST], [HELD, 64, 64, HELD])).tolist() == [
        [60] * 3 + [128],
        [128] + [64] * 3,
    ]
    assert merged(score([60, 60, REST, REST, 60])).tolist() == [[60, HELD, REST, REST, 60]]


def test_a_note_ends_where_the_next_one_begins():
    assert from_notes([Note(0, 6, 60), Note(2, 3, 72)], 6).tolist() == [60, HELD, 72, REST, REST, REST]


def test_of_notes_that_begin_together_the_highest_stays_for_its_own_length():
    together = [Note(0, 4, 60), Note(0, 1, 67), Note(0, 3, 64)]
    for order in (together, together[::-1]):
        assert from_notes(order, 4).tolist() == [67, REST, REST, REST]
    assert from_notes([Note(0, 1, 60), Note(0, 3, 60)], 4).tolist() == [60, HELD, HELD, REST]


def test_notes_beyond_the_end_are_cut():
    assert from_notes([Note(2, 9, 60), Note(4, 5, 61), Note(-2, 9, 62), Note(1, 1, 63)], 4).tolist() == [
        REST,
        REST,
        60,
        HELD,
    ]
    assert from_notes([], 2).tolist() == [REST, REST]
    assert from_notes([Note(0, 1, 60)], 0).tolist() == []


@given(st.lists(st.builds(Note, st.integers(0, 30), st.integers(0, 40), st.integers(0, 127))))
def test_any_notes_make_a_voice_by_the_same_rule(notes):
    expected = np.full(32, REST)
    for note in sorted(notes, key=lambda note: (note.start, note.pitch, note.end)):  # the definition, one by one
        if note.end > note.start:
            expected[note.start :] = REST
            expected[note.start : note.end] = HELD
            expected[note.start] = note.pitch
    assert from_notes(notes, 32).tolist() == expected.tolist()


def test_a_transposed_score_keeps_rests_and_lengths():
    assert transposed(score([60, HELD, REST, 0]), 5).tolist() == [[65, HELD, REST, 5]]
    for music, semitones in ((score([0, 60]), -1), (score([127]), 1)):
        with pytest.raises(ValueError, match=f"cannot be moved by {semitones} semitones"):
            transposed(music, semitones)


def test_voices_have_names():
    assert voice_names(4) == ["soprano", "alto", "tenor", "bass"]
    assert voice_names(2) == ["voice 1", "voice 2"]


@pytest.mark.parametrize(
    ("values", "match"),
    [
        ([60, 61], r"tune must be an array \(voices, steps\) of whole numbers, .* shape \(2,\)"),
        ([[60.0]], "of whole numbers, but it is of float64"),
        (np.zeros((0, 4), int), r"shape \(0, 4\)"),
        ([[130]], "128 for a rest and 129 for a note that goes on, but it holds other"),
        ([[-1]], "pitches 0 to 127"),
    ],
)
def test_what_is_no_score_is_answered_by_a_sentence(values, match):
    with pytest.raises(ValueError, match=match):
        checked(values, "tune")


def test_a_checked_score_is_an_array_of_small_numbers():
    assert checked([[60, 129]]).dtype == np.int16
