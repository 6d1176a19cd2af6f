"""A training step of the VQGAN at a quarter, a half and all of the paper's filters, on 32 x 32 pictures in colour.

Pictures a second of the autoencoder alone and with the adversary, the share of the machine's multiply rate that the
autoencoder reaches, and the time of its gradient in channels-last order over that in torch's default order. The share
is given of the rate of one matrix multiply and of that of one large convolution, which torch computes by another
library: where that is the faster one, the first share may be above 1. Times are medians over interleaved repeats, so
that ratios hold for one machine in one state. Peak memory is that of a process of its own, above its start.

    python benchmarks/tokenizer.py --out results/benchmarks/tokenizer.json
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable
from pathlib import Path
from statistics import median
from typing import Any

import torch
from measure import in_own_process, multiply_rate, peak_bytes, seconds, summary
from torch.utils.flop_counter import FlopCounterMode

from sddm._memory import keep_freed_memory
from sddm.tokenizers import VQGAN
from sddm.tokenizers.config import TokenizerConfig
from sddm.tokenizers.learner import TokenizerLearner
from sddm.tokenizers.vqgan import to_planes

SIDE, BATCH = 32, 16
FILTERS = {"quarter": 16, "half": 32, "full": 64}
PHASES = ("autoencoder", "with adversary")


def learner_step(filters: int, adversarial: bool) -> Callable[[], Any]:
    """A step of `sddm train-tokenizer`."""
    config = TokenizerConfig(filters=filters, adversarial_start=0.0, adversarial_weight=0.1 if adversarial else 0.0)
    learner = TokenizerLearner(VQGAN(config.sizes(channels=3)), config)
    generator = torch.Generator().manual_seed(0)
    pictures = torch.randint(256, (BATCH, SIDE, SIDE, 3), dtype=torch.uint8, generator=generator)
    return lambda: learner.update(pictures, generator)


def gradient(filters: int, channels_last: bool) -> Callable[[], Any]:
    """The gradient of the reconstruction, in one order of memory."""
    network = VQGAN(TokenizerConfig(filters=filters).sizes(channels=3))
    planes = to_planes(torch.randint(256, (BATCH, SIDE, SIDE, 3), dtype=torch.uint8))
    planes = planes if channels_last else planes.contiguous()
    if not channels_last:  # codes that are looked up come in channels-last order
        network.decoder.register_forward_pre_hook(lambda _, x: (x[0].contiguous(),))
    return lambda: (network(planes).planes - planes).square().mean().backward()


def convolution_rate(width: int = 256) -> float:
    """Floating-point operations a second of one large convolution in channels-last order."""
    layer = torch.nn.Conv2d(width, width, 3, padding=1).requires_grad_(False)
    planes = torch.ones(BATCH, width, SIDE, SIDE).contiguous(memory_format=torch.channels_last)
    return 2 * planes.numel() * width * 9 / seconds(lambda: layer(planes))


def flops(step: Callable[[], Any]) -> float:
    with FlopCounterMode(display=False) as counter:
        step()
    return float(counter.get_total_flops())


def measure(filters: int, repeats: int) -> dict[str, Any]:
    keep_freed_memory()
    actions = {phase: learner_step(filters, phase == "with adversary") for phase in PHASES}
    orders = {"channels last": gradient(filters, True), "default order": gradient(filters, False)}
    operations = flops(orders["channels last"])
    for action in (actions | orders).values():
        action()
    taken: dict[str, list[float]] = {name: [] for name in (*actions, *orders)}
    rates, convolutions = [], []
    for _ in range(repeats):
        for name, action in (actions | orders).items():
            taken[name].append(seconds(action))
            rates.append(multiply_rate())
            convolutions.append(convolution_rate())
    result: dict[str, Any] = {"filters": filters, "batch": BATCH, "threads": torch.get_num_threads()}
    result["parameters"] = sum(p.numel() for p in VQGAN(TokenizerConfig(filters=filters).sizes(3)).parameters())
    for phase in PHASES:
        result[phase] = summary(taken[phase])
        result[f"{phase} pictures/s"] = BATCH / median(taken[phase])
        result[f"{phase} MiB"] = in_own_process(__file__, "--memory", str(filters), phase)
    reached = operations / median(taken["autoencoder"])
    result["autoencoder share of multiply rate"] = reached / median(rates)
    result["autoencoder share of convolution rate"] = reached / median(convolutions)
    pairs = zip(taken["channels last"], taken["default order"], strict=True)
    result["time in channels-last order over the default"] = median(ours / other for ours, other in pairs)
    result["multiply GFLOP/s"], result["convolution GFLOP/s"] = median(rates) / 1e9, median(convolutions) / 1e9
    return result


def peak_memory(filters: int, phase: str) -> float:
    """MiB above the start of the process, after two steps."""
    before = peak_bytes()
    step = learner_step(filters, phase == "with adversary")
    step()
    step()
    return (peak_bytes() - before) / 2**20


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--only", nargs="*", choices=list(FILTERS), default=list(FILTERS))
    parser.add_argument("--memory", nargs=2, metavar=("FILTERS", "PHASE"), help="measure one peak, print it as JSON")
    parser.add_argument("--out", type=Path, default=None, help="write the results to this JSON file")
    arguments = parser.parse_args()
    if arguments.memory:
        print(json.dumps(peak_memory(int(arguments.memory[0]), arguments.memory[1])))
        return
    results = {}
    print(f"{'size':10s}{'phase':>16s}{'pictures/s':>12s}{'MiB':>8s}")
    for name in arguments.only:
        result = measure(FILTERS[name], arguments.repeats)
        for phase in PHASES:
            print(
                f"{name:10s}{phase:>16s}{result[f'{phase} pictures/s']:12.1f}{result[f'{phase} MiB']:8.0f}",
                flush=True,
            )
        print(
            f"{'':10s}{result['parameters']:,} parameters; the autoencoder runs at "
            f"{result['autoencoder share of multiply rate']:.0%} of the multiply rate and "
            f"{result['autoencoder share of convolution rate']:.0%} of that of a convolution; channels-last takes "
            f"{result['time in channels-last order over the default']:.2f} of the time of the default order",
            flush=True,
        )
        results[name] = result
    if arguments.out:
        arguments.out.write_text(json.dumps(results, indent=2) + "\n")


if __name__ == "__main__":
    main()
