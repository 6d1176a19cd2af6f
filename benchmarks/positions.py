"""How many positions of a row should the loss of a masked or energy model evaluate?

At equal compute (passes through the network) fewer positions a row leave room for more rows. This measures the variance
of the gradient (summed over all weights) times the seconds it took, for k = 1 .. D positions a row: a masked network at
the length and number of states of the music (256, 129) and image (64, 512) experiments, and the energy MLP at those of
the synthetic one (32, 2), each trained for a while, on random walks and on the pinwheel. Lower is better; 1 is all
positions of a row.

    python benchmarks/positions.py --out results/benchmarks/positions.json
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from statistics import median

import torch
from torch import Tensor

from sddm import Diffusion
from sddm._memory import keep_freed_memory
from sddm.data import Toy
from sddm.losses import conditional_ratio_matching
from sddm.marginals import Energy, MarginalModel, Masked
from sddm.processes import Process, Uniform
from sddm.schedules import Constant
from sddm.training import TrainingConfig, train

SIZES = {"width": 32, "layers": 2, "heads": 2, "mlp": 64}


def walks(num: int, dim: int, states: int) -> Tensor:
    """Random walks on the states, scrambled: each token tells much of its neighbours."""
    start = torch.randint(states, (num, 1))
    steps = torch.randint(-2, 3, (num, dim))
    return ((start + steps.cumsum(1)) % states * 7) % states


@dataclass(frozen=True)
class Case:
    """Length, states, the model, and how many passes through the network a gradient takes."""

    dim: int
    states: int
    make: Callable[[Process, int], MarginalModel]
    passes: int
    per_row: Callable[[int], int]
    data: Callable[[int], Tensor]

    def rows(self, num: int) -> int:
        return max(1, self.passes // self.per_row(num))


def masked(process: Process, dim: int) -> MarginalModel:
    return Masked.for_process(process, dim, **SIZES)


CASES = {
    "music, masked": Case(256, 129, masked, 256, lambda k: k, lambda num: walks(num, 256, 129)),
    "image, masked": Case(64, 512, masked, 256, lambda k: k, lambda num: walks(num, 64, 512)),
    "32 bits, energy MLP": Case(32, 2, Energy.mlp, 1056, lambda k: k + 1, Toy("pinwheel").tokens),
}


def gradient(diffusion: Diffusion, x0: Tensor, num: int) -> Tensor:
    diffusion.zero_grad()
    conditional_ratio_matching(diffusion, x0, num_positions=num).sum(-1).mean().backward()
    return torch.cat([p.grad.flatten() for p in diffusion.parameters() if p.grad is not None])


def main() -> None:
    keep_freed_memory()  # as the commands do
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", nargs="*", choices=list(CASES), default=list(CASES))
    parser.add_argument("--repeats", type=int, default=24, help="gradients a number of positions")
    parser.add_argument("--training", type=int, default=150, help="training steps before measuring")
    parser.add_argument("--out", type=Path, default=None, help="write the results to this JSON file")
    arguments = parser.parse_args()
    torch.manual_seed(0)
    results: dict[str, list[dict[str, float]]] = {}
    for name in arguments.only:
        case = CASES[name]
        process = Uniform(case.states, Constant(1.0)).leaving(0.02)
        diffusion = Diffusion(process, case.make(process, case.dim))
        config = TrainingConfig(arguments.training, num_positions=2, learning_rate=2e-3)
        train(diffusion, case.data(4096), config)
        print(f"\n{name}: D {case.dim}, C {case.states}, {case.passes} passes a gradient")
        print(f"{'k':>5s}{'rows':>6s}{'variance':>12s}{'seconds':>10s}{'variance x seconds, relative':>32s}")
        results[name] = []
        for num in [k for k in (1, 2, 4, 8, 16, 32, 64, 256) if k <= case.dim]:
            gradients, taken = [], []
            for _ in range(arguments.repeats):
                start = time.perf_counter()
                gradients.append(gradient(diffusion, case.data(case.rows(num)), num))
                taken.append(time.perf_counter() - start)
            variance = float(torch.stack(gradients).var(0).sum())
            row = {"k": num, "rows": case.rows(num), "variance": variance, "seconds": median(taken)}
            results[name].append(row)
        whole = results[name][-1]
        for row in results[name]:
            row["relative"] = row["variance"] * row["seconds"] / (whole["variance"] * whole["seconds"])
            print(f"{row['k']:5d}{row['rows']:6d}{row['variance']:12.4g}{row['seconds']:10.3f}{row['relative']:32.3f}")
    if arguments.out:
        arguments.out.write_text(json.dumps(results, indent=2) + "\n")


if __name__ == "__main__":
    main()
