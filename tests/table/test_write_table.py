"""`txlog.write`: the definition of a new table, and what an existing one must already have."""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.dataset as ds
import pytest

import txlog
from txlog.verbs.create import NewTable

ROWS = pa.table({"id": [5, 6], "n": [1, 2], "m": [2, 4]})
DEFINITION: dict[str, Any] = {
    "partition_by": "n",
    "generated": {"m": "n * 2"},
    "identity": {"id": txlog.Identity(explicit=True)},
    "properties": {"delta.appendOnly": "false"},
    "name": "numbers",
    "description": "and their doubles",
}


def test_a_table_is_defined_as_create_defines_it(tmp_path: Path) -> None:
    made = txlog.write(tmp_path / "written", ROWS, **DEFINITION)
    empty = txlog.Table.create(tmp_path / "made", ROWS.schema, **DEFINITION)
    ours, theirs = made.metadata, empty.metadata
    assert ours.schema_string == theirs.schema_string
    assert (ours.name, ours.description) == ("numbers", "and their doubles")
    assert made.partition_columns == empty.partition_columns == ["n"]
    assert made.properties == empty.properties
    assert made.protocol == empty.protocol
    made.append(pa.table({"n": [7]}))
    assert made.to_arrow(where="n = 7")["m"].to_pylist() == [14]
    wrong = ROWS.set_column(2, "m", pa.array([2, 5]))
    with pytest.raises(txlog.SchemaMismatchError, match="n \\* 2 gives"):
        txlog.write(tmp_path / "wrong", wrong, **DEFINITION)
    with pytest.raises(txlog.SchemaMismatchError, match="id"):
        txlog.write(tmp_path / "wrong", ROWS, identity="id")  # Without `explicit`.
    assert not txlog.Table.exists(tmp_path / "wrong")


def test_an_existing_table_must_be_defined_so(tmp_path: Path) -> None:
    made = txlog.write(tmp_path, ROWS, **DEFINITION)
    txlog.write(tmp_path, pa.table({"n": [3]}), "append", **DEFINITION)
    for argument, value in (
        ("generated", {"m": "n * 3"}),
        ("generated", {"n": "1"}),
        ("identity", "n"),
        ("partition_by", "m"),
    ):
        with pytest.raises(txlog.InvalidInputError) as caught:
            txlog.write(tmp_path, ROWS, "append", **{argument: value})  # type: ignore[arg-type]
        assert caught.value.argument == argument
    with pytest.raises(txlog.InvalidInputError, match="no such column"):
        txlog.write(tmp_path, ROWS, "append", generated={"z": "1"})
    assert made.refresh().version == 1


def test_an_overwritten_schema_is_not_defined_in_silence(tmp_path: Path) -> None:
    """The overwrite takes its columns from the data, so the definition would be lost."""
    made = txlog.write(tmp_path, ROWS, **DEFINITION)
    for argument in ("generated", "identity"):
        with pytest.raises(txlog.InvalidInputError, match="the table exists") as caught:
            txlog.write(
                tmp_path,
                ROWS,
                "overwrite",
                schema_mode="overwrite",
                **{argument: DEFINITION[argument]},
            )
        assert caught.value.argument == argument
    assert made.refresh().version == 0


def test_the_argument_that_differs_is_named(tmp_path: Path) -> None:
    txlog.write(tmp_path, ROWS, **DEFINITION)
    with pytest.raises(txlog.InvalidInputError) as caught:
        txlog.write(
            tmp_path, ROWS, "append", identity={"id": txlog.Identity(start=5, explicit=True)}
        )
    assert caught.value.argument == "identity"


def test_no_file_stays_if_the_new_table_cannot_be_described(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """After the files are written, the intent of the first version refuses them."""
    intent = NewTable.intent

    def refused(new: NewTable, adds: Any = ()) -> Any:
        if adds:
            assert any(tmp_path.rglob("*.parquet"))
            raise txlog.InvalidInputError(argument="data", reason="it is refused")
        return intent(new, adds)

    monkeypatch.setattr(NewTable, "intent", refused)
    with pytest.raises(txlog.InvalidInputError, match="it is refused"):
        txlog.write(tmp_path / "t", pa.table({"x": [1]}))
    assert not any(path.is_file() for path in tmp_path.rglob("*"))


class _Stream:
    """A stream that pyarrow does not know, and that has nothing the second time."""

    def __init__(self, batches: Iterator[pa.RecordBatch]) -> None:
        self._reader = pa.RecordBatchReader.from_batches(ROWS.schema, batches)

    def __arrow_c_stream__(self, requested: object = None) -> object:
        found = pa.RecordBatchReader.from_batches(ROWS.schema, self._reader)
        return found.__arrow_c_stream__(requested)


@pytest.mark.parametrize(
    "as_data",
    [
        iter,
        _Stream,
        lambda batches: pa.RecordBatchReader.from_batches(ROWS.schema, batches),
        lambda batches: ds.Scanner.from_batches(batches, schema=ROWS.schema),
    ],
    ids=["iterator", "stream of another library", "reader", "scanner"],
)
def test_a_stream_is_not_read_twice_if_another_writer_creates_the_table(
    tmp_path: Path, as_data: Callable[[Iterator[pa.RecordBatch]], Any]
) -> None:
    """What is left of it may be nothing, which would look like data without rows."""

    def batches() -> Iterator[pa.RecordBatch]:
        yield from ROWS.to_batches()
        txlog.write(tmp_path, ROWS)

    with pytest.raises(txlog.CommitConflictError, match="another writer created the table first"):
        txlog.write(tmp_path, as_data(batches()), "append")
    assert txlog.Table(tmp_path).count() == ROWS.num_rows
    assert len([*tmp_path.glob("*.parquet")]) == 1
