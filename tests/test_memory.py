"""Freed memory is kept where that can be asked for, and nothing happens where it cannot."""

import ctypes
import sys

import pytest

from sddm import _memory


def test_both_thresholds_are_raised(monkeypatch):
    asked = []

    class Library:
        @staticmethod
        def mallopt(parameter, value):
            asked.append((parameter, value))

    monkeypatch.setattr(ctypes, "CDLL", lambda name: Library)
    monkeypatch.setattr(sys, "platform", "linux")
    _memory.keep_freed_memory()
    assert asked == [(-3, 2**30), (-1, 2**30)]


@pytest.mark.parametrize("platform", ["linux", "darwin", "win32"])
def test_elsewhere_nothing_happens(monkeypatch, platform):
    def missing(name):
        assert platform == "linux"
        raise OSError(name)

    monkeypatch.setattr(ctypes, "CDLL", missing)
    monkeypatch.setattr(sys, "platform", platform)
    _memory.keep_freed_memory()
