"""Music as tokens: from MIDI files and back, what is kept of a piece, and what is left out of many."""

import json
import os
import re
import time
import tracemalloc
import warnings
import wave
import zipfile
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from matplotlib import image

from midi_files import STEPS, midi, named, off, on, scores, track, tune
from sddm.codecs import Characters, Integers, Notes
from sddm.codecs.notes import scrambling
from sddm.data import load
from sddm.formats import archive, sound
from sddm.formats.midi import MAX_BYTES
from sddm.formats.midi_writer import midi_bytes
from sddm.formats.score import HELD, REST, merged, normal, sounding

KEYS = st.one_of(st.none(), st.randoms(use_true_random=False))


def key_of(shuffler, states):
    """A random key, or none."""
    if shuffler is None:
        return None
    key = list(range(states))
    shuffler.shuffle(key)
    return key


# ---- tokens


def test_a_position_is_a_voice_in_a_step():
    score = np.array([[60, HELD, 62], [48, 48, REST]])
    assert Notes(voices=2, held=True).encode([score]).tolist() == [[60, 48, 129, 48, 62, 128]]
    assert Notes(voices=2).encode([score]).tolist() == [[60, 48, 60, 48, 62, 128]]
    assert Notes(voices=2).decode(torch.tensor([[60, 48, 60, 48, 62, 128]])).tolist() == [
        [[60, HELD, 62], [48, HELD, REST]]
    ]


@given(st.data(), st.integers(1, 4), st.booleans(), KEYS)
def test_any_tokens_survive_decoding_and_encoding(data, voices, held, shuffler):
    states = 129 + held
    codec = Notes(voices, held=held, key=key_of(shuffler, states))
    steps = data.draw(STEPS)
    tokens = torch.tensor(
        [data.draw(st.lists(st.integers(0, states - 1), min_size=steps * voices, max_size=steps * voices))]
    )
    assert torch.equal(codec.encode(codec.decode(tokens)), tokens)


def test_the_key_says_which_token_stands_for_a_value():
    key = [(value + 5) % 129 for value in range(129)]
    codec = Notes(key=key)
    assert codec.encode(np.array([[[60, HELD, REST]]])).tolist() == [[65, 65, 4]]
    assert codec.decode(torch.tensor([[65, 65, 4]])).tolist() == [[[60, HELD, REST]]]


def test_a_scrambling_is_a_key_and_always_the_same():
    assert sorted(scrambling(129)) == list(range(129))
    assert scrambling(130) == scrambling(130) != list(range(130))


# ---- MIDI in, tokens, MIDI out


@given(st.one_of(scores(st.just(1)), scores(st.just(4))), KEYS)
def test_midi_to_tokens_to_midi_is_the_identity(tmp_path_factory, score, shuffler):
    codec = Notes(len(score), held=True, key=key_of(shuffler, 130))
    if len(score) == 1 and (score >= REST).all():
        return  # one silent track holds no melody
    first, second = (tmp_path_factory.getbasetemp() / name for name in ("first.mid", "second.mid"))
    first.write_bytes(midi_bytes(score))
    tokens = codec.read_condition(first, score.size)
    assert np.array_equal(codec.decode(tokens)[0], score)
    codec.write(tokens, second)
    assert torch.equal(codec.read_condition(second, score.size), tokens)
    assert second.read_bytes() == first.read_bytes()


@given(st.one_of(scores(st.just(1), held=False), scores(st.just(4), held=False)), KEYS)
def test_tokens_to_midi_to_tokens_is_the_identity_of_piano_rolls(tmp_path_factory, score, shuffler):
    codec = Notes(len(score), key=key_of(shuffler, 129))
    if len(score) == 1 and (score >= REST).all():
        return
    path = tmp_path_factory.getbasetemp() / "roll.mid"
    tokens = codec.encode([score])
    codec.write(tokens, path)
    assert torch.equal(codec.read_condition(path, score.size), tokens)
    assert np.array_equal(codec.decode(tokens)[0], normal(merged(sounding(score))))


@given(scores(st.just(4)), st.booleans())
def test_written_samples_are_read_as_data(tmp_path_factory, score, held):
    if (score >= REST).all():
        return
    path, steps = tmp_path_factory.getbasetemp() / "data.mid", score.shape[1]
    codec = Notes(4, held=held)
    codec.write(codec.encode([score]), path)
    data = load(path, window=steps, voices=4, held=held)
    assert data.codec == codec
    assert torch.equal(data.tokens[:], codec.encode([score]))
    assert data.groups is None


# ---- data


def song(steps, pitch=60, name=b"tune"):
    """A tune of notes of one step."""
    return midi(tune(*(pitch + step % 12 for step in range(steps)), name=name))


def read(source, **options):
    """Data, and what was said of them."""
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        data = load(source, **options)
    return data, " ".join(str(warning.message) for warning in said)


def test_a_file_is_cut_into_windows_that_do_not_overlap(tmp_path):
    (tmp_path / "a.mid").write_bytes(song(25))
    data, said = read(tmp_path / "a.mid", window=10)
    assert data.tokens[:].tolist() == [[60 + step % 12 for step in range(first, first + 10)] for first in (0, 10)]
    assert (data.codec, data.length, said) == (Notes(), 10, "")
    assert read(tmp_path / "a.mid", window=10, steps_per_beat=8)[0].codec.steps_per_beat == 8


def test_a_note_that_goes_on_into_a_window_begins_it(tmp_path):
    (tmp_path / "a.mid").write_bytes(midi_bytes(np.array([[60, HELD, HELD, HELD, HELD, 62]])))
    data, _ = read(tmp_path / "a.mid", window=3, held=True)
    assert data.tokens[:].tolist() == [[60, HELD, HELD], [60, HELD, 62]]


@pytest.mark.parametrize(("steps", "rows"), [(10, 1), (5, 1), (19, 1)])
def test_a_file_of_at_least_half_a_window_is_filled_up_with_rests(tmp_path, steps, rows):
    (tmp_path / "a.mid").write_bytes(song(steps))
    data, _ = read(tmp_path / "a.mid", window=10)
    assert data.tokens[:].tolist() == [[60 + s for s in range(min(10, steps))] + [REST] * max(0, 10 - steps)]


def test_a_shorter_file_is_refused(tmp_path):
    (tmp_path / "a.mid").write_bytes(song(4))
    with pytest.raises(
        ValueError, match=r"a\.mid' has 4 steps, less than half a window of 10\. Choose a smaller window"
    ):
        load(tmp_path / "a.mid", window=10)


def test_windows_have_256_steps_and_those_of_several_voices_64(tmp_path):
    (tmp_path / "a.mid").write_bytes(midi_bytes(np.full((2, 512), 60)))
    assert read(tmp_path / "a.mid")[0].length == 256
    two = read(tmp_path / "a.mid", voices=2, scramble=True)[0]
    assert (two.length, len(two)) == (128, 8)
    assert two.codec == Notes(2, key=scrambling(129))
    assert two.tokens[:].unique().tolist() == [scrambling(129)[60]]


def test_a_track_may_be_named(tmp_path):
    (tmp_path / "a.mid").write_bytes(midi(tune(*[72] * 8, name=b"Flute"), tune(*[40] * 8, name=b"Bass")))
    for options, pitch in (({}, 72), ({"track": "bass"}, 40), ({"track": "2"}, 40)):
        assert read(tmp_path / "a.mid", window=8, **options)[0].tokens[:].tolist() == [[pitch] * 8]
    with pytest.raises(
        ValueError, match=r"has no track 'oboe' with notes. Those with notes are 1 \('Flute'\), 2 \('Bass'"
    ):
        load(tmp_path / "a.mid", window=8, track="oboe")


def test_windows_of_a_file_of_a_folder_are_a_group(tmp_path):
    for name, steps in (("a.mid", 20), ("b/c.MID", 10)):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_bytes(song(steps))
    data, said = read(tmp_path, window=10)
    assert data.groups.tolist() == [0, 0, 1]
    assert said == ""


def test_a_folder_may_mix_endings_and_hold_hidden_files(tmp_path):
    for name in ("a.mid", "b.midi", "C.MIDI"):
        (tmp_path / name).write_bytes(song(10))
    for name in (".store", "._a.mid", "._b.midi", "._c.midi", "notes.txt", "cover.jpg"):
        (tmp_path / name).touch()
    data, said = read(tmp_path, window=10)
    assert (len(data), said) == (3, "")


def test_a_bar_may_have_three_beats(tmp_path):
    (tmp_path / "a.mid").write_bytes(song(24))
    codec = read(tmp_path / "a.mid", window=24, beats_per_bar=3)[0].codec
    assert codec == Notes(beats_per_bar=3)
    kept = codec.kept(torch.full((1, 24), 60), fill="2")
    assert (kept[0] == -1).nonzero().flatten().tolist() == list(range(12, 24))


BAD = {
    "damaged.mid": song(20)[:-3],
    "text.mid": b"hello",
    "drums.mid": midi(tune(*[40] * 20, channel=9)),
    "silent.mid": midi(track((0, named(b"x")), end=9_600)),
    "patterns.mid": midi(tune(60), kind=2),
    "film.mid": midi(tune(60), ticks=0x9000),
    "short.mid": song(3),
    "tracks.mid": midi(*[tune(60)] * 1_000),
    "late.mid": midi(track((2**28 - 1, on(60)), (480, off(60)))),
    "large.mid": song(20) + bytes(MAX_BYTES),
}
REASONS = [
    "1 damaged (such as 'damaged.mid')",
    "1 not MIDI (such as 'text.mid')",
    "1 drums only (such as 'drums.mid')",
    "1 no notes (such as 'silent.mid')",
    "1 independent patterns (type 2) (such as 'patterns.mid')",
    "1 time without beats (such as 'film.mid')",
    "1 shorter than half a window (such as 'short.mid')",
    "1 more than 256 tracks (such as 'tracks.mid')",
    "1 longer than 100000 steps (such as 'late.mid')",
    "1 over 10 MB (such as 'large.mid')",
]


@pytest.mark.parametrize("packed", [False, True], ids=["folder", "zip"])
def test_good_files_are_used_although_others_are_bad(packed, tmp_path):
    files = {
        **BAD,
        "good.mid": song(25),
        "zero.mid": midi(track((0, on(9)), (0, off(9)), (0, on(60)), (1_200, off(60)))),
    }
    data, said = read(packed_or_not(files, packed, tmp_path), window=10)
    assert len(data) == 3
    assert said.startswith("2 of 12 files of music gave 3 windows. Files left out: 1 damaged")
    assert all(reason in said for reason in REASONS)
    assert said.endswith("Left out as well: 1 notes of no length, 5 steps after the last whole windows.")
    assert data.groups.unique(return_counts=True)[1].tolist() == [2, 1]


@pytest.mark.parametrize("packed", [False, True], ids=["folder", "zip"])
def test_if_nothing_can_be_used_the_reasons_are_given(packed, tmp_path):
    with pytest.raises(ValueError, match=r"None of the 10 files of '.*' can be used: ") as caught:
        load(packed_or_not(BAD, packed, tmp_path), window=10)
    assert all(reason in str(caught.value) for reason in REASONS)


def packed_or_not(files, packed, folder):
    if packed:
        return zipped(folder / "songs.zip", files)
    (folder / "songs").mkdir()
    for name, content in files.items():
        (folder / "songs" / name).write_bytes(content)
    return folder / "songs"


def test_windows_without_a_note_are_left_out(tmp_path):
    (tmp_path / "a.mid").write_bytes(midi_bytes(np.array([[60] * 4 + [REST] * 4 + [62] * 4])))
    data, said = read(tmp_path / "a.mid", window=4)
    assert data.tokens[:].tolist() == [[60] * 4, [62] * 4]
    assert said == "1 of 1 files of music gave 2 windows. Left out as well: 1 windows without a note."


def test_a_file_that_cannot_be_read_is_left_out(tmp_path, monkeypatch):
    (tmp_path / "a.mid").write_bytes(song(10))
    (tmp_path / "b.mid").write_bytes(song(10))
    real = Path.open

    def opened(path, *arguments, **options):
        if path.name == "b.mid" and arguments == ("rb",) and opened.refusing:
            raise PermissionError(13, "Permission denied")
        return real(path, *arguments, **options)

    opened.refusing = True
    monkeypatch.setattr(Path, "open", opened)
    reader = Notes.folders()[".mid"]
    with pytest.warns(UserWarning, match=r"Files left out: 1 unreadable \(such as 'b\.mid'\)"):
        assert len(reader([tmp_path / "a.mid", tmp_path / "b.mid"], window=10).tokens) == 1


@pytest.mark.parametrize(
    ("options", "match"),
    [
        ({"voices": 0}, "voices must be at least 1"),
        ({"voices": 17}, "voices must be at most 16"),
        ({"steps_per_beat": 0}, "steps_per_beat must be at least 1"),
        ({"window": 0}, "window must be at least 1"),
        ({"window": 40_000, "voices": 2}, "window must be at most 32768"),
        ({"voices": 3}, "has 1 voices, but 3 are needed"),
    ],
)
def test_bad_options_are_answered_by_a_sentence(options, match, tmp_path):
    (tmp_path / "a.mid").write_bytes(song(300))
    with pytest.raises(ValueError, match=match):
        load(tmp_path / "a.mid", **options)


def test_a_hundred_files_are_read_in_a_tenth_of_the_time_that_a_thousand_may_take(without_annotation_checks, tmp_path):
    folder = tmp_path / "songs"
    folder.mkdir()
    for number in range(100):
        (folder / f"{number}.mid").write_bytes(song(1_000))
    began = time.process_time()
    assert len(read(folder)[0]) == 300
    assert time.process_time() - began < 6


# ---- archives


def zipped(path, files, compression=zipfile.ZIP_DEFLATED):
    with zipfile.ZipFile(path, "w", compression) as packed:
        for name, content in files.items():
            packed.writestr(name, content)
    return path


def everything(folder):
    return sorted(str(path.relative_to(folder)) for path in folder.rglob("*"))


def test_nothing_of_an_archive_is_written_anywhere(tmp_path, monkeypatch):
    inside = tmp_path / "a" / "b"
    inside.mkdir(parents=True)
    names = ["../escaped.mid", "/tmp/absolute.mid", "..\\..\\windows.mid", "c/../../../d.mid", "C:\\e.mid"]
    path = zipped(inside / "songs.zip", {name: song(10) for name in names})
    monkeypatch.chdir(inside)
    before = everything(tmp_path)
    data, said = read(path, window=10)
    assert (len(data), said) == (5, "")
    assert everything(tmp_path) == before
    assert not os.path.exists("/tmp/absolute.mid")


def test_other_members_of_an_archive_are_left_out_with_a_reason(tmp_path):
    nested = zipped(tmp_path / "inner.zip", {"a.mid": song(10)}).read_bytes()
    files = {"a.mid": song(10), "b.midi": song(10), "README.txt": b"hi", "inner.zip": nested, "c/": b""}
    path = zipped(tmp_path / "songs.zip", files)
    with zipfile.ZipFile(path, "a", zipfile.ZIP_LZMA) as packed:
        packed.writestr("lzma.mid", song(10))
    data, said = read(path, window=10)
    assert len(data) == 2
    assert said == (
        "2 of 5 files of music gave 2 windows. Files left out: 1 not MIDI (such as 'README.txt'), "
        "1 an archive in the archive (such as 'inner.zip'), 1 packed in another way (such as 'lzma.mid')."
    )


def test_encrypted_and_damaged_members_are_left_out(tmp_path):
    path = zipped(tmp_path / "songs.zip", {"a.mid": song(10), "secret.mid": song(10), "torn.mid": song(11)}, 0)
    content = bytearray(path.read_bytes())
    for marker in (b"PK\x01\x02", b"PK\x03\x04"):  # a flag of its entry, and of its header
        place = [m.start() for m in re.finditer(re.escape(marker), content)][1]
        content[place + (8 if marker[2] == 1 else 6)] |= 1
    content[content.index(b"MThd", content.index(b"torn.mid")) + 30] ^= 0xFF
    path.write_bytes(content)
    data, said = read(path, window=10)
    assert len(data) == 1
    assert "1 encrypted (such as 'secret.mid'), 1 damaged (such as 'torn.mid')" in said


def bomb(path, members, size):
    zeros = bytes(1 << 20)
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as packed:
        packed.writestr("good.mid", song(10))
        for number in range(members):
            with packed.open(f"{number}.mid", "w") as member:
                for _ in range(size):
                    member.write(zeros)
    return path


def test_a_member_that_unpacks_to_more_than_ten_megabytes_is_not_unpacked(tmp_path):
    path = bomb(tmp_path / "bomb.zip", 1, 64)
    tracemalloc.start()
    data, said = read(path, window=10)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert len(data) == 1
    assert "1 over 10 MB (such as '0.mid')" in said
    assert peak < 4 * MAX_BYTES


def test_a_member_that_says_it_is_small_is_not_believed(tmp_path):
    path = bomb(tmp_path / "bomb.zip", 1, 16)
    content = bytearray(path.read_bytes())
    size = (16 << 20).to_bytes(4, "little")
    path.write_bytes(content.replace(size, (100).to_bytes(4, "little")))
    data, said = read(path, window=10)
    assert len(data) == 1
    assert re.search(r"1 (damaged|not MIDI) \(such as '0\.mid'\)", said)


def test_no_more_is_read_than_the_limits_of_archives(tmp_path, monkeypatch):
    monkeypatch.setattr(archive, "MAX_TOTAL", 3_000_000)
    _, said = read(bomb(tmp_path / "bomb.zip", 6, 1), window=10)
    assert "2 not MIDI (such as '0.mid')" in said
    assert "3 after the first 3 MB (such as '3.mid')" in said
    monkeypatch.setattr(archive, "MAX_MEMBERS", 3)
    _, said = read(zipped(tmp_path / "many.zip", {f"{n}.mid": song(10) for n in range(5)}), window=10)
    assert said == "3 of 5 files of music gave 3 windows. Files left out: 2 after the first 3 (such as '3.mid')."
    with pytest.raises(ValueError, match=r"is too large: archives have at most 3 files and 3000000 bytes. Unpack it"):
        load(zipped(tmp_path / "more.zip", {f"{n}.mid": b"" for n in range(31)}), window=10)


@pytest.mark.parametrize("content", [b"PK", b"PK\x03\x04" + bytes(50), b"hello", b"PK\x05\x06" + b"\xff" * 18])
def test_a_damaged_archive_is_answered_by_a_sentence(content, tmp_path):
    (tmp_path / "a.zip").write_bytes(content)
    with pytest.raises(ValueError, match=r"a\.zip' is damaged or not a zip archive \(.*\)\. Pack it again\.$"):
        load(tmp_path / "a.zip")


def test_an_archive_without_music_is_answered_by_a_sentence(tmp_path):
    with pytest.raises(ValueError, match=r"songs\.zip' holds no MIDI files. Give some that end in \.mid or \.midi"):
        load(zipped(tmp_path / "songs.zip", {}))
    with pytest.raises(ValueError, match=r"None of the 1 files of '.*songs\.zip' can be used: 1 not MIDI \("):
        load(zipped(tmp_path / "songs.zip", {"a.txt": b"hello"}))


# ---- conditions


def test_of_a_longer_condition_the_beginning_is_taken_and_a_shorter_one_is_filled_with_blanks(tmp_path):
    (tmp_path / "a.mid").write_bytes(song(6))
    (tmp_path / "a.MIDI").write_bytes(song(6))
    for name in ("a.mid", "a.MIDI"):
        with pytest.warns(UserWarning, match=r"has 6 steps, but samples have 4. The first 4 of it are used"):
            assert Notes().read_condition(tmp_path / name, 4).tolist() == [[60, 61, 62, 63]]
        assert Notes().read_condition(tmp_path / name, 8).tolist() == [[60, 61, 62, 63, 64, 65, -1, -1]]
    np.save(tmp_path / "a.npy", [[60, -1, 62]])
    with pytest.warns(UserWarning, match="has 3 steps"):
        assert Notes().read_condition(tmp_path / "a.npy", 2).tolist() == [[60, -1]]


def test_the_track_of_a_condition_may_be_named(tmp_path):
    (tmp_path / "a.mid").write_bytes(midi(tune(72, 72, name=b"Flute"), tune(40, 41, name=b"Bassoon")))
    assert Notes().read_condition(tmp_path / "a.mid", 2).tolist() == [[72, 72]]
    assert Notes().read_condition(tmp_path / "a.mid", 2, track="bassoon").tolist() == [[40, 41]]
    assert Notes(2).read_condition(tmp_path / "a.mid", 4, track="2").tolist() == [[40, -1, 41, -1]]
    np.save(tmp_path / "a.npy", [[60, -1]])
    with pytest.raises(ValueError, match=r"track='flute' was given, but a condition that ends in '\.npy' has none"):
        Notes().read_condition(tmp_path / "a.npy", 2, track="flute")


def test_voices_that_a_condition_does_not_have_are_blank(tmp_path):
    (tmp_path / "soprano.mid").write_bytes(song(2))
    (tmp_path / "alto.mid").write_bytes(song(2, name=b"Alto"))
    (tmp_path / "two.mid").write_bytes(midi(tune(50, 50), tune(60, 61)))
    read = Notes(voices=4).read_condition
    assert read(tmp_path / "soprano.mid", 8).tolist() == [[60, -1, -1, -1, 61, -1, -1, -1]]
    assert read(tmp_path / "alto.mid", 8).tolist() == [[-1, 60, -1, -1, -1, 61, -1, -1]]
    assert read(tmp_path / "two.mid", 8).tolist() == [[60, 50, -1, -1, 61, 50, -1, -1]]


@pytest.mark.parametrize(
    ("content", "match"),
    [
        (b"MThd", "is damaged or cut off: its header is not whole"),
        (b"", "is empty"),
        (midi(), "holds no notes|has no steps"),
        (midi(tune(40, channel=9)), "holds drums only"),
    ],
)
@pytest.mark.parametrize("voices", [1, 4])
def test_a_bad_condition_is_answered_by_a_sentence(content, match, voices, tmp_path):
    (tmp_path / "c.mid").write_bytes(content)
    with pytest.raises(ValueError, match=match) as caught:
        Notes(voices).read_condition(tmp_path / "c.mid", 8)
    assert "c.mid" in str(caught.value)


def test_a_prefix_of_music_is_a_file():
    with pytest.raises(ValueError, match="Name a MIDI file with --condition, and with --give how many of its steps"):
        Notes().read_prefix("60,62", 8)


# ---- what is kept

BARS = Notes(2, steps_per_beat=1, beats_per_bar=2)  # bars of two steps


def steps_kept(codec, length, **rules):
    """The steps in which each voice is kept of a piece without blanks."""
    kept = codec.kept(torch.full((1, length), 60), **rules)
    assert set(kept.unique().tolist()) == {-1, 60}
    return [row.nonzero().flatten().tolist() for row in kept.reshape(-1, codec.voices).T != -1]


def test_everything_is_kept_without_a_rule():
    known = torch.tensor([[60, -1, 62, 128, -1, -1]])
    assert torch.equal(Notes(2).kept(known), known)
    assert torch.equal(Integers(200).kept(known), known)


SHORT = torch.tensor([[60, 48, 62, 50, 64, 52, -1, -1, -1, -1, -1, -1]])  # three of six steps


def test_a_short_piece_goes_on_unless_bars_are_filled_or_voices_kept():
    assert BARS.kept(SHORT, give=2).tolist() == [SHORT[0, :4].tolist() + [-1] * 8]
    assert torch.equal(BARS.kept(SHORT, give=3), SHORT)
    assert BARS.kept(SHORT, fill="2").tolist() == [[60, 48, 62, 50, -1, -1]]
    assert BARS.kept(SHORT, keep_voice="2").tolist() == [[-1, 48, -1, 50, -1, 52]]
    assert BARS.kept(SHORT, give=2, keep_voice="1").tolist() == [[60, -1, 62] + [-1] * 9]


def test_rules_are_checked_against_the_piece_and_not_the_sample():
    soprano = torch.tensor([[60, -1, 62, -1, -1, -1]])
    for known, rules, match in (
        (SHORT, {"give": 4}, "give is 4, but the piece has 3 steps. Give fewer"),
        (SHORT, {"fill": "3"}, "fill names bars '3', but the piece has bars 1 to 2 only"),
        (
            soprano,
            {"keep_voice": "2"},
            "keep_voice names the voice 2, but the piece has no notes for it: it has the voice 1 o",
        ),
        (soprano, {"keep_voice": "1,2"}, "the piece has no notes for it"),
        (torch.full((1, 6), -1), {}, "Nothing of the piece is kept"),
        (torch.full((1, 6), 60), {}, "All of the piece is kept. Leave something to generate"),
    ):
        with pytest.raises(ValueError, match=match):
            BARS.kept(known, **rules)


@pytest.mark.parametrize("key", [None, scrambling(130)])
def test_a_note_of_which_only_the_end_is_kept_begins_there(key):
    codec = Notes(steps_per_beat=1, beats_per_bar=2, held=True, key=key)
    known = codec.encode([np.array([[60, HELD, 62, HELD, HELD, 64]])])
    kept = codec.kept(known, fill="2")
    assert (kept[0, 2:4] == -1).all()
    made = torch.where(kept == -1, codec.encode([np.full((1, 6), 70)]), kept)
    assert codec.decode(made).tolist() == [[[60, HELD, 70, 70, 62, 64]]]


def test_the_first_steps_are_given():
    assert steps_kept(Notes(), 8, give=3) == [[0, 1, 2]]
    assert steps_kept(Notes(2), 8, give=3) == [[0, 1, 2]] * 2


@pytest.mark.parametrize(
    ("fill", "kept"),
    [
        ("2", [0, 1, 4, 5, 6]),
        ("2:3", [0, 1, 6]),
        (" 1 , 3:4 ", [2, 3]),
        ("4", [0, 1, 2, 3, 4, 5]),
        ("1:3", [6]),
        ("2,2:2", [0, 1, 4, 5, 6]),
    ],
)
def test_bars_are_filled_and_all_others_kept(fill, kept):
    assert steps_kept(BARS, 14, fill=fill) == [kept, kept]  # the last bar has one step only


def test_voices_are_kept_by_name_or_number():
    chorale = Notes(4)
    everywhere, nowhere = [0, 1], []
    for name in ("soprano", "SOPRANO ", "1"):
        assert steps_kept(chorale, 8, keep_voice=name) == [everywhere, nowhere, nowhere, nowhere]
    assert steps_kept(chorale, 8, keep_voice="bass, 2") == [nowhere, everywhere, nowhere, everywhere]
    assert steps_kept(Notes(2), 4, keep_voice="voice 2") == [nowhere, everywhere]


def test_a_position_is_kept_if_all_rules_keep_it():
    assert steps_kept(BARS, 12, give=5, fill="2", keep_voice="1") == [[0, 1, 4], []]


@pytest.mark.parametrize(
    ("codec", "rules", "match"),
    [
        (BARS, {"give": 0}, "give must be at least 1"),
        (BARS, {"give": 7}, "give is 7, but the piece has 6 steps. Give fewer"),
        (BARS, {"give": 6}, "All of the piece is kept. Leave something to generate"),
        (BARS, {"keep_voice": "1,2"}, "All of the piece is kept"),
        (Notes(), {"keep_voice": "1"}, "keep_voice names '1', but this music has one voice. Leave it out"),
        (BARS, {"fill": "1:3"}, "Nothing of the piece is kept"),
        (BARS, {"give": 2, "fill": "1"}, "Nothing of the piece is kept"),
        (BARS, {"fill": "4"}, "fill names bars '4', but the piece has bars 1 to 3 only"),
        (BARS, {"fill": "0"}, "the piece has bars 1 to 3 only"),
        (BARS, {"fill": "3:2"}, "fill names bars '3:2', but the first must not be after the last"),
        (BARS, {"fill": ""}, "fill names ''. Name a bar, 8, or bars from the first to the last, 8:12"),
        (BARS, {"fill": "1,"}, "fill names ''"),
        (BARS, {"fill": "1-3"}, "fill names '1-3'"),
        (BARS, {"fill": "-1"}, "fill names '-1'"),
        (BARS, {"fill": "9" * 5_000}, "Name a bar"),
        (BARS, {"keep_voice": "alto"}, "keep_voice names 'alto', but the voices are voice 1, voice 2, or 1 to 2"),
        (
            Notes(4),
            {"keep_voice": "5"},
            "keep_voice names '5', but the voices are soprano, alto, tenor, bass, or 1 to 4",
        ),
        (Notes(4), {"keep_voice": "soprano,"}, "keep_voice names ''"),
        (
            Characters("ab", padded=False),
            {"give": 3},
            "give=3 was given, which is for music, but the data are characters",
        ),
        (Characters("ab", padded=False), {"fill": "2"}, "fill='2' was given, which is for music"),
    ],
)
def test_a_rule_that_does_not_fit_is_answered_by_a_sentence(codec, rules, match):
    with pytest.raises(ValueError, match=match) as caught:
        codec.kept(torch.zeros(1, 12, dtype=torch.int64), **rules)
    assert "\n" not in str(caught.value)


def test_half_a_step_is_no_piece():
    with pytest.raises(ValueError, match="A piece has 7 positions, which are not whole steps of 2 voices"):
        BARS.kept(torch.full((1, 7), 60))
    with pytest.raises(ValueError, match="not whole steps of 4 voices"):
        Notes(4).decode(torch.tensor([[60, 60]]))


# ---- writing

TWO = torch.tensor([[60, 60, 62, 128], [72, 128, 72, 72]])


def test_several_samples_are_files_of_a_folder(tmp_path):
    Notes().write(TWO, tmp_path / "new" / "made")
    assert everything(tmp_path) == ["new", "new/made", "new/made/1.mid", "new/made/2.mid"]
    assert Notes().read_condition(tmp_path / "new/made/2.mid", 4).tolist() == [TWO[1].tolist()]
    Notes().write(TWO[:1].expand(12, -1), tmp_path / "dozen")
    assert everything(tmp_path / "dozen")[::11] == ["01.mid", "12.mid"]


def test_files_of_a_folder_are_known_as_samples_by_their_numbers_and_what_is_beside_them(tmp_path):
    Notes().write(TWO, tmp_path)
    assert not Notes().wrote(tmp_path / "1.mid")
    Notes().write_beside(TWO, tmp_path)
    (tmp_path / "song.mid").touch()
    (tmp_path / "song.png").touch()
    (tmp_path / "3.mid").touch()
    (tmp_path / "1.txt").touch()
    others = {"song.mid", "song.png", "3.mid", "1.txt"}
    assert {path.name for path in tmp_path.iterdir() if not Notes().wrote(path)} == others
    assert not Integers(2).wrote(tmp_path / "1.mid")


@pytest.mark.parametrize("ending", [".mid", ".wav", ".MID"])
def test_a_file_holds_one_sample(ending, tmp_path):
    path = tmp_path / f"a{ending}"
    match = r"can hold one sample, but there are 2\. Name a folder: a path without an ending\."
    for refuse in (lambda: Notes().write(TWO, path), lambda: Notes().check_ending(path, 2)):
        with pytest.raises(ValueError, match=match):
            refuse()
    assert everything(tmp_path) == []
    Notes().check_ending(path)
    Notes().check_ending(tmp_path / "a", 2)


def test_other_codecs_have_no_folders(tmp_path):
    with pytest.raises(ValueError, match=r"ends in ''\. Samples can be written to"):
        Integers(4).write(torch.tensor([[0]]), tmp_path / "a")


def test_a_picture_holds_several_samples_and_an_array_the_tokens(tmp_path):
    Notes().write(TWO, tmp_path / "a.png")
    Notes().write(TWO, tmp_path / "a.npy")
    assert np.load(tmp_path / "a.npy").tolist() == TWO.tolist()
    assert image.imread(tmp_path / "a.png").shape[0] > 300


def test_a_sound_and_a_picture_are_written_beside(tmp_path):
    codec = Notes(tempo=60.0)
    codec.write(TWO[:1], tmp_path / "a.mid")
    codec.write_beside(TWO[:1], tmp_path / "a.mid", TWO[:1] == 60)
    assert everything(tmp_path) == ["a.mid", "a.png", "a.wav"]
    with wave.open(str(tmp_path / "a.wav")) as file:
        assert file.getnframes() == 44_100
    codec.write(TWO, tmp_path / "made")
    codec.write_beside(TWO, tmp_path / "made")
    assert everything(tmp_path / "made") == [f"{n}.{ending}" for n in (1, 2) for ending in ("mid", "png", "wav")]
    assert codec.beside(tmp_path / "a.mid") == [tmp_path / "a.wav", tmp_path / "a.png"]
    codec.write_beside(TWO, tmp_path / "b.npy")
    Integers(200).write_beside(TWO, tmp_path / "b.txt")
    assert not list(tmp_path.glob("b*"))


def test_what_was_given_is_marked_in_the_picture_beside(tmp_path):
    codec, pictures = Notes(2), []
    tokens = torch.tensor([[72, 60] * 16])
    for mask in (None, tokens == 72, tokens < 0):
        codec.write_beside(tokens, tmp_path / "a.mid", mask)
        pictures.append(image.imread(tmp_path / "a.png"))
    assert np.array_equal(pictures[0], pictures[2])
    assert not np.array_equal(pictures[0], pictures[1])


def test_without_a_sound_font_there_is_a_warning_and_no_sound(tmp_path, monkeypatch):
    sound._piano.cache_clear()
    monkeypatch.setattr(sound, "find_spec", lambda name: None)
    Notes().write(TWO, tmp_path / "made")
    with pytest.warns(UserWarning, match=r"^No sound was written. .* Install it with pip install") as said:
        Notes().write_beside(TWO, tmp_path / "made")
    assert len(said) == 1
    assert everything(tmp_path / "made") == ["1.mid", "1.png", "2.mid", "2.png"]


# ---- other data, transposition, training


def test_data_of_another_grid_are_not_translated():
    tokens = torch.tensor([[60, 62]])
    for other in (Notes(voices=2), Notes(steps_per_beat=8)):
        with pytest.raises(
            ValueError, match=r"a\.mid was read as .* voices? with .* steps a beat, but the model was trained on"
        ):
            Notes().translated(tokens, other, "a.mid")
    with pytest.raises(ValueError, match="holds integers, but the model was trained on notes"):
        Notes().translated(tokens, Integers(100), "a.npy")


def test_data_of_another_notation_are_translated():
    long = Notes(held=True, key=scrambling(130))
    tokens = long.encode(np.array([[[60, HELD, 62, 62]]]))
    assert Notes().translated(tokens, long, "a.mid").tolist() == [[60, 60, 62, 62]]
    assert Notes(held=True).translated(torch.tensor([[60, 60, 62, 128]]), Notes(), "a.mid").tolist() == [
        [60, 129, 62, 128]
    ]


@given(scores(st.integers(1, 3)), st.lists(st.integers(-127, 127), min_size=2, max_size=2), KEYS)
def test_a_row_is_transposed_as_far_as_pitches_allow(score, by, shuffler):
    codec = Notes(len(score), held=True, key=key_of(shuffler, 130))
    moved = codec.decode(codec.transposed(codec.encode([score, score]), torch.tensor(by)))
    pitched = score < REST
    for semitones, result in zip(by, moved, strict=True):
        assert np.array_equal(result[~pitched], score[~pitched])
        if pitched.any():
            actual = np.unique(result[pitched] - score[pitched])
            assert len(actual) == 1
            if actual[0] != semitones:
                assert abs(actual[0]) < abs(semitones)
                assert result[pitched].max() == 127 if semitones > 0 else result[pitched].min() == 0


def test_no_rows_are_transposed_too():
    nothing = torch.zeros(0, dtype=torch.int64)
    assert Notes().transposed(nothing[:, None], nothing).shape == (0, 1)


@pytest.mark.parametrize("codec", [Notes(), Notes(4), Notes(3)])
def test_what_is_usually_known_in_training_is_a_rule_for_rows_of_that_length(codec):
    from sddm.training.rules import known_from_text

    length = 4 * codec.voices
    rule = known_from_text(codec.usual_known(length))
    rule.check(length)
    masks = rule.draw(400, length, torch.Generator().manual_seed(0)).reshape(400, -1, codec.voices)
    assert not masks.all((1, 2)).any()
    single = masks.all(1).sum(1) == 1
    assert bool((single & (masks.any(1).sum(1) == 1)).any()) == (codec.voices > 1)
    assert codec.usual_known(2) is None


def test_rows_of_music_are_a_sequence_that_is_shown_as_a_picture():
    assert Notes().ordered
    assert Notes().preview_ending == ".png"
    assert Notes().default_ending == ".mid"
    assert Notes().text_ending is None


@pytest.mark.parametrize(
    ("make", "match"),
    [
        (lambda: Notes(voices=0), "voices must be at least 1"),
        (lambda: Notes(steps_per_beat=481), "steps_per_beat must be at most 480"),
        (lambda: Notes(beats_per_bar=0), "beats_per_bar must be at least 1"),
        (lambda: Notes(tempo=0.0), "tempo must lie between 4 and 1000"),
        (lambda: Notes(key=[0] * 129), "key must hold each token from 0 to 128 once"),
        (lambda: Notes(held=True, key=list(range(129))), "key must hold each token from 0 to 129 once"),
        (lambda: Notes(2).encode([[[60]]]), "values has 1 voices, but these notes have 2"),
        (lambda: Notes().encode([[[60]], [[60, 61]]]), r"scores \(voices, steps\) of one length, but they have shapes"),
        (lambda: Notes().encode([]), "scores .* of one length"),
        (lambda: Notes().encode([[[200]]]), "values must hold pitches 0 to 127"),
    ],
)
def test_notes_refuse_what_they_cannot_mean(without_annotation_checks, make, match):
    with pytest.raises(ValueError, match=match):
        make()


def test_the_arguments_are_plain_json():
    codec = Notes(4, 8, 3, True, range(130), 90.0)
    assert json.loads(json.dumps(codec.arguments)) == codec.arguments
    assert Notes(**codec.arguments) == codec != Notes(4, 8, 3, True, None, 90.0)
    assert codec.steps_per_bar == 24
