"""Variants of a melody are found in any key, rhythm and collection, and come into one group."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sddm.data.near_duplicates import COMMON, RUN, joined, pitches_of, variants
from sddm.formats.score import HELD, REST


def melody(seed, notes=60):
    """Steps of one to five semitones, so that two melodies of different seeds share no run of 12 intervals."""
    rng = np.random.RandomState(seed)
    return 60 + np.cumsum(rng.randint(1, 6, notes) * rng.choice([-1, 1], notes))


def pairs(melodies, **options):
    first, second, shared = variants(melodies, **options)
    return list(zip(first.tolist(), second.tolist(), shared.tolist(), strict=True))


def test_the_pitches_of_a_voice_have_no_rests_and_no_repeated_notes():
    voice = np.array([REST, 60, HELD, 60, 62, REST, REST, 62, 60, HELD])
    assert pitches_of(voice).tolist() == [60, 62, 60]
    assert pitches_of(np.full(4, REST)).tolist() == []


def test_a_transposed_copy_is_a_variant_and_other_melodies_are_not():
    melodies = [melody(0), melody(1), melody(0) + 7, melody(2)]
    assert pairs(melodies) == [(0, 2, 1.0)]


def test_the_share_is_that_of_the_shingles_of_the_shorter_melody():
    """29 of the 49 runs of 12 intervals of 61 notes lie within its first 41 notes."""
    whole = melody(0, 61)
    other = np.concatenate([whole[:41], melody(1, 200)])
    ((_, _, shared),) = pairs([whole, other], shared=0.1)
    assert shared == 29 / 49
    assert pairs([whole, other], shared=0.6) == []
    assert pairs([whole[:41], other])[0][2] == 1.0


def test_melodies_too_short_for_a_shingle_are_variants_only_if_all_their_intervals_are_equal():
    short = melody(0, RUN - 2)
    assert pairs([short, short - 5, short[:-1], melody(1, RUN - 2), melody(0)]) == [(0, 1, 1.0)]
    assert pairs([short[:0], melody(1)]) == []


def test_what_stands_in_very_many_melodies_makes_no_variants():
    scale = np.arange(60, 60 + RUN + 1)
    few, many = ([scale + i % 7 for i in range(count)] for count in (COMMON, COMMON + 1))
    assert len(pairs(few)) == COMMON * (COMMON - 1) // 2
    assert pairs(many) == []


def test_variants_of_variants_are_in_one_group_as_are_the_windows_of_a_tune():
    """Rows 0 and 1 are of one tune; 1 and 2 are variants, 2 and 4 too; 3 is alone."""
    groups = joined(np.array([7, 7, 3, 5, 9]), np.array([1, 2]), np.array([2, 4]))
    assert groups.tolist() == [0, 0, 0, 1, 0]
    nothing = np.empty(0, np.int64)
    assert joined(np.array([7, 7, 3]), nothing, nothing).tolist() == [1, 1, 0]


@given(st.lists(st.tuples(st.integers(0, 19), st.integers(0, 19)), max_size=25))
def test_groups_are_the_components_of_the_graph_of_pairs(edges):
    reach = np.eye(20, dtype=bool)
    for one, other in edges:
        reach[one, other] = reach[other, one] = True
    for _ in range(5):
        reach = reach @ reach
    first, second = np.array(edges, dtype=np.int64).reshape(-1, 2).T
    groups = joined(np.arange(20), first, second)
    assert np.array_equal(groups[:, None] == groups, reach)
    assert sorted(set(groups.tolist())) == list(range(groups.max() + 1))


@given(st.integers(0, 10**6), st.integers(-20, 20), st.integers(13, 40))
def test_whatever_the_key_a_melody_and_its_beginning_are_variants(seed, semitones, notes):
    assert pairs([melody(seed), melody(seed)[:notes] + semitones]) == [(0, 1, 1.0)]


def test_a_share_outside_its_range_is_refused():
    with pytest.raises(ValueError, match="shared must lie above 0"):
        variants([melody(0)], shared=0.0)
