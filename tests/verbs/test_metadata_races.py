"""Two verbs at once that change something that is not a file.

Both have read the same version. The second one is committed on top of the first, and must leave
what it leaves on a table that it reads after the first; or it fails with a conflict, and leaves no
trace.
"""

import json
import re
import shutil
from collections.abc import Callable, Iterable
from itertools import product
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import txlog
from tests.examples import examples
from txlog.base.errors import CommitConflictError, TxlogError
from txlog.commit.operation import Operation, execute
from txlog.data_files.deletions import adds_of
from txlog.data_files.options import new_fields
from txlog.extend import context_of
from txlog.schema.types import PrimitiveType, StructField, StructType
from txlog.snapshot.live_files import load_files
from txlog.verbs.cluster import Cluster
from txlog.verbs.compact import Compact
from txlog.verbs.constraints import AddConstraints, DropConstraint
from txlog.verbs.drop_feature import DropFeature
from txlog.verbs.features import AddFeatures, ClusterBy, UpgradeProtocol
from txlog.verbs.indexes import CreateIndex, DropIndex
from txlog.verbs.mapped_columns import DropColumns, RenameColumn, SetMapping
from txlog.verbs.metadata import Describe, SetProperties
from txlog.verbs.overwrite import Overwrite
from txlog.verbs.references import DropPin, SetPin
from txlog.verbs.replace import ReplaceTable
from txlog.verbs.restore import Restore
from txlog.verbs.schema import AddFields, ChangeColumn, SetDefault, SyncIdentity

LONG = PrimitiveType("long")
Make = Callable[[], Operation]


def sets(**properties: str) -> Make:
    given = {name.replace("__", "."): text for name, text in properties.items()}
    return lambda: SetProperties(given)


def unsets(*names: str) -> Make:
    return lambda: SetProperties({}, unset=names)


def adds(columns: Any) -> Make:
    return lambda: AddFields(new_fields(columns, nanos=False) or ())


def overwrites(rows: pa.Table) -> Make:
    def make() -> Operation:
        return Overwrite.of_data(rows, schema_mode="overwrite")

    return make


VERBS: dict[str, Make] = {
    "set mine": sets(mine="2"),
    "set other": sets(other="1"),
    "unset mine": unsets("mine"),
    "set appendOnly": sets(delta__appendOnly="true"),
    "set feed": sets(delta__enableChangeDataFeed="true"),
    "set rows": sets(delta__enableRowTracking="true"),
    "set times": sets(delta__enableInCommitTimestamps="true"),
    "set v2": sets(delta__checkpointPolicy="v2"),
    "set stats": sets(delta__dataSkippingStatsColumns="a"),
    "set page": sets(txlog__pageRows="100"),
    "set no vectors": sets(delta__enableDeletionVectors="false"),
    "unset vectors": unsets("txlog.deletionVectors"),
    "end mapping": lambda: SetMapping({"delta.columnMapping.mode": "none"}),
    "constrain b": lambda: AddConstraints({"c2": "b > 0"}),
    "constrain B": lambda: AddConstraints({"C2": "b > -5"}),
    "drop constraint": lambda: DropConstraint("pos"),
    "add d": adds({"d": pa.int64()}),
    "add st.z": adds({"st.z": pa.int64()}),
    "drop b": lambda: DropColumns(["b"]),
    "drop s": lambda: DropColumns(["s"]),
    "rename b": lambda: RenameColumn("b", "d"),
    "rename a": lambda: RenameColumn("a", "e"),
    "not null": lambda: ChangeColumn("b", nullable=False),
    "widen": lambda: ChangeColumn("s", kind=LONG),
    "comment": lambda: ChangeColumn("b", metadata={"comment": "x"}),
    "move": lambda: ChangeColumn("b", place="first"),
    "default": lambda: SetDefault("b", "7"),
    "sync": lambda: SyncIdentity("i"),
    "cluster by a": lambda: ClusterBy(["a"]),
    "cluster by b": lambda: ClusterBy(["b"]),
    "cluster by none": lambda: ClusterBy([]),
    "add feature": lambda: AddFeatures(["vacuumProtocolCheck"]),
    "add fragments": lambda: AddFeatures(["txlog.fragments"]),
    "upgrade": lambda: UpgradeProtocol(3, 7),
    "drop clustering": lambda: DropFeature("clustering"),
    "drop checks": lambda: DropFeature("checkConstraints"),
    "restore": lambda: Restore(1),
    "pin": lambda: SetPin("new", 1, None),
    "unpin": lambda: DropPin("old"),
    "index b": lambda: CreateIndex(["b"], None),
    "index none": lambda: DropIndex("a"),
    "describe": lambda: Describe(description="text"),
    "overwrite": overwrites(pa.table({"a": [5], "x": [6]})),
    "replace": lambda: ReplaceTable(StructType((StructField("a", LONG),))),
    "compact": lambda: Compact(None),
    "cluster": lambda: Cluster(None),
}
PAIRS = tuple(product(VERBS, VERBS))


@pytest.fixture(scope="module")
def base(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("base") / "t"
    schema = pa.schema(
        [
            ("a", pa.int64()),
            ("b", pa.int64()),
            ("s", pa.int32()),
            ("st", pa.struct([("x", pa.int64())])),
            ("i", pa.int64()),
        ]
    )
    table = txlog.Table.create(
        root,
        schema,
        properties={
            "delta.columnMapping.mode": "name",
            "delta.constraints.pos": "s > 0",
            "delta.enableTypeWidening": "true",
            "delta.feature.allowColumnDefaults": "supported",
            "mine": "1",
        },
        cluster_by=["a"],
        identity={"i": txlog.Identity(explicit=True)},
    )
    rows = [{"a": n, "b": 10 - n, "s": n + 1, "st": {"x": n}, "i": 100 + n} for n in range(4)]
    for part in (rows[:2], rows[2:]):
        table.append(pa.Table.from_pylist(part, schema=schema))
    table.indexes.create("a")
    table.pins.create("old", 1)
    return root


def state_of(root: Path) -> Any:
    """Return all that a version consists of, except times and chosen names."""
    table = txlog.Table(root)
    metadata = table.snapshot.metadata.to_json()
    metadata.pop("createdTime", None)
    domains = {
        name: re.sub(r'"createdTime":\d+', "", domain.configuration)
        for name, domain in table.snapshot.controls.domains.items()
        if not domain.removed and name != "delta.rowTracking"
    }
    tags = [
        add.tags or {} for add in adds_of(load_files(context_of(table).store, table.snapshot).live)
    ]
    marks = sorted(one.get("ZCUBE_ZORDER_BY", "") + (one.get("fields") or "") for one in tags)
    text = json.dumps([metadata, table.protocol.to_json(), domains], sort_keys=True)
    text = re.sub(r"_row-[a-z-]+col-[0-9a-f-]{36}", "_row", text)
    text = re.sub(r'EnablementTimestamp": "\d+', "", text)
    table.maintenance.checkpoint()
    rows = sorted(map(repr, txlog.Table(root).to_arrow().to_pylist()))
    return text, rows, marks


def commit(root: Path, verb: str, seen: int | None = None) -> None:
    table = txlog.Table(root, version=seen)
    execute(VERBS[verb](), context_of(table), table.snapshot)


def outcome(root: Path, verb: str, seen: int | None = None) -> Any:
    """Return the state after a verb, or the error."""
    before = txlog.Table(root).version
    try:
        commit(root, verb, seen)
    except TxlogError as error:
        assert txlog.Table(root).version == before
        return error
    return state_of(root)


def check_pair(base: Path, root: Path, first: str, second: str) -> str:
    """Compare both orders of reading; return how the second verb fared."""
    seen = txlog.Table(base).version
    shutil.copytree(base, root / "race")
    try:
        commit(root / "race", first)
    except TxlogError:
        return "none"
    shutil.copytree(root / "race", root / "serial")
    after_first = txlog.Table(root / "race").version
    serial = outcome(root / "serial", second)
    race = outcome(root / "race", second, seen)
    if isinstance(race, CommitConflictError) and not isinstance(serial, CommitConflictError):
        return "conflict"
    if not isinstance(race, TxlogError) and txlog.Table(root / "race").version == after_first:
        return "nothing"  # It changes nothing, so it counts at the version that it read.
    if isinstance(serial, TxlogError):
        assert isinstance(race, TxlogError), serial
        return "refused"
    if isinstance(race, TxlogError):  # What is refused counts at the version that it read, too.
        shutil.copytree(base, root / "alone")
        assert isinstance(outcome(root / "alone", second), type(race)), race
        return "refused at once"
    assert race == serial
    return "ok"


def check_pairs(base: Path, root: Path, pairs: Iterable[tuple[str, str]]) -> None:
    for number, (first, second) in enumerate(pairs):
        place = root / str(number)
        try:
            check_pair(base, place, first, second)
        except BaseException as error:
            error.add_note(f"{first}, then {second}")
            raise
        shutil.rmtree(place)


@pytest.mark.slow
@pytest.mark.spec("GUA-9", "CON-11", "CON-16")
@settings(max_examples=examples(150))
@given(pair=st.sampled_from(PAIRS))
def test_two_changes_of_no_file_are_one_after_the_other(
    base: Path, tmp_path_factory: pytest.TempPathFactory, pair: tuple[str, str]
) -> None:
    check_pairs(base, tmp_path_factory.mktemp("pair"), [pair])


@pytest.mark.exhaustive
@pytest.mark.spec("GUA-9", "CON-11")
@pytest.mark.parametrize("first", VERBS)
def test_any_two_changes_of_no_file_are_one_after_the_other(
    base: Path, tmp_path: Path, first: str
) -> None:
    check_pairs(base, tmp_path, ((first, second) for second in VERBS))


@pytest.mark.slow
@pytest.mark.spec("CON-16")
@pytest.mark.parametrize(
    ("first", "second", "fared"),
    [
        ("cluster by b", "drop b", "refused"),
        ("drop b", "cluster by b", "conflict"),
        ("cluster by b", "cluster by a", "nothing"),
        ("cluster by b", "cluster by none", "conflict"),
        ("cluster by b", "cluster", "ok"),
        ("cluster by b", "set mine", "ok"),
        ("cluster by b", "end mapping", "conflict"),
        ("pin", "set mine", "ok"),
        ("pin", "drop b", "ok"),
    ],
)
def test_a_domain_alone_is_heard(
    base: Path, tmp_path: Path, first: str, second: str, fared: str
) -> None:
    assert check_pair(base, tmp_path, first, second) == fared
