"""The Inception network here: pictures a second, and FID and KID of data against data.

Speed: the same network as it is loaded, with channels last in memory, frozen, and optimised for inference (what
`sddm.metrics.Inception` does), in interleaved repeats; and how far apart their features are.

Figures: those of the first pictures of two sets, at each number of pictures. These are what a perfect model would have.
Features are kept (`sddm.metrics.feature_folder`), so that a run that was stopped goes on. The two sets of 10,000 take
about 40 minutes on one core, FID half a minute more for each number of pictures.

    python benchmarks/inception.py --out results/benchmarks/inception.json
    python benchmarks/inception.py --samples cifar10-test --data cifar10 --num 1000 5000 10000 --out ...
"""

from __future__ import annotations

import argparse
import io
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch
from measure import multiply_rate, seconds, summary

from sddm.data import load
from sddm.metrics import feature_folder, features, fid, kid, load_inception
from sddm.metrics.inception import MEMBER, PACKAGE, scaled

BATCH = 16


def speed(repeats: int) -> dict[str, Any]:
    content = PACKAGE.read(MEMBER)
    generator = torch.Generator().manual_seed(0)
    images = torch.randint(256, (BATCH, 3, 32, 32), generator=generator, dtype=torch.uint8)
    last = scaled(images)
    first = last.contiguous()

    def loaded() -> Any:
        return torch.jit.load(io.BytesIO(content), map_location="cpu").eval()

    plain, frozen, optimised = loaded(), torch.jit.freeze(loaded()), torch.jit.optimize_for_inference(loaded())
    ours, pictures = load_inception(), images.permute(0, 2, 3, 1).contiguous()
    ways: dict[str, Callable[[], torch.Tensor]] = {
        "as loaded": lambda: plain(first),
        "channels last": lambda: plain(last),
        "frozen": lambda: frozen(first),
        "optimised": lambda: optimised(first),
        "ours, with resizing": lambda: ours.features(pictures),
    }
    times: dict[str, list[float]] = {name: [] for name in ways}
    with torch.inference_mode():
        expected = plain(first)
        apart = {name: float((way() - expected).abs().max() / expected.abs().max()) for name, way in ways.items()}
        for number in range(repeats + 1):
            for name, way in ways.items():
                taken = seconds(way)
                if number:  # the first is for the compiler
                    times[name].append(taken)
    found = {}
    for name, taken in times.items():
        ratios = [here / base for here, base in zip(taken, times["as loaded"], strict=True)]
        found[name] = {"pictures_a_second": BATCH / min(taken), "time_ratio": summary(ratios), "apart": apart[name]}
        print(
            f"{name:22s}{BATCH / min(taken):8.2f} pictures/s{summary(ratios)['median']:8.2f}{apart[name]:10.1e}",
            flush=True,
        )
    return {"multiply_rate": multiply_rate(), "threads": torch.get_num_threads(), "ways": found}


def pictures(name: str, num: int) -> np.ndarray:
    data = load(name)
    return np.asarray(data.codec.decode(data.tokens[:num]))


def figures(samples: str, data: str, numbers: list[int]) -> list[dict[str, Any]]:
    network, found = load_inception(), []
    for num in numbers:
        of_samples, of_data = (features(pictures(name, num), network, progress=True) for name in (samples, data))
        distance, discrepancy = fid(of_samples, of_data), kid(of_samples, of_data)
        found.append({"num": num, "fid": distance._asdict(), "kid": discrepancy._asdict()})
        print(f"{num} + {num}: {distance}, {discrepancy}", flush=True)
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--samples", default="cifar10-test", help="a set whose codec decodes to pictures")
    parser.add_argument("--data", default="cifar10")
    parser.add_argument("--num", type=int, nargs="*", default=[], help="numbers of pictures of each set")
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--out", type=Path)
    arguments = parser.parse_args()
    torch.set_num_threads(arguments.threads)
    result: dict[str, Any] = {"speed": speed(arguments.repeats)}
    if arguments.num:
        print(f"Features are kept in {feature_folder()}", flush=True)
        result |= {"samples": arguments.samples, "data": arguments.data}
        result["figures"] = figures(arguments.samples, arguments.data, arguments.num)
    if arguments.out:
        arguments.out.write_text(json.dumps(result, indent=2) + "\n")


if __name__ == "__main__":
    main()
