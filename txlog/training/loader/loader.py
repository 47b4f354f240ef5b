"""`Loader`: batches of a version, in an order that depends only on the version and arguments."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from txlog import Table
from txlog.base.errors import InvalidInputError, InvalidTypeError
from txlog.base.texts import without_secrets
from txlog.extend import Cache, CachedStore, Where, is_arrow_blob, is_far
from txlog.training.loader.batches import Batch, Batches, Even, whole
from txlog.training.loader.blocks import BlockReader, Columns
from txlog.training.loader.choices import ClassWeights, RowFunction, with_choices
from txlog.training.loader.dictionaries import Dictionaries, codes_of
from txlog.training.loader.epoch_plan import BlockPlan, plan_blocks, rows_of_blocks
from txlog.training.loader.large import Blobs
from txlog.training.loader.order import Order, Shuffle
from txlog.training.loader.splits import matching_names, of_part
from txlog.training.loader.stream import Numbered, Reader, Share, stream
from txlog.training.loader.views import View, default_view, fill_scalar, is_half, require_view
from txlog.training.loader.windows import WindowPlan, WindowReader, Windows, plan_windows

if TYPE_CHECKING:
    import pyarrow as pa


class Loader(Batches):
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
        Rows, or windows, of one batch of one rank.
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
    windows
        Examples are not rows but windows: adjacent rows of a series, for time series.
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
        Default: numbers and times unchanged, half floats too, texts and bytes as objects, lists as
        a `RaggedArray`.
    fill
        The replacement of nulls, by column. Nulls in other columns are refused.
    dictionaries
        The columns of which batches have numbers (int32), those of their values in `categories`.
        True: the columns that were dictionaries when the table got them. The values are those of
        the whole version, sorted, so that all loaders of a version have the same numbers; each
        column is read once for this. A mapping gives the values: `dictionaries=other.categories`.
    transform
        A function that is called with each batch. The loader returns its result.
    cache
        A folder on a fast disk, or a `Cache`, that keeps what batches read of a store far away, so
        that later epochs, and other processes of this machine, do not read it again. What the
        loader reads when it is made is not kept. Tables on a local disk are read without it.
    processes
        The number of processes that call `transform`, which they must be able to import; 0 calls it
        in the caller's thread. Their results come in the same order.
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
        windows: Windows | None = None,
        shuffle: Shuffle | None = Shuffle(),  # noqa: B008  (A frozen value.)
        rank: int | None = None,
        world_size: int | None = None,
        even: Even = "drop",
        threads: int = 2,
        ahead: int = 2,
        views: Mapping[str, View] | None = None,
        fill: Mapping[str, Any] | None = None,
        dictionaries: Dictionaries = False,
        transform: Callable[[Batch], Any] | None = None,
        cache: str | os.PathLike[str] | Cache | None = None,
        processes: int = 0,
        epochs: int | None = 1,
        storage_options: Mapping[str, Any] | None = None,
    ) -> None:
        super().__init__(
            batch_size=batch_size,
            rank=rank,
            world_size=world_size,
            even=even,
            threads=threads,
            transform=transform,
            processes=processes,
            epochs=epochs,
        )
        self._ahead = whole("ahead", ahead, 1)
        if shuffle is not None and not isinstance(shuffle, Shuffle):
            raise InvalidTypeError(
                argument="shuffle", reason=f"a Shuffle or None was expected, not {shuffle!r}"
            )
        self._shuffle = shuffle
        opened = _opened(table, version, storage_options)
        self.version = opened.version
        kept = cache if cache is None or isinstance(cache, Cache) else _cache_in(cache)
        plan = plan_blocks(
            opened,
            columns=matching_names(opened, columns),
            where=of_part(opened, where, split, part, key),
            shuffle=shuffle,
        )
        if kept is not None and is_far(plan.store):
            plan = replace(plan, store=CachedStore(plan.store, kept))
        seed = None if shuffle is None else shuffle.seed
        plan = with_choices(plan, opened, keep=keep, weights=weights, seed=seed)
        self.schema: pa.Schema = plan.reading.schema
        given = plan.reading.for_arrow().schema
        codes = codes_of(opened, plan.reading, dictionaries, fill or {})
        self.views = _views(opened, self.schema, given, views or {}, fill or {}, codes)
        self._plan: BlockPlan | WindowPlan = plan
        self._reader: Reader = BlockReader(plan, self.views, dict(fill or {}))
        if windows is not None:
            if weights is not None:
                raise InvalidInputError(argument="weights", reason="windows have no weights")
            block_rows, _ = rows_of_blocks(opened, shuffle)
            self._plan = plan_windows(plan, opened, windows, self.views, block_rows)
            self._reader = WindowReader(self._plan, self._reader)
        self._root = without_secrets(opened.uri)

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
    def fingerprint(self) -> str:
        """The identity of this order, without seed and epoch."""
        return self._plan.identity.fingerprint

    @property
    def seed(self) -> int:
        """The seed of the shuffle; 0 without shuffling."""
        return 0 if self._shuffle is None else self._shuffle.seed

    def rows(self, epoch: int, share: Share) -> Numbered:
        """Yield the rows of a share of an epoch, each with its number among those of the rank.

        This is for what is built upon loaders. The rows are as the views prepare them.
        """
        plan: Any = self._plan.at(epoch)
        seeds = None if self._shuffle is None else (self._shuffle.seed, epoch)
        lanes = 1 if self._shuffle is None else self._shuffle.lanes
        order = Order(plan.counts, lanes=lanes, window_rows=plan.window_rows, seeds=seeds)
        reader = replace(self._reader, plan=plan)
        return stream(reader, order, share, threads=self.threads, ahead=self._ahead)

    def no_rows(self) -> Columns:
        """Return columns without rows, in the form of `rows`."""
        return self._reader.empty()

    def _seed_remedy(self, seed: int) -> str:
        return f"Pass shuffle=Shuffle(seed={seed}, …)"

    def _difference(self, fingerprint: str) -> str:
        return self._plan.identity.difference(fingerprint)


def _cache_in(folder: str | os.PathLike[str]) -> Cache:
    try:
        return Cache(folder)
    except InvalidInputError as error:
        error.argument = "cache"  # Of the loader.
        raise


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
    table: Table,
    schema: pa.Schema,
    given: pa.Schema,
    views: Mapping[str, View],
    fill: Mapping[str, Any],
    codes: Mapping[str, View],
) -> dict[str, View]:
    """Return the view of each column; `given` has the types that the table was given."""
    for name in codes.keys() & views.keys():
        raise InvalidInputError(
            argument="dictionaries", field=name, reason="the column has a view, too"
        )
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
    for at, field in enumerate(schema):
        usual = (
            Blobs()
            if is_arrow_blob(field.type)
            else default_view(field.type, is_half=is_half(given.field(at).type))
        )
        view = views.get(field.name) or codes.get(field.name) or usual
        require_view(field.name, field.type, view)
        if isinstance(view, Blobs):
            if fill.get(field.name) is not None:
                raise InvalidInputError(
                    argument="fill", field=field.name, reason="null values of blob columns are None"
                )
            view = view.of(table)
        if fill.get(field.name) is not None:
            try:
                fill_scalar(field.type, fill[field.name], view)
            except InvalidInputError as error:
                error.field = field.name
                raise
        found[field.name] = view
    return found
