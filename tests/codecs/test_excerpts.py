"""Conditions that are longer than a sample."""

import numpy as np
import pytest
import torch

from sddm.codecs import BLANK, Notes
from sddm.codecs.excerpt import window_around
from sddm.formats.score import HELD

STEPS, WINDOW, BAR = 20, 8, 2


@pytest.fixture
def codec(monkeypatch):
    return Notes(steps_per_beat=1, beats_per_bar=BAR)


def saved(tmp_path, row, name="long.npy"):
    np.save(tmp_path / name, [row])
    return tmp_path / name


@pytest.fixture
def piece(tmp_path):
    """A scale of 20 steps, ten bars."""
    return saved(tmp_path, range(40, 40 + STEPS))


@pytest.mark.parametrize(
    ("fill", "start"),
    [("5:6", 6), ("5", 4), ("1", 0), ("2", 0), ("10", 12), ("9", 12), ("5:7", 6), ("4,6", 4)],
)
def test_bars_of_a_long_piece_are_filled_between_what_lies_around_them(codec, piece, fill, start):
    with pytest.warns(
        UserWarning, match=rf"has 20 steps, but samples have 8. The model sees bars {start // BAR + 1} to"
    ):
        excerpt = codec.excerpt(piece, WINDOW, fill=fill)
    assert (excerpt.start, excerpt.window.shape) == (start, (1, WINDOW))
    scale, blank = torch.arange(40, 40 + STEPS)[None], excerpt.rows == BLANK
    assert torch.equal(excerpt.rows, torch.where(blank, BLANK, scale))
    assert torch.equal(excerpt.window, excerpt.rows[:, start : start + WINDOW])
    made = excerpt.completed(torch.full((3, WINDOW), 99))
    assert torch.equal(made, torch.where(blank, 99, scale).expand(3, -1))
    assert int(blank.sum()) == int((excerpt.window == BLANK).sum()) > 0


def test_after_a_window_or_more_the_last_half_is_the_context_of_what_follows(codec, piece):
    with pytest.warns(UserWarning, match="The model sees bars 4 to 7"):
        excerpt = codec.excerpt(piece, WINDOW, give=10)
    assert excerpt.start == 6
    assert excerpt.window.tolist() == [[46, 47, 48, 49, *[BLANK] * 4]]
    assert excerpt.completed(torch.full((1, WINDOW), 99)).tolist() == [[*range(40, 50), *[99] * 4]]
    with pytest.warns(UserWarning, match="What is kept of the others is written as it is"):
        assert codec.excerpt(piece, WINDOW, give=STEPS).rows.tolist() == [[*range(40, 60), *[BLANK] * 4]]
    with pytest.warns(UserWarning, match="The model sees bars 9 to 12"):  # without a rule, all of it is given
        assert codec.excerpt(piece, WINDOW).rows.tolist() == [[*range(40, 60), *[BLANK] * 4]]
    with pytest.warns(UserWarning, match="The first 8 of it are used"):
        assert codec.excerpt(piece, WINDOW, give=7).rows.tolist() == [[*range(40, 47), BLANK]]


def test_a_note_that_goes_on_into_the_window_begins_it_and_is_written_as_it_was(tmp_path):
    codec = Notes(steps_per_beat=1, beats_per_bar=BAR, held=True)
    row = [60, *[HELD] * 7, 62, HELD, 64, 65, *[HELD] * 8]
    with pytest.warns(UserWarning, match="What is kept of the others is written as it is"):
        excerpt = codec.excerpt(saved(tmp_path, row), WINDOW, fill="5:6")
    assert excerpt.start == 6
    assert excerpt.window.tolist() == [[60, HELD, *[BLANK] * 4, 65, HELD]]
    made = excerpt.completed(torch.tensor([[60, HELD, 70, 71, 72, 73, 65, HELD]]))
    assert made.tolist() == [[60, *[HELD] * 7, 70, 71, 72, 73, 65, *[HELD] * 7]]


def test_several_voices_have_windows_of_whole_steps(tmp_path):
    codec = Notes(2, steps_per_beat=1, beats_per_bar=BAR)
    path = saved(tmp_path, [pitch for step in range(STEPS) for pitch in (60 + step, 30 + step)])
    with pytest.warns(UserWarning, match="What is kept of the others is written as it is"):
        excerpt = codec.excerpt(path, 2 * WINDOW, fill="5:6")
    assert excerpt.start == 2 * 6
    assert excerpt.window.tolist() == [[66, 36, 67, 37, *[BLANK] * 8, 72, 42, 73, 43]]


def test_of_a_long_piece_in_which_a_voice_is_missing_the_first_window_is_used(tmp_path):
    codec = Notes(2, steps_per_beat=1, beats_per_bar=BAR)
    path = saved(tmp_path, [pitch for step in range(STEPS) for pitch in (60 + step, BLANK)])
    for rules in ({"fill": "3"}, {"keep_voice": "1"}, {}):
        with pytest.warns(UserWarning, match="The first 8 of it are used"):
            excerpt = codec.excerpt(path, 2 * WINDOW, **rules)
        assert excerpt.rows.tolist() == excerpt.window.tolist()
        assert [token for token in excerpt.rows[0, ::2].tolist() if token != BLANK][:4] == [60, 61, 62, 63]


def test_bars_that_span_more_than_a_window_are_answered_by_a_sentence(codec, piece):
    match = "reaches from bar 2 to bar 9, which is 16 steps, but samples have 8, with some context. Fill fewer bars"
    with pytest.raises(ValueError, match=match):
        codec.excerpt(piece, WINDOW, fill="2,9")
    with pytest.raises(ValueError, match="the piece has bars 1 to 10 only"):
        codec.excerpt(piece, WINDOW, fill="11")
    with pytest.raises(ValueError, match="give is 21, but the piece has 20 steps"):
        codec.excerpt(piece, WINDOW, give=21)


def test_a_window_holds_what_is_to_be_generated_wherever_it_lies():
    for first in range(STEPS):
        for last in range(first + 1, min(STEPS, first + WINDOW - 1) + 1):
            start = window_around(first, last, STEPS, WINDOW, 3)
            assert 0 <= start <= first
            assert last <= start + WINDOW


def test_shorter_pieces_are_as_they_were(codec, tmp_path, recwarn):
    short = saved(tmp_path, range(60, 66))
    excerpt = codec.excerpt(short, WINDOW, fill="2")
    assert excerpt.rows.tolist() == excerpt.window.tolist() == [[60, 61, BLANK, BLANK, 64, 65]]
    assert excerpt.known(WINDOW).tolist() == [[60, 61, *[BLANK] * 2, 64, 65, *[BLANK] * 2]]
    assert codec.excerpt(short, WINDOW).rows.tolist() == [[*range(60, 66), BLANK, BLANK]]
    assert not recwarn.list
