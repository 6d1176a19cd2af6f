"""What rows of different lengths save when the model is told where they end: a step of training, and sampling.

Molecules as text, in two ways: PAD as one more state, so that every row has 57 positions, or rows of similar length
together, each batch cut to its longest. The processor time of the first over that of the second, in turns, for an
ordered hollow transformer. With --train, both are then trained for so many seconds of processor time, and
the exact nats of a held-out molecule, its length included, and the share of valid samples are printed.

    python benchmarks/lengths.py --out results/benchmarks/lengths.json          # a minute on one core
    python benchmarks/lengths.py --train 150                                    # some minutes more
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from measure import summary

from sddm import Diffusion
from sddm._memory import keep_freed_memory
from sddm.data import Dataset, load
from sddm.likelihood import in_order
from sddm.metrics import MoleculeQuality
from sddm.recipe import ModelConfig, suited
from sddm.samplers import Analytical
from sddm.training import DiffusionLearner, Epochs, TrainingConfig

KINDS = ("inside", "separate")
BATCH, STEPS, ROWS, TESTED = 64, 20, 20_000, 500
BUDGET_STEPS = 10**6


def seconds(action: Callable[[], Any]) -> float:
    """Of the processor: other work on the machine does not count."""
    start = time.process_time()
    action()
    return time.process_time() - start


class System:
    """A model of the molecules, and its training."""

    def __init__(self, kind: str, config: TrainingConfig, sizes: dict[str, int]) -> None:
        data = load("molecules", rows=ROWS, lengths=kind)
        self.train, self.test = data.split(0.1, 0)
        model, config = suited(ModelConfig(**sizes), config, self.train)
        self.diffusion: Diffusion = model.build(self.train)
        self.learner = DiffusionLearner(self.diffusion, config)
        self.batches, self.steps = Epochs(self.train, BATCH, 0), 0

    def step(self) -> None:
        self.learner.update(self.batches(self.steps), torch.Generator().manual_seed(self.steps))
        self.steps += 1

    def rows_of_test(self) -> torch.Tensor:
        return self.test.tokens[:TESTED]

    def text(self, data: Dataset) -> list[str]:
        return list(data.codec.decode(data.tokens[:]))


def compared(repeats: int, steps: int, samples: int, sizes: dict[str, int]) -> dict[str, Any]:
    systems = {kind: System(kind, TrainingConfig(BUDGET_STEPS, BATCH), sizes) for kind in KINDS}

    def some_steps(system: System) -> None:
        for _ in range(steps):
            system.step()

    def in_order_samples(system: System) -> None:
        system.diffusion.sample(samples, seed=0)

    def some_samples(system: System) -> None:
        system.diffusion.sample(samples, seed=0, sampler=Analytical(), steps=STEPS)

    works = {"training": some_steps, "sampling in order": in_order_samples, f"{STEPS} steps of sampling": some_samples}
    found: dict[str, list[float]] = {name: [] for name in works}
    for number in range(repeats + 1):
        for name, work in works.items():
            inside, separate = (seconds(lambda kind=kind, work=work: work(systems[kind])) for kind in KINDS)
            if number:  # the first time is a warm-up
                found[name].append(inside / separate)
    return {name: summary(ratios) for name, ratios in found.items()}


def trained(kind: str, budget: float, sizes: dict[str, int], steps: int) -> dict[str, Any]:
    """Training for a budget of seconds, along a learning rate that falls to 0 in about as many steps."""
    probe = System(kind, TrainingConfig(BUDGET_STEPS, BATCH), sizes)
    probe.step()
    per_step = seconds(lambda: [probe.step() for _ in range(steps)]) / steps
    system = System(kind, TrainingConfig(max(1, round(budget / per_step)), BATCH), sizes)
    spent = seconds(lambda: [system.step() for _ in range(system.learner.config.steps)])
    model = system.learner.finish(None)
    nats = in_order(model, system.rows_of_test())
    drawing = seconds(lambda: model.sample(1000, seed=0))
    quality = MoleculeQuality(system.text(system.train)).measure(model.decode(model.sample(1000, seed=0)))
    error = float(nats.std() / len(nats) ** 0.5)
    figures = {"nats a molecule": float(nats.mean()), "standard error": error, "seconds to sample 1000": drawing}
    return {"kind": kind, "seconds": spent, "steps": system.steps, **figures, **quality._asdict()}


def main() -> None:
    keep_freed_memory()  # as the commands do
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--steps", type=int, default=20)
    parser.add_argument("--samples", type=int, default=1_000)
    parser.add_argument("--width", type=int, default=128)
    parser.add_argument("--layers", type=int, default=3)
    parser.add_argument("--train", type=float, default=0.0, help="seconds of training for each of the two")
    parser.add_argument("--out", type=Path)
    arguments = parser.parse_args()
    sizes = {"width": arguments.width, "layers": arguments.layers}
    results: dict[str, Any] = {"ratio of time": compared(arguments.repeats, arguments.steps, arguments.samples, sizes)}
    print(results, flush=True)
    if arguments.train:
        results["trained"] = [trained(kind, arguments.train, sizes, arguments.steps) for kind in KINDS]
        print(*results["trained"], sep="\n", flush=True)
    if arguments.out:
        arguments.out.write_text(json.dumps(results, indent=2) + "\n")


if __name__ == "__main__":
    main()
