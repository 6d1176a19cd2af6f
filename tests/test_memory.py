"""Freed memory is kept where that can be asked for, and nothing happens where it cannot."""

import ctypes
import sys

import pytest
import torch

from enumerated import table, uniform
from sddm import _memory, sample
from sddm.cli import main
from sddm.training import TrainingConfig, train


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


def test_only_commands_change_how_the_process_treats_memory(monkeypatch):
    asked = []
    monkeypatch.setattr(_memory, "keep_freed_memory", lambda: asked.append(True))
    diffusion = table(uniform(), 2)
    sample(diffusion, 2, steps=1)
    train(diffusion, torch.zeros(8, 2, dtype=torch.int64), TrainingConfig(steps=1, batch_size=4))
    assert not asked
    with pytest.raises(SystemExit):
        main(["sample", "nowhere"])
    assert asked == [True]
