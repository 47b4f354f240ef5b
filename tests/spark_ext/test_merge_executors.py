"""Every executor of merges carries out each field of a merge as the core does, or refuses it."""

from collections.abc import Callable
from dataclasses import fields
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

import txlog
from tests.examples import examples
from txlog import spark_ext
from txlog.base.errors import InvalidInputError, TxlogError, UnsupportedFeatureError
from txlog.spark_ext.writes.merge import SPARK
from txlog.spark_ext.writes.small_sources import LOCAL_ROWS
from txlog.table.merge import TableMerger
from txlog.verbs.merge.clauses import CORE, Clause, MergeRequest, Understood

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark

INNER = pa.struct([("u", pa.int64()), ("v", pa.int64())])
COLUMNS = pa.schema(
    [
        ("id", pa.int64()),
        ("x", pa.int64()),
        ("p", pa.string()),
        ("st", pa.struct([("a", pa.int64()), ("b", pa.int64()), ("inner", INNER)])),
    ]
)
ROWS = [
    {"id": 1, "x": 10, "p": "a", "st": {"a": 1, "b": 2, "inner": {"u": 3, "v": 4}}},
    {"id": 2, "x": 20, "p": "b", "st": {"a": 5, "b": 6, "inner": None}},
    {"id": 3, "x": 30, "p": "a", "st": None},
    {"id": 4, "x": 40, "p": "b", "st": {"a": 7, "b": 8, "inner": {"u": 9, "v": 0}}},
]
FLAT = pa.table({"id": [2, 3, 7], "x": [200, 300, 700], "p": ["n", "m", "o"]})
PARTS = pa.array(
    [{"inner": {"u": 90}, "a": 91}, {"inner": None, "a": 92}, {"inner": {"u": 93}, "a": 94}, None],
    pa.struct([("inner", pa.struct([("u", pa.int64())])), ("a", pa.int64())]),
)
NESTED = pa.table({"id": [1, 2, 3, 4], "st": PARTS})

Work = Callable[[Any, Any], Any]
BY_ID = "target.id = source.id"


def merged(*clauses: Clause, **request: Any) -> Work:
    def run(table: Any, source: Any) -> Any:
        merger: TableMerger = table.merge(source, BY_ID, **request)
        for clause in clauses:
            merger._with(clause)
        return merger.execute()

    return run


def by_key(name: str) -> Work:
    def run(table: Any, source: Any) -> Any:
        return table.merge(source, on=name).when_matched_delete().execute()

    return run


def renamed(table: Any, source: Any) -> Any:
    merger = table.merge(source, "a.id = b.id", "b", "a")
    return merger.when_matched_update({"x": "a.x + b.x", "p": "b.p"}, "a.x < b.x").execute()


UPDATE, INSERT = Clause("matched", "update"), Clause("not_matched", "insert")
GIVEN = {"id": "source.id", "x": "source.x", "p": "source.p"}
EACH = txlog.WriteOptions(max_rows_per_file=1)
ZSTD = txlog.WriteOptions(writer_properties=txlog.WriterProperties(compression="zstd"))
# For each field of a merge: what to do, and with which source.
CASES: dict[str, list[tuple[Work, pa.Table]]] = {
    "kind": [
        (merged(Clause("matched", "update", updates={"x": "source.x"})), FLAT),
        (merged(Clause("not_matched", "insert", updates=GIVEN)), FLAT),
        (merged(Clause("not_matched_by_source", "update", updates={"x": "target.x"})), FLAT),
    ],
    "action": [
        (merged(Clause("matched", "delete")), FLAT),
        (merged(Clause("matched", "fail")), FLAT),
        (merged(Clause("matched", "fail"), Clause("not_matched", "insert", updates=GIVEN)), FLAT),
        (
            merged(Clause("matched", "fail"), Clause("not_matched", "insert", updates=GIVEN)),
            FLAT.slice(2),
        ),
        (merged(Clause("not_matched_by_source", "delete")), FLAT),
        (merged(Clause("not_matched_by_source", "fail")), FLAT),
    ],
    "predicate": [
        (merged(Clause("matched", "delete", "source.x > 200")), FLAT),
        (merged(Clause("matched", "fail", "target.p = 'z'"), Clause("matched", "delete")), FLAT),
    ],
    "updates": [
        (merged(Clause("matched", "update", updates={"x": "source.x", "p": "target.p"})), FLAT),
        (merged(Clause("matched", "update", updates={"st.a": "source.x"})), FLAT),
    ],
    "except_cols": [
        (merged(Clause("matched", "update", except_cols=["x", "st"])), FLAT),
        (merged(Clause("not_matched", "insert", except_cols=["p", "st"])), FLAT),
    ],
    "partial": [
        (merged(Clause("matched", "update", partial=True)), FLAT),
        (merged(Clause("not_matched", "insert", partial=True)), FLAT),
        (merged(UPDATE), FLAT),  # Without it, the source must have all columns.
    ],
    "keeps_fields": [
        (lambda table, source: table.upsert(source, "id", schema_mode="merge"), NESTED),
        (merged(Clause("matched", "update", partial=True, keeps_fields=True)), NESTED),
        (merged(Clause("matched", "update", partial=True)), NESTED),
        (
            lambda table, source: (
                table.merge(source, on="id").when_matched_update_all().execute()
            ),
            NESTED,
        ),
    ],
    "on": [(by_key("id"), FLAT), (by_key("nix"), FLAT)],
    "data": [(merged(Clause("matched", "delete")), FLAT.slice(0, 0))],
    "source_alias": [(renamed, FLAT)],
    "target_alias": [(renamed, FLAT)],
    "schema_mode": [
        (merged(UPDATE, INSERT, schema_mode="merge"), FLAT.append_column("new", [[1, 2, 3]])),
        (merged(Clause("matched", "update", partial=True)), FLAT.append_column("new", [[1, 2, 3]])),
        (merged(UPDATE, INSERT, schema_mode="merge"), NESTED),
        (merged(Clause("matched", "update", updates={"st": "source.st"})), NESTED),
        (
            merged(
                Clause("matched", "update", updates={"st": "source.st"}),
                Clause("not_matched", "insert", updates={"id": "source.id", "st": "source.st"}),
                schema_mode="merge",
            ),
            NESTED,
        ),
        (
            merged(
                Clause("matched", "update", updates={"st.inner": "source.st.inner"}),
                schema_mode="merge",
            ),
            NESTED,
        ),
    ],
    "error_on_type_mismatch": [
        (
            merged(
                Clause("matched", "update", updates={"x": "source.p"}),
                options=txlog.WriteOptions(error_on_type_mismatch=False),
            ),
            FLAT,
        )
    ],
    "options": [(merged(Clause("matched", "update", partial=True), options=EACH), FLAT)],
    "target_file_bytes": [(merged(UPDATE, options=txlog.WriteOptions(target_file_bytes=1)), FLAT)],
    "max_rows_per_file": [(merged(UPDATE, options=EACH), FLAT)],
    "writer_properties": [(merged(UPDATE, options=ZSTD), FLAT)],
    "use_index": [(merged(UPDATE, options=txlog.WriteOptions(use_index=False)), FLAT)],
}  # fmt: skip
WAYS = ("small", "large", "other types")


def done(work: Work, table: Any, source: Any) -> Any:
    """Return the rows after a merge, or the error and the unchanged version."""
    try:
        work(table, source)
    except TxlogError as error:
        return type(error), txlog.Table(table.uri).version
    found = txlog.Table(table.uri).to_arrow()
    return sorted(found.to_pylist(), key=lambda row: row["id"]), found.schema


def other_types(source: pa.Table) -> pa.Table:
    """Return the same values in narrower whole numbers, which a merge must cast."""
    narrow = [
        field.with_type(pa.int32()) if field.name in ("id", "x") else field
        for field in source.schema
    ]
    return source.cast(pa.schema(narrow))


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Callable[[], str]:
    """Return a function that makes the same table again, at another place."""
    folder = tmp_path_factory.mktemp("merges")

    def make() -> str:
        place = folder / str(len(list(folder.iterdir())))
        return txlog.write(
            place,
            pa.Table.from_pylist(ROWS, COLUMNS),
            options=txlog.WriteOptions(max_rows_per_file=2),
        ).uri

    return make


@pytest.mark.spec("SPK-26")
def test_each_field_has_a_case_and_each_executor_knows_it_or_refuses_it() -> None:
    request = MergeRequest(None, "true")
    known = {one.name for one in (*fields(request), *fields(EACH), *fields(UPDATE))}
    of_appends = {"inserts_once"}  # `Table.append` sets it, and no call of a merge.
    quarantine = {"quarantine"}  # tests/spark_ext/test_merge_quarantine.py
    assert set(CASES) | {"predicate"} | of_appends | quarantine == known
    assert CORE.fields == known
    assert known - SPARK.fields == {"error_on_type_mismatch"} | of_appends


@pytest.mark.slow(cases=19)
@pytest.mark.spec("SPK-24", "SPK-26")
@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize(
    ("work", "source"),
    [
        pytest.param(*case, id=f"{name}-{n}")
        for name, cases in CASES.items()
        for n, case in enumerate(cases)
    ],
)
def test_each_field_does_what_the_core_does(
    spark: "SparkSession", made: Callable[[], str], work: Work, source: pa.Table, way: str
) -> None:
    expected = done(work, txlog.Table(made()), source)
    frame = spark.createDataFrame(other_types(source) if way == "other types" else source)
    spark.conf.set(LOCAL_ROWS, "0" if way == "large" else "10000")
    try:
        found = done(work, spark_ext.table(spark, made()), frame)
    finally:
        spark.conf.unset(LOCAL_ROWS)
    if found != expected and work in [one for one, _ in CASES["error_on_type_mismatch"]]:
        assert found == (UnsupportedFeatureError, 0)  # Refused, before anything is written.
    else:
        assert found == expected


@st.composite
def clauses(draw: st.DrawFn) -> tuple[list[Clause], list[str]]:
    """Clauses of all kinds, and the columns of the source."""
    columns = draw(st.lists(st.sampled_from(["x", "p", "st"]), unique=True))
    found = []
    for kind, actions in (
        ("matched", ["update", "delete", "fail"]),
        ("not_matched", ["insert"]),
        ("not_matched_by_source", ["update", "delete"]),
    ):
        side = "source" if kind == "not_matched" else "target"
        for predicate in draw(st.sampled_from([[], [None], [f"{side}.id > 2", None]])):
            action: Any = draw(st.sampled_from(actions))
            updates = None
            if kind == "not_matched_by_source" and action == "update":
                updates = {"x": "target.x + 1"}
            excepted = draw(st.lists(st.sampled_from(["x", "p", "st"]), unique=True, max_size=2))
            found.append(
                Clause(
                    kind,  # type: ignore[arg-type]
                    action,
                    predicate,
                    updates,
                    except_cols=excepted if updates is None else (),
                    partial=True,
                    keeps_fields=draw(st.booleans()),
                )
            )
    return found or [Clause("matched", "fail")], columns


@pytest.mark.slow
@settings(
    max_examples=examples(40),
    deadline=None,
    phases=(Phase.explicit, Phase.generate),
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)
@given(drawn=clauses(), few=st.booleans(), keys=st.permutations([1, 3, 4, 9]))
def test_random_clauses_do_what_the_core_does(
    spark: "SparkSession",
    made: Callable[[], str],
    drawn: tuple[list[Clause], list[str]],
    few: bool,
    keys: list[int],
) -> None:
    chosen, columns = drawn
    whole = pa.table({"id": keys, "x": [1, 2, 3, 4], "p": list("wxyz"), "st": PARTS})
    source = whole.select(["id", *columns])
    work = merged(*chosen)
    expected = done(work, txlog.Table(made()), source)
    spark.conf.set(LOCAL_ROWS, "10000" if few else "0")
    try:
        assert done(work, spark_ext.table(spark, made()), spark.createDataFrame(source)) == expected
    finally:
        spark.conf.unset(LOCAL_ROWS)


@pytest.mark.spec("SPK-26")
def test_an_error_of_a_forbidden_match_names_the_rows_and_leaves_no_file(
    spark: "SparkSession", made: Callable[[], str]
) -> None:
    uri = made()
    before = sorted(path.name for path in Path(uri).iterdir())
    source = spark.createDataFrame(other_types(FLAT))
    merger = spark_ext.table(spark, uri).merge(source, on="id").when_matched_fail()
    with pytest.raises(InvalidInputError, match=r"the table: id = 2, .*; id = 3, x = 30"):
        merger.when_not_matched_insert_all().execute()
    assert sorted(path.name for path in Path(uri).iterdir()) == before


def test_what_an_executor_does_not_know_is_refused() -> None:
    some = Understood("old", frozenset({"kind", "action"}), frozenset({("matched", "fail")}))
    some.require(Clause("matched", "fail"))
    for clause, named in (
        (Clause("matched", "fail", keeps_fields=True), "keeps_fields=True"),
        (Clause("matched", "fail", "x > 1"), "predicate='x > 1'"),
        (Clause("not_matched", "insert"), "insert for rows that are not_matched"),
        (Clause("matched", "update"), "update for rows that are matched"),
    ):
        with pytest.raises(UnsupportedFeatureError, match=named):
            some.require(clause)
