"""How long the paper's recipe and ours take to the same held-out loss, on the clock, in one run.

Both train the same energy network (3 layers of 256) of p_t on the same process (uniform, rate 1.0) with the same code:

    paper   ratio matching with the sampled x_t as the target, all 32 positions, Adam at a constant 1e-4
    ours    the expected target (conditional ratio matching), 8 of 32 positions, Muon at 4e-3 after a warm-up and then
            a cosine to 0 over --ours steps, batches 4 times as large, the embedding of the time at scale 10 and a first
            layer 4 times as large

The loss of both is the expected one on the same held-out points, times and noise, of averaged weights or of the last
ones, whichever is lower. Only training steps are on the clock.

    python benchmarks/time_to_quality.py --out results/synthetic/time_to_quality.json        # 15 minutes on two cores
"""

from __future__ import annotations

import argparse
import json
import math
import time
from pathlib import Path

import torch

from sddm import Diffusion
from sddm._memory import keep_freed_memory
from sddm.data import Toy
from sddm.losses import conditional_ratio_matching, ratio_matching
from sddm.marginals import Energy
from sddm.networks import MLPEnergy
from sddm.noising import Batch, noise_batch
from sddm.processes import Uniform
from sddm.schedules import Constant
from sddm.training.batches import generator_of
from sddm.training.ema import EMA
from sddm.training.optimizers import OPTIMIZERS

HELD_OUT = 4_000


class Run:
    """One recipe: its network, its optimizer, its clock and the losses it came to."""

    def __init__(
        self,
        name: str,
        toy: Toy,
        steps: int,
        batch: int,
        positions: int | None,
        optimizer: str,
        peak: float,
        decay: float,
        **network: float,
    ) -> None:
        torch.manual_seed(0)
        self.name, self.toy, self.steps, self.batch = name, toy, steps, batch
        self.positions, self.peak = positions, peak
        self.diffusion = Diffusion(Uniform(2, Constant(1.0)), Energy(MLPEnergy(32, **network), implicit=False))
        self.optimizer = OPTIMIZERS[optimizer](self.diffusion, peak, 1e-6)
        self.average = EMA(self.diffusion.parameters(), decay)
        self.seconds, self.step, self.curve = 0.0, 0, []

    def rate(self) -> float:
        """The paper's is constant; ours warms up over 2% and then falls along a cosine."""
        if self.positions is None:
            return self.peak
        warm = max(1, self.steps // 50)
        if self.step < warm:
            return self.peak * (self.step + 1) / warm
        return self.peak / 2 * (1 + math.cos(math.pi * (self.step - warm) / (self.steps - warm)))

    def advance(self, until: int) -> None:
        loss = ratio_matching if self.positions is None else conditional_ratio_matching
        while self.step < until:
            rows = self.toy.tokens(self.batch, generator_of(0, "training data", self.step))
            began = time.perf_counter()
            self.optimizer.param_groups[0]["lr"] = self.rate()
            self.optimizer.zero_grad()
            noise = generator_of(0, "noise", self.step)
            loss(self.diffusion, rows, num_positions=self.positions, generator=noise).sum(-1).mean().backward()
            torch.nn.utils.clip_grad_norm_(self.diffusion.parameters(), 5.0)
            self.optimizer.step()
            self.average.update()
            self.seconds += time.perf_counter() - began
            self.step += 1

    @torch.no_grad()
    def evaluate(self, held_out: torch.Tensor) -> float:
        draws = noise_batch(self.diffusion, Batch(held_out), generator=generator_of(0, "held-out noise", 0))

        def value() -> float:
            pieces = [draws.rows(slice(i, i + 500)) for i in range(0, len(held_out), 500)]
            return float(torch.cat([conditional_ratio_matching.at(self.diffusion, p).sum(-1) for p in pieces]).mean())

        last = value()
        with self.average.applied():
            best = min(last, value())
        self.curve.append({"step": self.step, "seconds": round(self.seconds, 2), "loss": round(best, 5)})
        print(f"{self.name:>6} step {self.step:>6}  {self.seconds:8.1f} s  loss {best:.4f}", flush=True)
        return best


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--density", default="2spirals")
    parser.add_argument("--paper", type=int, default=20_000, help="steps of the paper's recipe")
    parser.add_argument("--ours", type=int, default=1_000, help="steps of ours, over which its rate falls")
    parser.add_argument("--every", type=int, default=50, help="steps of ours between two evaluations")
    parser.add_argument("--out", type=Path)
    arguments = parser.parse_args()
    keep_freed_memory()
    toy = Toy(arguments.density)
    held_out = toy.tokens(HELD_OUT, generator_of(0, "held out", 0))
    paper = Run("paper", toy, arguments.paper, 128, None, "adamw", 1e-4, 0.9999)
    ours = Run("ours", toy, arguments.ours, 512, 8, "muon", 4e-3, 0.999, time_scale=10.0, input_gain=4.0)
    parts = max(1, arguments.ours // arguments.every)
    for part in range(1, parts + 1):  # in turn, so that both see the machine in the same state
        for run in (paper, ours):
            run.advance(run.steps * part // parts)
            run.evaluate(held_out)
    target = paper.curve[-1]["loss"]
    reached = next((point for point in ours.curve if point["loss"] <= target), None)
    result = {"density": arguments.density, "target": target, "paper": paper.curve, "ours": ours.curve}
    if reached is None:
        print(f"ours did not reach {target:.4f}")
    else:
        result["times sooner"] = round(paper.curve[-1]["seconds"] / reached["seconds"], 1)
        print(f"{target:.4f}: paper after {paper.curve[-1]['seconds']} s, ours after {reached['seconds']} s")
        print(f"{result['times sooner']} times sooner")
    if arguments.out:
        arguments.out.parent.mkdir(parents=True, exist_ok=True)
        arguments.out.write_text(json.dumps(result, indent=1) + "\n")


if __name__ == "__main__":
    main()
