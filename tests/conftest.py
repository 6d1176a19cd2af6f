"""Every annotated shape and dtype of the package is checked while the tests run."""

import os

from jaxtyping import install_import_hook

with install_import_hook("sddm", "beartype.beartype"):
    import sddm  # noqa: F401

from dataclasses import replace

import hypothesis
import jaxtyping
import pytest
import torch

from forks import Forks
from sddm.metrics import inception

# No test runs the real network, even where it has been fetched: a picture takes a tenth of a second.
inception.PACKAGE = replace(inception.PACKAGE, name="not-fetched")
os.environ.pop(inception.VARIABLE, None)
torch.set_num_threads(1)  # tensors are tiny here; the cores serve test processes instead
hypothesis.settings.register_profile("sddm", deadline=None, max_examples=25, derandomize=True, print_blob=True)
hypothesis.settings.load_profile("sddm")


LONG = (
    "test_many_processes.py",
    "test_runs.py",
    "test_docs.py",
    "test_known_tables.py",
    "test_reproduce.py",
    "test_likelihood.py",
)


def pytest_collection_modifyitems(items):
    """The longest tests first, so that no process is left with one of them at the end."""
    items.sort(key=lambda item: item.path.name not in LONG)


@pytest.fixture
def generator() -> torch.Generator:
    return torch.Generator().manual_seed(20230501)


@pytest.fixture(scope="session")
def forks():
    """Starts commands in processes of their own, without the seconds that importing takes."""
    with Forks() as parent:
        yield parent


@pytest.fixture
def without_annotation_checks(monkeypatch):
    """Users run without them; then the library's own sentences are what they see."""
    monkeypatch.setattr(jaxtyping.config, "jaxtyping_disable", True)


@pytest.fixture
def at_full_speed(without_annotation_checks, no_cover):
    """For long trainings and samplings: nothing looks at annotations, nor counts lines that shorter tests reach."""
