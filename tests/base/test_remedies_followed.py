"""Each remedy of an error that names a call is followed to the letter; then the call succeeds.

The cases are compared with the sources: a remedy without a case fails here with its place. The
remedies of `doctor` are followed in `tests/verbs/test_doctor_remedies.py`, those of data sets and
loaders in `test_remedies_training.py`, and those of Spark in `test_remedies_spark.py`.
"""

import ast
import json
import re
import shlex
import shutil
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import polars as pl
import pyarrow as pa
import pyarrow.dataset
import pyarrow.parquet as pq
import pytest

import txlog
from tests.remedies import all_remedies, calls_of
from txlog.base.remedies import Asked, on_command_line
from txlog.extend import Operation, PrimitiveType, StructField, StructType, execute
from txlog.schema.arrow import FIXED_SIZE
from txlog.tools.cli.app import run as command_line

pytestmark = pytest.mark.xdist_group("remedies")  # All parse the whole package once.

ROWS = pa.table({"a": [1, 2], "s": ["x", "y"]})
WIDE = ROWS.append_column("z", pa.array([1, 2]))
NANOS = pa.table({"t": pa.array([1_000_000_001], pa.timestamp("ns"))})
MAPPED = {"delta.columnMapping.mode": "name"}
FRAGMENTS = {"delta.feature.txlog.fragments": "supported"}
Fail = Callable[..., object]
Way = Callable[[txlog.Table, str, Fail], object]


def wrong(value: object) -> Any:
    """Return a value that types would refuse where it is passed."""
    return value


INDEX = '{"format":1,"columns":["zz"],"bits":0}'
KEY = '{"format":1,"columns":["zz"]}'
# Values that types would refuse.
FIVE, LETTER, NAME = wrong(5), wrong("x"), wrong("a")
EMPTY, NULL = wrong({}), wrong({"z": "NULL"})


def evaluated(code: str, table: txlog.Table, **names: Any) -> Any:
    """Return the value of a piece of Python in a remedy about a table."""
    space = {"txlog": txlog, "pa": pa, "pyarrow": pa, "col": txlog.col, "Table": table, "t": table}
    text = re.sub(r"\(…\)", "()", code).replace("…", "...")
    if re.match(r"(alter|optimize|maintenance|pins|branches|indexes|restore|history)\b", text):
        text = f"t.{text}"
    return eval(text, space | names)


# What follows one piece of Python in a remedy.


def called(table: txlog.Table, code: str, fail: Fail) -> None:
    """Call it as it stands, and then do again what failed."""
    evaluated(code, table)
    fail(txlog.Table(table.uri))


def given(*args: Any, **named: Any) -> Way:
    """Call it with these arguments, which the remedy leaves open; then do again what failed."""

    def way(table: txlog.Table, code: str, fail: Fail) -> None:
        evaluated(code.partition("(")[0], table)(*args, **named)
        fail(txlog.Table(table.uri))

    return way


def instead(*args: Any, **named: Any) -> Way:
    """Call it with these arguments in place of what failed."""

    def way(table: txlog.Table, code: str, _: Fail) -> None:
        evaluated(code.partition("(")[0], table)(*args, **named)

    return way


def passed(table: txlog.Table, code: str, fail: Fail) -> None:
    """Pass the argument to what failed."""
    (keyword,) = ast.parse(f"f({code})", mode="eval").body.keywords  # type: ignore[attr-defined]
    fail(table, **{str(keyword.arg): evaluated(ast.unparse(keyword.value), table)})


def omitted(table: txlog.Table, code: str, fail: Fail) -> None:
    """Omit the argument."""
    fail(table, **{code: None})


def as_value(name: str, make: Callable[[Any], Any] = lambda value: value, **names: Any) -> Way:
    """Pass its value as the argument `name`."""

    def way(table: txlog.Table, code: str, fail: Fail) -> None:
        fail(table, **{name: make(evaluated(code, table, **names))})

    return way


@dataclass(frozen=True)
class Case:
    """A table, a call that fails, and for each piece of Python in the remedy how to follow it.

    A way of None is a name in a sentence that is followed by another piece.
    """

    make: Callable[[Path], txlog.Table]
    fail: Fail
    ways: tuple[Way | None, ...]


def plain(path: Path, **options: Any) -> txlog.Table:
    return txlog.write(path, ROWS, **options)


def made(data: pa.Table = ROWS, **options: Any) -> Callable[[Path], txlog.Table]:
    return lambda path: txlog.write(path, data, **options)


def edited(path: Path, version: int, change: Callable[[dict[str, Any]], Any]) -> txlog.Table:
    """Change the actions of a commit, as a faulty writer would have written them."""
    file = path / "_delta_log" / f"{version:020}.json"
    actions = [json.loads(line) for line in file.read_text().splitlines()]
    for action in actions:
        change(action)
        action.get("commitInfo", {}).pop("txlogCrc32", None)
    file.write_text("".join(json.dumps(action) + "\n" for action in actions))
    for checksum in file.parent.glob("*.crc"):
        checksum.unlink()
    return txlog.Table(path)


def miscounted(path: Path) -> txlog.Table:
    """Return a table whose log states another number of rows than its file has."""
    plain(path, properties=FRAGMENTS)
    return edited(path, 0, with_seven_rows)


def with_seven_rows(action: dict[str, Any]) -> None:
    if "add" in action:
        stats = json.loads(action["add"]["stats"])
        action["add"]["stats"] = json.dumps(stats | {"numRecords": 7})


def tracked(path: Path, change: Callable[[dict[str, Any]], Any]) -> txlog.Table:
    """Return a table with row ids whose latest commit is changed."""
    plain(path, properties={"delta.enableRowTracking": "true"}).append(ROWS)
    return edited(path, 1, change)


def with_an_odd_mark(action: dict[str, Any]) -> None:
    if "domainMetadata" in action:
        action["domainMetadata"]["configuration"] = "{}"


def without_a_mark(action: dict[str, Any]) -> None:
    action.get("domainMetadata", {})["removed"] = True
    action.get("add", {}).pop("stats", None)


def with_another_fragment(action: dict[str, Any]) -> None:
    action.get("add", {})["tags"] = {"txlog.fragmentId": "0"}


def with_columns_of_none(action: dict[str, Any]) -> None:
    action.get("add", {})["tags"] = {"txlog.fragmentId": "77", "txlog.fields": '["a"]'}


def with_a_text_for_a_number(action: dict[str, Any]) -> None:
    action.get("add", {})["partitionValues"] = {"a": "zzz"}


def without_its_id(action: dict[str, Any]) -> None:
    action.get("add", {}).pop("tags", None)


def keyed(uri: str) -> txlog.Table:
    """Return a table with a unique key whose column may be widened."""
    rows = ROWS.set_column(0, "a", pa.array([1, 2], pa.int32()))
    table = txlog.write(uri, rows, properties={"delta.enableTypeWidening": "true"})
    table.alter.add_constraint({"pk": txlog.unique("a")})
    return txlog.Table(uri)


def of_another_engine(path: Path) -> txlog.Table:
    """Return a table with a constraint that txlog cannot compute."""
    plain(path).alter.add_constraint({"c": "a > 0"})

    def change(action: dict[str, Any]) -> None:
        if "metaData" in action:
            action["metaData"]["configuration"]["delta.constraints.c"] = "their_function(a) > 1"

    return edited(path, 1, change)


def with_a_surrogate(kind: str, field: str) -> Callable[[Path], txlog.Table]:
    """Return a maker of a table with a text that is no Unicode in a field of an action."""

    def make(path: Path) -> txlog.Table:
        plain(path, txn=("job", 1))

        def change(action: dict[str, Any]) -> None:
            if kind in action and action[kind].get("appId", "job") == "job":
                is_map = isinstance(action[kind].get(field), dict)
                action[kind][field] = {"my.text": "\ud800"} if is_map else "\ud800"

        return edited(path, 0, change)

    return make


def checkpoint(table: txlog.Table) -> Any:
    return table.maintenance.checkpoint()


def written_again(table: txlog.Table, code: str, fail: Fail) -> None:
    """Write the rows to another table by this function; then do there what failed."""
    fail(evaluated(code, table)(f"{table.uri}-again", table.to_arrow()))


def without_numbers(path: Path) -> txlog.Table:
    """Return a table that has given all ids of fragments."""
    plain(path, properties=FRAGMENTS)

    def change(action: dict[str, Any]) -> None:
        if action.get("txn", {}).get("appId") == "txlog.fragments":
            action["txn"]["version"] = 2**30 - 1

    return edited(path, 0, change)


def miscounted_beside_a_column_file(path: Path) -> txlog.Table:
    plain(path, properties=FRAGMENTS).alter.add_columns({"z": "a"})
    edited(path, 0, with_seven_rows)
    return edited(path, 1, with_seven_rows)


def with_a_column_file(path: Path) -> txlog.Table:
    table = plain(path, properties=FRAGMENTS)
    table.alter.replace_columns({"a": "a + 1"})
    return table


def without_the_feature(path: Path) -> txlog.Table:
    """Return a table with a column file whose protocol does not list the feature for it."""
    plain(path, properties=FRAGMENTS).alter.add_columns({"z": "a"})

    def change(action: dict[str, Any]) -> None:
        for names in ("readerFeatures", "writerFeatures"):
            listed = action.get("protocol", {}).get(names, [])
            if "txlog.fragments" in listed:
                listed.remove("txlog.fragments")

    return edited(path, 0, change)


def with_a_broken_pin(path: Path) -> txlog.Table:
    plain(path).pins.create("p")

    def change(action: dict[str, Any]) -> None:
        if "domainMetadata" in action:
            action["domainMetadata"]["configuration"] = "{}"

    return edited(path, 1, change)


def with_a_broken_clone(path: Path) -> txlog.Table:
    table = plain(path)
    table.clone(next_to(table), True, register=True)

    def change(action: dict[str, Any]) -> None:
        if "domainMetadata" in action:
            action["domainMetadata"]["configuration"] = "{}"

    for version in range(1, txlog.Table(path).version + 1):
        edited(path, version, change)
    return txlog.Table(path)


def without_a_file(path: Path) -> txlog.Table:
    table = plain(path)
    table.append(ROWS)
    (path / table.files()["path"][0].as_py()).unlink()
    return table


def file_back(table: txlog.Table, code: str, _fail: Fail) -> None:
    """Bring the file back, and build the index."""
    lost = Path(table.uri) / table.files()["path"][0].as_py()
    pq.write_table(ROWS, lost)
    evaluated(code, table)


def index_dropped(table: txlog.Table, code: str, _fail: Fail) -> None:
    evaluated(code, table)
    assert not table.indexes.list()


def torn(path: Path) -> txlog.Table:
    plain(path).append(ROWS)
    file = path / "_delta_log" / f"{1:020}.json"
    file.write_bytes(file.read_bytes()[:30])
    return txlog.Table(path, version=0)


def with_a_lost_branch(path: Path) -> txlog.Table:
    """A branch whose base another engine has deleted from the log."""
    table = plain(path)
    table.append(ROWS)
    table.branches.create("b", 0)
    table.maintenance.checkpoint()
    for version in (0, 1):
        (path / "_delta_log" / f"{version:020}.json").unlink()
    return txlog.Table(path)


def with_a_lost_pin(path: Path) -> txlog.Table:
    table = plain(path)
    for _ in range(5):
        table.append(ROWS)
    table.maintenance.checkpoint()
    table.pins.create("p", 2)
    (path / "_delta_log" / f"{2:020}.json").unlink()
    return txlog.Table(path)


def with_a_dropped_column(path: Path) -> txlog.Table:
    table = txlog.write(path, WIDE, properties=FRAGMENTS)
    table.alter.drop_columns("z")
    return txlog.Table(path)


def with_identity(path: Path) -> txlog.Table:
    table = txlog.Table.create(path, pa.schema([("id", pa.int64()), ("a", pa.int64())]),
                               identity="id")  # fmt: skip
    table.append(pa.table({"a": [1]}))
    return table


def without_type(path: Path) -> txlog.Table:
    void = StructField("n", PrimitiveType("void"))
    table = txlog.Table.create(path, StructType((StructField("a", PrimitiveType("long")), void)))
    table.append(pa.table({"a": [1]}))
    return table


def replaced(path: Path) -> txlog.Table:
    table = plain(path)
    shutil.rmtree(path)
    plain(path)
    return table


def with_shorter_lists(path: Path) -> txlog.Table:
    """Return a table whose metadata states another length of its lists than they have."""
    table = txlog.write(path, pa.table({"v": [[1.0, 2.0]]}))
    table.alter.set_column_metadata("v", {FIXED_SIZE: "3"})
    return table


def nanoseconds(path: Path) -> txlog.Table:
    (path / "folder").mkdir(parents=True)
    pq.write_table(NANOS, path / "folder" / "1.parquet")
    return plain(path / "t")


def pinned(path: Path) -> txlog.Table:
    table = plain(path, properties={"delta.feature.deletionVectors": "supported"})
    table.pins.create("p", 0)
    table.append(ROWS)
    return table


def merged(table: txlog.Table, source: pa.Table, **options: Any) -> Any:
    return table.merge(source, "target.a = source.a", **options)


def update_all(table: txlog.Table, schema_mode: Any = None, **named: Any) -> object:
    narrow = merged(table, ROWS.select(["a"]), schema_mode=schema_mode)
    return narrow.when_matched_update_all(**named).execute()


def drop_all(table: txlog.Table, code: str, fail: Fail) -> None:
    for feature in ("deletionVectors", "checkpointProtection"):
        evaluated(code, txlog.Table(table.uri))(feature, feature != "deletionVectors")
    fail(txlog.Table(table.uri))


def protected(path: Path) -> txlog.Table:
    table = plain(path, properties={"delta.feature.deletionVectors": "supported"})
    table.alter.drop_feature("deletionVectors")
    return table


def protected_and_pinned(path: Path) -> txlog.Table:
    table = plain(path, properties={"delta.feature.columnMapping": "supported"})
    table.pins.create("p", 0)
    return table


def with_a_vector(path: Path) -> txlog.Table:
    table = plain(path)
    table.delete("a = 1")
    return table


def sorted_by_a(root: Path) -> txlog.Table:
    properties = {"delta.columnMapping.mode": "name", "txlog.sortBy": "a"}
    return txlog.write(root / "t", ROWS, properties=properties)


def indexed(path: Path) -> txlog.Table:
    table = plain(path, properties=MAPPED)
    table.indexes.create("a", name="i")
    return table


def twice_indexed(path: Path) -> txlog.Table:
    table = plain(path)
    table.indexes.create("a", name="i")
    table.indexes.create("s", name="j")
    return table


def insert_identities(table: txlog.Table, **named: Any) -> object:
    rows = pa.table({"id": [5], "a": [5]})
    return merged(table, rows).when_not_matched_insert_all(**named).execute()


def without_clauses(table: txlog.Table, code: str, _: Fail) -> None:
    eval(f"merger{code}.execute()", {"merger": merged(table, ROWS)})


def nothing() -> type[Operation]:
    class Nothing(Operation):
        name = "NOTHING"

        def intent(self, base: Any) -> None:
            return None

    return Nothing


def convert(table: txlog.Table, **named: Any) -> object:
    return txlog.convert_to_delta(Path(table.uri).parent / "folder", **named)


def append(data: Any, **given: Any) -> Fail:
    return lambda table, **named: table.append(**({"data": data} | given | named))


def overwrite(**given: Any) -> Fail:
    return lambda table, **named: table.overwrite(**({"data": ROWS} | given | named))


def update(updates: Any) -> Fail:
    return lambda table, **named: table.update(**({"updates": updates} | named))


def new_values(table: txlog.Table, code: str, _: Fail) -> None:
    table.update(**{code: {"a": 5}})


def transact(table: txlog.Table, code: str, _: Fail) -> None:
    with evaluated(code, table)(txn=("job", 1)) as transaction:
        transaction.append(ROWS)


def in_transaction(table: txlog.Table) -> None:
    with table.transaction() as transaction:
        transaction.append(ROWS, txn=("job", 1))


def next_to(table: txlog.Table, name: str = "other") -> str:
    return f"{table.uri}-{name}"


def clone_to_one_with_a_feed(table: txlog.Table) -> None:
    feed = {"delta.enableChangeDataFeed": "true"}
    other = txlog.write(next_to(table), ROWS, mode="overwrite", properties=feed)
    table.clone(other.uri, replace=True)


def clone_and_append(table: txlog.Table, code: str, fail: Fail) -> None:
    fail(evaluated(code, table)(next_to(table)))


def files_alone(table: txlog.Table, code: str, _: Fail) -> None:
    assert evaluated(code, table)(["a", "_fragid"]).to_table().num_rows


def scanner(table: txlog.Table) -> object:
    table.delete("a = 1")
    return table.to_pyarrow_dataset().scanner(columns=["a", "__filename"]).to_table()


def version_of_history(table: txlog.Table, code: str, fail: Fail) -> None:
    fail(table, version=evaluated(code, table)[0]["version"])


def open_at(version: Any) -> Fail:
    return lambda table, **named: txlog.Table(table.uri, **({"version": version} | named))


def make_table(table: txlog.Table, code: str, _: Fail) -> None:
    made_of = ROWS if code.endswith("write") else ROWS.schema
    evaluated(code, table)(next_to(table), made_of)
    txlog.Table(next_to(table))


def write_with(**given: Any) -> Fail:
    def fail(table: txlog.Table, **named: Any) -> object:
        arguments = {"mode": "append"} | given | named
        return txlog.write(table.uri, ROWS, **arguments)

    return fail


def restore_older(table: txlog.Table, code: str, fail: Fail) -> None:
    evaluated(code, table)
    assert txlog.Table(table.uri).version == 2
    fail(table)


def open_again(table: txlog.Table, code: str, _: Fail) -> None:
    evaluated(code, table)(table.uri).append(ROWS)


def without_defined(table: txlog.Table, code: str, _: Fail) -> None:
    new = txlog.Table.create(table.uri, pa.schema([("a", pa.int64()), ("g", pa.int64())]),
                             generated={"g": "a * 2"}, mode="overwrite")  # fmt: skip
    assert code.startswith("Table.create")
    new.append(pa.table({"a": [1]}))


def generated_anew(table: txlog.Table) -> object:
    return txlog.write(table.uri, ROWS, mode="overwrite", schema_mode="overwrite",
                       generated={"g": "a * 2"})  # fmt: skip


def merge_columns(table: txlog.Table, value: Any) -> object:
    return table.fragments()[0].merge_columns(value)


def add_with_type(table: txlog.Table, code: str, fail: Fail) -> None:
    kind: Callable[[], pa.DataType] = pa.int64
    assert issubclass(type(kind()), evaluated(code, table))
    fail(table, columns=pa.schema([("z", kind())]))


def as_schema(table: txlog.Table, code: str, _: Fail) -> None:
    text = code.replace(", …", "").replace("…", "")
    schema = evaluated(text, table, name="a", type=pa.int64())
    txlog.Table.create(next_to(table), schema)


def not_null(table: txlog.Table, code: str, fail: Fail) -> None:
    fail(table, field=pa.field("z", pa.int64()))
    table.update({"z": "1"})
    evaluated(code, table)
    assert not txlog.Table(table.uri).schema.field("z").nullable


def add_field(table: txlog.Table, field: Any = None) -> object:
    return table.alter.add_columns([field or pa.field("z", pa.int64(), nullable=False)])


def with_tables(table: txlog.Table, code: str, fail: Fail) -> None:
    text = code.partition("=")[2].replace("…", "t")
    fail(table, tables=evaluated(text, table))


def checkpoint_damaged(path: Path) -> txlog.Table:
    table = plain(path)
    for _ in range(3):
        table.append(ROWS)
    table.maintenance.checkpoint()
    table.append(ROWS)
    for file in (path / "_delta_log").glob("*.checkpoint*"):
        file.write_bytes(b"PAR1 damaged PAR1")
    return txlog.Table(path)


CASES: dict[str, Case] = {
    "checkpoint/write.py: alter.set_name": Case(
        with_a_surrogate("metaData", "name"), checkpoint, (given("told"),)
    ),
    "checkpoint/write.py: alter.set_description": Case(
        with_a_surrogate("metaData", "description"), checkpoint, (given("told"),)
    ),
    "checkpoint/write.py: alter.set_properties": Case(
        with_a_surrogate("metaData", "configuration"), checkpoint, (given({"my.text": "told"}),)
    ),
    "checkpoint/write.py: txlog.write": Case(
        with_a_surrogate("txn", "appId"), checkpoint, (written_again,)
    ),
    'commit/app_versions.py: ("my-job", 17)': Case(
        plain, append(ROWS, txn=wrong("job")), (as_value("txn"),)
    ),
    "commit/intent.py: Table.clone": Case(without_numbers, append(ROWS), (clone_and_append,)),
    "commit/operation.py: txlog.extend.Operation": Case(
        plain, lambda t, operation=LETTER: execute(t, operation),
        (lambda t, _code, fail: fail(t, operation=nothing()()),),
    ),
    'commit/operation.py: {"job": "nightly"}': Case(
        plain, append(ROWS, user_metadata=wrong(5)), (as_value("user_metadata"),)
    ),
    "data_files/assignments.py: new_values": Case(plain, update({"a": 5}), (new_values,)),
    'data_files/assignments.py: {"x": "x + 1"}': Case(
        made(pa.table({"x": [1]})), update({}), (as_value("updates"),)
    ),
    'data_files/assignments.py: except_cols=["x"]': Case(
        with_identity, insert_identities, (passed,)
    ),
    'data_files/assignments.py: alter.widen_type | schema_mode="merge"': Case(
        without_type, update({"n": "upper(\'x\')"}),
        (
            given("n", pa.string()),
            lambda t, code, fail: (
                passed(t, code, append(pa.table({"a": [1], "n": ["x"]}))), fail(txlog.Table(t.uri))
            ),
        ),
    ),
    "data_files/column_files.py: optimize.compute_statistics(recompute=True)": Case(
        miscounted, lambda t: t.alter.add_columns({"z": "a + 1"}), (called,)
    ),
    'data_files/column_values.py: {"total": "price * amount"}': Case(
        made(pa.table({"price": [1], "amount": [2]}), properties=FRAGMENTS),
        lambda t, columns=FIVE: t.alter.add_columns(columns), (as_value("columns"),),
    ),
    "data_files/column_values.py: pyarrow.DataType": Case(
        made(properties=FRAGMENTS),
        lambda t, columns=NULL: t.alter.add_columns(columns), (add_with_type,),
    ),
    'verbs/constraints.py: {"positive": "x > 0"}': Case(
        made(pa.table({"x": [1]})),
        lambda t, constraints=EMPTY: t.alter.add_constraint(constraints),
        (as_value("constraints"),),
    ),
    "verbs/constraints.py: alter.set_nullable('x', False)": Case(
        plain, lambda t: t.alter.add_constraint({"pk": "PRIMARY KEY (a)"}), (called,),
    ),
    "verbs/constraints.py: Table.upsert": Case(
        plain, lambda t: t.append(ROWS, on_conflict="update"), (instead(ROWS, on="a"),)
    ),
    "commit/unique_keys.py: alter.drop_constraint('x')": Case(
        keyed, lambda t: t.alter.widen_type("a", pa.float64()), (called,)
    ),
    "verbs/mapped_columns.py: alter.drop_constraint('x')": Case(
        keyed,
        lambda t: t.overwrite(ROWS.select(["s"]), schema_mode="overwrite"),
        (called,),
    ),
    "data_files/constraints.py: alter.drop_constraint('x')": Case(
        of_another_engine, append(ROWS), (called,)
    ),
    "data_files/incoming.py: pa.table(x)": Case(
        plain, append(ROWS.to_pydict()), (as_value("data", data=ROWS.to_pydict()),)
    ),
    "data_files/incoming.py: pa.Table.from_pylist(x)": Case(
        plain, append(ROWS.to_pylist()), (as_value("data", data=ROWS.to_pylist()),)
    ),
    "data_files/incoming.py: x.collect()": Case(
        plain, append(pl.from_arrow(ROWS).lazy()),  # type: ignore[union-attr]
        (as_value("data", data=pl.from_arrow(ROWS).lazy()),),  # type: ignore[union-attr]
    ),
    'data_files/incoming.py: {"x.…": …} | schema_mode="merge"': Case(
        made(pa.table({"k": [1], "s": [{"a": 1, "b": 2}]})),
        update({"s": "named_struct('a', 5)"}),
        (
            lambda t, _code, fail: fail(t, updates={"s.a": "5"}),
            lambda t, code, _: passed(t, code, lambda t, **named: t.merge(
                pa.table({"k": [1], "s": [{"a": 5}]}), "target.k = source.k", **named
            ).when_matched_update_all().execute()),
        ),
    ),
    "data_files/incoming.py: options=txlog.WriteOptions(writer_properties=txlog.WriterProperties("
    "allow_truncated_timestamps=True))": Case(
        made(pa.table({"t": pa.array([1], pa.timestamp("us"))})), append(NANOS), (passed,)
    ),
    'data_files/modes.py: schema_mode="overwrite" | partition_by': Case(
        plain, overwrite(partition_by="s"), (passed, omitted)
    ),
    'data_files/modes.py: mode="overwrite"': Case(plain, write_with(where="a < 10"), (passed,)),
    'data_files/modes.py: schema_mode="merge"': Case(
        plain, append(WIDE, schema_mode=wrong("overwrite")), (passed,)
    ),
    'data_files/modes.py: partition_mode="static"': Case(
        plain, overwrite(partition_mode="dynamic"), (passed,)
    ),
    "data_files/options.py: txlog.ColumnProperties(…)": Case(
        plain,
        lambda _t, default_column_properties=FIVE: txlog.WriterProperties(
            default_column_properties=default_column_properties
        ),
        (as_value("default_column_properties"),),
    ),
    'data_files/options.py: txlog.WriterProperties(compression="zstd")': Case(
        plain,
        lambda _t, writer_properties=FIVE: txlog.WriteOptions(
            writer_properties=writer_properties
        ),
        (as_value("writer_properties"),),
    ),
    "data_files/options.py: pa.schema([(name, type), …])": Case(
        plain, lambda t: txlog.Table.create(next_to(t), wrong(5)), (as_schema,)
    ),
    "data_files/options.py: pa.int64()": Case(
        made(pa.table({"a": pa.array([1], pa.int32())})),
        lambda t, type=FIVE: t.alter.widen_type("a", type), (as_value("type"),),
    ),
    "data_files/options.py: options=txlog.WriteOptions(max_rows_per_file=1_000_000)": Case(
        plain, append(ROWS, options=wrong(5)), (passed,)
    ),
    "expressions/sql.py: col('a')": Case(
        plain, lambda t, where=FIVE: t.count(where), (as_value("where", lambda c: c > 1),)
    ),
    "expressions/tree.py: between()": Case(
        plain, lambda t: t.count(wrong(0 < txlog.col("a") < 2)),
        (lambda t, _code, _fail: t.count(txlog.col("a").between(0, 2)),),
    ),
    'expressions/tree.py: ("x", "=", None)': Case(
        made(pa.table({"x": [1, None]})),
        lambda t, where=("x", "<", None): t.to_pyarrow_dataset([where]).to_table(),
        (as_value("where"),),
    ),
    'expressions/tree.py: ("a", ">", 1)': Case(
        plain, lambda t, where=FIVE: t.to_pyarrow_dataset([where]).to_table(),
        (as_value("where"),),
    ),
    "fragments/metadata.py: FragmentMetadata.to_json": Case(
        plain, lambda _t, text="{}": txlog.FragmentMetadata.from_json(text),
        (lambda t, _code, fail: fail(
            t, text=txlog.write_fragments(ROWS, t)[0].to_json()
        ),),
    ),
    "log/segment.py: Table.history()": Case(plain, open_at(7), (version_of_history,)),
    "lookup/lookup.py: missing='skip' | missing='null'": Case(
        plain, lambda t, missing="error": t.lookup([99], on="a", missing=missing),
        (passed, passed),
    ),
    "protocol/properties.py: alter.add_columns": Case(
        with_a_dropped_column, append(WIDE, schema_mode="merge"),
        (lambda t, code, _fail: (
            evaluated(code, t)({"z": "a"}), append(WIDE)(txlog.Table(t.uri))
        ),),
    ),
    "scan/data_file.py: maintenance.repair(False, missing_files=True)": Case(
        without_a_file, lambda t: t.to_arrow(), (called,)
    ),
    "scan/dataset.py: pyarrow.dataset.ParquetReadOptions(…)": Case(
        plain,
        lambda t, parquet_read_options=FIVE: t.to_pyarrow_dataset(
            parquet_read_options=parquet_read_options
        ),
        (as_value("parquet_read_options"),),
    ),
    "scan/dataset.py: Table.scan": Case(plain, scanner, (files_alone,)),
    "scan/read.py: optimize.compute_statistics(recompute=True)": Case(
        miscounted_beside_a_column_file, lambda t: t.to_arrow(), (called,)
    ),
    "scan/read_plan.py: alter.set_column_metadata('x', {'x': None})": Case(
        with_shorter_lists, lambda t: t.to_arrow(), (called,)
    ),
    "scan/read_plan.py: columns=['x']": Case(
        plain, lambda t, columns=NAME: t.scan(columns), (passed,)
    ),
    "snapshot/load.py: restore(1)": Case(
        torn, lambda t: txlog.Table(t.uri).to_arrow(), (restore_older,)
    ),
    "snapshot/load.py: txlog.Table.create | txlog.write": Case(
        plain, lambda t: txlog.Table(next_to(t)), (make_table, make_table)
    ),
    "snapshot/load.py: txlog.Table": Case(
        replaced, lambda t: t.append(ROWS), (open_again,)
    ),
    "snapshot/references.py: pins.delete('x')": Case(
        with_a_lost_pin, lambda t: t.vacuum(), (called,)
    ),
    "snapshot/references.py: pins.delete('x') of a broken pin": Case(
        with_a_broken_pin, lambda t: t.pins.list(), (called,)
    ),
    "snapshot/references.py: maintenance.forget_clone('x')": Case(
        with_a_broken_clone, lambda t: t.vacuum(), (called,)
    ),
    "snapshot/branches.py: Table.branches.create": Case(
        plain, lambda t: txlog.Table(t.uri, branch="b"), (given("b"),)
    ),
    "snapshot/references.py: branches.discard('x')": Case(
        with_a_lost_branch, lambda t: t.maintenance.expire(0), (called,)
    ),
    "verbs/vacuum.py: branches.discard('x')": Case(
        with_a_lost_branch, lambda t: t.vacuum(), (called,)
    ),
    "snapshot/references.py: Table.pins.create": Case(plain, open_at("p"), (given("p"),)),
    "snapshot/time_travel.py: history()": Case(plain, open_at(1.5), (version_of_history,)),
    "table/transaction.py: Table.transaction": Case(plain, in_transaction, (transact,)),
    "table/write_table.py: alter.cluster_by": Case(
        plain, write_with(cluster_by="a"), (given("a"),)
    ),
    'table/write_table.py: Table.create(…, mode="overwrite")': Case(
        plain, generated_anew, (without_defined,)
    ),
    "verbs/cluster.py: alter.cluster_by": Case(
        plain, lambda t: t.optimize.cluster(), (given("a"),)
    ),
    "verbs/clone.py: alter.set_properties": Case(
        plain, lambda t, **_: t.clone(next_to(t), True, properties=MAPPED),
        (lambda t, code, _fail: evaluated(code, t.clone(next_to(t), True))(MAPPED),),
    ),
    "verbs/clone.py: optimize.compact(max_column_files=0)": Case(
        with_a_column_file, clone_to_one_with_a_feed, (called,)
    ),
    "verbs/columns.py: alter.replace_columns": Case(
        made(properties=FRAGMENTS), lambda t: t.alter.add_columns({"s": "'z'"}),
        (instead({"s": "'z'"}),),
    ),
    'verbs/columns.py: alter.add_features("txlog.fragments")': Case(
        plain, lambda t: t.alter.add_columns({"z": "a"}), (called,)
    ),
    'verbs/convert.py: properties={"delta.feature.timestampNanos": "supported"} | '
    "allow_truncated_timestamps=True": Case(nanoseconds, convert, (passed, passed)),
    'verbs/create.py: txlog.Table | mode="append" | mode="overwrite"': Case(
        plain, lambda t, mode="error": txlog.write(t.uri, ROWS, mode=mode),
        (lambda t, code, _fail: evaluated(code, t)(t.uri).to_arrow(), passed, passed),
    ),
    'fragments/rows.py: alter.add_features("txlog.fragments")': Case(
        without_the_feature, lambda t: t.to_arrow(), (called, called)
    ),
    "table/indexes.py: indexes.build('x') | indexes.drop('x')": Case(
        without_a_file, lambda t: t.indexes.create("a"), (None, file_back, index_dropped)
    ),
    "verbs/drop_feature.py: truncate_history=True": Case(
        protected,
        lambda t, **named: t.alter.drop_feature("checkpointProtection", **named), (passed,),
    ),
    "verbs/drop_feature.py: truncate_history": Case(
        protected_and_pinned,
        lambda t, truncate_history=True: t.alter.drop_feature("columnMapping", truncate_history),
        (lambda t, _code, fail: fail(t, truncate_history=False), called),
    ),
    "verbs/expire.py: Table.maintenance.checkpoint": Case(
        checkpoint_damaged, lambda t: t.maintenance.expire(0, dry_run=False), (given(),)
    ),
    'fragments/ids.py: alter.drop_feature("rowTracking")': Case(
        lambda path: tracked(path, with_an_odd_mark), lambda t: t.append(ROWS), (called,)
    ),
    'commit/intent.py: alter.drop_feature("rowTracking")': Case(
        lambda path: tracked(path, without_a_mark), lambda t: t.append(ROWS), (called,)
    ),
    "verbs/features.py: alter.drop_feature": Case(
        made(properties={"delta.feature.deletionVectors": "supported"}),
        lambda t: t.alter.upgrade_protocol(1, 2), (drop_all,),
    ),
    'verbs/features.py: alter.add_features("txlog.fragments")': Case(
        plain, lambda t: t.alter.add_features(), (lambda t, code, _fail: evaluated(code, t),)
    ),
    "verbs/fragments/column_commits.py: Table.alter.replace_columns": Case(
        made(properties=FRAGMENTS),
        lambda t: merge_columns(t, {"s": "'z'"}), (instead({"s": "'z'"}),),
    ),
    "table/table.py: FragmentOperation.Overwrite": Case(
        plain,
        lambda t: txlog.Table.create(
            t.uri, ROWS.schema, fragments=txlog.write_fragments(ROWS, next_to(t)), mode="overwrite"
        ),
        (lambda t, code, _fail: t.commit(
            evaluated(f"txlog.{code}", t)(txlog.write_fragments(ROWS, t))
        ),),
    ),
    "verbs/fragments/operations.py: txlog.FragmentOperation.Append(fragments)": Case(
        plain, lambda t, operation=FIVE: t.commit(operation),
        (lambda t, code, fail: fail(
            t, operation=evaluated(code, t, fragments=txlog.write_fragments(ROWS, t))
        ),),
    ),
    "verbs/fragments/workers.py: Table.delete": Case(
        made(properties={"delta.enableDeletionVectors": "false"}),
        lambda t: t.fragments()[0].delete("a = 1"), (instead("a = 1"),),
    ),
    "verbs/generate.py: optimize.compact(max_deleted_fraction=0, max_column_files=0)": Case(
        with_a_vector, lambda t: t.maintenance.generate(), (called,)
    ),
    "verbs/indexes.py: on=… | t.indexes.create(…)": Case(
        plain, lambda t, **named: t.lookup([1], **named),
        (lambda t, _code, fail: fail(t, on="a"), given("a")),
    ),
    "verbs/indexes.py: on=…": Case(
        twice_indexed, lambda t, on=None: t.lookup([1], on=on),
        (lambda t, _code, fail: fail(t, on="a"),),
    ),
    "verbs/indexes.py: t.indexes.create(…)": Case(
        plain, lambda t: t.indexes.build(), (given("a"),)
    ),
    'verbs/mapped_columns.py: alter.set_properties({"delta.columnMapping.mode": "name"})': Case(
        plain, lambda t: t.alter.rename_column("a", "b"), (called,)
    ),
    "verbs/mapped_columns.py: alter.unset_properties(['x'])": Case(
        sorted_by_a, lambda t: t.alter.drop_columns("a"), (called,)
    ),
    "verbs/mapped_columns.py: indexes.drop('x')": Case(
        indexed, lambda t: t.alter.drop_columns("a"), (called,)
    ),
    'verbs/merge/clauses.py: on="id"': Case(
        made(pa.table({"id": [1]})),
        lambda t, **named: t.merge(pa.table({"id": [1]}), **named)
        .when_matched_delete().execute(), (passed,),
    ),
    'verbs/merge/clauses.py: on=["id"]': Case(
        made(pa.table({"id": [1]})),
        lambda t, on=(): t.merge(pa.table({"id": [1]}), on=on).when_matched_delete().execute(),
        (passed,),
    ),
    "verbs/merge/clauses.py: .when_matched_update_all()": Case(
        plain, lambda t: merged(t, ROWS).execute(), (without_clauses,)
    ),
    'verbs/merge/clauses.py: except_cols=["x"] | schema_mode="merge"': Case(
        plain, update_all, (passed, passed)
    ),
    'verbs/merge/clauses.py: schema_mode="merge"': Case(
        plain,
        lambda t, **named: t.merge(WIDE, on="a", **named).when_matched_update_all().execute(),
        (passed,),
    ),
    "verbs/metadata.py: if_exists=True": Case(
        plain, lambda t, **named: t.alter.unset_properties("delta.no.such", **named), (passed,)
    ),
    "verbs/properties.py: alter.add_constraint | alter.drop_constraint": Case(
        plain, lambda t: t.alter.set_properties({"delta.constraints.c": "a > 0"}),
        (instead({"c": "a > 0"}), None),
    ),
    "verbs/properties.py: alter.add_constraint": Case(
        plain,
        lambda t: txlog.Table.create(
            f"{t.uri}-new", ROWS.schema, properties={"txlog.unique.pk": KEY}
        ),
        (instead({"pk": txlog.unique("a")}),),
    ),
    "data_files/write_plan.py: partition_by=[]": Case(
        made(ROWS, partition_by="s"),
        lambda t, **named: t.overwrite(ROWS.select(["a"]), schema_mode="overwrite", **named),
        (passed,),
    ),
    "verbs/properties.py: indexes.create": Case(
        plain,
        lambda t: t.alter.set_properties({"txlog.index.i": INDEX}),
        (instead("a"),),
    ),
    "table/query.py: tables={'x': …}": Case(
        plain, lambda _, **named: txlog.sql("SELECT * FROM nope", **named), (with_tables,)
    ),
    "table/query.py: txlog.Table": Case(
        plain,
        lambda t, data=None: txlog.sql("SELECT * FROM x", {"x": data or t.uri}),
        (lambda t, code, fail: fail(t, data=evaluated(code, t)(t.uri)),),
    ),
    "verbs/references.py: pins.update": Case(
        pinned, lambda t: t.pins.create("p"), (instead("p", 1),)
    ),
    "verbs/schema.py: alter.set_nullable('x', False)": Case(plain, add_field, (not_null,)),
    "verbs/statistics.py: optimize.compute_statistics(recompute=True)": Case(
        miscounted, lambda t: t.fragments()[0].validate(), (called,)
    ),
    "verbs/vacuum.py: enforce_retention_duration=False": Case(
        plain, lambda t, **named: t.vacuum(0, **named), (passed,)
    ),
}  # fmt: skip


# Remedies that no case provokes, each with the reason.
ELSEWHERE: Mapping[str, str] = {
    "base/errors.py: pyarrow.set_cpu_count(1)": "needs a machine without threads",
    'catalog/branches.py: ["sales.orders"]': "catalog/test_catalog_arguments.py",
    "commit/landed.py: txlog.Table | restore(1)": "commit/test_landed_replaced.py",
    "snapshot/successor.py: txlog.Table": "commit/test_landed_replaced.py",
    "commit/context.py: txlog.spark_ext.SparkEngine(spark)": "needs a session of Spark",
    "data_files/incoming.py: txlog.spark_ext.write | format('txlog')": "needs a frame of Spark",
    "protocol/access.py: txlog.Table(…, catalog_commits=…)": "needs a catalog",
    "snapshot/snapshot.py: catalog_commits": "needs a catalog",
    'snapshot/time_travel.py: Table.alter.set_properties({"delta.enableInCommitTimestamps": '
    '"true"})': "needs a store without times; it helps new versions only",
    "store/open.py: storage_options={'x': 'x'}": "needs a second store with another scheme",
    "verbs/fragments/column_commits.py: merge_columns": "to pass a result unchanged is no call",
    "verbs/fragments/commit.py: write_fragments": "to pass a result unchanged is no call",
    "verbs/fragments/commit.py: partition_by | write_fragments": "it is several calls",
    "verbs/fragments/commit.py: Table.optimize.compact": "it takes the place of the commit",
    "verbs/fragments/deletes.py: deleted_fragment_ids": "to pass one id more is no call",
    "verbs/fragments/workers.py: FragmentMetadata.from_json": "to pass other metadata is no call",
}


def keys() -> dict[str, list[str]]:
    """Return the remedies that name Python, with the places where they are written."""
    found: dict[str, list[str]] = {}
    for one in all_remedies():
        products = ("spark_ext/", "training/", "tools/", "verbs/doctor")
        codes = calls_of(one.text)
        if codes and not one.path.startswith(products):
            found.setdefault(f"{one.path}: {' | '.join(codes)}", []).append(one.place)
    return found


def test_each_remedy_with_a_call_has_a_case() -> None:
    written = keys()
    cases = {key.partition(" of a broken")[0] for key in CASES}
    assert {key: written[key] for key in written.keys() - cases - ELSEWHERE.keys()} == {}
    assert (cases | ELSEWHERE.keys()) - written.keys() == set()
    assert not cases & ELSEWHERE.keys()
    assert len(ELSEWHERE) < 20


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("key", CASES)
def test_a_remedy_can_be_followed(key: str, tmp_path: Path) -> None:
    case = CASES[key]
    assert any(case.ways)
    for number, way in enumerate(case.ways):
        table = case.make(tmp_path / f"way{number}")
        with pytest.raises(txlog.TxlogError) as caught:
            case.fail(table)
        codes = calls_of(caught.value.remedy)
        assert len(codes) == len(case.ways) >= len(key.split(" | ")), caught.value
        if way is not None:
            way(table, codes[number], case.fail)


COMMANDED = [key for key, case in CASES.items() if called in case.ways]


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("key", COMMANDED)
def test_the_command_of_a_remedy_can_be_followed(key: str, tmp_path: Path) -> None:
    case = CASES[key]
    table = case.make(tmp_path / "t")
    with pytest.raises(txlog.TxlogError) as caught:
        case.fail(table)
    said = on_command_line(caught.value.remedy, Asked(table.uri))
    lines = re.findall(r"`txlog ([^`]*)`", said)
    if not lines:
        assert "(from Python)" in said
        return
    for line in lines:
        assert command_line(shlex.split(line)) == 0, line
    case.fail(txlog.Table(table.uri))


@pytest.mark.parametrize(
    ("options", "change", "fail"),
    [
        ({"properties": FRAGMENTS}, with_another_fragment, lambda t: t.to_arrow()),
        ({"properties": FRAGMENTS}, with_columns_of_none, lambda t: t.to_arrow()),
        ({"properties": FRAGMENTS}, without_its_id, lambda t: t.alter.add_columns({"z": "a"})),
        ({"partition_by": "a"}, with_a_text_for_a_number, lambda t: t.to_arrow()),
        ({}, with_columns_of_none, lambda t: t.to_arrow()),
    ],
)
def test_a_version_without_the_damaged_file_can_be_restored(
    tmp_path: Path, options: dict[str, Any], change: Callable[..., Any], fail: Fail
) -> None:
    plain(tmp_path / "t", **options).append(ROWS)
    table = edited(tmp_path / "t", 1, change)
    with pytest.raises(txlog.LogCorruptError, match=r"made an error.*restore a version without"):
        fail(table)
    table.restore(0)
    fail(txlog.Table(table.uri))
