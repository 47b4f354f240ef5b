"""`Loader`: batches of a version, in an order that depends only on the version and arguments."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import replace
from functools import partial
from importlib import import_module
from typing import TYPE_CHECKING, Any, Literal, get_args

from txlog import Table
from txlog.base.errors import InvalidInputError, InvalidTypeError, not_installed
from txlog.base.texts import without_secrets
from txlog.base.threads import map_ahead
from txlog.extend import Where
from txlog.training.loader.blocks import BlockReader, Columns, finished
from txlog.training.loader.choices import ClassWeights, RowFunction, with_choices
from txlog.training.loader.epoch_plan import plan_blocks
from txlog.training.loader.images import Image
from txlog.training.loader.order import FORMAT, Order, Shuffle
from txlog.training.loader.splits import matching_names, of_part
from txlog.training.loader.state import State, refused, require_state
from txlog.training.loader.stream import Share, stream
from txlog.training.loader.views import View, default_view, fill_scalar, require_view

if TYPE_CHECKING:
    import pyarrow as pa

Even = Literal["drop", "pad", "short"]
Batch = dict[str, Any]


class Loader:
    """Batches with every live row of a version once in an epoch, as NumPy arrays by column.

    The order is a function of the version, the predicate, the shuffle and the epoch. It does not
    depend on ranks, workers, threads or the order of reading, so a state is only a position. Rules:
    spec/loader.md.

    An iteration returns the rest of the loader's epoch, or as many epochs as `epochs` says, and the
    next iteration the next ones.
    After an interrupted iteration the next one begins again at the first row of the epoch, unless a
    state is loaded.

    Parameters
    ----------
    table
        A table at a version, or the URI of one.
    batch_size
        Rows of one batch of one rank.
    version
        A version, or the name of a pin. Default: the version of the table.
    columns
        As for `Table.scan`, also fields of structs (`st.b`) and `_rowaddr`, and patterns such as
        `emb_*`, whose columns come in the order of the table. Default: all.
    where
        Only rows for which this is true, as for `Table.scan`.
    split, part, key
        Only rows of one part of the table, by the hash of a key: `split={"train": 0.8, "val": 0.2},
        part="train", key="id"`. As for `split_where`.
    keep
        Only rows for which a function is true: it is called once for all rows of `where` and
        `part` when the loader is made.
    weights
        How often a row comes, in relation to others: a column, a function, or `class_weights`. An
        epoch has as many rows as without weights. A row with twice the mean weight comes twice in
        each epoch, one with half of it in every second epoch, and one with 0 never (LDR-12).
    shuffle
        How rows are shuffled; None gives them in the order of the table.
    rank, world_size
        The number of this process, and the number of processes. Default: those of
        `torch.distributed` if it is initialised, else the variables `RANK` and `WORLD_SIZE`, else 0
        and 1.
    even
        What happens to the last rows of an epoch if they are too few for a batch of each rank.
        `drop` leaves them out. `pad` adds the first rows of the epoch. `short` returns shorter
        batches, and some ranks may get no batch.
    threads
        The number of threads that read and decode; 0 uses the caller's thread.
    ahead
        The number of rounds of windows that are read in advance.
    views
        The conversion of columns to arrays, by name: `Vector`, `Image`, `Ragged`, `Text`, `Number`.
        Default: numbers and times unchanged, texts and bytes as objects, lists as a `RaggedArray`.
    fill
        The replacement of nulls, by column. Nulls in other columns are refused.
    transform
        A function that is called with each batch. The loader returns its result.
    epochs
        The number of epochs of an iteration; None never ends. An iteration ends when the number of
        the epoch is a multiple of it, so that a loaded state continues up to the same end.
    storage_options
        As for `Table`, if `table` is a URI.

    Raises
    ------
    InvalidInputError
        An argument is wrong, or a column does not fit its view.
    DataFileError
        A data file of the version is missing.

    Examples
    --------
    >>> loader = Loader("clicks", batch_size=1024, shuffle=Shuffle(seed=7))  # doctest: +SKIP
    >>> for batch in loader:  # doctest: +SKIP
    ...     train(batch["x"], batch["label"])
    """

    def __init__(
        self,
        table: Table | str | os.PathLike[str],
        *,
        batch_size: int,
        version: int | str | None = None,
        columns: list[str] | None = None,
        where: Where = None,
        split: Mapping[str, float] | None = None,
        part: str | None = None,
        key: str | Sequence[str] | None = None,
        keep: RowFunction | None = None,
        weights: str | RowFunction | ClassWeights | None = None,
        shuffle: Shuffle | None = Shuffle(),  # noqa: B008  (A frozen value.)
        rank: int | None = None,
        world_size: int | None = None,
        even: Even = "drop",
        threads: int = 2,
        ahead: int = 2,
        views: Mapping[str, View] | None = None,
        fill: Mapping[str, Any] | None = None,
        transform: Callable[[Batch], Any] | None = None,
        epochs: int | None = 1,
        storage_options: Mapping[str, Any] | None = None,
    ) -> None:
        self.batch_size = _whole("batch_size", batch_size, 1)
        self.rank, self.world_size = _rank(rank, world_size)
        self._threads, self._ahead = _whole("threads", threads, 0), _whole("ahead", ahead, 1)
        self._transform = transform
        self._epochs = None if epochs is None else _whole("epochs", epochs, 1)
        if even not in get_args(Even):
            raise InvalidInputError(
                argument="even",
                reason=f"one of {', '.join(get_args(Even))} was expected, not {even!r}",
            )
        self._even = even
        if shuffle is not None and not isinstance(shuffle, Shuffle):
            raise InvalidTypeError(
                argument="shuffle", reason=f"a Shuffle or None was expected, not {shuffle!r}"
            )
        self._shuffle = shuffle
        opened = _opened(table, version, storage_options)
        self.version = opened.version
        plan = plan_blocks(
            opened,
            columns=matching_names(opened, columns),
            where=of_part(opened, where, split, part, key),
            shuffle=shuffle,
        )
        seed = None if shuffle is None else shuffle.seed
        self._plan = with_choices(plan, opened, keep=keep, weights=weights, seed=seed)
        self.schema: pa.Schema = self._plan.reading.schema
        self.views = _views(self.schema, views or {}, fill or {})
        self._reader = BlockReader(self._plan, self.views, dict(fill or {}))
        self._root = without_secrets(opened.uri)
        self._epoch = self._position = 0
        self._resumes = False

    def __repr__(self) -> str:
        return (
            f"txlog.Loader({self._root!r}, version={self.version}, rows={self.num_rows}, "
            f"rank={self.rank} of {self.world_size})"
        )

    @property
    def num_rows(self) -> int:
        """The number of rows of an epoch, for all ranks together."""
        return int(self._plan.counts.sum())

    @property
    def epoch(self) -> int:
        """The current epoch, or the one of the next iteration."""
        return self._epoch

    @property
    def fingerprint(self) -> str:
        """The identity of this order, without seed and epoch."""
        return self._plan.identity.fingerprint

    def __len__(self) -> int:
        """Return how many batches all `epochs` have; with `short` some ranks may get fewer.

        Raises
        ------
        TypeError
            Epochs never end.
        """
        if self._epochs is None:
            raise TypeError("a Loader with epochs=None has no length: it never ends")
        rows, step = self.num_rows, self._step
        return self._epochs * (rows // step if self._even == "drop" else -(-rows // step))

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
        plan = self._plan.at(epoch)
        seeds = None if self._shuffle is None else (self._shuffle.seed, epoch)
        lanes = 1 if self._shuffle is None else self._shuffle.lanes
        order = Order(plan.counts, lanes=lanes, window_rows=plan.window_rows, seeds=seeds)
        reader = replace(self._reader, plan=plan)
        numbered = stream(reader, order, share, threads=self._threads, ahead=self._ahead)
        with closing(self._made(numbered)) as made:
            for number, batch in made:
                self._position = min(first + (number + 1) * self._step, rows)
                yield batch if self._transform is None else self._transform(batch)
        self._epoch, self._position = epoch + 1, 0
        return count

    def _made(self, numbered: Iterator[tuple[int, Columns]]) -> Any:
        """Yield batches with converted views; images are decoded in threads."""
        finish = partial(_finished, self.views)
        if self._threads and any(isinstance(view, Image) for view in self.views.values()):
            return map_ahead(finish, numbered, workers=self._threads, ahead=2 * self._threads)
        return (finish(item) for item in numbered)

    def empty_batch(self) -> Any:
        """Return a batch without rows, with the columns, types and shapes of all other batches."""
        batch = finished(self.views, self._reader.empty())
        return batch if self._transform is None else self._transform(batch)

    # The position ---------------------------------------------------------------------------

    def state_dict(self) -> State:
        """Return the position of the loader, after the last returned batch.

        It has five small fields. All ranks have the same state after the same step, and any number
        of ranks, with any batch size, can continue from it.
        """
        return self._state(self._epoch, self._position)

    def state_at(self, step: int) -> State:
        """Return the state after the first `step` batches of the loader's epoch."""
        return self._state(self._epoch, min(_whole("step", step, 0) * self._step, self.num_rows))

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
                f"{self.fingerprint}; {self._plan.identity.difference(state['fingerprint'])}"
            )
        if state["seed"] != self._seed:
            raise refused(
                f"its seed is {state['seed']}, this loader's {self._seed}",
                f"Pass shuffle=Shuffle(seed={state['seed']}, …)",
            )
        if state["position"] > self.num_rows:
            raise refused(f"it is at row {state['position']} of {self.num_rows}")
        self._epoch, self._position, self._resumes = state["epoch"], state["position"], True

    def set_epoch(self, epoch: int) -> None:
        """Let the next iteration begin at the first row of an epoch."""
        self._epoch, self._position = _whole("epoch", epoch, 0), 0
        self._resumes = False

    @property
    def _step(self) -> int:
        """The number of positions in one batch of each rank."""
        return self.batch_size * self.world_size

    @property
    def _seed(self) -> int:
        return 0 if self._shuffle is None else self._shuffle.seed

    def _state(self, epoch: int, position: int) -> State:
        return {
            "format": FORMAT,
            "epoch": epoch,
            "position": position,
            "seed": self._seed,
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


def _opened(
    table: Table | str | os.PathLike[str],
    version: int | str | None,
    storage_options: Mapping[str, Any] | None,
) -> Table:
    """Return the table at the requested version."""
    if not isinstance(table, Table):
        return Table(table, version, storage_options=storage_options)
    if storage_options is not None:
        raise InvalidInputError(
            argument="storage_options", reason="the table was opened with its own already"
        )
    if version is None or version == table.version:
        return table
    return table.at(version)


def _views(
    schema: pa.Schema, views: Mapping[str, View], fill: Mapping[str, Any]
) -> dict[str, View]:
    """Return the view of each column."""
    for argument, names in (("views", views), ("fill", fill)):
        for name in names:
            if name not in schema.names:
                raise InvalidInputError(
                    argument=argument,
                    field=name,
                    reason="no such column is loaded",
                    remedy=f"Choose from {', '.join(schema.names)}",
                )
    if not schema.names:
        raise InvalidInputError(argument="columns", reason="at least one column was expected")
    found = {}
    for field in schema:
        view = views.get(field.name) or default_view(field.type)
        require_view(field.name, field.type, view)
        if fill.get(field.name) is not None:
            try:
                fill_scalar(field.type, fill[field.name], view)
            except InvalidInputError as error:
                error.field = field.name
                raise
        found[field.name] = view
    return found


def _whole(argument: str, value: Any, least: int) -> int:
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
    world_size = _whole("world_size", world_size, 1)
    if _whole("rank", rank, 0) >= world_size:
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
