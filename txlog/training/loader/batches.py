"""Batches of one rank, their epochs, and states: what loaders and mixtures have in common."""

from __future__ import annotations

import os
import sys
from abc import ABC, abstractmethod
from collections.abc import Callable, Generator, Iterator, Mapping
from contextlib import closing
from functools import partial
from importlib import import_module
from typing import Any, Literal, get_args

from numpy.typing import NDArray

from txlog.base.errors import InvalidInputError, named_for_callers, not_installed
from txlog.base.threads import map_ahead
from txlog.training.loader.blocks import Columns, finished
from txlog.training.loader.dictionaries import Codes
from txlog.training.loader.images import Image
from txlog.training.loader.order import FORMAT
from txlog.training.loader.processes import Processes
from txlog.training.loader.state import State, refused, require_state
from txlog.training.loader.stream import Numbered, Share
from txlog.training.loader.views import View

Even = Literal["drop", "pad", "short"]
Batch = dict[str, Any]


class Batches(ABC):
    """Batches of rows in an order, by epochs, of which a state is a position."""

    views: dict[str, View]

    def __init_subclass__(cls) -> None:
        super().__init_subclass__()
        named_for_callers(cls)

    def __init__(
        self,
        *,
        batch_size: int,
        rank: int | None,
        world_size: int | None,
        even: Even,
        threads: int,
        transform: Callable[[Batch], Any] | None,
        processes: int,
        epochs: int | None,
    ) -> None:
        self.batch_size = whole("batch_size", batch_size, 1)
        self.rank, self.world_size = _rank(rank, world_size)
        self.threads = whole("threads", threads, 0)
        self._transform = transform
        self._processes = Processes(whole("processes", processes, 0), transform)
        self._epochs = None if epochs is None else whole("epochs", epochs, 1)
        if even not in get_args(Even):
            raise InvalidInputError(
                argument="even",
                reason=f"one of {', '.join(get_args(Even))} was expected, not {even!r}",
            )
        if even == "short" and epochs is None and self.world_size > 1:
            raise InvalidInputError(
                argument="even",
                reason="with epochs=None some ranks might end, and others not",
                remedy="Choose 'drop' or 'pad', or give a number of epochs",
            )
        self._even = even
        self._epoch = self._position = 0
        self._resumes = False

    @property
    @abstractmethod
    def num_rows(self) -> int:
        """The number of rows of an epoch, for all ranks together."""

    @property
    @abstractmethod
    def fingerprint(self) -> str:
        """The identity of this order, without seed and epoch."""

    @property
    @abstractmethod
    def seed(self) -> int:
        """The seed of the order."""

    @abstractmethod
    def rows(self, epoch: int, share: Share) -> Numbered:
        """Yield the rows of a share of an epoch, each with its number among those of the rank."""

    @abstractmethod
    def no_rows(self) -> Columns:
        """Return columns without rows."""

    @abstractmethod
    def _seed_remedy(self, seed: int) -> str:
        """Return what to do about a state with another seed."""

    @abstractmethod
    def _difference(self, fingerprint: str) -> str:
        """Return in which way the order of another fingerprint differs."""

    @property
    def epoch(self) -> int:
        """The current epoch, or the one of the next iteration."""
        return self._epoch

    @property
    def categories(self) -> dict[str, NDArray[Any]]:
        """The values of the columns of `dictionaries`, by the numbers that batches have."""
        views = self.views.items()
        return {name: view.categories for name, view in views if isinstance(view, Codes)}

    @property
    def transforms(self) -> bool:
        """Whether batches are transformed by a function."""
        return self._transform is not None

    def __len__(self) -> int:
        """Return how many batches all `epochs` have; with `short` some ranks may get fewer.

        Raises
        ------
        TypeError
            Epochs never end.
        """
        if self._epochs is None:
            raise TypeError("a loader with epochs=None has no length: it never ends")
        rows, step = self.num_rows, self._step
        return self._epochs * (rows // step if self._even == "drop" else -(-rows // step))

    def __bool__(self) -> bool:
        return True  # Also if it never ends, and has no length.

    def __iter__(self) -> Iterator[Any]:
        return self.batches()

    def batches(self, worker: int = 0, workers: int = 1) -> Iterator[Any]:
        """Yield the batches of one of several workers of this rank; the workers take turns.

        Parameters
        ----------
        worker, workers
            The number of this worker, and the number of workers; the default returns all batches of
            the rank.
        """
        made = 0  # The batches of all workers in earlier epochs.
        while True:
            is_whole = not self._resumes
            count = yield from self._rest_of_epoch((worker - made) % workers, workers)
            made += count
            is_empty = is_whole and not count
            if is_empty and self._epochs is None:
                raise InvalidInputError(
                    argument="epochs",
                    reason=f"an epoch of {self.num_rows} rows has no batch, so None would search "
                    "one for ever",
                    remedy="Use smaller batches, or let the last one be filled up",
                )
            if is_empty or (self._epochs is not None and self._epoch % self._epochs == 0):
                return

    def _rest_of_epoch(self, skip: int, stride: int) -> Generator[Any, None, int]:
        """Yield every `stride`-th batch of the epoch; return the number of batches of the rank."""
        epoch, first = self._epoch, self._position if self._resumes else 0
        self._position, self._resumes = first, False
        rows = self.num_rows
        count = (rows - first) // self._step
        end = stop = first + count * self._step
        if self._even != "drop" and stop < rows:
            stop = rows if self._even == "short" else stop + self._step
            count += (self.rank - end) % self.world_size < stop - end
        share = Share(
            first=first,
            stop=stop,
            rank=self.rank,
            ranks=self.world_size,
            batch_rows=self.batch_size,
            skip=skip,
            stride=stride,
        )
        numbered = self.rows(epoch, share)
        with closing(self._made(numbered)) as made:
            results = made if self._transform is None else self._results(made, self._transform)
            with closing(results):
                for number, result in results:
                    self._position = min(first + (number + 1) * self._step, rows)
                    yield result
        self._epoch, self._position = epoch + 1, 0
        return count

    def _made(self, numbered: Iterator[tuple[int, Columns]]) -> Any:
        """Yield batches with converted views; images are decoded in threads."""
        finish = partial(_finished, self.views)
        if self.threads and any(isinstance(view, Image) for view in self.views.values()):
            return map_ahead(finish, numbered, workers=self.threads, ahead=2 * self.threads)
        return (finish(item) for item in numbered)

    def _results(
        self, made: Iterator[tuple[int, Batch]], transform: Callable[[Batch], Any]
    ) -> Generator[tuple[int, Any], None, None]:
        """Yield what the transform makes of batches."""
        if self._processes.count:
            yield from self._processes.results(made)
            return
        for number, batch in made:
            yield number, transform(batch)

    def empty_batch(self) -> Any:
        """Return a batch without rows, with the columns, types and shapes of all other batches."""
        batch = finished(self.views, self.no_rows())
        return batch if self._transform is None else self._transform(batch)

    # The position ---------------------------------------------------------------------------

    def state_dict(self) -> State:
        """Return the position, after the last returned batch.

        It has five small fields. All ranks have the same state after the same step, and any number
        of ranks, with any batch size, can continue from it.
        """
        return self._state(self._epoch, self._position)

    def state_at(self, step: int) -> State:
        """Return the state after the first `step` batches of the current epoch."""
        return self._state(self._epoch, min(whole("step", step, 0) * self._step, self.num_rows))

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Let the next iteration continue from a state.

        Raises
        ------
        InvalidInputError
            It is not a state, or belongs to another table, version, predicate, or shuffle.
        """
        require_state(state)
        if state["fingerprint"] != self.fingerprint:
            raise refused(
                f"it is of another order: its fingerprint is {state['fingerprint']}, this loader's "
                f"{self.fingerprint}; {self._difference(state['fingerprint'])}"
            )
        if state["seed"] != self.seed:
            raise refused(
                f"its seed is {state['seed']}, this loader's {self.seed}",
                self._seed_remedy(state["seed"]),
            )
        if state["position"] > self.num_rows:
            raise refused(f"it is at row {state['position']} of {self.num_rows}")
        self._epoch, self._position, self._resumes = state["epoch"], state["position"], True

    def set_epoch(self, epoch: int) -> None:
        """Let the next iteration begin at the first row of an epoch."""
        self._epoch, self._position = whole("epoch", epoch, 0), 0
        self._resumes = False

    @property
    def _step(self) -> int:
        """The number of positions in one batch of each rank."""
        return self.batch_size * self.world_size

    def _state(self, epoch: int, position: int) -> State:
        return {
            "format": FORMAT,
            "epoch": epoch,
            "position": position,
            "seed": self.seed,
            "fingerprint": self.fingerprint,
        }

    # Other libraries -----------------------------------------------------------------------

    def torch(self) -> Any:
        """Return the batches as a `torch.utils.data.IterableDataset` of dicts of tensors.

        For `DataLoader(dataset, batch_size=None, num_workers=…)` and torchdata's
        `StatefulDataLoader`. Texts are lists of `str`; times are int64. With workers, call
        `set_epoch` of the dataset before each epoch.

        Raises
        ------
        UnsupportedFeatureError
            torch is not installed.
        """
        return _adapter("torch").TorchDataset(self)

    def jax(self, sharding: Any = None) -> Iterator[Any]:
        """Yield the batches as dicts of JAX arrays, on one device or distributed by `sharding`.

        Parameters
        ----------
        sharding
            A `jax.sharding.Sharding` of the global batch: each process gives its own part of it.

        Raises
        ------
        UnsupportedFeatureError
            jax is not installed, or a column has texts or rows of different lengths.
        """
        found: Iterator[Any] = _adapter("jax").jax_batches(self, sharding)
        return found

    def tf(self) -> Any:
        """Return the batches as a `tf.data.Dataset` of dicts of tensors.

        Texts are string tensors, a `RaggedArray` a `tf.RaggedTensor`, times int64.

        Raises
        ------
        UnsupportedFeatureError
            tensorflow is not installed.
        """
        return _adapter("tf").tf_dataset(self)


def _adapter(name: str) -> Any:
    """Return the module for another library, which nothing else imports."""
    try:
        return import_module(f"txlog.training.loader.{name}")
    except ImportError as error:
        raise not_installed(name, name, f"the library is not installed: {error}") from error


def _finished(views: Mapping[str, View], item: tuple[int, Columns]) -> tuple[int, Batch]:
    return item[0], finished(views, item[1])


def whole(argument: str, value: Any, least: int) -> int:
    """Return an argument that must be a whole number."""
    if isinstance(value, bool) or not isinstance(value, int) or value < least:
        raise InvalidInputError(
            argument=argument, reason=f"a whole number from {least} was expected, not {value!r}"
        )
    return value


def _rank(rank: int | None, world_size: int | None) -> tuple[int, int]:
    """Return the number of this process, and the number of processes."""
    if (rank is None) != (world_size is None):
        raise InvalidInputError(argument="rank", reason="rank and world_size are given together")
    if rank is None or world_size is None:
        torch = sys.modules.get("torch")
        distributed = None if torch is None else getattr(torch, "distributed", None)
        if distributed is not None and distributed.is_available() and distributed.is_initialized():
            rank, world_size = distributed.get_rank(), distributed.get_world_size()
        else:
            found = {name: os.environ.get(name, "") for name in ("RANK", "WORLD_SIZE")}
            lacking = [name for name, text in found.items() if not text]
            if len(lacking) == 1 and found["WORLD_SIZE"] != "1":
                # With a default, each process would be rank 0, and all would read the same rows.
                raise InvalidInputError(
                    argument="rank",
                    reason=f"of the variables RANK and WORLD_SIZE, {lacking[0]} is not set",
                    remedy="Set both, pass rank and world_size, or initialise torch.distributed",
                )
            rank, world_size = _of_environment("RANK", 0), _of_environment("WORLD_SIZE", 1)
    world_size = whole("world_size", world_size, 1)
    if whole("rank", rank, 0) >= world_size:
        raise InvalidInputError(
            argument="rank", reason=f"a number below {world_size} was expected, not {rank}"
        )
    return rank, world_size


def _of_environment(name: str, otherwise: int) -> int:
    text = os.environ.get(name, "")
    try:
        return int(text) if text else otherwise
    except ValueError as error:
        raise InvalidInputError(
            argument=name.lower(), reason=f"the variable {name} is {text!r}, a number was expected"
        ) from error
