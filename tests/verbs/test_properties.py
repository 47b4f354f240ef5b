"""Who may set a property, and where it goes: each known property at each door (rule CON-28)."""

import itertools
import warnings
from collections.abc import Callable, Mapping
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import txlog
from tests.examples import examples
from txlog.base.errors import InvalidInputError, SchemaMismatchError, TxlogError, TxlogWarning
from txlog.protocol.access import features_of
from txlog.protocol.properties import _READERS, OWNERS, Owner, owner_of

ROWS = pa.table({"x": [1, 2, 3], "y": [4, 5, 6]})
INDEX = '{"format":1,"columns":["x"],"bits":16}'
FLAG = ("true", "perhaps")
NUMBER = ("3", "-7")
TIME = ("interval 3 days", "soon")
# A valid value, and an invalid one (None: every text is valid).
VALUES: dict[str, tuple[str, str | None]] = {
    "delta.appendOnly": ("false", "perhaps"),
    "delta.autoOptimize.autoCompact": ("auto", "sometimes"),
    "delta.autoOptimize.optimizeWrite": FLAG,
    "delta.checkpoint.writeStatsAsJson": FLAG,
    "delta.checkpoint.writeStatsAsStruct": FLAG,
    "delta.checkpointInterval": NUMBER,
    "delta.checkpointPolicy": ("v2", "v3"),
    "delta.columnMapping.maxColumnId": ("5", None),
    "delta.columnMapping.mode": ("name", "number"),
    "delta.dataSkippingNumIndexedCols": ("3", "-7"),
    "delta.dataSkippingStatsColumns": ("x", "zebra"),
    "delta.deletedFileRetentionDuration": TIME,
    "delta.enableChangeDataFeed": FLAG,
    "delta.enableDeletionVectors": FLAG,
    "delta.enableExpiredLogCleanup": FLAG,
    "delta.enableIcebergCompatV1": FLAG,
    "delta.enableIcebergCompatV2": FLAG,
    "delta.enableIcebergCompatV3": FLAG,
    "delta.enableInCommitTimestamps": FLAG,
    "delta.enableRowTracking": FLAG,
    "delta.enableTypeWidening": FLAG,
    "delta.enableVariantShredding": FLAG,
    "delta.inCommitTimestampEnablementTimestamp": ("1", None),
    "delta.inCommitTimestampEnablementVersion": ("1", None),
    "delta.isolationLevel": ("Serializable", None),
    "delta.logRetentionDuration": TIME,
    "delta.minReaderVersion": ("1", "9"),
    "delta.minWriterVersion": ("4", "9"),
    "delta.parquet.compression.codec": ("gzip", "zip"),
    "delta.randomPrefixLength": NUMBER,
    "delta.randomizeFilePrefixes": FLAG,
    "delta.requireCheckpointProtectionBeforeVersion": ("1", None),
    "delta.rowTracking.materializedRowCommitVersionColumnName": ("x", None),
    "delta.rowTracking.materializedRowIdColumnName": ("x", None),
    "delta.rowTrackingSuspended": FLAG,
    "delta.setTransactionRetentionDuration": TIME,
    "delta.targetFileSize": ("1mb", "large"),
    "delta.tuneFileSizesForRewrites": FLAG,
    "delta.writePartitionColumnsToParquet": FLAG,
    "txlog.bloomFilterColumns": ("x", "zebra"),
    "txlog.dataset.cleared": NUMBER,
    "txlog.dataset.format": NUMBER,
    "txlog.dataset.ledger": NUMBER,
    "txlog.dataset.type": ("mine", None),
    "txlog.deletionFormat": ("lance", "iceberg"),
    "txlog.deletionVectors": ("auto", "never"),
    "txlog.catalog": ("x", None),
    "txlog.catalog.stamped": ("true", None),
    "txlog.droppedColumns": ("[]", None),
    "txlog.logCompactionInterval": NUMBER,
    "txlog.pageRows": NUMBER,
    "txlog.rowGroupRows": NUMBER,
    "txlog.sortBy": ("x", "zebra"),
    "txlog.writeChecksums": FLAG,
    # One of each prefix, and names that txlog does not know.
    "delta.constraints.c": ("x > 0", "zebra > 0"),
    "delta.Constraints.c": ("x > 0", "x > 0"),
    "delta.feature.domainMetadata": ("supported", "enabled"),
    "txlog.index.i": (INDEX, INDEX.replace("x", "zebra")),
    "delta.enableZebras": ("true", "true"),
    "delta.AppendOnly": ("true", "true"),
    "delta.unknown": ("1", None),
    "mine": ("1", None),
}
# Names that are refused with any value.
SPELLED_WRONG = {"delta.Constraints.c", "delta.enableZebras", "delta.AppendOnly"}
# Existing rows or files would have to be checked or changed for them: some verbs do it.
OF_ROWS = {"delta.constraints.c"}
OF_FILES = {
    "delta.columnMapping.mode", "delta.enableIcebergCompatV1", "delta.enableIcebergCompatV2",
    "delta.enableIcebergCompatV3", "delta.enableRowTracking", "txlog.deletionFormat",
}  # fmt: skip

Door = Callable[[Path, dict[str, str]], txlog.Table]


def create(root: Path, properties: dict[str, str]) -> txlog.Table:
    return txlog.Table.create(root / "t", ROWS.schema, properties=properties)


def overwrite(root: Path, properties: dict[str, str]) -> txlog.Table:
    txlog.write(root / "t", ROWS)
    return txlog.Table.create(root / "t", ROWS.schema, properties=properties, mode="overwrite")


def write(root: Path, properties: dict[str, str]) -> txlog.Table:
    return txlog.write(root / "t", ROWS, properties=properties)


def append(root: Path, properties: dict[str, str]) -> txlog.Table:
    """Append to a table, with the properties that it has already if it may have them."""
    try:
        create(root, properties)
    except TxlogError:
        txlog.write(root / "t", ROWS)
    return txlog.write(root / "t", ROWS, "append", properties=properties)


def fragments(root: Path, properties: dict[str, str]) -> txlog.Table:
    made = txlog.write_fragments(ROWS, root / "t", properties=properties)
    return txlog.Table.create(root / "t", ROWS.schema, properties=properties, fragments=made)


def convert(root: Path, properties: dict[str, str]) -> txlog.Table:
    (root / "t").mkdir(parents=True)
    pq.write_table(ROWS, root / "t/a.parquet")
    return txlog.convert_to_delta(root / "t", properties=properties)


def clone(root: Path, properties: dict[str, str]) -> txlog.Table:
    return txlog.write(root / "s", ROWS).clone(root / "t", properties=properties)


def shallow(root: Path, properties: dict[str, str]) -> txlog.Table:
    return txlog.write(root / "s", ROWS).clone(root / "t", True, properties=properties)


def clone_over(root: Path, properties: dict[str, str]) -> txlog.Table:
    txlog.write(root / "t", pa.table({"z": ["a"]}))
    return txlog.write(root / "s", ROWS).clone(root / "t", replace=True, properties=properties)


def change(root: Path, properties: dict[str, str]) -> txlog.Table:
    table = txlog.write(root / "t", ROWS)
    table.alter.set_properties(properties)
    return table


NEW: tuple[Door, ...] = (create, overwrite, write, fragments, append)
EXISTING: tuple[Door, ...] = (clone, shallow, clone_over, change)
DOORS: tuple[Door, ...] = (*NEW, convert, *EXISTING)
# `change` turns them on for existing files; these need a new table.
NEEDS_NEW = {"delta.enableIcebergCompatV1", "delta.enableIcebergCompatV2", "txlog.deletionFormat",
             "delta.enableIcebergCompatV3"}  # fmt: skip
# Files without ids of columns: `convert` refuses what needs them.
NEEDS_IDS = {name for name in VALUES if "Iceberg" in name}


def is_refused(name: str, door: Door) -> bool:
    """Return whether a door refuses a valid value, by the list of owners."""
    if owner_of(name) in (Owner.WRITER, Owner.LOG) or name in SPELLED_WRONG:
        return True
    if door in (clone, shallow, clone_over) and name in OF_FILES:
        return True
    if door is change and name in NEEDS_NEW:
        return True
    if door is convert and name in NEEDS_IDS:
        return True
    return door in EXISTING and name in OF_ROWS


def require_sound(table: txlog.Table) -> None:
    """Check that `set_properties` would have accepted what a table has."""
    held = table.properties
    own = {k: v for k, v in held.items() if owner_of(k) is Owner.USER and k not in OF_ROWS}
    assert table.alter.set_properties(own).version is None
    names = {name for name in held if "materializedRow" in name}
    assert len(names) == 2 * (held.get("delta.enableRowTracking") == "true")
    assert all(not name.startswith("delta.feature.") for name in held)
    if "delta.constraints.c" in held:
        assert table.count(f"NOT ({held['delta.constraints.c']})") == 0
    if table.snapshot.has_stable_row_ids:
        assert table.scan(["_rowid"]).to_arrow()["_rowid"].null_count == 0


def test_the_list_has_each_known_property() -> None:
    assert set(VALUES) >= {*_READERS, *OWNERS}


@pytest.mark.slow
@pytest.mark.spec("CON-28")
@pytest.mark.filterwarnings("ignore::txlog.base.errors.TxlogWarning")
@pytest.mark.parametrize("door", DOORS, ids=lambda door: door.__name__)
@pytest.mark.parametrize("name", VALUES)
def test_each_door_answers_as_the_owner_says(tmp_path: Path, name: str, door: Door) -> None:
    value, bad = VALUES[name]
    if bad is not None:
        with pytest.raises(TxlogError) as wrong:
            door(tmp_path / "bad", {name: bad})
        assert isinstance(wrong.value, InvalidInputError | SchemaMismatchError)
        text = str(wrong.value)
        assert is_refused(name, door) or name in text or "constraint c" in text
    if is_refused(name, door):
        with pytest.raises(TxlogError) as caught:
            door(tmp_path, {name: value})
        assert caught.value.code in ("invalid-input", "unsupported-feature")
        return
    table = door(tmp_path, {name: value})
    kept = table.properties.get(name)
    if owner_of(name) is Owner.FEATURE:
        assert kept is None
        if name == "delta.feature.domainMetadata":
            assert "domainMetadata" in features_of(table.protocol)
        else:
            assert table.protocol.min_writer_version >= int(value)
    else:
        assert kept == value
    require_sound(txlog.Table(str(tmp_path / "t")))


@pytest.mark.slow
@pytest.mark.spec("CON-28")
@pytest.mark.parametrize("name", VALUES)
def test_only_the_users_properties_can_be_unset(tmp_path: Path, name: str) -> None:
    table = txlog.write(tmp_path / "t", ROWS, properties={"delta.enableRowTracking": "true"})
    theirs = owner_of(name) in (Owner.WRITER, Owner.LOG) or name in OF_ROWS
    if theirs:
        with pytest.raises(InvalidInputError):
            table.alter.unset_properties(name, if_exists=True)
        return
    before = table.properties
    table.alter.unset_properties(name, if_exists=True)
    assert table.properties == {k: v for k, v in before.items() if k != name}


def with_a_log_of_its_own(root: Path, more: Mapping[str, str] = {}) -> txlog.Table:
    """Return a table whose log records times and a protected version."""
    table = txlog.write(root, ROWS, properties={"mine": "1", **more})
    table.alter.set_properties({"delta.enableInCommitTimestamps": "true"})
    table.alter.set_properties({"delta.enableDeletionVectors": "true"})
    table.alter.drop_feature("deletionVectors")
    # Only a table that a catalog manages has the two of the catalog.
    of_log = {name for name, owner in OWNERS.items() if owner is Owner.LOG}
    of_catalog = {"txlog.catalog", "txlog.catalog.stamped"}
    assert owned(table, Owner.LOG).keys() == of_log - of_catalog
    return table


def owned(table: txlog.Table, owner: Owner) -> dict[str, str | None]:
    return {name: text for name, text in table.properties.items() if owner_of(name) is owner}


STAMPS = "delta.enableInCommitTimestamps"


@pytest.mark.spec("CON-28")
@pytest.mark.spec("MNT-5")
@pytest.mark.spec("CON-24")
def test_what_is_about_the_log_stays_with_the_log(tmp_path: Path) -> None:
    table = with_a_log_of_its_own(tmp_path / "t")
    log = owned(table, Owner.LOG)
    table.restore(0)
    assert (owned(table, Owner.LOG), table.properties[STAMPS]) == (log, "true")
    table.overwrite(pa.table({"z": [1]}), schema_mode="overwrite")
    assert owned(table, Owner.LOG) == log
    table = txlog.Table.create(tmp_path / "t", ROWS.schema, mode="overwrite")
    assert (owned(table, Owner.LOG), table.properties[STAMPS]) == (log, "true")
    assert "mine" not in table.properties
    assert "checkpointProtection" in features_of(table.protocol)
    txlog.write(tmp_path / "s", ROWS).clone(tmp_path / "t", replace=True)
    assert owned(table.refresh(), Owner.LOG) == log
    assert "checkpointProtection" in features_of(table.protocol)


@pytest.mark.spec("MNT-20")
@pytest.mark.spec("CON-28")
@pytest.mark.parametrize("is_shallow", [True, False])
def test_a_clone_has_a_log_of_its_own(tmp_path: Path, is_shallow: bool) -> None:
    table = with_a_log_of_its_own(tmp_path / "t", {"delta.enableRowTracking": "true"})
    copy = table.clone(tmp_path / "c", is_shallow)
    assert owned(copy, Owner.LOG) == {}
    assert "checkpointProtection" not in features_of(copy.protocol)
    assert (copy.properties[STAMPS], copy.properties["mine"]) == ("true", "1")
    assert owned(copy, Owner.WRITER) == owned(table, Owner.WRITER) != {}
    copy.maintenance.checkpoint()
    txlog.write(tmp_path / "o", ROWS)
    other = table.clone(tmp_path / "o", is_shallow, replace=True)
    assert owned(other, Owner.LOG) == {}
    assert STAMPS not in other.properties


@pytest.mark.parametrize("value", ["true", "false"])
@pytest.mark.parametrize("before", ["true", "false"])
def test_the_callers_choice_about_the_log_counts(tmp_path: Path, value: str, before: str) -> None:
    source = txlog.write(tmp_path / "s", ROWS, properties={STAMPS: before})
    for at, door in enumerate((clone_over, overwrite)):
        table = txlog.write(tmp_path / f"{at}", ROWS)
        table.alter.set_properties({STAMPS: before})
        if door is clone_over:
            table = source.clone(tmp_path / f"{at}", replace=True, properties={STAMPS: value})
        else:
            table = txlog.Table.create(
                tmp_path / f"{at}", ROWS.schema, mode="overwrite", properties={STAMPS: value}
            )
        assert table.properties[STAMPS] == value
        assert bool(owned(table, Owner.LOG)) == (value == "true")
        table.append(ROWS)
        assert txlog.Table(str(tmp_path / f"{at}")).version == table.version


def test_ids_of_moved_rows_keep_their_column(tmp_path: Path) -> None:
    table = txlog.write(tmp_path / "t", ROWS, properties={"delta.enableRowTracking": "true"})
    table.update({"y": "y + 1"}, "x = 2")
    ids = table.scan(["x", "_rowid"]).to_arrow().sort_by("x")
    name = "delta.rowTracking.materializedRowIdColumnName"
    for change_names in (
        lambda: table.alter.unset_properties(name),
        lambda: table.alter.set_properties({name: "y"}),
    ):
        with pytest.raises(InvalidInputError, match="writers of a table set this property"):
            change_names()
    assert table.scan(["x", "_rowid"]).to_arrow().sort_by("x") == ids


def test_converted_rows_satisfy_the_constraints(tmp_path: Path) -> None:
    (tmp_path / "t").mkdir()
    pq.write_table(pa.table({"x": [1, -2, None]}), tmp_path / "t/a.parquet")
    with pytest.raises(SchemaMismatchError, match="2 rows of the table do not satisfy"):
        txlog.convert_to_delta(tmp_path / "t", properties={"delta.constraints.c": "x > 0"})
    assert not txlog.Table.exists(tmp_path / "t")
    txlog.convert_to_delta(
        tmp_path / "t", properties={"delta.constraints.c": "x > -5 OR x IS NULL"}
    )


def test_fragments_get_ids_with_the_feature_at_each_door(tmp_path: Path) -> None:
    deltalake = pytest.importorskip("deltalake")
    feature = {"delta.feature.txlog.fragments": "supported"}
    deltalake.write_deltalake(tmp_path / "t", ROWS)
    table = txlog.Table(tmp_path / "t")
    with pytest.raises(InvalidInputError, match="fragments may have no ids"):
        table.clone(tmp_path / "c", properties=feature)
    table.alter.set_properties(feature)
    assert [fragment.id for fragment in table.fragments()] == [0]


def test_a_wrong_version_of_the_protocol_is_an_error_of_txlog(tmp_path: Path) -> None:
    txlog.write(tmp_path / "t", ROWS)
    with pytest.raises(InvalidInputError, match="expected one of"):
        txlog.write(tmp_path / "t", ROWS, "append", properties={"delta.minReaderVersion": "x"})


def test_an_existing_table_is_given_its_own_properties_in_silence(tmp_path: Path) -> None:
    properties = {"delta.isolationLevel": "Serializable", "delta.enableRowTracking": "true"}
    with pytest.warns(TxlogWarning):
        table = txlog.write(tmp_path / "t", ROWS, properties=properties)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        txlog.write(tmp_path / "t", ROWS, "append", properties=table.properties)
    assert table.refresh().count() == 6


SOUND = [
    name for name in VALUES
    if not any(is_refused(name, door) for door in (create, clone, change))
]  # fmt: skip


@settings(max_examples=examples(40))
@given(
    st.lists(st.sampled_from(SOUND), max_size=4, unique=True),
    st.lists(st.sampled_from(SOUND), max_size=4, unique=True),
    st.lists(st.sampled_from(["clone", "replace", "restore", "overwrite", "set"]), max_size=5),
)
@pytest.mark.spec("CON-28")
def test_any_order_of_doors_gives_what_the_owners_say(
    tmp_path_factory: pytest.TempPathFactory,
    first: list[str],
    second: list[str],
    steps: list[str],
) -> None:
    """A model of a dict follows the user's properties through verbs, the log's stay."""
    root = tmp_path_factory.mktemp("doors")
    paths = (root / f"{number}" for number in itertools.count())
    one, other = ({name: VALUES[name][0] for name in names} for names in (first, second))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", TxlogWarning)
        begins = {name: text for name, text in one.items() if name != STAMPS}
        table = with_a_log_of_its_own(next(paths), begins)
        held = [of_the_user(table, at) for at in range(table.version + 1)]
        log = owned(table, Owner.LOG)
        for step in steps:
            now = held[-1]
            if step == "clone":
                table = table.clone(next(paths), properties=other)
                held, log = [now | stored(other)], {}
                assert of_the_user(table) == held[-1]
                continue
            if step == "replace":
                source = txlog.write(next(paths), ROWS, properties=one)
                source.clone(table.uri, replace=True, properties=other)
                held.append(stays(of_the_user(source), now) | stored(other))
            elif step == "restore":
                table.restore(0)
                held.append(stays(held[0], now, "txlog.index."))
            elif step == "overwrite":
                table = txlog.Table.create(
                    table.uri, ROWS.schema, mode="overwrite", properties=other
                )
                new = create(next(paths), other)
                held.append(stays(of_the_user(new), now) | stored(other))
            else:
                table.alter.set_properties(other)
                held.append(now | stored(other))
            table = txlog.Table(table.uri)
            assert of_the_user(table) == held[-1]
            assert owned(table, Owner.LOG) == log
            held += [held[-1]] * (table.version + 1 - len(held))
        require_sound(table)


def of_the_user(table: txlog.Table, version: int | None = None) -> dict[str, str | None]:
    there = table if version is None else table.at(version)
    # A delete that writes vectors may set this one; no step here deletes.
    return owned(there, Owner.USER)


def stored(properties: Mapping[str, str]) -> dict[str, str | None]:
    return {n: text for n, text in properties.items() if owner_of(n) is Owner.USER}


def stays(
    then: Mapping[str, str | None], now: Mapping[str, str | None], *prefixes: str
) -> dict[str, str | None]:
    """Return the properties of another definition, with those of the table that stay."""
    kept = {name: text for name, text in then.items() if not name.startswith((STAMPS, *prefixes))}
    return kept | {n: text for n, text in now.items() if n.startswith((STAMPS, *prefixes))}
