"""Two hosts on one machine, out of network namespaces: train on both, cut the link between them, go on.

Runs the line of docs/cluster.md with a small model on the CPU and prints what became of it on each host. Needs root and
`ip` (Debian: iproute2). Only namespaces that it made itself are touched, and they are deleted at the end.

    python benchmarks/two_hosts.py --json results/benchmarks/two_hosts.json
"""

from __future__ import annotations

import argparse
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from safetensors.torch import load_file

DOCUMENT = Path(__file__).parents[1] / "docs" / "cluster.md"
HOSTS_FILES = Path("/etc/netns")
"""`ip netns exec NAME` shows the files of the folder NAME here as those of /etc."""
ADDRESSES = {"sddm-first": "10.77.0.1", "sddm-second": "10.77.0.2"}
UNREACHABLE = {"loopback": ("127.0.1.1", "127.0.1.1"), "other_network": ("10.88.0.1", "10.88.0.2")}
"""Addresses for a machine's own name: what Debian's installer writes into /etc/hosts, and one of a second network
(eth1) that does not lead from one host to the other."""
TINY = "--width 8 --layers 1 --heads 2 --mlp 8 --batch-size 8 --seed 1 --save-every 20 --steps 400"
CUT_AT = 100
LIMIT = 240.0
SENTENCE = re.compile(r"^sddm: (?!warning).*", re.MULTILINE)


@dataclass
class Host:
    """A network namespace with an interface eth0, and a host name."""

    name: str

    def knows(self, addresses: dict[str, str]) -> None:
        """Write this host's /etc/hosts."""
        lines = [f"{address} {name}\n" for name, address in ({"localhost": "127.0.0.1"} | addresses).items()]
        (HOSTS_FILES / self.name / "hosts").write_text("".join(lines))

    def start(self, line: str, log: Path, environment: dict[str, str]) -> subprocess.Popen[bytes]:
        """Run a line of the shell here."""
        inside = ["unshare", "--uts", "sh", "-c", f"hostname {self.name}; exec {line}"]
        places = {"PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}", "OMP_NUM_THREADS": "1"}
        with log.open("wb") as file:
            return subprocess.Popen(
                ["ip", "netns", "exec", self.name, *inside],
                env={**os.environ, **places, **environment},
                stdout=file,
                stderr=file,
            )

    def processes(self) -> list[int]:
        run = subprocess.run(["ip", "netns", "pids", self.name], capture_output=True, text=True, check=True)
        return [int(process) for process in run.stdout.split()]

    def kill(self) -> None:
        for process in self.processes():
            with suppress(ProcessLookupError):
                os.kill(process, signal.SIGKILL)


def ip(*arguments: str) -> None:
    subprocess.run(["ip", *arguments], check=True)


@contextmanager
def two_hosts() -> Iterator[list[Host]]:
    """Two hosts with a link between them, and nothing else."""
    hosts = [Host(name) for name in ADDRESSES]
    made = []
    try:
        for host in hosts:
            ip("netns", "add", host.name)
            made.append(host)
            (HOSTS_FILES / host.name).mkdir(parents=True, exist_ok=True)
        first, second = ADDRESSES
        ip("link", "add", "eth0", "netns", first, "type", "veth", "peer", "name", "eth0", "netns", second)
        for host in hosts:
            ip("-n", host.name, "addr", "add", f"{ADDRESSES[host.name]}/24", "dev", "eth0")
            for interface in ("lo", "eth0"):
                ip("-n", host.name, "link", "set", interface, "up")
            host.knows(ADDRESSES)
        for host, address in zip(hosts, UNREACHABLE["other_network"], strict=True):
            ip("-n", host.name, "link", "add", "eth1", "type", "veth", "peer", "name", "nobody")
            ip("-n", host.name, "addr", "add", f"{address}/24", "dev", "eth1")
            for interface in ("eth1", "nobody"):
                ip("-n", host.name, "link", "set", interface, "up")
        yield hosts
    finally:
        for host in made:
            host.kill()
            ip("netns", "delete", host.name)
            shutil.rmtree(HOSTS_FILES / host.name, ignore_errors=True)


def documented_line() -> str:
    """The line of docs/cluster.md for several machines, with one process a machine."""
    blocks = re.findall(r"```bash\n(.*?)```", DOCUMENT.read_text(), re.DOTALL)
    line = next(block for block in blocks if "--nnodes 2" in block).replace("\\\n", " ")
    line, changed = re.subn(r"--nproc_per_node \d+", "--nproc_per_node 1", line)
    assert changed == 1, line
    return " ".join(line.split())


class Job:
    """The documented line on one host: torchrun, and the process that it started."""

    def __init__(self, host: Host, folder: Path, run: str, environment: dict[str, str]) -> None:
        self.log = folder / f"{run}-{host.name}.log"
        line = documented_line().replace("codes.npy", f"{folder}/lines.txt").replace("/shared/runs", str(folder))
        line = line.replace(f"{folder}/codes", f"{folder}/{run}")
        self.host = host
        self.torchrun = host.start(f"{line} {TINY}", self.log, {**environment, "FIRST": next(iter(ADDRESSES))})
        self.process: int | None = None
        self.noted: dict[str, Any] = {}

    def note(self, seconds: float) -> None:
        """Note what happened by now, with the time at which it was first seen."""
        said = self.log.read_text(errors="replace")
        if self.process is None:
            self.process = next((p for p in self.host.processes() if b"\0-u\0-m\0sddm\0" in _command(p)), None)
        sentence = SENTENCE.search(said)
        if sentence and "sentence" not in self.noted:
            self.noted |= {"sentence": sentence[0], "seconds_to_sentence": round(seconds, 1)}
        code = _exit_code(self.process) if self.process else None
        told = re.search(r"exitcode\s*: (-?\d+)", said)
        if code is None and told:
            code = int(told[1])
        if code is not None and "exit_code" not in self.noted:
            self.noted |= {"exit_code": code, "seconds_to_exit": round(seconds, 1)}
        if self.torchrun.poll() is not None and "torchrun_exit_code" not in self.noted:
            self.noted |= {
                "torchrun_exit_code": self.torchrun.returncode,
                "seconds_to_torchrun_exit": round(seconds, 1),
            }

    def ended(self) -> bool:
        return "torchrun_exit_code" in self.noted


def _command(process: int) -> bytes:
    with suppress(OSError):
        return Path(f"/proc/{process}/cmdline").read_bytes()
    return b""


def _exit_code(process: int) -> int | None:
    """Of a process that ended and that torchrun has not asked for yet."""
    with suppress(OSError):
        fields = Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()
        if fields[0] == "Z":
            return os.waitstatus_to_exitcode(int(fields[-1]))
    return None


def watch(jobs: list[Job], until: Callable[[], bool]) -> float:
    """Note what becomes of the jobs until something is so; the seconds it took."""
    start = time.monotonic()
    while not until():
        seconds = time.monotonic() - start
        assert seconds < LIMIT, "\n".join(job.log.read_text() for job in jobs)
        for job in jobs:
            job.note(seconds)
        time.sleep(0.1)
    return round(time.monotonic() - start, 1)


def start(hosts: list[Host], folder: Path, run: str, **environment: str) -> list[Job]:
    return [Job(host, folder, run, environment) for host in hosts]


def to_the_end(jobs: list[Job]) -> dict[str, Any]:
    seconds = watch(jobs, lambda: all(job.ended() for job in jobs))
    return {"seconds": seconds, "hosts": [job.noted for job in jobs]}


def same(folder: Path, *runs: str) -> bool:
    """Whether runs ended with the same weights, bit for bit."""
    first, second = (load_file(folder / run / "model" / "model.safetensors") for run in runs)
    return first.keys() == second.keys() and all(first[name].equal(second[name]) for name in first)


def cut(hosts: list[Host], folder: Path) -> dict[str, Any]:
    """Train, take the link down, see both processes end, take it up and go on."""
    jobs = start(hosts, folder, "cut")
    reached = folder / "cut" / "checkpoints" / f"step-{CUT_AT:09d}.safetensors"
    watch(jobs, reached.exists)
    ip("-n", hosts[0].name, "link", "set", "eth0", "down")
    watch(jobs, lambda: all("exit_code" in job.noted for job in jobs))
    ip("-n", hosts[0].name, "link", "set", "eth0", "up")
    kept = max((folder / "cut" / "checkpoints").glob("step-*")).stem
    after = watch(jobs, lambda: all(job.torchrun.poll() is not None for job in jobs))
    return {
        "hosts": [
            {key: value for key, value in job.noted.items() if "torchrun" not in key}
            | {"torchrun_exit_code": job.torchrun.returncode}
            for job in jobs
        ],
        "seconds_from_link_up_until_both_torchruns_ended": after,
        "newest_checkpoint": int(kept[5:]),
        "resumed": to_the_end(start(hosts, folder, "cut")),
    }


def unreachable(hosts: list[Host], folder: Path) -> dict[str, Any]:
    """Start where each host's own name stands for an address that the other cannot reach, then say which interface."""
    found = {}
    for kind, addresses in UNREACHABLE.items():
        for host, address in zip(hosts, addresses, strict=True):
            host.knows({**ADDRESSES, host.name: address})
        found[kind] = to_the_end(start(hosts, folder, kind))
    return found | {"with_interface": to_the_end(start(hosts, folder, "named", GLOO_SOCKET_IFNAME="eth0"))}


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--json", type=Path)
    path = parser.parse_args().json
    if os.geteuid() or shutil.which("ip") is None:
        sys.exit("This needs root, and `ip` (Debian: apt-get install iproute2).")
    with two_hosts() as hosts, tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        (folder / "lines.txt").write_text("\n".join(["the cat sat", "the dog ran", "a cat ran", "the dog sat"] * 8))
        found: dict[str, Any] = {"line": documented_line()}
        found["whole"] = to_the_end(start(hosts, folder, "whole"))
        found["cut"] = cut(hosts, folder)
        found["cut_and_resumed_equals_whole"] = same(folder, "whole", "cut")
        found["own_name_not_reachable"] = unreachable(hosts, folder)
        found["named_interface_equals_whole"] = same(folder, "whole", "named")
    text = json.dumps(found, indent=1)
    print(text)
    if path is not None:
        path.write_text(text + "\n")


if __name__ == "__main__":
    main()
