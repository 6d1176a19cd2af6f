"""The hazards of a step: B(s, t) times the rates per tau ("clock"), against beta(t) (t - s) times them ("length").

On small spaces that can be enumerated, with exact conditionals, the law of what a sampler draws is a product of
transition matrices, and its total variation to the data a number without noise. The chain starts from the exact law at
T, so that only the steps err. The analytical step stands beside both.

Where the clock is farther from the data, two errors cancel: rates held fixed over a step miss that reverse rates grow
like 1 / tau towards the data, and a leap rejects double jumps; beta(t) (t - s), which exceeds B(s, t) where the speed
grows with t, makes up for part of it.

    python benchmarks/hazards.py --out results/benchmarks/hazards.json        # some minutes
"""

from __future__ import annotations

import argparse
import itertools
import json
from pathlib import Path

import torch
from torch import Tensor

from sddm import Diffusion
from sddm.marginals import Oracle
from sddm.processes import Absorbing, CustomRate, Process, Uniform
from sddm.query import Query
from sddm.samplers import GRIDS, Analytical
from sddm.samplers.jumps import euler_weights, over, reverse_rates
from sddm.schedules import Constant, Exponential, LogSquare, SqrtCosine

DIM, NUMBERS = 2, (5, 10, 20, 50, 100, 200, 500, 1000)
ONE_WAY = [[-1.3, 1.0, 0.3], [0.2, -0.9, 0.7], [1.1, 0.1, -1.2]]
SCHEDULES = {"constant": Constant(1.0), "log-square": LogSquare(1.0), "sqrt-cosine": SqrtCosine(1.0)}
SCHEDULES["exponential"] = Exponential(0.1, 3.0)
PROCESSES: dict[str, Process] = {
    "uniform": Uniform(3, Constant(1.0)),
    "absorbing": Absorbing(3, Constant(1.0)),
    "one-way": CustomRate(ONE_WAY, Constant(1.0)),
}


class Chain:
    """The laws of the chains that take every kind of step, side by side."""

    def __init__(self, process: Process, seed: int = 3) -> None:
        generator = torch.Generator().manual_seed(seed)
        law = torch.rand(process.num_states**DIM, generator=generator, dtype=torch.float64) ** 2 + 0.02
        law = (law / law.sum()).reshape([process.num_states] * DIM)
        self.process, self.diffusion = process, Diffusion(process, Oracle.from_joint(law))
        self.states = torch.cartesian_prod(*[torch.arange(process.num_symbols)] * DIM)
        self.data = torch.zeros([process.num_symbols] * DIM, dtype=torch.float64)
        self.data[tuple(slice(process.num_states) for _ in range(DIM))] = law
        first, last = torch.zeros(1, dtype=torch.float64), torch.ones(1, dtype=torch.float64)
        self.start = self.data
        for _ in range(DIM):  # each turn moves the next axis to the front and noises it
            self.start = torch.tensordot(self.start, process.transition(first, last)[0], dims=([0], [0]))

    def kernel(self, weights: Tensor) -> Tensor:
        """The transition matrix when each position draws from its weights by itself, row = from."""
        laws = weights / weights.sum(-1, keepdim=True)
        matrix = torch.ones(len(laws), 1, dtype=torch.float64)
        for d in range(DIM):
            matrix = (matrix[:, :, None] * laws[:, d, None]).flatten(1)
        return matrix

    def weights(self, t: float, s: float) -> dict[str, Tensor]:
        """Of each kind of step, from every state."""
        x, process = self.states, self.process
        now, then = (torch.full((len(x),), u, dtype=torch.float64) for u in (t, s))
        query = Query(x, now)
        rates, tau, old = (
            reverse_rates(self.diffusion, query),
            process.tau(then, now),
            process.schedule.rate(now) * (t - s),
        )
        weights = {"analytical": Analytical().weights(self.diffusion, query, then, now)}
        for name, hazard in (("clock", over(tau, rates.clone())), ("length", over(old, rates.clone()))):
            total = hazard.sum(-1, keepdim=True)
            once = total * torch.exp(-total)
            leap = (hazard / total.clamp(min=1e-300) * once).scatter(-1, x[..., None], 1 - once)
            weights |= {f"tau-leaping by {name}": leap, f"euler by {name}": euler_weights(x, hazard)}
        return weights

    def finished(self, t: float) -> Tensor:
        """The transition matrix of what is still MASK at the end, drawn from its conditional at t."""
        query = Query(self.states, torch.full((len(self.states),), t, dtype=torch.float64))
        own = torch.nn.functional.one_hot(self.states, self.process.num_symbols).double()
        masked = (self.states == self.process.num_states)[..., None]
        return self.kernel(torch.where(masked, self.diffusion(query).require_x0("the end").exp(), own))

    def errors(self, grid: list[float]) -> dict[str, float]:
        laws: dict[str, Tensor] = {}
        for t, s in itertools.pairwise(grid):
            for name, weights in self.weights(t, s).items():
                laws[name] = laws.get(name, self.start.flatten()) @ self.kernel(weights)
        end = self.finished(grid[-2])
        return {name: float((law @ end - self.data.flatten()).abs().sum()) / 2 for name, law in laws.items()}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--numbers", nargs="+", type=int, default=NUMBERS)
    parser.add_argument("--left", type=float, default=0.02)
    parser.add_argument("--out", type=Path)
    arguments = parser.parse_args()
    found = []
    for (name, base), (speed, schedule), grid in itertools.product(PROCESSES.items(), SCHEDULES.items(), GRIDS):
        chain = Chain(base.with_schedule(schedule).leaving(arguments.left))
        for number in arguments.numbers:
            errors = chain.errors(GRIDS[grid](chain.process, number).tolist())
            found.append({"process": name, "schedule": speed, "grid": grid, "steps": number, **errors})
            print(
                f"{name:>9} {speed:>11} {grid:>9} {number:>5}", *(f"{k} {v:.5f}" for k, v in errors.items()), flush=True
            )
    cases = {}
    for kind, grid in itertools.product(("euler", "tau-leaping"), GRIDS):
        rows = [(r[f"{kind} by clock"] / r[f"{kind} by length"], r) for r in found if r["grid"] == grid]
        worse = [(ratio, r) for ratio, r in rows if r[f"{kind} by clock"] > r[f"{kind} by length"] + 1e-12]
        cases[f"{kind}, uniform in {grid}"] = {
            "cases": len(rows),
            "clock worse": len(worse),
            "clock worse from 50 steps on": sum(r["steps"] >= 50 for _, r in worse),
            "largest ratio clock / length": max(ratio for ratio, _ in rows),
            "smallest ratio": min(ratio for ratio, _ in rows),
            "analytical worse than the better": sum(
                r["analytical"] > min(r[f"{kind} by clock"], r[f"{kind} by length"]) + 1e-12 for _, r in rows
            ),
        }
    print(json.dumps(cases, indent=1))
    if arguments.out:
        arguments.out.write_text(
            json.dumps({"left": arguments.left, "summary": cases, "errors": found}, indent=1) + "\n"
        )


if __name__ == "__main__":
    main()
