"""What averaging targets over a pool of data takes of their noise, and what it costs.

At each level of noise, the variance of the target p(X_0^d | x_t^{\\d}) about its true value with a pool, as a share of
that of the row's own x_0^d. The true value is the posterior under 65,536 other rows, so shares below about the ratio of
the pool's size to that are not resolved. Beside it, the time of the posterior as a share of a training step without it.

    python benchmarks/pool.py --out results/benchmarks/pool.json        # a minute on two cores
"""

from __future__ import annotations

import argparse
import json
import math
from pathlib import Path
from statistics import median

import torch
from measure import seconds

from sddm import Diffusion
from sddm._memory import keep_freed_memory
from sddm.data import Toy
from sddm.losses import conditional_ratio_matching
from sddm.marginals import Energy
from sddm.networks import MLPEnergy
from sddm.pool import posterior, without_own_token
from sddm.processes import Uniform
from sddm.schedules import SqrtCosine
from sddm.training.batches import generator_of

SHARES = (0.95, 0.8, 0.6, 0.4, 0.3, 0.2, 0.1)
POOLS = (512, 4_096, 16_384)
BATCH, REFERENCE = 512, 65_536


def remaining_variance(toy: Toy, process: Uniform, pool: int, share: float) -> float:
    rows, others = toy.tokens(pool, generator_of(0, "pool", 0)), toy.tokens(REFERENCE, generator_of(0, "others", 0))
    x0 = rows[:BATCH]
    time = process.schedule.inverse(torch.tensor([-math.log(share) / process.gap], dtype=torch.float64))
    t = time.repeat(BATCH)
    xt = process.noise(x0, t, generator=generator_of(0, "noise", 0))

    def law(data: torch.Tensor) -> torch.Tensor:
        return without_own_token(process, posterior(process, xt, t, data), xt, t)[..., 1]

    truth = law(torch.cat([x0, others]))
    return float((law(rows) - truth).square().mean() / (x0 - truth).square().mean())


def cost(toy: Toy, process: Uniform, pool: int, repeats: int) -> float:
    """Medians of interleaved repeats: the posterior of a batch against a step of the energy MLP at 8 positions."""
    rows = toy.tokens(pool, generator_of(0, "pool", 0))
    diffusion = Diffusion(process, Energy(MLPEnergy(toy.length), implicit=False))
    t = torch.rand(BATCH, dtype=torch.float64, generator=generator_of(0, "times", 0))
    xt = process.noise(rows[:BATCH], t, generator=generator_of(0, "noise", 0))

    def step() -> None:
        conditional_ratio_matching(diffusion, rows[:BATCH], num_positions=8).sum(-1).mean().backward()

    ratios = []
    for _ in range(repeats + 2):
        of_posterior = seconds(lambda: posterior(process, xt, t, rows))
        ratios.append(of_posterior / seconds(step))
    return median(ratios[2:])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--density", default="8gaussians")
    parser.add_argument("--repeats", type=int, default=15)
    parser.add_argument("--out", type=Path)
    arguments = parser.parse_args()
    keep_freed_memory()
    toy, process = Toy(arguments.density), Uniform(2, SqrtCosine(1.0)).leaving(0.02)
    results = []
    print("share of the variance that is left, by the share of the data that is left")
    print(f"{'pool':>8s}" + "".join(f"{share:9.2f}" for share in SHARES) + f"{'cost':>9s}")
    for pool in POOLS:
        left = {share: remaining_variance(toy, process, pool, share) for share in SHARES}
        relative = cost(toy, process, pool, arguments.repeats)
        print(f"{pool:8d}" + "".join(f"{value:9.4f}" for value in left.values()) + f"{relative:9.2f}", flush=True)
        results.append({"pool": pool, "variance": left, "cost": relative})
    if arguments.out:
        arguments.out.write_text(json.dumps({"density": arguments.density, "results": results}, indent=2) + "\n")


if __name__ == "__main__":
    main()
