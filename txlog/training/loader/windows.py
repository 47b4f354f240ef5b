"""Windows: adjacent rows of a series as one example. Rules: LDR-18."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import timedelta
from math import isfinite
from typing import Any

import numpy as np
import orjson
import pyarrow as pa

from txlog import Table
from txlog.base.arrow import numpy_array, pc
from txlog.base.errors import InvalidInputError, InvalidTypeError
from txlog.extend import Store
from txlog.training.loader.blocks import BlockReader, Chunk, Columns, Portion, epoch_rows, joined
from txlog.training.loader.dictionaries import Codes
from txlog.training.loader.epoch_plan import BlockPlan
from txlog.training.loader.order import Numbers, Piece
from txlog.training.loader.state import Identity
from txlog.training.loader.views import Number, Vector, View

_PLACE_BITS = 32


@dataclass(frozen=True, kw_only=True)
class Windows:
    """Each example is a window: adjacent rows of one series, in their order.

    Columns of numbers become arrays (n, length), those of vectors (n, length, *shape). Adjacent
    windows are read together, so it pays if the table is sorted by `by` and `order`.

    Parameters
    ----------
    length
        The number of rows of a window.
    stride
        The number of rows from the start of a window to that of the next one in a series. Rows at
        the end of a series that fill no window are left out.
    by
        The column, or columns, whose values name the series. Default: all rows are one series.
    order
        The column by which the rows of a series are sorted. Rows with the same value keep the order
        of the table.
    max_gap
        The greatest difference of `order` between adjacent rows of a window: a number, or a
        `timedelta` for times. A greater one ends the series there.
    """

    length: int
    stride: int = 1
    by: str | Sequence[str] | None = None
    order: str
    max_gap: float | timedelta | None = None

    def __post_init__(self) -> None:
        for name in ("length", "stride"):
            value = getattr(self, name)
            if isinstance(value, bool) or not isinstance(value, int) or not 1 <= value < 1 << 31:
                raise InvalidInputError(
                    argument=name,
                    reason=f"a whole number from 1 was expected, not {value!r}",
                )
        names = (self.by,) if isinstance(self.by, str) else self.by or ()
        if not isinstance(names, list | tuple) or not all(isinstance(name, str) for name in names):
            raise InvalidTypeError(argument="by", reason="names of columns were expected")
        if not isinstance(self.order, str):
            raise InvalidTypeError(
                argument="order",
                reason=f"the name of a column was expected, not {type(self.order).__name__}",
            )
        gap = self.max_gap
        if isinstance(gap, timedelta):
            is_fit = gap >= timedelta()
        else:
            is_number = isinstance(gap, int | float) and not isinstance(gap, bool)
            is_fit = gap is None or (is_number and isfinite(gap) and gap >= 0)
        if not is_fit:
            raise InvalidInputError(
                argument="max_gap",
                reason=f"a number or duration from 0 was expected, not {gap!r}",
            )

    @property
    def names(self) -> list[str]:
        """The columns that name a series."""
        if self.by is None:
            return []
        return [self.by] if isinstance(self.by, str) else list(self.by)

    @property
    def text(self) -> str:
        """A text that other windows do not have. Rule: LDR-19."""
        gap = self.max_gap.total_seconds() if isinstance(self.max_gap, timedelta) else self.max_gap
        facts = [self.length, self.stride, self.names, self.order, gap]
        return f"windows {orjson.dumps(facts).decode()}"


@dataclass(frozen=True, kw_only=True, eq=False)
class WindowPlan:
    """The windows of an epoch as blocks of adjacent ones. A value: it pickles.

    Parameters
    ----------
    rows
        The rows of which windows consist.
    addresses
        Of each row, series by series and sorted: the place of its fragment × 2³² + its position.
    starts
        For each window, the place of its first row in `addresses`.
    """

    rows: BlockPlan
    windows: Windows
    addresses: Numbers
    starts: Numbers
    counts: Numbers
    block_windows: int
    window_rows: int
    identity: Identity

    @property
    def store(self) -> Store:
        """The store of the table."""
        return self.rows.store

    @property
    def is_sequential(self) -> bool:
        """Whether an epoch without shuffling has the rows of files in their order."""
        return False

    def at(self, epoch: int) -> WindowPlan:  # All epochs have all windows.
        """Return the plan of one epoch."""
        return self

    def bytes_of(self, piece: Piece) -> float:
        """Return 0: windows share rows, so a piece is read whole."""
        return 0.0


@dataclass(frozen=True)
class WindowReader:
    """Reads pieces of blocks of windows. A value: it pickles.

    Parameters
    ----------
    reader
        It reads the rows of fragments.
    """

    plan: WindowPlan
    reader: BlockReader

    def load(self, wanted: Sequence[Portion]) -> list[Chunk]:
        """Return the windows of portions; errors as for `BlockReader.load`."""
        return [(piece, part.start, self._windows(part)) for piece, part in wanted]

    def _windows(self, part: Piece) -> Columns:
        """Return the windows of a part; each row is read once."""
        plan, length = self.plan, self.plan.windows.length
        first = part.block * plan.block_windows
        starts = plan.starts[first + part.start : first + part.stop]
        offsets = starts[:, None] + np.arange(length)
        rows, places = np.unique(offsets, return_inverse=True)
        addresses = plan.addresses[rows]
        columns = self._rows(addresses)
        where = np.argsort(np.argsort(addresses))[places].reshape(offsets.shape)
        return {name: column[where] for name, column in columns.items()}

    def _rows(self, addresses: Numbers) -> Columns:
        """Return rows, by ascending address."""
        addresses = np.sort(addresses)
        owners, firsts = np.unique(addresses >> _PLACE_BITS, return_index=True)
        positions = np.split(addresses & ((1 << _PLACE_BITS) - 1), firsts[1:])
        return joined(
            [
                self.reader.rows_of(owner, some)
                for owner, some in zip(owners.tolist(), positions, strict=True)
            ]
        )

    def owner(self, piece: Piece) -> int:
        """Return 0: a block may have rows of several files."""
        return 0

    def has_pages(self, owner: int) -> bool:
        """Return true, so that each block is read alone."""
        return True

    def end_of_pages(self, portion: Portion) -> int:
        """Return the end of the piece."""
        return portion[0].stop

    def following(self, block: int, offset: int) -> Iterator[Columns]:
        """Yield nothing: windows are never read as a sequence of files."""
        raise AssertionError(f"block {block} from {offset} on: no plan of windows is sequential")

    def empty(self) -> Columns:
        """Return columns without windows."""
        length = self.plan.windows.length
        none = self.reader.empty().items()
        return {name: np.empty((0, length, *of.shape[1:]), of.dtype) for name, of in none}


def plan_windows(
    plan: BlockPlan, table: Table, windows: Windows, views: Mapping[str, View], block_rows: int
) -> WindowPlan:
    """Plan the windows of an epoch. This reads the columns of series and order.

    Memory holds 8 bytes for each row and each window; at the start, these columns too.

    Raises
    ------
    InvalidInputError, InvalidTypeError
        A column does not fit.
    """
    if not isinstance(windows, Windows):
        raise InvalidTypeError(
            argument="windows", reason=f"Windows were expected, not {type(windows).__name__}"
        )
    for name, view in views.items():
        if not isinstance(view, Number | Vector | Codes):
            raise InvalidInputError(
                argument="views",
                field=name,
                reason=f"{type(view).__name__} has no form for windows",
                remedy="Give it the view Number or Vector, name it in dictionaries, or leave it "
                "out of columns",
            )
    found = _series(plan, table, windows)
    starts = _starts(found, windows)
    block = max(1, block_rows // max(windows.stride, windows.length))
    counts = np.full(-(-len(starts) // block), block, np.int64)
    if len(counts):
        counts[-1] = len(starts) - block * (len(counts) - 1)
    identity = replace(plan.identity, chosen=(*plan.identity.chosen, windows.text))
    return WindowPlan(
        rows=plan,
        windows=windows,
        addresses=numpy_array(found["address"].combine_chunks()),
        starts=starts,
        counts=counts,
        block_windows=block,
        window_rows=min(plan.window_rows, max(1, block // 2)) if plan.identity.shuffled else block,
        identity=identity,
    )


def _series(plan: BlockPlan, table: Table, windows: Windows) -> pa.Table:
    """Return the rows of all series, sorted: `address`, `order`, and a column for each name."""
    names = list(dict.fromkeys([*windows.names, windows.order]))
    try:
        scan = table.scan(names)
    except InvalidInputError as error:
        error.argument = "windows"
        raise
    reading = replace(scan.plan.reading, where=None, fixes=False)
    kinds = {name: scan.schema.field(name).type for name in names}
    parts = [
        (owner, positions, rows)
        for owner in np.unique(plan.owners).tolist()
        for positions, rows in epoch_rows(
            plan.store, reading, plan.fragments[owner], plan.kept.get(owner)
        )
    ]
    addresses = [np.empty(0, np.int64)]
    addresses += [(owner << _PLACE_BITS) + positions for owner, positions, _ in parts]
    columns: dict[str, Any] = {"address": np.concatenate(addresses)}
    for at, name in enumerate(names):
        values = pa.chunked_array([rows.column(at) for *_, rows in parts], kinds[name])
        if name == windows.order:
            columns["order"] = _ordered(name, values)
        if name in windows.names:
            if pa.types.is_nested(kinds[name]):
                raise InvalidInputError(
                    argument="windows",
                    field=name,
                    reason=f"{kinds[name]} names no series: numbers, texts or times were expected",
                )
            coded = values.combine_chunks().dictionary_encode(null_encoding="encode")
            columns[f"by {windows.names.index(name)}"] = coded.indices
    series = pa.table(columns)
    keys = [name for name in series.column_names if name.startswith("by ")]
    return series.sort_by([(key, "ascending") for key in [*keys, "order", "address"]])


def _ordered(name: str, values: pa.ChunkedArray) -> pa.ChunkedArray:
    """Return the values of the order, if all of them can be sorted."""
    kind = values.type
    if not (
        pa.types.is_integer(kind)
        or pa.types.is_decimal(kind)
        or pa.types.is_floating(kind)
        or pa.types.is_date(kind)
        or pa.types.is_timestamp(kind)
        or pa.types.is_string(kind)
    ):
        raise InvalidInputError(
            argument="windows",
            field=name,
            reason=f"{kind} is no order: numbers, dates, times or texts were expected",
        )
    unfit = pc.is_null(values, nan_is_null=True)
    count = pc.sum(unfit).as_py()
    if count:
        raise InvalidInputError(
            argument="windows",
            field=name,
            reason=f"{count} rows have no value by which they could be sorted",
            remedy=f"Leave them out with where: {name} IS NOT NULL",
        )
    return values


def _starts(series: pa.Table, windows: Windows) -> Numbers:
    """Return the place of the first row of each window."""
    count, length = series.num_rows, windows.length
    breaks = np.zeros(max(0, count - 1), bool)  # Between a row and the next one.
    for name in series.column_names:
        if name.startswith("by "):
            breaks |= np.diff(numpy_array(series[name].combine_chunks())) != 0
    if windows.max_gap is not None:
        breaks |= _gaps(series["order"], windows)
    ends = np.append(np.flatnonzero(breaks) + 1, count)
    firsts = np.concatenate([[0], ends[:-1]])
    numbers = np.maximum(0, (ends - firsts - length) // windows.stride + 1)
    numbers[ends - firsts < length] = 0
    within = np.arange(numbers.sum()) - np.repeat(np.cumsum(numbers) - numbers, numbers)
    starts: Numbers = np.repeat(firsts, numbers) + within * windows.stride
    return starts


def _gaps(order: pa.ChunkedArray, windows: Windows) -> Any:
    """Return where adjacent values are further apart than `max_gap`."""
    values = numpy_array(order.combine_chunks())
    gap: Any = windows.max_gap
    is_time = values.dtype.kind == "M"
    if values.dtype.kind == "O" or is_time != isinstance(gap, timedelta):
        raise InvalidInputError(
            argument="windows",
            field=windows.order,
            reason=f"max_gap is {gap!r}, which is no difference of {order.type}",
            remedy="Give a number for numbers, and a timedelta for dates and times",
        )
    if values.dtype.kind == "f":
        with np.errstate(invalid="ignore"):  # Between two infinities.
            found: Any = ~(np.diff(values) <= gap) & (values[1:] != values[:-1])
            return found
    if is_time:
        unit = np.datetime_data(values.dtype)[0]
        gap = gap // timedelta(days=1) if unit == "D" else gap // timedelta(microseconds=1)
        gap = gap * 1000 if unit == "ns" else gap
        values = values.view(np.int64)
    # Within a series values ascend, so their difference is that of unsigned words.
    words = values.astype(np.int64 if values.dtype.kind == "i" else np.uint64).view(np.uint64)
    return words[1:] - words[:-1] > np.uint64(min(int(gap), (1 << 64) - 1))
