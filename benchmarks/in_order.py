"""What a hollow transformer saves by keeping the features of earlier questions when it is sampled from left to right.

The time of sampling without what is kept, over the time with it, in turns, for several lengths and numbers of samples.
The samples are the same. Weights are as they are initialised.

    python benchmarks/in_order.py --out results/benchmarks/in_order.json        # some minutes on two cores
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import torch
from measure import seconds, summary

from sddm import Diffusion, sample
from sddm._memory import keep_freed_memory
from sddm.marginals import Hollow
from sddm.processes import Absorbing
from sddm.query import Query
from sddm.samplers import InOrder
from sddm.schedules import SqrtCosine

STATES = 129
CASES = [(64, 1), (64, 64), (256, 1), (256, 64)]
"""Positions, and samples drawn at once."""


def model(length: int) -> Diffusion:
    process = Absorbing(STATES, SqrtCosine(1.0)).leaving(0.02)
    torch.manual_seed(0)
    sizes = {"width": 128, "layers": 3, "heads": 4, "mlp": 512, "film_blocks": 0}
    return Diffusion(process, Hollow.for_process(process, length, **sizes)).eval()


@contextmanager
def forgetful(diffusion: Diffusion) -> Iterator[None]:
    """Inside, the network is asked as if nothing had been kept."""

    def without_memory(network: torch.nn.Module, asked: tuple[Query]) -> tuple[Query]:
        return (asked[0]._replace(memory=None),)

    hook = diffusion.model.network.register_forward_pre_hook(without_memory)
    try:
        yield
    finally:
        hook.remove()


def measure(length: int, rows: int, repeats: int) -> dict[str, object]:
    diffusion, ratios, kept = model(length), [], []

    def draw() -> torch.Tensor:
        return sample(diffusion, rows, sampler=InOrder(), generator=torch.Generator().manual_seed(0))

    samples = draw()
    for _ in range(repeats):
        kept.append(seconds(draw))
        with forgetful(diffusion):
            ratios.append(seconds(draw) / kept[-1])
    with forgetful(diffusion):
        same = float((draw() == samples).double().mean())
    return {"length": length, "rows": rows, "ratio": summary(ratios), "seconds": summary(kept), "same tokens": same}


def main() -> None:
    keep_freed_memory()  # as the commands do
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--out", type=Path)
    arguments = parser.parse_args()
    results = []
    for length, rows in CASES:
        result = measure(length, rows, arguments.repeats)
        print(result, flush=True)
        results.append(result)
    if arguments.out:
        arguments.out.write_text(json.dumps(results, indent=2) + "\n")


if __name__ == "__main__":
    main()
