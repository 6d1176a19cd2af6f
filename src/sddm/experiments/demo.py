"""The demonstration: a small energy model of the checkerboard, trained, sampled, measured and drawn."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path

from jaxtyping import Int
from torch import Tensor

from sddm import _checks
from sddm.data import Toy
from sddm.experiments.pictures import side_by_side, strip
from sddm.experiments.synthetic import ENERGY_MLP
from sddm.metrics import hamming_mmd
from sddm.samplers import Trajectory
from sddm.training.batches import generator_of

POOL = 2_048
"""Fresh points a step, over which the targets are averaged."""
RECIPE = ENERGY_MLP.but(training={"batch_size": 512, "pool": POOL})


@dataclass(frozen=True)
class DemoConfig:
    """Train a small model of a 2-D density coded in 32 bits, sample it, measure it and draw it."""

    out: Path = Path("demo")
    """Folder for the pictures, the figures and the model."""
    density: str = "checkerboard"
    """Which of the seven densities: 2spirals, 8gaussians, circles, moons, pinwheel, swissroll, checkerboard."""
    steps: int = 1_200
    """Training steps."""
    samples: int = 8_000
    """How many samples to draw and measure."""
    sampling_steps: int = 12
    """Sweeps of the reverse process."""
    seed: int = 0
    """Seed of all random draws."""

    def __post_init__(self) -> None:
        for name, least, most in (("steps", 1, 10**9), ("samples", 4, 10**6), ("sampling_steps", 1, 10**6)):
            _checks.whole(getattr(self, name), name, least, most)
        _checks.whole(self.seed, "seed", 0)
        _checks.require(not self.out.is_file(), f"out {str(self.out)!r} is a file. Name a folder.")
        Toy(self.density)


def run(config: DemoConfig) -> dict[str, float]:
    """Run the demonstration and return its figures (MMD in units of 1e-4)."""
    toy, num = Toy(config.density), config.samples
    sampling, fresh = (generator_of(config.seed, purpose, 0) for purpose in ("sampling", "fresh data"))
    recipe = RECIPE.but(
        training={"steps": config.steps, "seed": config.seed}, sampling={"steps": config.sampling_steps}
    )

    print(f"Training an energy model of {config.density} by conditional ratio matching.")

    def rows(step: int) -> Int[Tensor, "pool dim"]:
        return toy.tokens(POOL, generator_of(config.seed, "data", step))

    trained = recipe.trained(rows, toy.num_states, toy.length)
    path = Trajectory(every=max(1, config.sampling_steps // 6))
    tokens = recipe.sampling.sample(trained, num, generator=sampling, callback=path)
    model, floor = (hamming_mmd(x, toy.tokens(num, fresh)) for x in (tokens, toy.tokens(num, fresh)))

    data, samples, *clouds = (toy.decode(x).numpy() for x in (toy.tokens(num, fresh), tokens, *path.tokens))
    side_by_side([("data", data), ("samples", samples)], config.out / "samples.png")
    strip(path.times, clouds, config.out / "reverse.png")
    trained.save_pretrained(config.out / "model")
    figures = {
        "mmd": model.value * 1e4,
        "mmd_standard_error": model.standard_error * 1e4,
        "data_against_data": floor.value * 1e4,
        "data_against_data_standard_error": floor.standard_error * 1e4,
        "samples": num,
    }
    (config.out / "figures.json").write_text(json.dumps(figures, indent=2) + "\n", encoding="utf-8")
    print(f"MMD x 1e4 at {num} samples, with its standard error:")
    print(f"  samples against data  {model.value * 1e4:+.3f} +- {model.standard_error * 1e4:.3f}")
    print(f"  data against data     {floor.value * 1e4:+.3f} +- {floor.standard_error * 1e4:.3f}")
    print(f"Pictures: {config.out / 'samples.png'} and {config.out / 'reverse.png'}; model: {config.out / 'model'}")
    return figures
