"""The batches of a long job, kept one by one, so that the job can go on where it was killed."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from accelerate import Accelerator
from accelerate.utils import gather_object
from torch import Tensor

from sddm import _files
from sddm.errors import BadCheckpointError


class Parts:
    """The batches of a job until all are there: files in a folder, so that the job can go on, or tensors in memory."""

    def __init__(self, folder: Path | None, job: str) -> None:
        self.folder, self.job = folder, job
        self.made: dict[int, Mapping[str, Tensor]] = {}

    def read(self, rows: slice) -> Mapping[str, Tensor] | None:
        """The tensors of a batch; None if it is not there, is damaged or was made by another job."""
        if self.folder is None:
            return self.made.get(rows.start)
        try:
            metadata, tensors = _files.load_tensors(self._path(rows))
        except ValueError:
            return None
        return tensors if metadata.get("state") == self.job else None

    def made_by_now(self, rows: slice, name: str = "tokens") -> Tensor:
        """One tensor of a batch."""
        tensors = self.read(rows)
        if tensors is None:
            raise BadCheckpointError(f"{self._path(rows)} was deleted or damaged. Give the same command again.")
        return tensors[name]

    def write(self, rows: slice, tokens: Tensor, **more: Tensor) -> None:
        tensors = {"tokens": tokens, **more}
        if self.folder is None:
            self.made[rows.start] = tensors
        else:
            _files.save_tensors(self._path(rows), tensors, self.job)

    def gather(self, processes: Accelerator) -> None:
        """Wait until every process has made its batches, and hand over those in memory."""
        processes.wait_for_everyone()
        if self.folder is None and processes.num_processes > 1:
            self.made = dict(gather_object(list(self.made.items())))

    def _path(self, rows: slice) -> Path:
        return Path(self.folder or "", f"rows-{rows.start:09d}-{rows.stop:09d}.safetensors")
