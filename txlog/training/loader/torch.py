"""Batches as tensors of PyTorch."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch.utils.data import IterableDataset, get_worker_info

from txlog.base.errors import InvalidInputError
from txlog.training.loader.views import RaggedArray

if TYPE_CHECKING:
    from txlog.training.loader.loader import Loader

_WORKER = ("worker", "workers", "skip")


class TorchDataset(IterableDataset):  # type: ignore[misc]  # torch is not there for mypy.
    """The batches of a loader, for `DataLoader(dataset, batch_size=None)`.

    Each worker of a `DataLoader` makes its share of the batches, so that the sequence is the same
    for every number of workers. `state_dict` and `load_state_dict` are the protocol of torchdata's
    `StatefulDataLoader`; in a worker, a state also names its worker.
    """

    def __init__(self, loader: Loader) -> None:
        super().__init__()
        self.loader = loader
        # How many of the next batches belong to other workers.
        self._skip: int | None = None
        self._resumed_skip: int | None = None  # The same for a loaded state.
        self._ended: dict[str, Any] | None = None  # The state at the end of an epoch.

    def __len__(self) -> int:
        return len(self.loader)

    def __iter__(self) -> Iterator[Any]:
        worker, workers = _worker()
        self._skip = worker if self._resumed_skip is None else self._resumed_skip
        self._resumed_skip = self._ended = None
        state = self.loader.state_dict()
        for batch in self.loader.batches(self._skip, workers):
            self._skip = workers - 1
            state = self.loader.state_dict()
            yield tensors(batch)
        self._skip = None
        # Other workers may still be in this epoch, so the next iteration begins the next epoch.
        self._ended = {**state, "position": self.loader.num_rows}

    def set_epoch(self, epoch: int) -> None:
        """Let the next iteration begin at the first row of an epoch."""
        self.loader.set_epoch(epoch)

    def state_dict(self) -> dict[str, Any]:
        """Return the position of the loader, or of this worker in a worker of a `DataLoader`."""
        state = self.loader.state_dict()
        worker, workers = _worker()
        if workers == 1:
            return state
        skip = self._skip if self._resumed_skip is None else self._resumed_skip
        skip = worker if skip is None else skip
        state = self._ended or state
        return {**state, "worker": worker, "workers": workers, "skip": skip}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Let the next iteration continue from a state of `state_dict`, or of the loader.

        Raises
        ------
        InvalidInputError
            It does not fit the loader, or belongs to another worker.
        """
        ours = {name: value for name, value in state.items() if name not in _WORKER}
        worker, workers = _worker()
        skip = None
        if set(_WORKER) <= set(state):
            if (state["worker"], state["workers"]) != (worker, workers):
                raise InvalidInputError(
                    argument="state",
                    reason=f"it is of worker {state['worker']} of {state['workers']}, "
                    f"this is worker {worker} of {workers}",
                    remedy="Use as many workers, or load a state of Loader.state_at(step)",
                )
            skip = state["skip"]
        self.loader.load_state_dict(ours)
        self._skip, self._resumed_skip, self._ended = None, skip, None


def _worker() -> tuple[int, int]:
    """Return the number of this worker, and the number of workers."""
    info = get_worker_info()
    return (0, 1) if info is None else (info.id, info.num_workers)


def tensors(value: Any) -> Any:
    """Return arrays as tensors, in dictionaries too; texts as lists. Times are int64."""
    if isinstance(value, dict):
        return {name: tensors(item) for name, item in value.items()}
    if isinstance(value, RaggedArray):
        return RaggedArray(*map(tensors, value))
    if not isinstance(value, np.ndarray):
        return value
    if value.dtype == object:
        return [tensors(item) for item in value]
    if value.dtype.kind == "M":
        value = value.view(np.int64)
    # A tensor cannot be read-only, so it must not use the memory of a mapped file.
    return torch.from_numpy(value if value.flags.writeable else value.copy())
