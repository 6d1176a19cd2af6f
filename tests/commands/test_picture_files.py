"""From pictures to a sheet of samples, by the commands of the guide."""

import shlex
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from sddm.cli import main
from sddm.codecs import Pixels
from sddm.data.published import PUBLISHED
from sddm.diffusion import Diffusion

GUIDE = (Path(__file__).parents[2] / "docs" / "training.md").read_text(encoding="utf-8")
SECTION = GUIDE[GUIDE.index("**Pictures.**") :].split("```")[1]
TINY = {
    "train": "--steps 2 --batch-size 4 --width 8 --layers 1 --heads 1",
    "sample": "--steps 2",
    "evaluate": "--rows 4 --num-times 8 --samples 0",
}


def pictures(seed, num=12):
    return np.random.RandomState(seed).randint(0, 256, (num, 32, 32, 3)).astype(np.uint8)


def read(path):
    with Image.open(path) as image:
        return np.asarray(image)


@pytest.fixture
def place(tmp_path, monkeypatch, at_full_speed):
    """Pictures in place of CIFAR-10, a few photographs, and the left half of a picture."""
    monkeypatch.chdir(tmp_path)
    for name, seed in (("cifar10", 0), ("cifar10-test", 1)):

        def reader(size=None, levels=None, grey=False, seed=seed):
            return Pixels.of_pictures(pictures(seed), size, levels, grey, [0, 1, 2] * 4)

        monkeypatch.setitem(PUBLISHED, name, reader)
    for number, picture in enumerate(pictures(2)):
        folder = Path("photos", "day" if number % 2 else "night")
        folder.mkdir(parents=True, exist_ok=True)
        Image.fromarray(picture).save(folder / f"{number}.jpg")
    half = np.dstack([pictures(3)[0, :8, :8], np.full((8, 8), 255, np.uint8)])
    half[:, 4:, 3] = 0
    Image.fromarray(half).save("half.png")
    return tmp_path


def test_the_commands_of_the_guide_lead_from_pictures_to_pictures(place, capsys):
    lines = [line.partition("#")[0] for line in SECTION.splitlines() if line.startswith("sddm ")]
    assert len(lines) == 6
    for line in lines:
        command = shlex.split(line)[1:]
        main([*command, *shlex.split(TINY[command[0]])])
    model = Diffusion.from_pretrained("runs/small/model")
    assert model.codec == Pixels(8, 8, 3, 16)
    assert model.model.network.places.grid == (8, 24)
    assert Diffusion.from_pretrained("runs/photos/model").codec == Pixels(16, 16, 1)
    assert "12 of 12 picture files" in capsys.readouterr().err
    assert read("runs/small/samples/step-000000002.png").shape[2] == 3

    made = sorted(Path("made").iterdir())
    assert [path.name for path in made] == [f"{number:02d}.png" for number in range(1, 65)]
    assert read(made[0]).shape == (8, 8, 3)
    main(["sample", "runs/small", "--num", "64", "--steps", "2", "--out", "made.npy"])
    assert np.array_equal(np.load("made.npy"), np.stack([read(path) for path in made]))

    # The left half of each of the 16 samples is the one that was given, to the value that its level stands for.
    codec = model.codec
    given = codec.decode(codec.encode(read("half.png")[None, ..., :3].copy()))[0]
    sheet = read("filled.png")
    factor = 768 // 32
    large = given.repeat(factor, axis=0).repeat(factor, axis=1)[:, : 4 * factor]
    for place_ in range(16):
        top, left = (place_ // 4) * (8 * factor + 2), (place_ % 4) * (8 * factor + 2)
        assert np.array_equal(sheet[top : top + 8 * factor, left : left + 4 * factor], large)


def test_a_folder_of_samples_is_replaced_and_a_folder_of_pictures_is_not(place, capsys):
    main(shlex.split(f"train --data cifar10 --size 4 --levels 4 {TINY['train']}"))
    sample = ["sample", "runs/cifar10", "--num", "2", "--steps", "2", "--overwrite", "--out"]
    main([*sample, "made"])
    main([*sample, "made", "--seed", "1"])
    assert len(list(Path("made").iterdir())) == 2
    Path("mine").mkdir()
    Image.fromarray(pictures(0)[0]).save("mine/1.png")
    with pytest.raises(SystemExit) as stop:
        main([*sample, "mine"])
    assert stop.value.code == 2
    assert "holds what is no sample, such as '1.png', and is not replaced" in capsys.readouterr().err
    assert Path("mine/1.png").exists()


def test_samples_of_pictures_are_not_printed(place, capsys):
    main(shlex.split(f"train --data cifar10 --size 4 --levels 4 {TINY['train']}"))
    with pytest.raises(SystemExit):
        main(["sample", "runs/cifar10"])
    assert "Samples of this model are not text. Name a file for them with --out, such as samples.png." in (
        capsys.readouterr().err
    )
