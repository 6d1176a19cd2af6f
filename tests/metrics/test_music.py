"""Metrics of music, against values counted by hand."""

import math

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from sddm.codecs import Integers, Notes
from sddm.formats.score import HELD, REST
from sddm.metrics import compare, hellinger, outlier_fraction, paired_difference
from sddm.metrics.music import distance, intervals, note_lengths, pitch_classes, repeated_bars
from sddm.metrics.voices import chords, outside_ranges, parallel_fifths, parallel_octaves, voice_crossings

ROWS = st.lists(st.integers(0, 4), min_size=12, max_size=12)


def row(tokens):
    return torch.tensor([tokens])


def score(*voices):
    return np.array([voices], dtype=np.int16)


# ---- completions against the truth ---------------------------------------------------------------------------------


def test_hellinger_and_outliers_are_those_that_one_counts_by_hand():
    """p = (1/2, 1/4, 1/4, 0) and q = (1/4, 1/4, 0, 1/2)."""
    generated, truth = torch.tensor([[0, 0, 1, 2], [3, 3, 3, 3]]), torch.tensor([[3, 1, 3, 0], [3, 3, 3, 3]])
    squares = (math.sqrt(0.5) - math.sqrt(0.25)) ** 2 + 0.25 + 0.5
    assert hellinger(generated, truth, 4).tolist() == pytest.approx([math.sqrt(squares / 2), 0], abs=1e-15)
    assert outlier_fraction(generated, truth).tolist() == [0.25, 0]
    assert hellinger(row([0, 0]), row([1, 2]), 3).item() == pytest.approx(1)
    assert outlier_fraction(row([0, 4]), row([1, 2])).item() == 1


def test_rows_do_not_mix_and_chunks_do_not_matter(monkeypatch, generator):
    made, truth = (torch.randint(9, (7, 20), generator=generator) for _ in range(2))
    whole = hellinger(made, truth, 9)
    monkeypatch.setattr("sddm.metrics.histograms.CHUNK", 18)
    assert torch.equal(hellinger(made, truth, 9), whole)
    assert whole.tolist() == [hellinger(m[None], t[None], 9).item() for m, t in zip(made, truth, strict=True)]


@given(ROWS, ROWS, st.permutations(range(12)), st.permutations(range(5)))
def test_only_how_often_tokens_occur_matters_not_where_nor_their_names(a, b, order, names):
    value, outliers = hellinger(row(a), row(b), 5).item(), outlier_fraction(row(a), row(b)).item()
    moved, renamed = row([a[i] for i in order]), [row([names[token] for token in tokens]) for tokens in (a, b)]
    assert hellinger(moved, row(b), 5).item() == pytest.approx(value, abs=1e-12)
    assert hellinger(*renamed, 5).item() == pytest.approx(value, abs=1e-12)
    assert hellinger(row(b), row(a), 5).item() == pytest.approx(value, abs=1e-12)
    assert outlier_fraction(moved, row(b)).item() == outlier_fraction(*renamed).item() == outliers
    assert 0 <= value <= 1 + 1e-12
    assert (value < 1e-7) == (sorted(a) == sorted(b))
    assert (outliers == 0) == (set(a) <= set(b))
    assert (outliers == 1) == (abs(value - 1) < 1e-12) == (not set(a) & set(b))


def test_rows_and_their_truth_must_have_one_shape(without_annotation_checks):
    with pytest.raises(ValueError, match=r"the same shape, one true row a row.*\(1, 2\) and \(1, 3\)"):
        hellinger(row([0, 1]), row([0, 1, 1]), 2)
    with pytest.raises(ValueError, match="truth must hold tokens from 0 to 1"):
        hellinger(row([0, 1]), row([0, 2]), 2)


# ---- pairs ---------------------------------------------------------------------------------------------------------


def test_a_paired_difference_has_the_error_of_its_groups():
    """Two runs of three tunes. The tunes' mean differences are 2, 2 and 5: their mean is 3, its error sqrt(3 / 3)."""
    a = torch.tensor([3.0, 1.0, 4.0, 0.0, 6.0, 7.0])
    b = torch.tensor([0.0, 0.0, 1.0, -1.0, 2.0, 1.0])
    mean, error = paired_difference(a, b, torch.tensor([4, 4, 0, 0, 9, 9]))
    assert (mean, error) == pytest.approx((3, 1), rel=1e-12)
    assert paired_difference(b, a, torch.tensor([4, 4, 0, 0, 9, 9])) == pytest.approx((-3, 1), rel=1e-12)


def test_without_groups_the_error_is_the_usual_one(generator):
    a, b = torch.randn(2, 50, generator=generator, dtype=torch.float64)
    mean, error = paired_difference(a, b)
    assert mean == pytest.approx(float(a.mean() - b.mean()), rel=1e-12)
    assert error == pytest.approx(float((a - b).std() / 50**0.5), rel=1e-12)


def test_the_error_of_unequal_groups_is_the_spread_over_draws_of_them(generator):
    """Of 2,000 sets of 60 tunes with one to four windows each, means spread as their errors say, to four errors of
    the spread, 1 / sqrt(2 * 2000), and the 5% by which errors of few groups are known to be too small."""
    drawn = []
    for _ in range(2_000):
        groups = torch.arange(60).repeat_interleave(torch.randint(1, 5, (60,), generator=generator))
        of_group = torch.randn(60, generator=generator, dtype=torch.float64)[groups]
        values = of_group + torch.randn(len(groups), generator=generator, dtype=torch.float64)
        drawn.append(paired_difference(values, torch.zeros_like(values), groups))
    means, errors = torch.tensor(drawn, dtype=torch.float64).T
    assert abs(float(means.std() / errors.square().mean().sqrt()) - 1) < 0.05 + 4 / 4_000**0.5


def test_what_is_not_paired_is_refused(without_annotation_checks):
    one, two = torch.ones(1), torch.ones(2)
    with pytest.raises(ValueError, match="the same rows, but they have 1 and 2 numbers"):
        paired_difference(one, two)
    with pytest.raises(ValueError, match="at least two rows"):
        paired_difference(one, one)
    with pytest.raises(ValueError, match="a must hold one finite number a row"):
        paired_difference(two / 0, two)
    with pytest.raises(ValueError, match="at least two groups"):
        paired_difference(two, two, torch.zeros(2, dtype=torch.int64))


# ---- what a musician asks ------------------------------------------------------------------------------------------


def test_pitch_classes_intervals_and_lengths_count_notes_not_steps():
    """C for three steps, C again for one, a rest, E an octave higher; then another voice: A, and A an octave lower."""
    music = score([60, HELD, HELD, 60, REST, REST, 76, HELD], [69, HELD, HELD, HELD, 57, HELD, HELD, HELD])
    classes = np.zeros(12)
    classes[[0, 4, 9]] = 2 / 5, 1 / 5, 2 / 5
    assert np.array_equal(pitch_classes(music), classes)
    leaps = np.zeros(255)
    leaps[[127, 127 + 16, 127 - 12]] = 1 / 3
    assert np.array_equal(intervals(music), leaps)
    lengths = np.zeros(9)
    lengths[[1, 2, 3, 4]] = 1 / 5, 1 / 5, 1 / 5, 2 / 5
    assert np.array_equal(note_lengths(music), lengths)


def test_nothing_reaches_from_one_score_into_the_next():
    music = np.array([[[60, HELD, HELD]], [[64, HELD, REST]]], dtype=np.int16)
    assert np.isnan(intervals(music)).all()
    assert note_lengths(music)[[2, 3]].tolist() == [0.5, 0.5]


@given(st.lists(st.integers(0, 20), min_size=4, max_size=4), st.lists(st.integers(0, 20), min_size=4, max_size=4))
def test_a_distance_of_laws_lies_between_0_and_1_and_is_0_for_equal_ones_only(a, b):
    p, q = (np.array(counts) / sum(counts) if sum(counts) else np.full(4, np.nan) for counts in (a, b))
    value = distance(p, q)
    if sum(a) and sum(b):
        assert 0 <= value <= 1 + 1e-12
        assert (value < 1e-7) == np.allclose(p, q, rtol=0, atol=1e-12)
    else:
        assert math.isnan(value)


def test_bars_repeat_if_all_voices_sound_as_in_an_earlier_bar_of_their_score():
    """Bars of two steps: A B A A, then a part of a bar; the other voice makes one of the A's differ."""
    upper = [60, HELD, 62, 64, 60, 60, 60, HELD, 60]
    assert repeated_bars(score(upper), bar=2) == 2 / 4
    assert repeated_bars(score(upper, [40, 40, 40, 40, 40, 40, 41, 40, 40]), bar=2) == 1 / 4
    assert repeated_bars(np.concatenate([score(upper), score(upper)]), bar=2) == 2 / 4
    assert repeated_bars(score([60, 62, REST, REST, REST, REST]), bar=2) == 0
    assert math.isnan(repeated_bars(score([REST] * 4), bar=2))
    assert math.isnan(repeated_bars(score(upper), bar=16))


# ---- four voices ---------------------------------------------------------------------------------------------------


def test_notes_outside_the_ranges_and_crossed_voices_are_counted():
    music = score([72, HELD, 82, 71], [60, 76, HELD, REST], [55, HELD, 55, 55], [54, 35, 56, 40])
    assert outside_ranges(music) == 3 / 12  # the soprano's 82, the alto's 76, the bass's 35
    # Alto above soprano in step 1, bass above tenor in step 2; the alto's rest leaves 2 of its pairs out.
    assert voice_crossings(music) == 2 / 10
    with pytest.raises(ValueError, match="scores have 4 voices, but ranges has 1"):
        outside_ranges(music, [(0, 127)])


def test_parallels_are_fifths_and_octaves_that_move_together():
    """Of the four changes of two voices, from C-G to D-A is parallel; from D-G to C-F are fourths."""
    fifths = score([67, HELD, 69, HELD, 67, 65, 69], [60, HELD, 62, HELD, 62, 60, 60])
    assert parallel_fifths(fifths) == 100 / 4
    assert parallel_octaves(fifths) == 0
    octaves = score([72, 74, 74, 76], [60, 50, 50, 52], [REST, 62, 62, 64])
    # C to D an octave apart, but in contrary motion; then D-D-D to E-E-E: three pairs in one of two changes.
    assert parallel_octaves(octaves) == 300 / 2
    assert parallel_fifths(octaves) == 0
    assert math.isnan(parallel_fifths(score([60, HELD], [67, HELD])))


# ---- in the table --------------------------------------------------------------------------------------------------

OF_SCORES = ["pitch_class_distance", "interval_distance", "note_length_distance", "repeated_bars"]
OF_VOICES = ["chord_distance", "outside_ranges", "voice_crossings", "parallel_fifths", "parallel_octaves"]


def test_chords_count_the_intervals_between_voices_without_octaves_and_rests():
    law = chords(score([72, HELD, 67], [60, 64, REST]))
    # An octave, then C above E, which is a minor sixth; in the last step one voice is silent.
    assert law.tolist() == [0.5, 0, 0, 0, 0, 0, 0, 0, 0.5, 0, 0, 0]
    assert np.isnan(chords(score([REST], [60]))).all()


def random_music(num, voices, pitches, generator):
    """Notes of two steps. The first bar comes again."""
    tokens = torch.randint(*pitches, (num, 16, 1, voices), generator=generator).expand(-1, -1, 2, -1)
    return tokens.clone().index_copy_(1, torch.arange(8, 16), tokens[:, :8]).reshape(num, -1)


@pytest.mark.parametrize("voices", [1, 2, 4])
def test_music_is_measured_in_any_coding_beside_data_against_data(voices, generator):
    samples, data = (random_music(40, voices, pitches, generator) for pitches in ((60, 72), (48, 60)))
    key = torch.randperm(130, generator=generator)
    held = Notes(voices, held=True, key=key.tolist())
    plain = [figure for figure in compare(samples, data, Notes(voices)) if figure.name != "mmd"]
    assert [figure.name for figure in plain] == [*OF_SCORES, *(OF_VOICES if voices == 4 else [])]
    recoded = [held.encode(Notes(voices).decode(tokens)) for tokens in (samples, data)]
    assert [figure for figure in compare(*recoded, held) if figure.name != "mmd"] == plain
    repeated = next(figure for figure in plain if figure.name == "repeated_bars")
    assert repeated.value == repeated.of_data == 0.5
    assert str(repeated) == "share of bars that were there before  0.5, of data 0.5"
    assert repeated.saved() == {"repeated_bars": 0.5, "repeated_bars_of_data": 0.5}


def test_each_distance_tells_music_of_another_law_from_that_of_the_same(generator):
    """Samples with whole tones only, in notes of four steps, from C up; in the data there is all of it."""
    data = random_music(200, 1, (60, 72), generator)
    other = 60 + 2 * torch.randint(6, (200, 8, 1), generator=generator).expand(-1, -1, 4).reshape(200, -1)
    for figure in compare(other, data, Notes()):
        if figure.name in OF_SCORES[:3]:
            assert figure.value > 4 * figure.of_data


def test_where_there_are_no_notes_there_are_no_figures_of_them():
    silence = torch.full((5, 32), REST)
    assert [figure.name for figure in compare(silence, silence, Notes())] == ["mmd"]
    assert [figure.name for figure in compare(silence, silence, Integers(129))] == ["mmd"]
