"""Training and sampling step of each parameterization, against a plain version of the same model.

Times are medians with their quartiles over interleaved repeats (ours, plain, one matrix multiply, ours, ...), so that
the ratios hold for one machine in one state. Peak memory is the median of five processes of their own for each case.

    python benchmarks/models.py            # the table; --repeats 20 by default
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from statistics import median

import plain
import torch
from measure import in_own_process, multiply_rate, peak_bytes, seconds, summary
from torch import nn
from torch.utils.flop_counter import FlopCounterMode

from sddm import Diffusion
from sddm._memory import keep_freed_memory
from sddm.losses import conditional_ratio_matching, denoising_cross_entropy
from sddm.marginals import Energy, Hollow, LeaveOneOut, MarginalModel, Masked
from sddm.networks import MUSIC
from sddm.processes import Uniform
from sddm.query import Query
from sddm.randomness import StreamPerSample
from sddm.samplers import Analytical
from sddm.schedules import Constant

PHASES = ("training", "sampling")
SIZES = {"width": 128, "layers": 3, "heads": 4, "mlp": 512}
MUSIC_SIZES = {name: getattr(MUSIC, name) for name in SIZES}


@dataclass(frozen=True)
class Case:
    """One model at one size, and its plain counterpart."""

    states: int
    length: int
    batch: int
    ours: Callable[[Uniform, int], MarginalModel]
    plain: Callable[[int, int], nn.Module]

    @property
    def rate(self) -> float:
        return 4.0 / self.states

    def diffusion(self) -> Diffusion:
        process = Uniform(self.states, Constant(self.rate))
        return Diffusion(process, self.ours(process, self.length))


CASES = {
    "hollow": Case(
        129,
        128,
        16,
        lambda process, length: Hollow.for_process(process, length, **SIZES),
        lambda states, length: plain.PlainHollow(states, length, **SIZES),
    ),
    "hollow, music size": Case(
        129,
        256,
        2,
        lambda process, length: Hollow.for_process(process, length, sizes=MUSIC),
        lambda states, length: plain.PlainHollow(states, length, **MUSIC_SIZES),
    ),
    "leave-one-out": Case(
        129,
        128,
        16,
        lambda process, length: LeaveOneOut.for_process(process, length, **SIZES),
        lambda states, length: plain.PlainDenoiser(states, states, length, **SIZES),
    ),
    "masked": Case(
        129,
        32,
        4,
        lambda process, length: Masked.for_process(process, length, **SIZES),
        lambda states, length: plain.PlainMasked(states, length, **SIZES),
    ),
    "energy (MLP, 32 bits)": Case(
        2,
        32,
        128,
        lambda process, length: Energy.mlp(process, length),
        lambda states, length: plain.PlainMLPEnergy(length, states),
    ),
    "energy (MLP, 16 states)": Case(
        16,
        32,
        16,
        lambda process, length: Energy.mlp(process, length),
        lambda states, length: plain.PlainMLPEnergy(length, states),
    ),
}


def our_steps(case: Case) -> tuple[Callable[[], None], Callable[[], None]]:
    diffusion = case.diffusion()
    x = torch.randint(case.states, (case.batch, case.length))
    optimizer = torch.optim.AdamW(diffusion.parameters(), 1e-4, fused=True)
    loss = denoising_cross_entropy if diffusion.model.sees_own_token else conditional_ratio_matching
    t, s = (torch.full((case.batch,), v, dtype=torch.float64) for v in (0.5, 0.49))
    randomness = StreamPerSample(range(case.batch))

    def training() -> None:
        optimizer.zero_grad()
        loss(diffusion, x).sum(-1).mean().backward()
        optimizer.step()

    def sampling() -> None:
        with torch.inference_mode():
            Analytical()(diffusion, Query(x, t), s, randomness)

    return training, sampling


def plain_steps(case: Case) -> tuple[Callable[[], None], Callable[[], None]]:
    model = case.plain(case.states, case.length)
    x = torch.randint(case.states, (case.batch, case.length))
    optimizer = torch.optim.AdamW(model.parameters(), 1e-4)

    def training() -> None:
        optimizer.zero_grad()
        plain.loss(model, x, case.rate, case.states).backward()
        optimizer.step()

    def sampling() -> None:
        plain.analytical_step(model, x, 0.5, 0.49, case.rate, case.states)

    return training, sampling


def energy_flops(case: Case) -> float:
    """Of a training step of the MLP energy: forward, and twice that backward, for D(C - 1) + 1 evaluations a row."""
    rows = case.batch * (case.length * (case.states - 1) + 1)
    return 3 * 2 * rows * (2 * 256 * 256 + 256)


def plain_flops(case: Case, phase: str) -> float:
    """Of the matrix multiplies of the plain version, which computes the same numbers."""
    with FlopCounterMode(display=False) as counter:
        plain_steps(case)[PHASES.index(phase)]()
    return float(counter.get_total_flops())


def measure(name: str, repeats: int) -> dict[str, object]:
    case = CASES[name]
    keep_freed_memory()  # as the commands do; it serves both
    torch.manual_seed(0)
    actions = dict(zip(("ours training", "ours sampling"), our_steps(case), strict=True))
    actions |= dict(zip(("plain training", "plain sampling"), plain_steps(case), strict=True))
    for action in actions.values():
        for _ in range(3):
            action()
    taken: dict[str, list[float]] = {key: [] for key in actions}
    rates = []
    for _ in range(repeats):
        for key, action in actions.items():
            taken[key].append(seconds(action))
            rates.append(multiply_rate())
    result: dict[str, object] = {key: summary(values) for key, values in taken.items()}
    result["parameters"] = sum(p.numel() for p in case.diffusion().parameters())
    result["plain parameters"] = sum(p.numel() for p in case.plain(case.states, case.length).parameters())
    for phase in PHASES:
        result[f"{phase} ratio"] = median(
            a / b for a, b in zip(taken[f"ours {phase}"], taken[f"plain {phase}"], strict=True)
        )
    result["multiply GFLOP/s"] = median(rates) / 1e9
    operations = {"training": energy_flops(case)} if "MLP" in name else {p: plain_flops(case, p) for p in PHASES}
    for phase, count in operations.items():
        result[f"{phase} share of multiply rate"] = count / median(taken[f"ours {phase}"]) / median(rates)
    return result


def peak_memory(name: str, which: str, phase: str) -> float:
    """MiB above the start of the process, after three steps."""
    case = CASES[name]
    before = peak_bytes()
    training, sampling = our_steps(case) if which == "ours" else plain_steps(case)
    for _ in range(3):
        training() if phase == "training" else sampling()
    return (peak_bytes() - before) / 2**20


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--repeats", type=int, default=20)
    parser.add_argument("--only", nargs="*", choices=list(CASES), default=list(CASES))
    parser.add_argument(
        "--memory", nargs=3, metavar=("CASE", "WHICH", "PHASE"), help="measure one peak, print it as JSON"
    )
    parser.add_argument("--out", type=Path, default=None, help="write the results to this JSON file")
    arguments = parser.parse_args()
    if arguments.memory:
        print(json.dumps(peak_memory(*arguments.memory)))
        return
    results = {}
    print(
        f"{'model':26s}{'phase':>10s}{'ours ms':>10s}{'plain ms':>10s}{'ratio':>8s}{'ours MiB':>10s}{'plain MiB':>10s}"
    )
    for name in arguments.only:
        result = measure(name, arguments.repeats)
        for phase in PHASES:
            for which in ("ours", "plain"):
                peaks = [in_own_process(__file__, "--memory", name, which, phase) for _ in range(5)]
                result[f"{which} {phase} MiB"] = median(peaks)
            ours, other = (result[f"{which} {phase}"]["median"] * 1e3 for which in ("ours", "plain"))
            print(
                f"{name:26s}{phase:>10s}{ours:10.1f}{other:10.1f}{result[f'{phase} ratio']:8.2f}"
                f"{result[f'ours {phase} MiB']:10.0f}{result[f'plain {phase} MiB']:10.0f}",
                flush=True,
            )
        rate = result["multiply GFLOP/s"]
        shares = {phase: result.get(f"{phase} share of multiply rate") for phase in PHASES}
        extra = "".join(f"; {phase} runs at {share:.0%} of it" for phase, share in shares.items() if share is not None)
        print(f"{'':26s}{result['parameters']:,} parameters; matrix multiply {rate:.0f} GFLOP/s{extra}", flush=True)
        results[name] = result
    if arguments.out:
        arguments.out.write_text(json.dumps(results, indent=2) + "\n")


if __name__ == "__main__":
    main()
