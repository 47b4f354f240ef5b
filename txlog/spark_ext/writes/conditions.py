"""Find the rows for which a Spark condition is true, with a txlog predicate or with Spark."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.compute as pc
from pyroaring import BitMap64

from txlog.base.errors import InvalidInputError, UnsupportedFeatureError
from txlog.base.thresholds import Threshold
from txlog.expressions.bind import bind, columns_of
from txlog.expressions.operators import Operator
from txlog.expressions.sql import parse_sql
from txlog.expressions.tree import Cast, Column, Expression, Literal
from txlog.expressions.type_rules import Dialect, OtherwiseError, translated
from txlog.scan.columns import ROW_ADDRESS
from txlog.scan.take import by_fragment
from txlog.schema.json import schema_json
from txlog.schema.types import (
    SIZED_TEXT,
    STRING,
    WHOLE_NUMBERS,
    DataType,
    PrimitiveType,
    StructType,
)
from txlog.snapshot.snapshot import Snapshot
from txlog.spark_ext.engine import before_commit
from txlog.spark_ext.reads.read_frame import read_version
from txlog.spark_ext.same_meaning import BOOLEAN, DATE, is_compared_alike, kind_of
from txlog.spark_ext.writes.followed import followed
from txlog.spark_ext.writes.own_reads import change_reads_table, is_settled, require_unchanged
from txlog.spark_ext.writes.same_columns import GivenFrames
from txlog.store.open import open_store

if TYPE_CHECKING:
    from pyspark.sql import Column as SparkColumn
    from pyspark.sql import DataFrame, SparkSession

_BLOCK = 32768  # The number of rows in one bitmap of Spark.
_BLOCKS_AT_ONCE: Threshold = 64

# The types of columns beside which Spark's text has constants of the same kind.
_KINDS = (*map(PrimitiveType, WHOLE_NUMBERS), STRING, BOOLEAN, DATE)
# Metadata of text columns that Spark does not compare byte by byte.
_COMPARED_OTHERWISE = ("__COLLATIONS", SIZED_TEXT)
_DOUBLED = re.compile("'[^']+''")
_DAY = re.compile(r"\d{4}-\d\d-\d\d")


def as_predicate(condition: Any, schema: StructType, alias: str | None) -> Expression | None:
    """Convert a condition to a predicate of txlog; None if only Spark can evaluate it. Pure.

    A predicate needs no Spark job, and tells the conflict check which rows were read. The result is
    None for everything that Spark might evaluate differently: Columns, functions, subqueries,
    arithmetic, timestamps (they depend on the session's time zone), names with a table's alias,
    values that Spark casts before it compares them, and text whose meaning depends on settings of
    the session.
    """
    if not isinstance(condition, str) or not is_plain_text(condition):
        return None
    try:
        found = parse_sql(condition)
    except InvalidInputError:
        return None
    aliased = alias is not None and any(
        path[0].lower() == alias.lower() for path in columns_of(found)
    )
    return found if not aliased and is_alike(found, schema) else None


def is_plain_text(text: str) -> bool:
    """Return whether SQL text has the same tokens in every session.

    Settings change the meaning of backslashes, double quotes, and doubled quotes in a constant, and
    Spark replaces variables such as `${name}`.
    """
    return not any(sign in text for sign in ("\\", '"', "${")) and not _DOUBLED.search(text)


def is_alike(predicate: Expression, schema: StructType) -> bool:
    """Return whether a predicate of txlog means the same to Spark. Pure."""
    try:
        bind(predicate, schema)
    except InvalidInputError:
        return False
    fields = [schema.get(path[0]) for path in columns_of(predicate)]
    return translated(predicate, _SparkText(schema)) is not None and not any(
        field is None or '"timestamp' in schema_json(StructType((field,))) for field in fields
    )


@dataclass(frozen=True)
class _SparkText(Dialect[bool]):
    """Whether Spark parses the text of a predicate in the same way, without casts."""

    schema: StructType

    def truth(self, node: Column | Literal) -> bool:
        return self._same((node,), BOOLEAN)

    def is_null(self, column: Column) -> bool:
        return True

    def is_unknown(self, condition: bool) -> bool:
        return condition

    def compare(self, op: Operator, left: Expression, right: Expression) -> bool:
        return self._same((left, right))

    def is_in(self, operand: Expression, values: tuple[Literal, ...]) -> bool:
        return self._same((operand, *values))

    def like(self, operand: Expression, pattern: str) -> bool:
        return self._same((operand,), STRING)

    def negated(self, part: bool) -> bool:
        return part

    def _same(self, values: tuple[Expression, ...], wanted: DataType | None = None) -> bool:
        """Return True if Spark casts none of some values, which are of a wanted type, or raise."""
        operands = [_operand(value, self.schema) for value in values]
        if not is_compared_alike(operands) or (
            wanted is not None and kind_of(operands[0]) != wanted
        ):
            raise OtherwiseError
        return True


def _operand(value: Expression, schema: StructType) -> Expression:
    """Return a column with its type, or a constant; raise if Spark's text for it may mean another.

    A text of Spark has decimals where txlog has floats, and its timestamps depend on the session.
    """
    match value:
        case Column(path):
            return Column(path, _type_of(path, schema))
        case Cast(Literal(text), kind) | Literal(text, kind) if kind is not None:
            if kind == DATE and isinstance(text, str) and _DAY.fullmatch(text):
                return Literal(text, DATE)
        # For Spark, a larger integer is a decimal.
        case Literal(int(number)) if -(2**63) < number < 2**63:  # A boolean, too.
            return value
        case Literal(str()):
            return value
    raise OtherwiseError


def _type_of(path: tuple[str, ...], schema: StructType) -> DataType:
    fields = schema.along(path)
    if len(fields) < len(path) or fields[-1].type not in _KINDS:
        raise OtherwiseError
    if any(key in field.metadata for field in fields for key in _COMPARED_OTHERWISE):
        raise OtherwiseError
    return fields[-1].type


class RowsFound:
    """Finds the rows of a version for which a Spark condition is true.

    Spark filters the table itself, by any condition, and sends a bitmap (4 KB) for each block of
    32768 rows in which the condition is true for a row.
    """

    def __init__(
        self,
        spark: SparkSession,
        uri: str,
        condition: str | SparkColumn,
        alias: str | None,
        storage_options: Mapping[str, Any],
        frames: GivenFrames,
    ) -> None:
        self._spark = spark
        self._store = open_store(uri, storage_options)
        self._condition = condition
        self._alias = alias
        self._frames = frames
        self._last: DataFrame | None = None  # The frame of the last look at all files.
        self._version = -1  # The version at which it looked first.

    def of(self, base: Snapshot) -> Mapping[int, BitMap64]:
        """Return the rows of all files."""
        chosen = self._chosen(base)
        self._require_unchanged(chosen, base)
        if self._last is None:
            self._version = base.version
        self._last = chosen
        return _positions(chosen)

    def of_files(self, base: Snapshot, paths: pa.ChunkedArray) -> Mapping[int, BitMap64] | None:
        """Return the rows of some files; None if the condition may read what has changed."""
        last = self._last
        if last is None or change_reads_table(last, None, self._store) or not is_settled(last):
            return None
        return _positions(self._chosen(base, paths))

    def _require_unchanged(self, chosen: DataFrame, base: Snapshot) -> None:
        """Raise as `require_unchanged` does."""
        asked = base.version if self._last is None else self._version
        require_unchanged(chosen, None, self._store, base, asked)

    def _chosen(self, base: Snapshot, only: pa.ChunkedArray | None = None) -> DataFrame:
        if base.schema.get(ROW_ADDRESS) is not None:
            raise UnsupportedFeatureError(
                path=base.root,
                reason=f"a column named {ROW_ADDRESS} hides the addresses of rows",
                remedy="Use a condition without functions: columns compared with constants",
            )
        frame = read_version(
            self._spark,
            self._store,
            base,
            columns=[*base.schema.names(), ROW_ADDRESS],
            only=only,
        )
        frame = self._frames.added_to(frame, [self._condition])
        frame = frame if self._alias is None else frame.alias(self._alias)
        return followed(frame.where(self._condition), self._store, base)


def _positions(chosen: DataFrame) -> Mapping[int, BitMap64]:
    """Return the positions of the rows of a frame by fragment id."""
    bitmaps = (
        chosen.selectExpr(
            f"{ROW_ADDRESS} DIV {_BLOCK} AS block", f"{ROW_ADDRESS} % {_BLOCK} AS bit"
        )
        .groupBy("block")
        .agg({"bit": "bitmap_construct_agg"})
    )
    with before_commit():
        blocks = bitmaps.toArrow()
    return positions_in(blocks)


def positions_in(blocks: pa.Table) -> dict[int, BitMap64]:
    """Convert bitmaps of blocks of row addresses to positions by fragment id. Pure.

    Parameters
    ----------
    blocks
        Two columns: the number of a block, and its bitmap, 4 KB; bit i of byte b is the row
        address (block x 32768) + (8 x b) + i.
    """
    found: dict[int, BitMap64] = {}
    for addresses in _addresses(blocks.rename_columns(["block", "bitmap"]).sort_by("block")):
        for fragment, positions in by_fragment(addresses).items():
            found[fragment] = found.get(fragment, BitMap64()) | positions
    return found


def _addresses(blocks: pa.Table) -> Iterator[pa.Array]:
    """Yield the row addresses of blocks, ascending, in parts, because there may be many."""
    for batch in blocks.to_batches(max_chunksize=_BLOCKS_AT_ONCE):
        size = pa.binary(_BLOCK // 8)
        _, data = batch["bitmap"].cast(size).buffers()
        start = batch["bitmap"].cast(size).offset * _BLOCK
        bits = pa.Array.from_buffers(
            pa.bool_(), batch.num_rows * _BLOCK, [None, data], offset=start
        )
        places = pc.indices_nonzero(bits).cast(pa.int64())
        first = pc.multiply(batch["block"].take(pc.shift_right(places, 15)), _BLOCK)
        yield pc.add(first, pc.bit_wise_and(places, _BLOCK - 1))
