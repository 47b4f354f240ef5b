"""The table of conflicts, cell by cell: each kind of intent against each effect of a winner."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any, get_args

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from txlog.actions.action import Action
from txlog.actions.columns import empty_rows
from txlog.actions.file import Add, Cdc, DeletionVectorDescriptor, Remove
from txlog.actions.ndjson import encode
from txlog.actions.table import CommitInfo, DomainMetadata, Metadata, Protocol, Txn
from txlog.commit.conflict_table import TABLE
from txlog.commit.intent import Intent, Kind, Reads
from txlog.commit.judge import Verdict, judge, passes_blindly
from txlog.commit.winner import Effect, changes_of, tightens
from txlog.expressions.bind import bind
from txlog.expressions.sql import parse_sql
from txlog.expressions.tree import Expression
from txlog.log.names import LogFile, commit_name
from txlog.log.segment import Segment
from txlog.reconcile.files import Controls
from txlog.schema.json import schema_json
from txlog.schema.types import PrimitiveType, StructField, StructType
from txlog.snapshot.commits import Commit, file_rows, parse_commit
from txlog.snapshot.snapshot import Snapshot, make_snapshot

LONG = PrimitiveType("long")
SCHEMA = StructType(
    (
        StructField("x", LONG),
        StructField("z", LONG),
        StructField("p", PrimitiveType("string")),
    )
)
HARDER = ("ok", "rebase", "redo", "fail")


def where(text: str) -> Expression:
    return bind(parse_sql(text), SCHEMA)


def metadata(*more: StructField, **properties: str) -> Metadata:
    return Metadata(
        id="t",
        schema_string=schema_json(StructType((*SCHEMA.fields, *more))),
        partition_columns=["p"],
        configuration={"delta.appendOnly": "false", "mine": "1", **properties},
    )


PROTOCOL = Protocol(
    min_reader_version=3,
    min_writer_version=7,
    reader_features=["deletionVectors"],
    writer_features=["deletionVectors", "checkConstraints"],
)


def snapshot(held: Metadata, protocol: Protocol = PROTOCOL) -> Snapshot:
    return make_snapshot(
        "t",
        Segment(4),
        Controls(protocol, held),
        sidecars=(),
        tail=empty_rows(),
        timestamp_ms=0,
        head_ms=0,
    )


BASE = snapshot(metadata())


def file(
    path: str,
    x: int | None = None,
    *,
    fragment: int | None = None,
    fields: Sequence[str] = (),
    deleted: int = 0,
    data_change: bool = True,
    p: str = "a",
) -> Add:
    stats = None
    if x is not None:
        bounds = {"minValues": {"x": x}, "maxValues": {"x": x}, "nullCount": {"x": 0}}
        stats = orjson.dumps({"numRecords": 9, **bounds}).decode()
    tags = {} if fragment is None else {"txlog.fragmentId": str(fragment)}
    if fields:
        tags["txlog.fields"] = orjson.dumps(fields).decode()
    vector = None
    if deleted:
        vector = DeletionVectorDescriptor(
            storage_type="i", path_or_inline_dv="x" * deleted, size_in_bytes=1, cardinality=deleted
        )
    return Add(
        path=path,
        partition_values={"p": p},
        size=1,
        modification_time=0,
        data_change=data_change,
        stats=stats,
        tags=tags or None,
        deletion_vector=vector,
    )


def gone(add: Add) -> Remove:
    """Return the `remove` of a file."""
    return Remove(
        path=add.path,
        data_change=add.data_change,
        deletion_timestamp=0,
        partition_values=add.partition_values,
        stats=add.stats,
        tags=add.tags,
        deletion_vector=add.deletion_vector,
    )


def commit_of(*actions: Action, blind: bool | None = None) -> Commit:
    info = CommitInfo(operation="WRITE", is_blind_append=blind)
    return parse_commit(encode([info, *actions]), LogFile(commit_name(5), "commit", 5))


def verdict(intent: Intent, winner: Commit, base: Snapshot = BASE) -> Verdict:
    found = judge(intent, winner, file_rows([winner]), base)
    if passes_blindly(intent, winner):
        assert found == Verdict("ok", "CON-9")
    return found


# Ours: the file `old`, fragment 1, has rows of x > 10; others have not. We know of column z.
OLD = file("old", 50, fragment=1)
MARKED = file("old", 50, fragment=1, deleted=1)
READS = Reads(where=where("x > 10"))
OLDER = StructField("new", LONG)

INTENTS: dict[Kind, Intent] = {
    "append": Intent("WRITE", 4, "append", adds=(file("mine"),)),
    "delete": Intent(
        "DELETE",
        4,
        "delete",
        removes=(gone(OLD),),
        adds=(MARKED,),
        row_deletes=frozenset({"old"}),
        reads=READS,
    ),
    "replace": Intent(
        "UPDATE",
        4,
        "replace",
        removes=(gone(OLD),),
        adds=(MARKED, file("mine")),
        row_deletes=frozenset({"old"}),
        reads=READS,
    ),
    "overwrite": Intent(
        "WRITE",
        4,
        "overwrite",
        removes=(gone(OLD),),
        adds=(file("mine"),),
        reads=Reads(everything=True),
    ),
    "compact": Intent(
        "OPTIMIZE",
        4,
        "compact",
        removes=(gone(OLD),),
        adds=(file("mine", data_change=False),),
        reads=Reads(everything=True),
        isolation="SnapshotIsolation",
    ),
    "add columns": Intent(
        "ADD COLUMNS",
        4,
        "add columns",
        adds=(file("mine", fragment=1, fields=["new"]),),
        metadata=metadata(OLDER),
        columns=frozenset({"new"}),
    ),
    "replace columns": Intent(
        "UPDATE",
        4,
        "replace columns",
        removes=(gone(file("z-1", fragment=1, fields=["z"])),),
        adds=(file("mine", fragment=1, fields=["z"]),),
        columns=frozenset({"z"}),
    ),
    "metadata": Intent(
        "SET TBLPROPERTIES", 4, "metadata", metadata=metadata(OLDER, mine="2", yours="3")
    ),
    "restore": Intent("RESTORE", 4, "restore", removes=(gone(OLD),), adds=(file("older"),)),
    "protocol": Intent(
        "UPGRADE",
        4,
        "protocol",
        protocol=PROTOCOL.model_copy(
            update={"writer_features": [*(PROTOCOL.writer_features or ()), "domainMetadata"]}
        ),
    ),
}

ANOTHER = file("another", 5, fragment=9)

# A winner with one effect: what does not concern us, and what does, if anything of this effect can.
WINNERS: dict[Effect, tuple[list[Action], list[Action]]] = {
    Effect.ROWS_BLIND: ([file("far", 5)], [file("near", 11)]),
    Effect.ROWS: ([file("far", 5)], [file("near", 11)]),
    Effect.VECTORS: (
        [gone(ANOTHER), file("another", 5, fragment=9, deleted=2)],
        [gone(OLD), file("old", 50, fragment=1, deleted=2)],
    ),
    Effect.REMOVED: ([gone(ANOTHER)], [gone(OLD)]),
    Effect.MOVED: (
        [
            gone(file("another", 5, fragment=9, data_change=False)),
            file("packed", 5, fragment=10, data_change=False),
        ],
        [
            gone(file("old", 50, fragment=1, data_change=False)),
            file("packed", 50, fragment=10, data_change=False),
        ],
    ),
    Effect.COLUMNS: (
        [file("w-9", fragment=9, fields=["w"])],
        [file("xz-1", fragment=1, fields=["x", "z", "new"])],
    ),
    Effect.ADDITIONS: (
        [metadata(StructField("w", LONG))],
        [metadata(StructField("NEW", PrimitiveType("string")))],
    ),
    Effect.METADATA: ([metadata(**{"delta.appendOnly": "true"})],) * 2,
    Effect.PROTOCOL: ([Protocol(min_reader_version=1, min_writer_version=2)],) * 2,
    Effect.DOMAIN: ([DomainMetadata(domain="delta.clustering", configuration="{}")],) * 2,
    Effect.NOTE: ([DomainMetadata(domain="txlog.pin.x", configuration="{}")],) * 2,
}

# By hand, from the design's section 7 and the reasons in spec/commit.md. Two answers: not hit, hit.
# Columns: rows added blind, rows added, deletion set grew, files removed, files rearranged, column
# file added, additions, metadata other, protocol, domain, note.
EXPECTED: dict[Kind, str] = {
    "append": "ok ok ok ok ok ok redo redo redo ok ok",
    "delete": "ok/redo ok/redo ok/rebase ok/redo ok/redo ok/redo ok redo redo ok ok",
    "replace": "ok/redo ok/redo ok/rebase ok/redo ok/redo ok/redo redo redo redo ok ok",
    "overwrite": "redo redo redo redo redo redo redo redo redo redo redo",
    "compact": "ok ok ok/redo ok/redo ok/redo ok/redo redo redo redo redo ok",
    "add columns": "redo redo ok redo redo ok/fail redo/fail fail fail ok ok",
    "replace columns": "ok redo ok ok/redo ok/redo ok/redo redo redo redo ok ok",
    "metadata": "ok ok ok ok ok ok fail fail redo redo ok",
    "restore": "redo redo redo redo redo redo redo redo redo redo redo",
    "protocol": "ok ok ok ok ok ok redo redo fail redo ok",
}
EFFECTS = (
    Effect.ROWS_BLIND,
    Effect.ROWS,
    Effect.VECTORS,
    Effect.REMOVED,
    Effect.MOVED,
    Effect.COLUMNS,
    Effect.ADDITIONS,
    Effect.METADATA,
    Effect.PROTOCOL,
    Effect.DOMAIN,
    Effect.NOTE,
)


def expected(kind: Kind, effect: Effect, hit: bool) -> str:
    cell = EXPECTED[kind].split()[EFFECTS.index(effect)].split("/")
    return cell[-1] if hit else cell[0]


def by_rows_too(intent: Intent) -> Intent:
    """Return an intent with vectors of a file that nobody else has: a rebase then shows as one."""
    return replace(intent, row_deletes=intent.row_deletes | {"elsewhere"})


def winner_of(effect: Effect, hit: bool) -> Commit:
    return commit_of(*WINNERS[effect][hit], blind=effect is Effect.ROWS_BLIND)


@pytest.mark.slow
@pytest.mark.spec("CON-11", "CON-12", "CON-13")
@pytest.mark.parametrize("hit", [False, True], ids=["not hit", "hit"])
@pytest.mark.parametrize("effect", EFFECTS, ids=lambda effect: effect.name)
@pytest.mark.parametrize("kind", get_args(Kind))
def test_cell(kind: Kind, effect: Effect, hit: bool) -> None:
    found = verdict(by_rows_too(INTENTS[kind]), winner_of(effect, hit))
    assert found.outcome == expected(kind, effect, hit)


@pytest.mark.spec("CON-11")
def test_the_table_has_every_cell() -> None:
    assert set(TABLE) == set(get_args(Kind)) == set(EXPECTED) == set(INTENTS)
    assert all(set(row) == set(Effect) == set(EFFECTS) for row in TABLE.values())
    assert all(len(cells.split()) == len(EFFECTS) for cells in EXPECTED.values())


TOUCHING: dict[Effect, list[Action]] = {
    Effect.ROWS_BLIND: [file("old")],
    Effect.ROWS: [file("old")],
    Effect.VECTORS: [gone(file("old")), file("old", deleted=1)],
    Effect.REMOVED: [gone(file("old"))],
    Effect.MOVED: [gone(file("old", data_change=False))],
    Effect.COLUMNS: [gone(file("old", fields=["q"]))],
}


@pytest.mark.slow
@pytest.mark.spec("CON-5")
@pytest.mark.parametrize("effect", TOUCHING, ids=lambda effect: effect.name)
@pytest.mark.parametrize("kind", get_args(Kind))
def test_no_kind_passes_over_a_file_that_both_touch(kind: Kind, effect: Effect) -> None:
    winner = commit_of(*TOUCHING[effect], blind=effect is Effect.ROWS_BLIND)
    for isolation in ("Serializable", "WriteSerializable", "SnapshotIsolation"):
        bare = by_rows_too(Intent("ANY", 4, kind, isolation=isolation))  # type: ignore[arg-type]
        always = expected(kind, effect, False) == "redo"
        for mine in (replace(bare, removes=(gone(file("old")),)), replace(bare, adds=(OLD,))):
            found = verdict(mine, winner)
            assert found == Verdict("redo", "CON-11" if always else "CON-5", "old"), mine


@pytest.mark.spec("CON-7")
def test_blind_appends_pass_write_serializable_only() -> None:
    for kind in ("delete", "replace"):
        loose = replace(INTENTS[kind], isolation="WriteSerializable")
        assert verdict(loose, winner_of(Effect.ROWS_BLIND, True)) == Verdict("ok", "CON-7")
        assert verdict(loose, winner_of(Effect.ROWS, True)).rule == "CON-6"
        assert verdict(loose, winner_of(Effect.REMOVED, True)).rule == "CON-5"


@pytest.mark.spec("CON-6")
def test_an_append_of_what_the_table_holds_says_what_it_read() -> None:
    mine = by_rows_too(replace(INTENTS["append"], reads=READS))
    for effect, path in (
        (Effect.ROWS_BLIND, "near"),
        (Effect.ROWS, "near"),
        (Effect.VECTORS, "old"),
        (Effect.REMOVED, "old"),
    ):
        assert verdict(mine, winner_of(effect, False)).outcome == "ok", effect
        assert verdict(mine, winner_of(effect, True)) == Verdict("redo", "CON-6", path), effect
    assert verdict(mine, winner_of(Effect.MOVED, True)).outcome == "ok"  # The same rows.
    assert verdict(mine, winner_of(Effect.COLUMNS, False)).outcome == "ok"
    found = verdict(mine, winner_of(Effect.COLUMNS, True))
    assert found == Verdict("redo", "CON-14", "xz-1", "x")


@pytest.mark.spec("CON-6", "CON-11")
def test_a_column_replaced_for_all_rows_is_replaced_for_new_ones() -> None:
    mine = by_rows_too(replace(INTENTS["replace columns"], reads=READS))
    assert verdict(mine, winner_of(Effect.ROWS_BLIND, False)).outcome == "ok"
    assert verdict(mine, winner_of(Effect.ROWS_BLIND, True)) == Verdict("redo", "CON-6", "near")
    # Who does not say that it is blind may have moved rows of ours, with the old values.
    assert verdict(mine, winner_of(Effect.ROWS, False)) == Verdict("redo", "CON-11", "far")


@pytest.mark.spec("CON-6", "CON-11")
def test_a_replacement_may_have_kept_a_row_that_is_gone() -> None:
    near = file("kept", 50, fragment=8)
    less = [gone(near), file("kept", 50, fragment=8, deleted=1)]
    assert verdict(INTENTS["replace"], commit_of(*less)) == Verdict("redo", "CON-6", "kept")
    assert verdict(INTENTS["replace"], commit_of(gone(near))) == Verdict("redo", "CON-6", "kept")
    # Of a delete each row decides only about itself; the union looks whether rows came back.
    assert verdict(INTENTS["delete"], commit_of(*less)) == Verdict("rebase", "CON-10", "kept")
    assert verdict(INTENTS["delete"], commit_of(gone(near))).outcome == "ok"


@pytest.mark.spec("CON-6")
def test_a_remove_that_says_nothing_may_be_of_any_row() -> None:
    bare = Remove(path="another", data_change=True)
    assert verdict(INTENTS["replace"], commit_of(bare)).rule == "CON-6"
    by_partition = replace(INTENTS["replace"], reads=Reads(where=where("p = 'q'")))
    assert verdict(by_partition, commit_of(bare)).rule == "CON-6"
    assert verdict(by_partition, commit_of(gone(ANOTHER))).outcome == "ok"


@pytest.mark.spec("CON-10")
def test_without_vectors_of_ours_nothing_is_united() -> None:
    whole = replace(INTENTS["delete"], adds=(), row_deletes=frozenset())
    near = [gone(file("kept", 50)), file("kept", 50, deleted=1)]
    assert verdict(whole, commit_of(*near)) == Verdict("redo", "CON-6", "kept")
    assert verdict(whole, winner_of(Effect.VECTORS, False)).outcome == "ok"
    for kind in ("delete", "replace"):
        mine = by_rows_too(replace(INTENTS[kind], row_deletes=frozenset(), reads=Reads()))
        assert verdict(mine, winner_of(Effect.VECTORS, True)) == Verdict("redo", "CON-5", "old")


@pytest.mark.spec("CON-12")
def test_a_vector_that_did_not_grow_may_bring_rows_back() -> None:
    for before, after in ((2, 1), (1, 1), (1, 0), (0, 0)):
        winner = commit_of(gone(file("kept", 50, deleted=before)), file("kept", 50, deleted=after))
        assert verdict(INTENTS["delete"], winner) == Verdict("redo", "CON-6", "kept")
    winner = commit_of(gone(file("kept", 50, deleted=1)), file("kept", 50, deleted=2))
    assert verdict(INTENTS["delete"], winner).outcome == "rebase"


@pytest.mark.spec("CON-12")
def test_files_without_new_rows_come_from_somewhere() -> None:
    packed = file("packed", 50, data_change=False)
    # Nothing left for it, or it takes the place of itself: it may hold any row.
    assert verdict(INTENTS["delete"], commit_of(packed)).rule == "CON-6"
    shrunk = [gone(file("packed", 50, deleted=1, data_change=False)), packed]
    assert verdict(INTENTS["delete"], commit_of(*shrunk)).rule == "CON-6"
    moved = [gone(file("another", 50, data_change=False)), packed]
    assert verdict(INTENTS["delete"], commit_of(*moved)).outcome == "ok"
    assert verdict(INTENTS["delete"], commit_of(*moved, file("more", 50))).path == "more"


@pytest.mark.spec("CON-12")
@pytest.mark.parametrize(
    ("held", "additive"),
    [
        (metadata(), True),
        (metadata(mine="2", other="1"), True),
        (metadata(StructField("w", LONG, metadata={"comment": "why"})), True),
        (metadata(**{"delta.columnMapping.maxColumnId": "7"}), True),
        (metadata(StructField("w", LONG, nullable=False)), False),
        (metadata(StructField("w", LONG, metadata={"CURRENT_DEFAULT": "1"})), False),
        (metadata(**{"delta.constraints.small": "x < 5"}), False),
        (metadata().model_copy(update={"configuration": {"mine": "1"}}), False),
        (metadata().model_copy(update={"partition_columns": []}), False),
        (metadata().model_copy(update={"id": "other"}), False),
        (metadata().model_copy(update={"schema_string": schema_json(StructType())}), False),
        (metadata().model_copy(update={"schema_string": "{"}), False),
        (metadata().model_copy(update={"schema_string": None}), False),
    ],
)
def test_which_metadata_only_adds(held: Metadata, additive: bool) -> None:
    outcome = verdict(INTENTS["delete"], commit_of(held)).outcome
    assert outcome == ("ok" if additive else "redo")
    outcome = verdict(INTENTS["add columns"], commit_of(held)).outcome
    assert outcome == ("redo" if additive else "fail")


@pytest.mark.spec("CON-14")
def test_a_fragment_that_goes_takes_new_column_files_along() -> None:
    theirs = commit_of(file("w-1", fragment=1, fields=["w"]))
    assert verdict(INTENTS["delete"], theirs).outcome == "ok"  # It stays, with fewer rows.
    whole = replace(INTENTS["delete"], adds=(), row_deletes=frozenset({"elsewhere"}))
    assert verdict(whole, theirs) == Verdict("redo", "CON-14", "w-1")
    everything = replace(whole, reads=Reads(everything=True))
    assert verdict(everything, theirs) == Verdict("redo", "CON-14", "w-1")
    assert verdict(INTENTS["replace"], theirs) == Verdict("redo", "CON-14", "w-1")
    assert verdict(by_rows_too(INTENTS["compact"]), theirs) == Verdict("redo", "CON-14", "w-1")
    nameless = file("w-1", fields=["w"])
    for tag in ({}, {"txlog.fragmentId": "01"}, {"txlog.fragmentId": str(2**30)}):
        theirs = commit_of(nameless.model_copy(update={"tags": {**(nameless.tags or {}), **tag}}))
        assert verdict(whole, theirs) == Verdict("redo", "CON-14", "w-1")


@pytest.mark.spec("CON-14")
def test_a_column_of_the_predicate_that_got_other_values() -> None:
    winner = commit_of(file("x-9", fragment=9, fields=["X"]))
    for kind in ("delete", "replace"):
        assert verdict(INTENTS[kind], winner) == Verdict("redo", "CON-14", "x-9", "x")
        snapshot_only = replace(INTENTS[kind], isolation="SnapshotIsolation")
        assert verdict(snapshot_only, winner).outcome == "ok"
    computed = replace(INTENTS["add columns"], reads=Reads(where=where("x > 0")))
    assert verdict(by_rows_too(computed), winner) == Verdict("redo", "CON-14", "x-9", "x")
    everything = replace(INTENTS["replace columns"], reads=Reads(everything=True))
    assert verdict(by_rows_too(everything), winner) == Verdict("redo", "CON-14", "x-9")


@pytest.mark.spec("CON-14")
def test_a_list_of_columns_that_cannot_be_read_is_of_any() -> None:
    for text in ("{", '{"a":1}', "[1]", "null"):
        odd = file("odd", fragment=9).model_copy(
            update={"tags": {"txlog.fragmentId": "9", "txlog.fields": text}}
        )
        assert verdict(INTENTS["delete"], commit_of(odd)).rule == "CON-14"
        assert verdict(INTENTS["add columns"], commit_of(odd)).outcome == "fail"


@pytest.mark.spec("CON-14")
def test_columns_are_the_same_by_any_of_their_names() -> None:
    mapped = {"delta.columnMapping.physicalName": "col-1", "delta.columnMapping.id": 7}
    mine = replace(
        INTENTS["add columns"],
        columns=frozenset({"col-1"}),
        metadata=metadata(StructField("new", LONG, metadata=mapped)),
    )
    theirs = {**mapped, "delta.columnMapping.physicalName": "col-2"}
    for taken in (
        StructField("New", LONG, metadata=theirs),
        StructField("else", LONG, metadata=mapped),
    ):
        assert verdict(mine, commit_of(metadata(taken))).outcome == "fail"
    other = StructField("else", LONG, metadata=theirs)
    assert verdict(mine, commit_of(metadata(other))) == Verdict("redo", "CON-2")
    found = verdict(mine, commit_of(file("c", fragment=1, fields=["col-1"])))
    assert found == Verdict("fail", "CON-14", "c", "new")


@pytest.mark.spec("CON-12", "CON-14")
def test_column_files_that_go_with_their_fragment_change_no_column() -> None:
    whole = [gone(ANOTHER), gone(file("z-9", fragment=9, fields=["z"]))]
    mine = INTENTS["replace columns"]
    assert verdict(mine, commit_of(*whole)).outcome == "ok"
    assert verdict(mine, commit_of(whole[1])) == Verdict("redo", "CON-14", "z-9", "z")
    assert verdict(mine, commit_of(gone(OLD))) == Verdict("redo", "CON-14", "old")


@pytest.mark.spec("CON-15")
@pytest.mark.parametrize(
    ("change", "tightens"),
    [
        ({"metadata": metadata(StructField("w", LONG), mine="7")}, False),
        ({"metadata": metadata().model_copy(update={"configuration": {}})}, False),
        ({"metadata": metadata(**{"delta.constraints.small": "x < 5"})}, True),
        ({"metadata": metadata(StructField("w", LONG, nullable=False))}, True),
        (
            {
                "metadata": metadata().model_copy(
                    update={
                        "schema_string": schema_json(
                            StructType((replace(SCHEMA.fields[0], nullable=False),))
                        )
                    }
                )
            },
            True,
        ),
        ({"protocol": PROTOCOL.model_copy(update={"writer_features": []})}, True),
        ({"protocol": PROTOCOL}, False),
    ],
)
@pytest.mark.parametrize("kind", ["metadata", "protocol"])
def test_what_we_forbid_may_have_come_meanwhile(kind: Kind, change: Any, tightens: bool) -> None:
    mine = by_rows_too(Intent("ALTER", 4, kind, **change))
    for effect in (Effect.ROWS_BLIND, Effect.ROWS, Effect.COLUMNS, Effect.MOVED, Effect.VECTORS):
        found = verdict(mine, winner_of(effect, False))
        assert (found.outcome, found.rule) == (
            ("redo", "CON-15") if tightens else ("ok", "CON-9")
        ), effect
    assert verdict(mine, winner_of(Effect.REMOVED, False)).outcome == "ok"


@pytest.mark.spec("CON-16")
def test_one_domain_of_two_writers() -> None:
    def domain(name: str) -> DomainMetadata:
        return DomainMetadata(domain=name, configuration="{}")

    mine = replace(INTENTS["append"], domains=(domain("mine"), domain("delta.rowTracking")))
    assert verdict(mine, commit_of(domain("mine"))) == Verdict("fail", "CON-16")
    assert verdict(mine, commit_of(domain("delta.rowTracking"))).outcome == "ok"
    assert verdict(mine, commit_of(domain("yours"))).outcome == "ok"
    assert verdict(INTENTS["append"], commit_of(domain("mine"))).outcome == "ok"
    restore = replace(INTENTS["restore"], domains=(domain("mine"),))
    assert verdict(restore, commit_of(domain("mine"))) == Verdict("redo", "CON-16")


@pytest.mark.spec("CON-6")
def test_partition_values_of_mapped_columns_are_found_by_their_physical_names() -> None:
    named = {"delta.columnMapping.physicalName": "col-n", "delta.columnMapping.id": 1}
    mapped = {"delta.columnMapping.physicalName": "col-p", "delta.columnMapping.id": 2}
    held = metadata(**{"delta.columnMapping.mode": "name"}).model_copy(
        update={
            "schema_string": schema_json(
                StructType(
                    (
                        replace(SCHEMA.fields[0], metadata=named),
                        replace(SCHEMA.fields[2], metadata=mapped),
                    )
                )
            )
        }
    )
    features = [*(PROTOCOL.writer_features or ()), "columnMapping"]
    lists = {"reader_features": ["deletionVectors", "columnMapping"], "writer_features": features}
    base = snapshot(held, PROTOCOL.model_copy(update=lists))
    mine = replace(INTENTS["delete"], reads=Reads(where=where("p = 'q'")))
    theirs = file("new").model_copy(update={"partition_values": {"col-p": "q"}})
    assert verdict(mine, commit_of(theirs), base).rule == "CON-6"
    theirs = file("new").model_copy(update={"partition_values": {"col-p": "r"}})
    assert verdict(mine, commit_of(theirs), base).rule == "CON-8"


@pytest.mark.spec("CON-6")
def test_statistics_of_files_whose_columns_may_be_elsewhere_tell_nothing() -> None:
    features = {
        "reader_features": ["deletionVectors", "txlog.fragments"],
        "writer_features": ["deletionVectors", "txlog.fragments"],
    }
    base = snapshot(metadata(), PROTOCOL.model_copy(update=features))
    assert verdict(INTENTS["replace"], commit_of(gone(ANOTHER))).outcome == "ok"
    assert verdict(INTENTS["replace"], commit_of(gone(ANOTHER)), base).rule == "CON-6"
    by_partition = replace(INTENTS["replace"], reads=Reads(where=where("p = 'q'")))
    assert verdict(by_partition, commit_of(gone(ANOTHER)), base).outcome == "ok"
    assert verdict(INTENTS["replace"], commit_of(file("new", 5)), base).outcome == "ok"


@pytest.mark.spec("CON-6", "CON-13")
def test_what_cannot_be_read_counts_as_hit() -> None:
    by_number = bind(parse_sql("n = 1"), StructType((StructField("n", LONG),)))
    held = metadata().model_copy(
        update={
            "schema_string": schema_json(StructType((StructField("n", LONG),))),
            "partition_columns": ["n"],
        }
    )
    odd = file("odd").model_copy(update={"partition_values": {"n": "no number"}})
    mine = replace(INTENTS["delete"], reads=Reads(where=by_number))
    assert verdict(mine, commit_of(odd), snapshot(held)) == Verdict("redo", "CON-6", "odd")


# Every effect, with hits and without, on files of their own: any number of them makes a commit.
PARTS = {
    f"{effect.name} {'hit' if hit else 'not hit'}": (effect, WINNERS[effect][hit])
    for effect in EFFECTS
    for hit in (False, True)
    if effect is not Effect.ROWS_BLIND
}


def several(names: set[str]) -> Commit:
    """Return one commit with the effects of several; where they share a path, only the first's."""
    actions: dict[tuple[str, str], Action] = {}
    taken: dict[str, str] = {}
    for name in sorted(names):
        for action in PARTS[name][1]:
            path = getattr(action, "path", type(action).__name__)
            if taken.setdefault(path, name) == name:
                actions[path, type(action).__name__] = action
    return commit_of(*actions.values())


def hardness(found: Verdict) -> int:
    return HARDER.index(found.outcome)


@pytest.mark.spec("CON-11", "CON-17")
@given(
    st.sampled_from(get_args(Kind)),
    st.sets(st.sampled_from(sorted(PARTS)), max_size=5),
    st.sets(st.sampled_from(sorted(PARTS)), max_size=3),
)
def test_more_effects_never_make_it_milder(kind: Kind, some: set[str], more: set[str]) -> None:
    paths = {getattr(action, "path", type(action)) for name in some for action in PARTS[name][1]}
    more = {
        name
        for name in more
        if paths.isdisjoint(getattr(action, "path", type(action)) for action in PARTS[name][1])
    }
    less = verdict(INTENTS[kind], several(some))
    assert hardness(verdict(INTENTS[kind], several(some | more))) >= hardness(less)


@pytest.mark.spec("CON-11")
@given(st.sampled_from(get_args(Kind)), st.sets(st.sampled_from(sorted(PARTS)), max_size=4))
def test_the_hardest_cell_decides(kind: Kind, names: set[str]) -> None:
    paths = [getattr(action, "path", type(action)) for name in names for action in PARTS[name][1]]
    alone = {name for name in names if all(
        paths.count(getattr(action, "path", type(action)))
        == sum(getattr(a, "path", type(a)) == getattr(action, "path", type(action))
               for a in PARTS[name][1])
        for action in PARTS[name][1]
    )}  # fmt: skip
    single = [hardness(verdict(INTENTS[kind], several({name}))) for name in alone]
    assert hardness(verdict(INTENTS[kind], several(alone))) == max(single, default=0)


paths = st.sampled_from(["a", "b", "a%20b", "old", "file:///a"])
tags = st.none() | st.dictionaries(
    st.sampled_from(["txlog.fragmentId", "txlog.fields", "other"]),
    st.none() | st.sampled_from(["1", "9", "x", '["x"]', '["z","w"]', "[", "{}"]),
    max_size=3,
)
vectors = st.none() | st.builds(
    DeletionVectorDescriptor,
    storage_type=st.sampled_from("uip"),
    path_or_inline_dv=st.sampled_from("xy"),
    size_in_bytes=st.just(1),
    cardinality=st.integers(0, 3),
)
statistics = st.none() | st.sampled_from(
    ["{", "[]", "{}", '{"numRecords":1}', '{"numRecords":1,"minValues":{"x":"?"}}',
     '{"numRecords":2,"minValues":{"x":11},"maxValues":{"x":12},"nullCount":{"x":0}}']
)  # fmt: skip
partitions = st.dictionaries(st.sampled_from("pq"), st.none() | st.sampled_from("ab"), max_size=2)
added = st.builds(
    Add,
    path=paths,
    partition_values=partitions,
    size=st.just(1),
    modification_time=st.just(0),
    data_change=st.booleans(),
    stats=statistics,
    tags=tags,
    deletion_vector=vectors,
)
removed = st.builds(
    Remove,
    path=paths,
    data_change=st.booleans(),
    partition_values=st.none() | partitions,
    stats=statistics,
    tags=tags,
    deletion_vector=vectors,
)
tables = st.sampled_from(
    [
        metadata(),
        metadata(StructField("new", LONG)),
        metadata(**{"delta.constraints.c": "x > 0"}),
        metadata().model_copy(update={"schema_string": "?"}),
        metadata().model_copy(update={"schema_string": None}),
    ]
)
protocols = st.sampled_from([PROTOCOL, Protocol(min_reader_version=1, min_writer_version=2)])
domains = st.builds(DomainMetadata, domain=st.sampled_from("de"), configuration=st.just("{}"))
txns = st.builds(Txn, app_id=st.sampled_from("jk"), version=st.integers(0, 3))
intents = st.builds(
    Intent,
    st.just("ANY"),
    st.just(4),
    st.sampled_from(get_args(Kind)),
    adds=st.lists(added, max_size=3).map(tuple),
    removes=st.lists(removed, max_size=3).map(tuple),
    protocol=st.none() | protocols,
    metadata=st.none() | tables,
    txn=st.none() | txns,
    domains=st.lists(domains, max_size=1).map(tuple),
    reads=st.sampled_from(
        [Reads(), READS, Reads(where=where("p = 'a' AND z IS NULL")), Reads(everything=True)]
    ),
    row_deletes=st.frozensets(paths, max_size=2),
    columns=st.frozensets(st.sampled_from(["x", "z", "new"]), max_size=2),
    isolation=st.sampled_from(["Serializable", "WriteSerializable", "SnapshotIsolation"]),
)


@pytest.mark.spec("CON-11")
@given(
    intents,
    st.lists(added | removed, max_size=6),
    st.none() | tables,
    st.none() | protocols,
    st.lists(txns | domains, max_size=2),
    st.none() | st.booleans(),
)
def test_there_is_always_a_verdict(
    intent: Intent,
    files: list[Action],
    held: Metadata | None,
    protocol: Protocol | None,
    named: list[Action],
    blind: bool | None,
) -> None:
    controls = [action for action in (held, protocol) if action is not None]
    winner = commit_of(*controls, *named, *files, blind=blind)
    found = verdict(intent, winner)
    assert found.outcome in HARDER
    assert found.rule.startswith("CON-")
    assert verdict(intent, winner) == found
    ours = {action.path for action in (*intent.removes, *intent.adds)} - intent.row_deletes
    if any(getattr(action, "path", None) in ours for action in files):
        assert found.outcome in ("redo", "fail")


@pytest.mark.spec("CON-12", "CON-16")
@pytest.mark.parametrize("kind", get_args(Kind))
def test_the_mark_of_row_ids_changes_nothing_for_others(kind: Kind) -> None:
    winner = commit_of(DomainMetadata(domain="delta.rowTracking", configuration="{}"))
    assert changes_of(winner, file_rows([winner]), BASE) == {}
    assert verdict(INTENTS[kind], winner).outcome == "ok"


@pytest.mark.spec("CON-12")
@pytest.mark.parametrize(
    ("name", "effect"),
    [
        ("mine", Effect.ADDITIONS),
        ("txlog.pageRows", Effect.ADDITIONS),
        ("txlog.index.k", Effect.ADDITIONS),
        ("delta.columnMapping.maxColumnId", Effect.ADDITIONS),
        ("txlog.deletionFormat", Effect.METADATA),
        ("txlog.deletionVectors", Effect.METADATA),
        ("txlog.droppedColumns", Effect.METADATA),
        ("txlog.unknown", Effect.METADATA),
        ("delta.unknown", Effect.METADATA),
    ],
)
def test_properties_that_bind_writers(name: str, effect: Effect) -> None:
    winner = commit_of(metadata(**{name: "9"}))
    assert list(changes_of(winner, file_rows([winner]), BASE)) == [effect]
    binds = effect is Effect.METADATA
    assert verdict(INTENTS["delete"], winner).outcome == ("redo" if binds else "ok")
    assert tightens(BASE.metadata, metadata(**{name: "9"})) == binds


GIVEN = replace(
    INTENTS["replace"],
    removes=(),
    adds=(file("mine", fragment=1, fields=["z"]),),
    row_deletes=frozenset(),
    columns=frozenset({"z"}),
    reads=Reads(where=where("x > 100")),  # No statistics say that a winner's rows are read.
)
IMAGES = (Cdc(path="_change_data/mine", partition_values={}, size=1),)


@pytest.mark.spec("CON-11", "CON-13")
@pytest.mark.parametrize("effect", [Effect.VECTORS, Effect.REMOVED, Effect.MOVED])
def test_values_for_rows_of_a_fragment_that_others_change(effect: Effect) -> None:
    assert verdict(GIVEN, winner_of(effect, False)).outcome == "ok"
    assert verdict(GIVEN, winner_of(effect, True)) == Verdict("redo", "CON-14", "old")


@pytest.mark.spec("CON-11", "CON-13")
def test_recorded_changes_are_those_of_the_rows_that_are_there() -> None:
    mine = replace(INTENTS["replace columns"], removes=())
    grown = winner_of(Effect.VECTORS, True)
    assert verdict(mine, grown).outcome == "ok"
    assert verdict(replace(mine, cdc=IMAGES), grown) == Verdict("redo", "CON-14", "old")
    assert verdict(replace(mine, cdc=IMAGES), winner_of(Effect.VECTORS, False)).outcome == "ok"
    other = commit_of(file("w-1", fragment=1, fields=["w"]))
    assert verdict(INTENTS["delete"], other).outcome == "ok"
    recorded = replace(INTENTS["delete"], cdc=IMAGES)
    assert verdict(recorded, other) == Verdict("redo", "CON-14", "w-1")
    assert verdict(recorded, winner_of(Effect.COLUMNS, False)).outcome == "ok"
