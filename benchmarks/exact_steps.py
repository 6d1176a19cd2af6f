"""What the number of steps, the reverse step and the grid cost in quality: exactly, without samples or a network.

The densities are cut to the leading bits of each coordinate (a sign and four bits of the Gray code), so that all states
can be enumerated and the conditionals are exact. Then the law of what a sampler draws is a product of
transition matrices, and its MMD to the data a number without noise: what is left is the error of the steps alone.

    python benchmarks/exact_steps.py --out results/benchmarks/exact_steps.json   # and a picture; some 15 minutes
"""

from __future__ import annotations

import argparse
import itertools
import json
from collections.abc import Callable
from pathlib import Path

import matplotlib
import torch
from torch import Tensor

from sddm.data import Toy
from sddm.processes import Uniform
from sddm.samplers import GRIDS
from sddm.schedules import LogSquare

matplotlib.use("Agg")
import matplotlib.pyplot as plt

BITS = 5
"""Of each coordinate."""
DIM = 2 * BITS
POINTS = 400_000
NUMBERS = (5, 10, 20, 50, 100, 200, 500, 1000)
STATES = torch.cartesian_prod(*[torch.arange(2)] * DIM)
GROUPS, ORDERS = 5, 8
"""Of a sweep: groups of two, and how many random orders stand for all of them."""


def law_of(density: str) -> Tensor:
    """The data law on the leading bits, from a histogram."""
    toy = Toy(density)
    x = toy.tokens(POINTS, torch.Generator().manual_seed(0))
    leading = torch.cat([x[:, :BITS], x[:, 16 : 16 + BITS]], dim=1)
    return torch.bincount(leading @ 2 ** torch.arange(DIM).flip(0), minlength=2**DIM).double() / POINTS


def turns(process: Uniform, law: Tensor, t: float, s: float, now: float, euler: bool) -> Tensor:
    """The probability that each position of each state is turned between t and s, given p_now of the true law."""
    p = law.reshape([2] * DIM)
    times = torch.tensor([[0.0], [now]], dtype=torch.float64)
    transition = process.transition(times[0], times[1])[0]
    for _ in range(DIM):  # each turn moves the next axis to the front and noises it
        p = torch.tensordot(p, transition, dims=([0], [0]))
    own = p.flatten()[:, None]
    other = p.flatten()[torch.arange(2**DIM)[:, None] ^ 2 ** torch.arange(DIM).flip(0)]
    if euler:
        return (float(process.schedule.integral(s, t)) * other / own).clamp(max=1)
    since_now, since_t = (float(torch.exp(-2 * process.schedule.integral(s, u))) for u in (now, t))
    earlier = ((own / (own + other) - (1 - since_now) / 2) / since_now).clamp(0, 1)
    stay, turn = earlier * (1 + since_t) / 2, (1 - earlier) * (1 - since_t) / 2
    return turn / (stay + turn)


def kernel(turn: Tensor, positions: Tensor) -> Tensor:
    """The transition matrix when these positions are turned, each by itself."""
    moves = torch.zeros_like(turn)
    moves[:, positions] = turn[:, positions]
    matrix = torch.ones(len(STATES), 1, dtype=torch.float64)
    for d in range(DIM):
        to_one = torch.where(STATES[:, d] == 1, 1 - moves[:, d], moves[:, d])
        matrix = (matrix[:, :, None] * torch.stack([1 - to_one, to_one], dim=1)[:, None]).flatten(1)
    return matrix


def plain(euler: bool) -> Callable[[Uniform, Tensor, Tensor, float, float], Tensor]:
    def step(process: Uniform, law: Tensor, current: Tensor, t: float, s: float) -> Tensor:
        return current @ kernel(turns(process, law, t, s, t, euler), torch.arange(DIM))

    return step


def sweep(process: Uniform, law: Tensor, current: Tensor, t: float, s: float) -> Tensor:
    generator = torch.Generator().manual_seed(round(1e9 * t))
    at_t, at_s = (float(process.remaining(torch.tensor([u], dtype=torch.float64))) for u in (t, s))
    shares = torch.tensor([at_t + (at_s - at_t) * (g + 0.5) / GROUPS for g in range(GROUPS)], dtype=torch.float64)
    nows = process.schedule.inverse(-shares.log() / process.gap).tolist()
    turn = [turns(process, law, t, s, now, euler=False) for now in nows]
    total = torch.zeros_like(current)
    for _ in range(ORDERS):
        part = current
        for group, positions in enumerate(torch.randperm(DIM, generator=generator).tensor_split(GROUPS)):
            part = part @ kernel(turn[group], positions)
        total += part / ORDERS
    return total


STEPS = {"euler": plain(euler=True), "analytical": plain(euler=False), "sweep": sweep}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--densities", nargs="+", default=["2spirals", "checkerboard"])
    parser.add_argument("--numbers", nargs="+", type=int, default=NUMBERS)
    parser.add_argument("--sweep-up-to", type=int, default=20, help="a sweep is exact enough, and its orders take long")
    parser.add_argument("--left", type=float, default=0.02)
    parser.add_argument("--out", type=Path)
    arguments = parser.parse_args()
    process = Uniform(2, LogSquare(1.0)).leaving(arguments.left)
    closeness = torch.exp(-0.1 * (STATES[:, None] != STATES[None]).sum(-1).double())
    found = []
    for density in arguments.densities:
        law = law_of(density)
        for name, step in STEPS.items():
            for grid in ("time", "share"):
                for number in arguments.numbers:
                    if name == "sweep" and number > arguments.sweep_up_to:
                        continue
                    current = torch.full_like(law, 1 / len(law))
                    times = GRIDS[grid](process, number).tolist()
                    for t, s in itertools.pairwise(times):
                        current = step(process, law, current, t, s)
                    mmd = 1e4 * float((current - law) @ closeness @ (current - law))
                    found.append({"density": density, "step": name, "grid": grid, "steps": number, "mmd": mmd})
                    print(f"{density:>14} {name:>11} {grid:>6} {number:>5} {mmd:9.4f}", flush=True)
    if arguments.out:
        arguments.out.write_text(json.dumps({"left": arguments.left, "mmd": found}, indent=1) + "\n")
        draw(found, arguments.out.with_suffix(".png"))


def draw(found: list[dict], path: Path) -> None:
    densities = list(dict.fromkeys(value["density"] for value in found))
    figure, axes = plt.subplots(1, len(densities), figsize=(5 * len(densities), 3.8), sharey=True, squeeze=False)
    colours = dict(zip(STEPS, ("#d1495b", "#30638e", "#3a7d44"), strict=True))
    for axis, density in zip(axes[0], densities, strict=True):
        for name, colour in colours.items():
            for grid, line in (("time", "--"), ("share", "-")):
                some = [v for v in found if (v["density"], v["step"], v["grid"]) == (density, name, grid)]
                axis.loglog([v["steps"] for v in some], [v["mmd"] for v in some], line, color=colour, marker="o", ms=3)
                axis.lines[-1].set_label(f"{name}, uniform in {grid}")
        axis.axhline(0.14, color="#888888", lw=0.8, ls=":")
        axis.set(title=density, xlabel="steps")
        axis.grid(alpha=0.3)
    axes[0, 0].set_ylabel("MMD x 1e4, exact")
    axes[0, -1].legend(fontsize=8)
    axes[0, 0].text(5, 0.15, "noise of the paper's protocol", fontsize=7, color="#888888")
    figure.tight_layout()
    figure.savefig(path, dpi=110)


if __name__ == "__main__":
    main()
