"""One process or many: what the loop needs of accelerate and of torch.distributed.

A tensor that is split between processes is a DTensor. It is recognised by its methods, as importing its module takes a
second and few need it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, nullcontext
from contextvars import ContextVar
from datetime import timedelta
from pathlib import Path
from typing import Any

import torch
from accelerate import Accelerator
from accelerate.state import AcceleratorState
from accelerate.utils import DistributedDataParallelKwargs, InitProcessGroupKwargs, broadcast_object_list, gather_object
from torch import Tensor, nn

from sddm import _checks, _files
from sddm.networks.transformer import Block
from sddm.training.heartbeat import joining, launched

LONGEST_WAIT = timedelta(hours=24)
"""How long a process waits for the others, which may sample or save for hours. `heartbeat` notices those that ended."""


_chosen: ContextVar[torch.device | None] = ContextVar("chosen", default=None)


@contextmanager
def on_device(device: str | torch.device | None) -> Iterator[None]:
    """Inside, this process trains on a device that was asked for; if it is None, on the usual one."""
    if device is None:
        yield
        return
    chosen = _checks.available_device(device)
    _checks.require(not launched(), "device was given, but the launcher gives each process its own. Leave it out.")
    AcceleratorState._reset_state(reset_partial_state=True)  # which remembers the device of the first training
    token = _chosen.set(chosen)
    try:
        with nullcontext() if chosen.type != "cuda" else torch.cuda.device(chosen):
            yield
    finally:
        _chosen.reset(token)
        AcceleratorState._reset_state(reset_partial_state=True)


def accelerator() -> Accelerator:
    """The process group that the launcher made (accelerate launch, torchrun), or this process alone."""
    chosen = _chosen.get()
    on_cpu = not torch.cuda.is_available() if chosen is None else chosen.type == "cpu"
    unused = DistributedDataParallelKwargs(find_unused_parameters=True)  # such as the mark of given tokens
    wait = InitProcessGroupKwargs(timeout=LONGEST_WAIT)
    with joining() if launched() and not torch.distributed.is_initialized() else nullcontext():
        # Where torch has no CUDA, accelerate has to be told to join the processes on the CPU.
        joined = Accelerator(cpu=on_cpu, kwargs_handlers=[unused, wait])
        joined.wait_for_everyone()
    return joined


def on_main(processes: Accelerator, action: Callable[[], Any]) -> None:
    """Let the main process do something while the others wait; where it fails, all fail with the same error."""
    failure: list[Exception | None] = [None]
    if processes.is_main_process:
        try:
            action()
        except Exception as error:
            failure = [error]
    told = from_main(processes, failure[0])
    if told is not None:
        raise told


def from_main(processes: Accelerator, value: Any) -> Any:
    """The main process's value, in all of them."""
    values = [value]
    if processes.num_processes > 1:
        broadcast_object_list(values)
    return values[0]


@contextmanager
def claimed(processes: Accelerator, folder: Path | None, subject: Path | None = None) -> Iterator[None]:
    """Inside, no other job may write to a folder: the main process holds its lock for all of them.

    Temporary files that a killed job left in the folder are deleted. subject: what the lock is for, if not the folder.
    """
    with ExitStack() as stack:

        def claim(folder: Path) -> None:
            stack.enter_context(_files.locked(folder, subject or folder))
            for place in (folder, *(inside for inside in folder.iterdir() if inside.is_dir())):
                _files.remove_leftovers(place)

        if folder is not None:
            on_main(processes, lambda: claim(folder))
        yield


def check_alike(processes: Accelerator, what: dict[str, Any]) -> None:
    """Check that all processes of a run were given the same data and options."""
    if processes.num_processes == 1:
        return
    for other, theirs in enumerate(gather_object([what])):
        for name, value in what.items():
            _checks.require(
                theirs[name] == value,
                f"The processes of this run differ in their {name}: process {processes.process_index} has {value}, "
                f"process {other} has {theirs[name]}. Give all of them the same data and options.",
            )


def means(processes: Accelerator, values: Sequence[Tensor]) -> list[Tensor]:
    """The mean over all processes of each tensor. They travel together in one message."""
    if processes.num_processes == 1:
        return list(values)
    reduced = processes.reduce(torch.cat([value.flatten() for value in values]), "mean")
    parts = reduced.split([value.numel() for value in values])
    return [part.view_as(value) for part, value in zip(parts, values, strict=True)]


class InForward(nn.Module):
    """Runs an action that calls a module from inside a forward pass, where DDP and FSDP do their work."""

    def __init__(self, module: nn.Module) -> None:
        super().__init__()
        self.module = module

    def forward(self, action: Callable[[], Any]) -> Any:
        return action()


def sharded(forward: InForward, device: torch.device, processes: int) -> nn.Module:
    """FSDP: each process holds a part of each transformer block, and of all the rest."""
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.fsdp import fully_shard

    mesh = init_device_mesh(device.type, (processes,))
    for module in forward.modules():
        if isinstance(module, Block):
            fully_shard(module, mesh=mesh)
    fully_shard(forward, mesh=mesh, reshard_after_forward=True)
    return forward


def local_part(value: Any) -> Tensor:
    """What this process holds of a tensor that may be split between processes."""
    return value.to_local() if hasattr(value, "to_local") else value


def whole(value: Any) -> Tensor:
    """A tensor that may be split between processes, whole. All processes have to call this together."""
    return value.full_tensor() if hasattr(value, "full_tensor") else value


def split_like(value: Tensor, example: Any) -> Tensor:
    """A whole tensor, split between processes as the example is."""
    value = value.to(example.device)
    if not hasattr(example, "device_mesh"):
        return value
    from torch.distributed.tensor import distribute_tensor

    return distribute_tensor(value, example.device_mesh, example.placements)
