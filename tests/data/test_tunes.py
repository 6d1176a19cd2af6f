"""Tunes: what says the melody is kept, what says how it is played is not, and each tune left out has its reason."""

import pytest

from sddm.formats.tunes import read_tunes

pytestmark = pytest.mark.usefixtures("without_annotation_checks")
BOOK = """% A book of airs
X:1
T: The Title
M: 6/8
L: 1/8
Z: who wrote it down
K:E Minor % as printed
"Em"B2 (AG) \\
{a}gf | (3ABc !trill!d>e ~.f=c'- :|
w: la la la
% a remark
|: vG,/A/ [P:B] z2 [1 [eg] |]

A text after the tune.

X: 2
T: Another
M: C|
L: 1/4
N: a note
K: Bb
 A: |B
D::G
"""
FIRST = "M:6/8\nL:1/8\nK:Em\nB2AGgf|(3ABcd>ef=c'-:|\n|:G,/A/z2[1[eg]|]"
SECOND = "M:C|\nL:1/4\nK:Bb\nD::G"


def test_a_tune_is_its_metre_unit_key_and_notes():
    kept, dropped = read_tunes([BOOK.replace(" A: |B\n", "")], 256)
    assert kept == [FIRST, SECOND]
    assert not dropped


def test_line_ends_of_windows_make_no_difference():
    assert read_tunes([BOOK.replace("\n", "\r\n")], 256) == read_tunes([BOOK], 256)


def tune(notes="ABc", key="C", metre="2/4", unit="1/8"):
    return f"X:1\nM:{metre}\nL:{unit}\nK:{key}\n{notes}\n"


KEYS = {"G": "G", "Gm": "Gm", "G Minor": "Gm", "Gmin": "Gm", "G Major": "G", "F#mix": "F#mix", "BbDorian": "Bbdor"}


@pytest.mark.parametrize(("key", "written"), KEYS.items())
def test_a_key_is_written_in_one_way(key, written):
    assert read_tunes([tune(key=key)], 256).kept == [f"M:2/4\nL:1/8\nK:{written}\nABc"]


UNKNOWN = "no metre, unit or key that is known"
WITHIN = "another key, metre, unit or voice within the tune"
SIGNS = "no notes, or other signs than those of one melody"
DROPPED = [
    ("no key", "X:1\nM:2/4\nL:1/8\n", UNKNOWN),
    ("no unit", "X:1\nM:2/4\nK:G\nABc", UNKNOWN),
    ("a key of bagpipes", tune(key="Hp"), UNKNOWN),
    ("a key that may be either", tune(key="GM"), UNKNOWN),
    ("a free metre", tune(metre="FREI4/4"), UNKNOWN),
    ("another key", tune("ABc\nK:G\nABc"), WITHIN),
    ("a second voice", tune("V:1\nABc\nV:2\nABc"), WITHIN),
    ("a key in a line", tune("ABc[K:G]ABc"), WITHIN),
    ("two voices in a line", tune("ABc&def"), SIGNS),
    ("an old chord", tune("+ABc+"), SIGNS),
    ("an open quotation", tune('ABc "Gm'), SIGNS),
    ("no notes", tune("% nothing"), SIGNS),
    ("too long", tune("ABc|" * 5), "more than 32 characters"),
]


@pytest.mark.parametrize(("text", "reason"), [row[1:] for row in DROPPED], ids=[row[0] for row in DROPPED])
def test_a_tune_that_is_left_out_is_counted_under_its_reason(text, reason):
    kept, dropped = read_tunes([tune("abc"), text], 32)
    assert kept == ["M:2/4\nL:1/8\nK:C\nabc"]
    assert dropped == {reason: 1}


def test_a_tune_that_stands_in_two_files_is_kept_once():
    kept, dropped = read_tunes([tune("AB c"), "T: before any tune\n" + tune("A Bc") + tune("cBA")], 256)
    assert [text.splitlines()[-1] for text in kept] == ["ABc", "cBA"]
    assert dropped == {"there already": 1}


def test_tunes_may_have_exactly_the_longest_length():
    length = len(FIRST)
    assert read_tunes([BOOK], length).kept[0] == FIRST
    assert FIRST not in read_tunes([BOOK], length - 1).kept
    with pytest.raises(ValueError, match="longest must be at least 1"):
        read_tunes([BOOK], 0)
