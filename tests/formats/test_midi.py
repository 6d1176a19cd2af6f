"""MIDI files: what is written is read again, other programs agree, and no bytes do harm."""

import tracemalloc
from io import BytesIO

import numpy as np
import pretty_midi
import pytest
import symusic
from hypothesis import given
from hypothesis import strategies as st

from midi_files import END, chunk, midi, named, off, on, scores, track, tune
from sddm.formats.midi import MAX_BYTES, MAX_STEPS, read_parts
from sddm.formats.midi_writer import midi_bytes, write_midi
from sddm.formats.parts import length, voices
from sddm.formats.score import HELD, REST, Note, notes_of, voice_names
from sddm.formats.unusable import UnusableError


def parts_of(content, steps_per_beat=4):
    return read_parts(content, "a.mid", steps_per_beat)


def notes(*tracks, steps_per_beat=4, **header):
    """The notes of all parts."""
    return [note for part in parts_of(midi(*tracks, **header), steps_per_beat) for note in part.notes]


# ---- both ways


@given(scores(), st.integers(1, 13), st.floats(4, 1_000))
def test_a_written_score_is_read_again_as_it_was(score, steps_per_beat, tempo):
    parts = parts_of(midi_bytes(score, steps_per_beat, tempo), steps_per_beat)
    assert [part.name for part in parts] == voice_names(len(score))
    assert length(parts) == score.shape[1]
    assert [part.notes for part in parts] == [notes_of(voice) for voice in score]
    if len(score) > 1:
        assert np.array_equal(voices(parts, len(score)), score)


@given(scores())
def test_two_other_programs_read_the_notes_that_were_written(score):
    content = midi_bytes(score, steps_per_beat=4, tempo=90.0, names=[f"track {i}" for i in range(len(score))])
    theirs = symusic.Score.from_midi(content)
    expected = [notes_of(voice) for voice in score]
    found = {t.name: [(n.start // 120, n.end // 120, n.pitch) for n in t.notes] for t in theirs.tracks}
    assert found == {f"track {i}": notes for i, notes in enumerate(expected) if notes}
    others = pretty_midi.PrettyMIDI(BytesIO(content))
    steps = [[(others.time_to_tick(n.start) // 120, n.pitch) for n in t.notes] for t in others.instruments]
    assert steps == [[(note.start, note.pitch) for note in notes] for notes in expected if notes]
    assert others.get_tempo_changes()[1] == pytest.approx(90, abs=1e-4)  # a beat has whole microseconds


@given(scores(steps=st.integers(2, 12)))
def test_what_another_program_writes_is_read(score):
    theirs = symusic.Score(480)
    for voice in score:
        line = symusic.Track("line", 40, False)
        for note in notes_of(voice):
            line.notes.append(symusic.Note(note.start * 120, (note.end - note.start) * 120, note.pitch, 80))
        theirs.tracks.append(line)
    parts = [part for part in parts_of(theirs.dumps_midi()) if part.notes]
    assert [part.notes for part in parts] == [n for n in map(notes_of, score) if n]
    assert all((part.name, part.program, part.drums) == ("line", 40, False) for part in parts)


def test_a_file_has_its_tempo_its_metre_its_instrument_and_no_drums(tmp_path):
    many = np.full((18, 2), 60)
    write_midi(many, tmp_path / "a.mid", tempo=100.0, beats_per_bar=3, program=19)
    theirs = symusic.Score(tmp_path / "a.mid")
    assert [tempo.qpm for tempo in theirs.tempos] == [100]
    assert [(metre.numerator, metre.denominator) for metre in theirs.time_signatures] == [(3, 4)]
    assert [track.program for track in theirs.tracks] == [19] * 18
    parts = parts_of((tmp_path / "a.mid").read_bytes())
    assert not any(part.drums for part in parts)
    assert np.array_equal(voices(parts, 18), many)


@pytest.mark.parametrize(
    ("options", "match"),
    [
        ({"tempo": 3.0}, "tempo must lie between 4 and 1000 beats a minute, but it is 3"),
        ({"tempo": float("nan")}, "tempo must be finite"),
        ({"steps_per_beat": 0}, "steps_per_beat must be at least 1"),
        ({"beats_per_bar": 0}, "beats_per_bar must be at least 1"),
        ({"program": 128}, "program must be at most 127"),
        ({"names": ["a", "b"]}, "names must hold 1 names, but it holds 2"),
        ({"score": np.array([[130]])}, "score must hold pitches"),
        ({"score": np.full((1, MAX_STEPS + 1), REST)}, "score has 100001 steps, but at most 100000 are written"),
        ({"score": np.full((257, 1), REST)}, "score has 257 voices, but at most 256"),
    ],
)
def test_what_cannot_be_written_is_answered_by_a_sentence(options, match):
    with pytest.raises(ValueError, match=match):
        midi_bytes(**{"score": np.array([[60]]), **options})


# ---- the grid


def test_starts_and_ends_go_to_the_nearest_step():
    # 480 ticks a beat, 4 steps a beat: a step has 120 ticks
    events = [(59, on(60)), (122, off(60)), (119, on(62)), (239, off(62))]  # 59 to 181, 300 to 539
    assert notes(track(*events)) == [Note(0, 2, 60), Note(3, 4, 62)]
    assert notes(track((60, on(60)), (240, off(60)))) == [Note(1, 3, 60)]  # halves go up
    assert notes(track((200, on(60)), (200, off(60))), ticks=100, steps_per_beat=3) == [Note(6, 12, 60)]


def test_a_short_note_lasts_one_step_and_one_of_no_length_is_left_out_and_counted():
    events = [(0, on(60)), (10, off(60)), (0, on(62)), (0, off(62)), (470, on(64)), (1, off(64))]
    (part,) = parts_of(midi(track(*events)))
    assert part.notes == [Note(0, 1, 60), Note(4, 5, 64)]
    assert part.empty == 1


def test_changes_of_tempo_move_nothing():
    slow, fast = (b"\xff\x51\x03" + size.to_bytes(3, "big") for size in (2_000_000, 100_000))
    plain = [(0, on(60)), (480, off(60)), (0, on(62)), (480, off(62))]
    changed = [(0, slow), *plain[:2], (0, fast), *plain[2:]]
    assert notes(track(*changed)) == notes(track(*plain)) == [Note(0, 4, 60), Note(4, 8, 62)]


def test_a_track_ends_where_its_last_note_or_its_own_end_is():
    assert [p.end for p in parts_of(midi(tune(60), tune(60, 62), track((0, named(b"x")), end=480)))] == [1, 2, 4]
    (part,) = parts_of(midi(track((0, on(60)), (120, off(60)), end=2**28 - 1)))  # a rest of hours
    assert part.end == 1


def test_a_note_that_is_struck_again_before_it_ends_ends_first():
    struck = [(0, on(60)), (120, on(60)), (120, off(60)), (120, off(60))]
    assert notes(track(*struck)) == [Note(0, 2, 60), Note(1, 3, 60)]


def test_a_note_without_an_end_lasts_until_its_track_ends():
    assert notes(track((0, on(60)), (120, on(62)), (120, off(62)), end=240)) == [Note(0, 4, 60), Note(1, 2, 62)]


def test_an_end_without_a_note_is_passed_over():
    assert notes(track((0, off(60)), (0, on(60)), (120, off(60)), (0, off(60)))) == [Note(0, 1, 60)]


def test_running_status_velocity_zero_and_other_events_are_read():
    events = [
        (0, b"\xf0\x02\x7e\xf7"),
        (0, b"\xb0\x40\x7f"),
        (0, b"\xd0\x10"),
        (0, b"\xe0\x00\x40"),
        (0, on(60)),
        (120, bytes([60, 0])),  # running status; velocity 0 ends a note
        (0, b"\xff\x01\x02hi"),
        (0, bytes([62, 90])),  # also after an event that is no music, as many programs write
        (120, bytes([62, 0])),
    ]
    assert notes(track(*events)) == [Note(0, 1, 60), Note(1, 2, 62)]


def test_channels_of_a_track_are_parts_with_the_instruments_of_their_first_notes():
    events = [(0, named(b" caf\xc3\xa9 ")), (0, b"\xc0\x05"), (0, on(60)), (120, off(60)), (0, b"\xc0\x06")]
    events += [(0, on(61)), (120, off(61)), (0, on(40, channel=9)), (120, off(40, channel=9))]
    piano, drums = parts_of(midi(track(*events), kind=0))
    assert (piano.name, piano.program, piano.drums, len(piano.notes)) == ("café", 5, False, 2)
    assert (drums.name, drums.drums, len(drums.notes)) == ("café", True, 1)


def test_a_name_in_another_encoding_is_read():
    (part,) = parts_of(midi(tune(60, name=b"caf\xe9")))
    assert part.name == "café"


def test_what_follows_the_tracks_and_chunks_of_other_kinds_are_passed_over():
    other = chunk(b"anything", kind=b"XFIH")
    assert notes(other, tune(60), declared=1) == notes(tune(60)) == [Note(0, 1, 60)]
    assert parts_of(midi(tune(60)) + b"rubbish")[0].notes == [Note(0, 1, 60)]
    assert parts_of(midi(tune(60)) + b"MTrk\xff\xff\xff\xff")[0].notes == [Note(0, 1, 60)]
    wide = b"MThd" + (8).to_bytes(4, "big") + midi(tune(60))[8:14] + b"\0\0" + tune(60)
    assert parts_of(wide)[0].notes == [Note(0, 1, 60)]


# ---- files that do harm, or might

LATE = [(2**28 - 1, b"\xff\x01\x00")] * 4
HOSTILE = {
    "empty": (b"", "empty", "'a.mid' is empty"),
    "text": (b"X:1\nK:G\nGABc", "not MIDI", "'a.mid' is not a MIDI file: it does not begin with 'MThd'"),
    "riff": (b"RIFF\0\0\0\0RMID" + midi(tune(60)), "not MIDI", "is not a MIDI file"),
    "header only": (b"MThd\0\0\0\6\0", "damaged", "its header is not whole"),
    "short header": (b"MThd\0\0\0\5" + bytes(20), "damaged", "its header is not whole"),
    "type 2": (midi(tune(60), kind=2), "independent patterns (type 2)", "Save it as type 0 or 1"),
    "type 3": (midi(tune(60), kind=3), "damaged", "says type 3"),
    "no ticks": (midi(tune(60), ticks=0), "time without beats", "0 ticks a beat"),
    "film": (midi(tune(60), ticks=0xE728), "time without beats", r"frames of film \(SMPTE\)"),
    "missing track": (midi(tune(60), declared=3), "damaged", "says 3 tracks, but 1 are there"),
    "cut track": (midi(tune(60))[:-5], "damaged", "track 1 should have .* bytes, but .* are there"),
    "cut event": (midi(chunk(b"\0\x90\x3c")), "damaged", "track 1 ends in the middle of an event"),
    "cut time": (midi(chunk(b"\x80")), "damaged", "track 1 ends in the middle of an event"),
    "cut text": (midi(chunk(b"\0\xff\x01\x7fhi")), "damaged", "track 1 ends in the middle of an event"),
    "cut exclusive": (midi(chunk(b"\0\xf0\x7fhi")), "damaged", "track 1 ends in the middle of an event"),
    "no status": (midi(tune(60), track((0, bytes([60, 80])))), "damaged", "track 2 holds numbers where an event"),
    "pitch 200": (midi(track((0, bytes([0x90, 200, 80])))), "damaged", "numbers where an event should begin, or"),
    "velocity 200": (midi(track((0, bytes([0x90, 60, 200])))), "damaged", "numbers where an event should begin, or"),
    "clock": (midi(track((0, b"\xf8"), (0, b"\0"))), "damaged", "the byte 248, which begins no event of a file"),
    "endless number": (midi(chunk(b"\xff" * 100_000)), "damaged", "a number of more than four bytes"),
    "many tracks": (midi(*[tune(60)] * 1_000), "more than 256 tracks", "more than 256 tracks, the most that are read"),
    "late note": (midi(track(*LATE, (0, on(60)), (480, off(60)))), "longer than 100000 steps", "at most 100000 steps"),
    "long note": (midi(track((0, on(60)), (2**28 - 1, off(60)))), "longer than 100000 steps", "a note at step 2236962"),
}


@pytest.mark.parametrize(("content", "reason", "match"), HOSTILE.values(), ids=HOSTILE)
def test_a_file_that_cannot_be_used_is_answered_by_a_sentence(content, reason, match):
    tracemalloc.start()
    try:
        with pytest.raises(UnusableError, match=match) as caught:
            parts_of(content)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert caught.value.reason == reason
    assert str(caught.value).startswith("'a.mid' ")
    assert str(caught.value).endswith(".")
    assert "\n" not in str(caught.value)
    assert peak < 1 << 22


def test_a_file_of_more_than_ten_megabytes_is_not_read():
    with pytest.raises(UnusableError, match="too large for a MIDI file: the limit is 10000000 bytes") as caught:
        parts_of(midi(tune(60)) + bytes(MAX_BYTES))
    assert caught.value.reason == "over 10 MB"


def test_of_many_notes_that_sound_together_each_has_its_end():
    number = 30_000
    begins, ends = b"\0\x90\x3c\x50" * number, b"\x01\x80\x3c\x40" * number
    (part,) = parts_of(midi(chunk(begins + ends)))
    assert [note.end for note in part.notes[:: number - 1]] == [1, number // 120]


WHOLE = midi(
    track((0, named(b"name")), (0, b"\xff\x51\x03\x07\xa1\x20"), (0, b"\xf0\x03\x01\x02\xf7"), end=960),
    track((0, b"\xc0\x05"), (0, on(60)), (0, on(64)), (200, off(64)), (200, bytes([60, 0])), (9, on(127, 1, 9))),
)


def test_a_file_cut_anywhere_is_refused():
    for size in range(len(WHOLE)):
        with pytest.raises(UnusableError):
            parts_of(WHOLE[:size])
    assert len(parts_of(WHOLE)) == 3


@given(st.lists(st.tuples(st.integers(0, len(WHOLE) - 1), st.integers(0, 255)), min_size=1, max_size=8))
def test_a_damaged_file_is_read_or_refused(changes):
    content = bytearray(WHOLE)
    for place, byte in changes:
        content[place] = byte
    read_or_refused(bytes(content))


@given(st.binary(max_size=200), st.booleans())
def test_any_bytes_are_read_or_refused(content, framed):
    read_or_refused(midi(chunk(content)) if framed else content)
    read_or_refused(midi(chunk(content + END)))


def read_or_refused(content):
    try:
        parts = parts_of(content)
    except UnusableError:
        return
    for part in parts:
        assert all(0 <= note.start < note.end <= part.end <= MAX_STEPS for note in part.notes)
        assert all(0 <= note.pitch <= 127 for note in part.notes)
        assert part.notes == sorted(part.notes)


def test_a_silent_score_keeps_its_length():
    score = np.full((4, 40), REST)
    assert np.array_equal(voices(parts_of(midi_bytes(score)), 4), score)
    assert HELD not in score
