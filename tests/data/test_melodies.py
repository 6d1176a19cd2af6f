"""Tunes and chorales from a small corpus that the tests write, read by music21; and the paper's arrays."""

import concurrent.futures
import sys

import numpy as np
import pytest
import torch

from sddm.codecs import Notes
from sddm.codecs.notes import scrambling
from sddm.data import Dataset, load, music, music_corpus
from sddm.data.leaks import leaks
from sddm.data.music_corpus import parsed
from sddm.data.music_pieces import TICKS, Bar, Piece, Sound, played, read_chorale, read_tune
from sddm.data.music_windows import on_grid, silent, trivial
from sddm.formats.midi_writer import write_midi
from sddm.formats.score import HELD, REST

HEAD = "X:{}\nT:A tune\nM:4/4\nL:1/8\nK:{}\n"
REEL = "cdec GAcA|dBGB c2G2|edcB AGEG|cAFA G2AB"
"""Four bars of eight eighth notes, which are 64 steps."""
OTHER = "g2fe d2ce|fafd BGDG|e2ce gece|dBAF E4"
STEP = TICKS // 4


def chorale(*voices):
    """MusicXML of voices that sing whole bars: their notes, two half notes a bar."""
    names = {60 + place: name for place, name in zip((0, 2, 4, 5, 7, 9, 11), "CDEFGAB", strict=True)}

    def note(pitch):
        octave = (pitch - 60) // 12
        step = f"<step>{names[pitch - 12 * octave]}</step><octave>{4 + octave}</octave>"
        return f"<note><pitch>{step}</pitch><duration>2</duration><type>half</type></note>"

    def bars(pitches):
        start = "<attributes><divisions>1</divisions><time><beats>4</beats><beat-type>4</beat-type></time></attributes>"
        for number, place in enumerate(range(0, len(pitches), 2)):
            notes = "".join(note(pitch) for pitch in pitches[place : place + 2])
            yield f'<measure number="{number + 1}">{start if number == 0 else ""}{notes}</measure>'

    listed = "".join(f'<score-part id="P{v}"><part-name>{v}</part-name></score-part>' for v in range(len(voices)))
    parts = "".join(f'<part id="P{v}">{"".join(bars(pitches))}</part>' for v, pitches in enumerate(voices))
    return f'<?xml version="1.0"?><score-partwise version="3.1"><part-list>{listed}</part-list>{parts}</score-partwise>'


UPPER = [72, 74, 76, 77, 79, 77, 76, 74, 71, 72, 81, 79, 76, 77, 74, 72]
LOWER = [note - 12 for note in reversed(UPPER)]


@pytest.fixture
def corpus(tmp_path, monkeypatch):
    """A folder like music21's, and a cache of its own."""
    tunes = {
        "airdsAirs/a.abc": [HEAD.format(1, "C") + f"|:{REEL}:|\n|:{OTHER}:|\n"],
        "essenFolksong/b.abc": [HEAD.format(1, "C") + "c4 c4|d8|" * 20 + "\n", HEAD.format(2, "C") + "c8|d8|\n"],
        "oneills1850/c.abc": [
            HEAD.format(7, "D") + "defd ABdB|ecAc d2A2|fedc BAFA|dBGB A2Bc|" * 2 + "\n",
            HEAD.format(8, "C") + f"{REEL}|[ce]8|\n",
        ],
        "ryansMammoth/d.abc": [HEAD.format(1, "G") + "(3gab (3agf " * 20 + "|\n"],
        "bach/bwv10.xml": [chorale(UPPER, LOWER, LOWER, LOWER)],
        "bach/bwv9.xml": [chorale(UPPER, [n - 12 for n in UPPER], [n - 24 for n in UPPER], LOWER)],
        "bach/bwv11.xml": [chorale(UPPER, LOWER)],
    }
    for name, texts in tunes.items():
        path = tmp_path / "corpus" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("\n".join(texts))
    monkeypatch.setattr(music_corpus, "corpus_folder", lambda: tmp_path / "corpus")
    monkeypatch.setenv("SDDM_CACHE", str(tmp_path / "cache"))
    return tmp_path


def notes(text, key="C"):
    """The pitches and the lengths in eighths of the notes that a tune has, or why it has none."""
    piece = read_tune(("name", HEAD.format(1, key) + text + "\n"))
    return piece.reason or [(int(p), (int(e) - int(s)) / (TICKS / 2)) for _, s, e, p in piece.notes]


# ---- reading ---------------------------------------------------------------------------------------------------------


def test_notes_have_the_accidentals_of_key_and_bar_and_the_lengths_that_are_written():
    assert notes('"Am"f2 =f{ab}f>_B B/2B/2|fB2-|B4|', "D") == [
        (78, 2), (77, 1), (77, 1.5), (70, 0.5), (70, 0.5), (70, 0.5), (78, 1), (71, 6),
    ]  # fmt: skip
    assert notes("(3cde z2|c8|") == [(72, 2 / 3), (74, 2 / 3), (76, 2 / 3), (72, 8)]


def test_what_is_not_one_melody_is_left_out_with_its_reason():
    assert notes("[ce]8|c8|") == "of chords"
    assert notes("z8|z8|") == "without notes"
    assert notes("V:1\nc8|\nV:2\ne8|") == "of more than one voice"
    assert read_chorale(("x", "/nowhere/x.xml")).reason == "not understood by music21"


def bars(text):
    """Bars from a shorthand: a letter is a bar, '[' and ']' are repeat signs around it, a digit is its ending."""
    found = []
    for word in text.split():
        letter, endings = word.strip("[]0123456789"), tuple(int(sign) for sign in word if sign.isdigit())
        found.append(Bar([Sound(0, 1, ord(letter), False)], 1, word[0] == "[", word[-1] == "]", endings))
    return found


@pytest.mark.parametrize(
    ("written", "heard"),
    [
        ("A B", "AB"),
        ("A B]", "ABAB"),
        ("A B] C D]", "ABABCDCD"),
        ("A [B C] D", "ABCBCD"),
        ("[A B1] C2 D", "ABACD"),
        ("[A B1 C1] D2 E2 F G]", "ABCADEFGFG"),
        ("A B1] C2] D E1] F2", "ABACDEDF"),
        ("A B1] C2] D3 E F]", "ABACADEFEF"),
        ("A B1] C2 [D E]", "ABACDEDE"),
        ("[A] [B] [C]", "AABBCC"),
    ],
)
def test_repeats_are_played_as_musicians_play_them(written, heard):
    assert "".join(chr(bar.sounds[0].pitch) for bar in played(bars(written))) == heard


def test_a_tune_is_played_with_its_repeats():
    assert [pitch for pitch, _ in notes("|:c8|1 d8:|2 e8||\nf8|g8:|")] == [72, 74, 72, 76, 77, 79, 77, 79]


# ---- the grid and the windows ----------------------------------------------------------------------------------------


def piece(*rows, reason=""):
    table = np.array([(voice, start * STEP, end * STEP, pitch) for voice, start, end, pitch in rows], np.int32)
    return Piece("a/b 1", table, max(end for _, _, end, _ in rows) * STEP, reason)


def test_a_piece_on_the_grid_is_its_score():
    score, reason = on_grid(piece((0, 0, 2, 60), (0, 3, 4, 60), (0, 4, 6, 60), (1, 0, 6, 48)), 2)
    assert reason == ""
    assert score.tolist() == [[60, HELD, REST, 60, 60, HELD], [48, HELD, HELD, HELD, HELD, HELD]]


def test_few_notes_off_the_grid_are_moved_and_many_are_a_reason():
    """Of 40 notes two meet off the grid, which are 5%. With a third it is more."""
    steady = [(0, i, i + 1, 60) for i in range(38)]
    table = piece(*steady, (0, 38, 40, 62), (0, 40, 41, 64)).notes
    table[-2, 2] = table[-1, 1] = 39 * STEP - STEP // 3
    score, reason = on_grid(Piece("a/b", table, 41 * STEP, ""), 1)
    assert (reason, score[0, 38:].tolist()) == ("", [62, 64, HELD])
    table[0, 2] -= 1
    assert on_grid(Piece("a/b", table, 41 * STEP, ""), 1)[1] == "more than 5% of its notes off the grid"
    assert on_grid(piece((0, 0, 1, 60), reason="of chords"), 1)[1] == "of chords"


def test_a_note_that_rounding_leaves_no_step_is_dropped():
    """Two of 60 notes share one step. The first is moved to the whole step, and for the second none is left."""
    table = piece(*[(0, i, i + 1, 60) for i in range(60)]).notes
    table[11, 1:] = 10 * STEP + STEP // 2, 11 * STEP, 62
    table[10, 2] = 10 * STEP + STEP // 2
    score, _ = on_grid(Piece("a/b", table, 60 * STEP, ""), 1)
    assert score[0, 9:14].tolist() == [60, 60, REST, 60, 60]


@pytest.mark.parametrize(
    ("voice", "reason"),
    [
        ([60, 62, 64, 65] * 32, "with fewer than 5 pitches"),
        ([60, 62, 64, 65, 67] + [REST] * 10, "with more rests than notes"),
        ([60, 62, 64, 65, 67] + [HELD] * 64, "with a note or a rest of more than 64 steps"),
        ([60, 62, 64, 65, 67] * 20 + [REST] * 65 + [60], "with a note or a rest of more than 64 steps"),
        ([60, 62, 64, 65, 67, 60] * 2, "of one half that is played twice"),
        ([60, 62, 64, 65, 67] + [HELD] * 63, ""),
        ([60] * 80 + [62, 64, 65, 67], ""),
    ],
)
def test_windows_that_say_little_are_known(voice, reason):
    assert trivial(np.array([voice], np.int16)) == reason


def test_a_window_with_a_silent_voice_says_little():
    sings, rests = [60, HELD, REST, REST], [REST, REST, REST, 60]
    assert silent(np.array([sings, sings], np.int16)) == ""
    assert silent(np.array([sings, rests], np.int16)) == "with a voice that mostly rests"


# ---- the published sets ----------------------------------------------------------------------------------------------


def test_melodies_are_windows_of_tunes_with_variants_in_one_group(corpus):
    """Aird's tune is played A A B B; O'Neill's is its A, a tone higher and twice; the others cannot be used."""
    data = load("melodies", window=64)
    assert data.codec == Notes()
    assert data.tokens.shape == (7, 64)  # from A to B in four half windows, from B to B in one more; O'Neill's in two
    windows = data.codec.decode(data.tokens[:])[:, 0]
    first, other, higher = windows[[0, 3, 5]]
    assert first[:8].tolist() == [72, HELD, 74, HELD, 76, HELD, 72, HELD]
    assert other[:8].tolist() == [79, HELD, HELD, HELD, 77, HELD, 76, HELD]
    assert np.array_equal(windows[1], np.roll(first, 32))
    assert np.array_equal(higher, np.where(first < REST, first + 2, first))
    assert data.groups.tolist() == [0] * 7
    assert len(music.melodies(64, hop=64).tokens) == 3
    assert music.corpus_report("melodies", window=64).splitlines() == [
        "2 of 6 tunes are used: airdsAirs 1 of 1, essenFolksong 0 of 2, oneills1850 1 of 2, ryansMammoth 0 of 1.",
        "Left out are tunes: 1 shorter than 64 steps, 1 of chords, 1 more than 5% of its notes off the grid, 1 without "
        "a window that can be used.",
        "7 windows of 64 steps are in 1 groups, each a tune with its variants; the largest holds 7 windows of 2 tunes.",
        "Left out are windows: 19 with fewer than 5 pitches, 3 that are there already.",
    ]
    with pytest.raises(ValueError, match=r"No tune has a window of 1000 steps that can be used\. Give a shorter"):
        load("melodies", window=1_000)


def test_held_notes_and_the_scrambled_order_are_options(corpus):
    plain, held, scrambled = (
        load("melodies", window=64, **options) for options in ({}, {"held": True}, {"scramble": True})
    )
    assert held.num_states == 130
    assert int((held.tokens[:] == HELD).sum()) > 0
    assert scrambled.codec.key == scrambling(129)
    assert torch.equal(scrambled.tokens[:], torch.tensor(scrambling(129))[plain.tokens[:]])
    assert np.array_equal(scrambled.codec.decode(scrambled.tokens[:]), plain.codec.decode(plain.tokens[:]))


def test_chorales_are_four_voices_a_step_in_the_order_of_their_numbers(corpus):
    data = load("chorales")
    assert data.codec == Notes(4)
    assert data.tokens.shape == (4, 256)  # of number 9, then of 10; 11 has two voices
    assert data.groups.tolist() == [0, 0, 0, 0]  # they have one soprano
    scores = data.codec.decode(data.tokens[:])
    assert scores[0, :, 0].tolist() == [72, 60, 48, 60]
    assert scores[2, :, 16].tolist() == [76, 65, 65, 65]
    assert "Left out are chorales: 1 not of 4 voices." in music.corpus_report("chorales")
    overlapping = music.chorales(hop=16)
    assert len(overlapping.tokens) == 2 * 5


def test_a_corpus_is_parsed_once_and_again_if_what_is_kept_is_damaged(corpus, monkeypatch):
    calls = []
    monkeypatch.setattr(music_corpus, "read_tune", lambda job: calls.append(job[0]) or read_tune(job))
    whole = music_corpus.tunes()
    assert calls == [
        "airdsAirs/a.abc 1", "essenFolksong/b.abc 1", "essenFolksong/b.abc 2", "oneills1850/c.abc 7",
        "oneills1850/c.abc 8", "ryansMammoth/d.abc 1",
    ]  # fmt: skip
    (kept,) = (corpus / "cache" / "music").iterdir()
    again = music_corpus.tunes()
    assert len(calls) == 6
    for one, other in zip(whole, again, strict=True):
        assert (one.name, one.length, one.reason) == (other.name, other.length, other.reason)
        assert np.array_equal(one.notes, other.notes)
    content = kept.read_bytes()
    for damaged in (content[: len(content) // 2], b"", b"no archive"):
        kept.write_bytes(damaged)
        assert [piece.name for piece in music_corpus.tunes()] == calls[:6]
        assert kept.read_bytes() != damaged
    assert len(calls) == 4 * 6


def test_many_pieces_are_read_by_several_processes_in_their_order(monkeypatch, capsys):
    jobs = [(str(i), "") for i in range(100)]
    monkeypatch.setattr(
        music_corpus, "ProcessPoolExecutor", lambda count, context: concurrent.futures.ThreadPoolExecutor(count)
    )
    pieces = parsed(jobs, lambda job: Piece(job[0], np.zeros((0, 4), np.int32), 0, ""), "melodies", processes=2)
    assert [piece.name for piece in pieces] == [name for name, _ in jobs]
    assert "parsing melodies: 100%" in capsys.readouterr().err

    class Broken(concurrent.futures.ThreadPoolExecutor):
        def map(self, *args, **options):
            raise concurrent.futures.process.BrokenProcessPool

    monkeypatch.setattr(music_corpus, "ProcessPoolExecutor", lambda count, context: Broken(count))
    with pytest.raises(ValueError, match=r"In a script of your own, put the call below `if __name__ =="):
        parsed(jobs, read_tune, "melodies", processes=2)


def test_the_extra_is_named_if_music21_is_missing(monkeypatch):
    monkeypatch.setitem(sys.modules, "music21", None)
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    with pytest.raises(ValueError, match=r'Install it with pip install "sddm\[music\]"'):
        load("melodies")
    with pytest.raises(ValueError, match="name must be one of melodies, chorales, but it is 'tunes'"):
        music.corpus_report("tunes")


# ---- leaks -----------------------------------------------------------------------------------------------------------


def melody(seed, steps=64):
    rng = np.random.RandomState(seed)
    return 60 + np.cumsum(rng.randint(1, 4, steps) * rng.choice([-1, 1], steps))


def dataset(*voices, key=None):
    codec = Notes(key=key)
    return Dataset(codec.encode(np.stack(voices)[:, None].astype(np.int16)), codec)


def test_planted_leaks_are_found_in_any_key_and_coding():
    """Of the test rows, one is a training row, one is one in another key, one has half of it, and one is new."""
    train = dataset(*(melody(seed) for seed in range(5)))
    half = np.concatenate([melody(2)[:32] - 3, melody(9, 32)])
    rows = melody(0), melody(1) + 5, half, melody(8)
    for key in (None, scrambling(129)):
        found = leaks(train, dataset(*rows, key=key))
        assert found == (1, 2, 3, 4)
        assert str(found).startswith("Of the 4 test rows, 1 are in the training data, 2 if other keys count, and 3 if")
    clean = leaks(train, dataset(melody(8)))
    assert str(clean) == "None of the 1 test rows is in the training data, in any key, nor a variant of it."


def test_no_row_leaks_if_groups_are_kept_together(corpus):
    """With groups of one tune each, the two tunes that are variants may be parted; with those of the loader never."""
    data = load("melodies", window=32)
    parted = Dataset(data.tokens, data.codec, groups=range(len(data)))
    assert leaks(*parted.split(0.5, seed=0)).variants > 0
    extended = Dataset(
        torch.cat([data.tokens[:], data.codec.encode(melody(5, 32)[None, None].astype(np.int16))]),
        data.codec,
        groups=[*data.groups.tolist(), 1 + int(data.groups.max())],
    )
    for seed in range(3):
        assert leaks(*extended.split(0.5, seed)).variants == 0
    with pytest.raises(ValueError, match="test must hold music"):
        leaks(data, Dataset.from_tokens(data.tokens[:]))


def test_files_that_hold_one_tune_are_not_parted(tmp_path):
    """A song that is there twice, once in another key, is on one side; windows of few notes join nothing."""
    rows = [melody(0), melody(1), melody(2), melody(3), melody(1) + 5, *[np.repeat([60, 62], 32)] * 3]
    for name, row in zip("abcdefgh", rows, strict=True):
        write_midi(row[None], tmp_path / f"{name}.mid")
    data = load(tmp_path, window=64)
    assert data.groups.tolist() == [0, 1, 2, 3, 1, 4, 5, 6]
    for name in "abcdefgh":
        write_midi(melody(1)[None], tmp_path / f"{name}.mid")
    assert len(load(tmp_path, window=64).groups.unique()) == 8  # they would be one group, which no split parts


# ---- the paper's arrays ----------------------------------------------------------------------------------------------


@pytest.fixture
def folder(tmp_path):
    values = np.random.RandomState(3).permutation(129)
    rng = np.random.RandomState(4)
    np.save(tmp_path / "train.npy", rng.randint(129, size=(5, 256)))
    np.save(tmp_path / "test.npy", rng.randint(129, size=(2, 256)).astype(np.float32))
    np.savetxt(tmp_path / "descramble_key.txt", values)
    return tmp_path


def test_the_arrays_of_the_paper_are_read_with_their_key(folder):
    train, test = music.paper_arrays(folder)
    assert (train.tokens.shape, test.tokens.shape) == ((5, 256), (2, 256))
    tokens, values = np.load(folder / "train.npy"), np.loadtxt(folder / "descramble_key.txt")
    assert np.array_equal(train.tokens[:].numpy(), tokens)
    first = train.codec.decode(train.tokens[:])[:, 0, 0]
    assert first.tolist() == values[tokens[:, 0]].tolist()
    for source, data in ((folder, train), (folder / "train.npy", train), (folder / "test.npy", test)):
        loaded = load(source)
        assert torch.equal(loaded.tokens[:], data.tokens[:])
        assert loaded.codec == data.codec


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("train.npy", None, "There is no file"),
        ("descramble_key.txt", None, "There is no file"),
        ("descramble_key.txt", "0\n1\n1\n", "3 numbers from 0 to 1, 2 of them different"),
        ("descramble_key.txt", "one\n", "must hold one number a line"),
        ("test.npy", np.zeros((2, 200), int), r"must hold rows of 256 tokens, but it holds int64 of shape \(2, 200\)"),
        ("test.npy", np.full((2, 256), 129), "must hold tokens from 0 to 128, but it holds values from 129 to 129"),
        ("test.npy", np.full((2, 256), 0.5), "must hold tokens from 0 to 128, but it holds values from 0.5 to 0.5"),
        ("test.npy", np.array([[{}] * 256]), "Pickles can run code and are not read"),
    ],
)
def test_what_is_wrong_with_the_arrays_of_the_paper_is_said(folder, name, content, message):
    path = folder / name
    if content is None:
        path.unlink()
    elif isinstance(content, str):
        path.write_text(content)
    else:
        np.save(path, content, allow_pickle=True)
    with pytest.raises((ValueError, FileNotFoundError), match=message):
        music.paper_arrays(folder)
