"""Piano rolls: every voice has its colour, and what was given is grey."""

import numpy as np
import pytest
from matplotlib import image
from matplotlib.colors import to_rgb

from sddm.formats import piano_roll
from sddm.formats.piano_roll import COLOURS, GIVEN, SHADE, draw_roll
from sddm.formats.score import HELD, REST


def drawn(path, *arguments, **options):
    draw_roll(*arguments[:1], path, *arguments[1:], **options)
    return image.imread(path)[..., :3]


def share(picture, colour):
    """The share of a picture that has this colour."""
    return (np.abs(picture - np.array(to_rgb(colour))) < 0.02).all(-1).mean()


SCORE = np.array([[72] + [HELD] * 15 + [74] * 16, [60] * 16 + [REST] * 16])


def test_every_voice_has_a_colour(tmp_path):
    picture = drawn(tmp_path / "a.png", [SCORE])
    assert all(share(picture, colour) > 0.001 for colour in COLOURS[:2])
    assert all(share(picture, colour) < 0.001 for colour in (COLOURS[2], SHADE, GIVEN))
    # both voices have bars as thick, and the first sounds twice as long; the legend has a patch of each
    assert 1.5 < share(picture, COLOURS[0]) / share(picture, COLOURS[1]) < 2.5


def test_what_was_given_is_grey_and_shaded_where_all_voices_were(tmp_path):
    beginning = np.zeros(SCORE.shape, dtype=bool)
    beginning[:, :16] = True
    picture = drawn(tmp_path / "a.png", [SCORE], beginning)
    assert share(picture, SHADE) > 0.2
    assert share(picture, GIVEN) > 0.001
    voice = np.zeros(SCORE.shape, dtype=bool)
    voice[0] = True
    picture = drawn(tmp_path / "b.png", [SCORE], voice)
    assert share(picture, SHADE) < 0.001
    assert share(picture, COLOURS[1]) > 3 * share(picture, COLOURS[0])  # which is in the legend only


def test_a_note_that_goes_on_after_what_was_given_is_grey_up_to_there(tmp_path):
    long = np.array([[60] + [HELD] * 15])
    half = np.arange(16)[None] < 8
    picture = drawn(tmp_path / "a.png", [long], half)
    assert share(picture, GIVEN) == pytest.approx(share(picture, COLOURS[0]), rel=0.1)


def test_scores_stand_under_one_another(tmp_path, monkeypatch):
    one = drawn(tmp_path / "a.png", [SCORE])
    three = drawn(tmp_path / "b.png", [SCORE] * 3, [None, SCORE < 0, None], titles=["a", "b", "c"])
    assert three.shape[1] == one.shape[1]
    assert 2 < three.shape[0] / one.shape[0] < 4
    monkeypatch.setattr(piano_roll, "MAX_ROLLS", 1)
    with pytest.warns(UserWarning, match="The picture shows the first 1 of 3 pieces"):
        assert drawn(tmp_path / "c.png", [SCORE] * 3, [SCORE < 0] * 3, titles=["a"] * 3).shape[1] == one.shape[1]


@pytest.mark.parametrize(
    "score",
    [np.full((1, 8), REST), np.array([[0, 127]]), np.array([[127]]), np.full((9, 3), 0), np.zeros((1, 1_024), int)],
)
def test_any_score_can_be_drawn(score, tmp_path):
    height, width, _ = drawn(tmp_path / "a.png", [score], steps_per_bar=3).shape
    assert 100 < height < 600
    assert 500 < width < 4_000


@pytest.mark.parametrize(
    ("scores", "options", "match"),
    [
        ([], {}, "scores must hold at least one score"),
        ([SCORE], {"given": SCORE[:1] > 0}, r"given has shape \(1, 32\), but the score has shape \(2, 32\)"),
        ([SCORE], {"given": [None, None]}, "one entry for each of the 1 scores, but they hold 2 and 1"),
        ([SCORE], {"titles": []}, "one entry for each of the 1 scores, but they hold 1 and 0"),
        ([SCORE], {"steps_per_bar": 0}, "steps_per_bar must be at least 1"),
    ],
)
def test_what_cannot_be_drawn_is_answered_by_a_sentence(without_annotation_checks, scores, options, match, tmp_path):
    with pytest.raises(ValueError, match=match):
        draw_roll(scores, tmp_path / "a.png", **options)
    assert not list(tmp_path.iterdir())
