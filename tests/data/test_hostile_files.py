"""Files that would hang, or ask for more memory than there is, end at once with one sentence."""

import io
import os
import re
import tracemalloc
import zipfile

import numpy as np
import pytest

from sddm.data import load
from sddm.formats import arrays, text
from sddm.formats.text import readable


def refusal(path, **options):
    """The sentence that refuses a file, and the most memory that was asked for meanwhile."""
    tracemalloc.start()
    try:
        with pytest.raises(ValueError) as caught:
            load(path, **options)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert "\n" not in str(caught.value)
    return str(caught.value), peak


@pytest.mark.parametrize("ending", [".txt", ".npy", ".npz", ".csv", ".parquet"])
def test_a_pipe_is_refused_and_not_waited_for(ending, tmp_path):
    os.mkfifo(tmp_path / f"a{ending}")
    said, _ = refusal(tmp_path / f"a{ending}")
    assert re.search(r"a\.\w+' is not a regular file \(a pipe\)\. Copy what it gives into a file\.$", said)


@pytest.mark.parametrize("ending", [".txt", ".npy"])
def test_a_link_to_an_endless_device_is_refused(ending, tmp_path):
    (tmp_path / f"a{ending}").symlink_to("/dev/zero")
    assert "is not a regular file (a device). Copy what it gives into a file." in refusal(tmp_path / f"a{ending}")[0]


def test_a_condition_may_not_be_a_pipe_either(tmp_path):
    os.mkfifo(tmp_path / "a.txt")
    with pytest.raises(ValueError, match="is not a regular file"):
        readable(tmp_path / "a.txt")


def test_a_link_to_a_file_is_read(tmp_path):
    (tmp_path / "a.txt").write_text("ab\nba\n")
    (tmp_path / "b.txt").symlink_to(tmp_path / "a.txt")
    assert len(load(tmp_path / "b.txt")) == 2


def archived(path, shape, content, version=(1, 0)):
    """An .npz file whose one array has this shape in its header, and these bytes."""
    head = io.BytesIO()
    write = np.lib.format.write_array_header_1_0 if version == (1, 0) else np.lib.format.write_array_header_2_0
    write(head, {"descr": "|u1", "fortran_order": False, "shape": shape})
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive, archive.open("data.npy", "w") as member:
        member.write(head.getvalue())
        for piece in content:
            member.write(piece)
    return path


@pytest.mark.parametrize("version", [(1, 0), (2, 0)])
def test_an_archive_that_declares_more_than_it_holds_is_refused_before_it_is_read(version, tmp_path):
    said, peak = refusal(archived(tmp_path / "a.npz", (4_000_000, 1_000), [bytes(1_000)], version))
    assert re.search(r"it declares 4000000000 bytes, but has 1000\)\. Save it again\.$", said)
    assert peak < 1 << 22


def test_an_archive_that_unpacks_to_more_than_memory_may_hold_is_refused_before_it_is_read(tmp_path, monkeypatch):
    monkeypatch.setattr(arrays, "LARGEST_ARCHIVED", 1 << 23)
    said, peak = refusal(archived(tmp_path / "a.npz", (2**14, 1024), [bytes(1 << 20)] * 16))
    assert (tmp_path / "a.npz").stat().st_size < 1 << 16
    assert re.search(r"has 16777216 bytes, but at most 8388608 are read from an \.npz file,", said)
    assert said.endswith("Save the array with numpy.save: an .npy file may be larger.")
    assert peak < 1 << 22


def test_an_array_file_that_declares_more_than_it_holds_is_refused_before_it_is_read(tmp_path):
    head = io.BytesIO()
    np.lib.format.write_array_header_1_0(head, {"descr": "|u1", "fortran_order": False, "shape": (4_000_000, 1_000)})
    (tmp_path / "a.npy").write_bytes(head.getvalue() + bytes(1_000))
    said, peak = refusal(tmp_path / "a.npy")
    assert re.search(r"declares 4000000000 bytes, but has 1000\)\. Save it again\.$", said)
    assert peak < 1 << 22


def test_one_long_line_among_many_short_ones_is_named(tmp_path, monkeypatch):
    monkeypatch.setattr(text, "MOST_PADDED", 1 << 20)
    (tmp_path / "a.txt").write_text("\n" + "ab\n" * 700 + "x" * 4_000 + "\n" + "cd\n" * 300)
    said, peak = refusal(tmp_path / "a.txt")
    assert re.search(r"Line 702 of .*a\.txt' has 4000 characters", said)
    assert re.search(r"all 1001 lines .* padded to its length, there would be 4004000 tokens", said)
    assert re.search(r"Cut the longest lines, or pass --window N", said)
    assert peak < 1 << 20


def test_lines_of_about_one_length_are_read_however_many_there_are(tmp_path, monkeypatch):
    monkeypatch.setattr(text, "MOST_PADDED", 1 << 10)
    (tmp_path / "a.txt").write_text("abcd\nabc\n" * 300)
    assert load(tmp_path / "a.txt").tokens.shape == (600, 4)


def test_a_line_that_is_too_long_is_named(tmp_path):
    (tmp_path / "a.txt").write_text("ab\n\r\n" + "ab" * 2_049)
    said = refusal(tmp_path / "a.txt")[0]
    assert re.search(r"Line 3 of .* has 4098 characters, but .* at most 4096", said)


@pytest.mark.parametrize("ending", [".txt", ".csv"])
@pytest.mark.parametrize(
    ("encoding", "mark", "name"),
    [
        ("utf-16-le", "\ufeff", "utf-16"),
        ("utf-16-be", "\ufeff", "utf-16"),
        ("utf-32-le", "\ufeff", "utf-32"),
        ("utf-32-be", "\ufeff", "utf-32"),
        ("utf-16-le", "", "utf-16le"),
        ("utf-16-be", "", "utf-16be"),
    ],
)
def test_other_unicode_encodings_are_recognised(ending, encoding, mark, name, tmp_path):
    """Without its mark UTF-16 of English text is valid UTF-8, every second character of which is NUL."""
    path = tmp_path / f"a{ending}"
    path.write_bytes(f"{mark}a,b\nnaïve,c\nd,e\n".encode(encoding))
    said = refusal(path)[0]
    assert f"is not UTF-8 but {name[:6].upper()}. Convert the file: iconv -f {name} -t utf-8 " in said


def test_a_file_that_does_not_fit_into_memory_is_answered_with_what_to_do(tmp_path, monkeypatch):
    def no_memory(path):
        raise MemoryError

    monkeypatch.setattr(text.Path, "read_bytes", no_memory)
    (tmp_path / "a.txt").write_text("ab\nba\n")
    with pytest.raises(
        ValueError, match=r"a\.txt' needs more memory than there is\. .* \.npy file, which is read from"
    ):
        load(tmp_path / "a.txt")
