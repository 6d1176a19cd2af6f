"""What several tests of commands train on."""

import pytest

LINES = ["the cat sat", "the dog ran", "a cat ran", "the dog sat"]


@pytest.fixture(scope="session")
def text(tmp_path_factory):
    path = tmp_path_factory.mktemp("data") / "lines.txt"
    path.write_text("\n".join(LINES * 8))
    return path
