"""The verdict on an intent after a winner's commit, rule by rule."""

from dataclasses import replace
from typing import Any

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from txlog.actions.action import Action
from txlog.actions.columns import empty_rows
from txlog.actions.file import Add, DeletionVectorDescriptor, Remove
from txlog.actions.ndjson import encode
from txlog.actions.table import CommitInfo, DomainMetadata, Metadata, Protocol, Txn
from txlog.commit.intent import Intent, Isolation, Reads
from txlog.commit.judge import Verdict, judge, passes_blindly
from txlog.expressions.bind import bind
from txlog.expressions.sql import parse_sql
from txlog.expressions.tree import Expression
from txlog.fragments.ids import ID_APP
from txlog.fragments.rows import FIELDS_TAG
from txlog.log.names import LogFile, commit_name
from txlog.log.segment import Segment
from txlog.reconcile.files import Controls
from txlog.schema.json import schema_json
from txlog.schema.types import PrimitiveType, StructField, StructType
from txlog.snapshot.commits import Commit, file_rows, parse_commit
from txlog.snapshot.snapshot import make_snapshot

SCHEMA = StructType(
    (StructField("x", PrimitiveType("long")), StructField("p", PrimitiveType("string")))
)


def where(text: str) -> Expression:
    return bind(parse_sql(text), SCHEMA)


def add(path: str, low: int | None = None, high: int = 0, p: str | None = "a") -> Add:
    stats = None
    if low is not None:
        stats = orjson.dumps(
            {
                "numRecords": 1,
                "minValues": {"x": low},
                "maxValues": {"x": high},
                "nullCount": {"x": 0},
            }
        ).decode()
    return Add(
        path=path,
        partition_values={"p": p},
        size=1,
        modification_time=0,
        data_change=True,
        stats=stats,
    )


def remove(path: str) -> Remove:
    return Remove(path=path, data_change=True, deletion_timestamp=0)


def commit_of(*actions: Action, blind: bool | None = None) -> Commit:
    info = CommitInfo(operation="WRITE", is_blind_append=blind)
    return parse_commit(encode([info, *actions]), LogFile(commit_name(5), "commit", 5))


BASE = make_snapshot(
    "t",
    Segment(4),
    Controls(
        Protocol(min_reader_version=1, min_writer_version=2),
        Metadata(id="t", schema_string=schema_json(SCHEMA), partition_columns=["p"]),
    ),
    sidecars=(),
    tail=empty_rows(),
    timestamp_ms=0,
    head_ms=0,
)


def verdict(intent: Intent, winner: Commit) -> Verdict:
    found = judge(intent, winner, file_rows([winner]), BASE)
    if passes_blindly(intent, winner):
        assert found == Verdict("ok", "CON-9")
    return found


APPEND = Intent("WRITE", 4, "append", adds=(add("mine"),))
DELETE = Intent(
    "DELETE",
    4,
    "delete",
    removes=(remove("old"),),
    adds=(add("mine"),),
    reads=Reads(where=where("x > 10")),
)
DELETE_ALL = Intent("DELETE", 4, "delete", removes=(remove("old"),), reads=Reads(everything=True))
PROTOCOL = Protocol(min_reader_version=1, min_writer_version=2)
METADATA = Metadata(id="1", schema_string='{"type":"struct","fields":[]}')


@pytest.mark.spec("CON-1")
@pytest.mark.parametrize("intent", [APPEND, DELETE, DELETE_ALL])
def test_a_new_protocol_makes_anew(intent: Intent) -> None:
    assert verdict(intent, commit_of(PROTOCOL)) == Verdict("redo", "CON-1")
    assert verdict(intent, commit_of(PROTOCOL, METADATA)) == Verdict("redo", "CON-1")


@pytest.mark.spec("CON-2")
@pytest.mark.parametrize("intent", [APPEND, DELETE, DELETE_ALL])
def test_new_metadata_makes_anew(intent: Intent) -> None:
    assert verdict(intent, commit_of(METADATA, add("b"))) == Verdict("redo", "CON-2")


@pytest.mark.spec("CON-3")
def test_the_same_application_makes_anew() -> None:
    mine = replace(APPEND, txn=Txn(app_id="job", version=3))
    assert verdict(mine, commit_of(Txn(app_id="job", version=2))) == Verdict("redo", "CON-3")
    assert verdict(mine, commit_of(Txn(app_id="other", version=9))).outcome == "ok"
    assert verdict(APPEND, commit_of(Txn(app_id="job", version=2), add("b"))).outcome == "ok"


@pytest.mark.spec("CON-3")
def test_two_writers_may_both_count_fragments() -> None:
    both = commit_of(Txn(app_id=ID_APP, version=9), add("b"))
    mine = replace(APPEND, txn=Txn(app_id="job", version=3))
    assert verdict(mine, both).outcome == "ok"


@pytest.mark.spec("CON-4")
@pytest.mark.parametrize("change", [{"metadata": METADATA}, {"protocol": PROTOCOL}])
def test_an_intent_that_changes_the_table_is_made_anew(change: dict[str, Any]) -> None:
    for winner in (commit_of(add("b")), commit_of()):
        assert verdict(replace(APPEND, **change), winner) == Verdict("redo", "CON-4")


@pytest.mark.spec("CON-5")
@pytest.mark.parametrize("theirs", [remove("old"), add("old")])
def test_a_file_that_both_touch_makes_anew(theirs: Action) -> None:
    assert verdict(DELETE, commit_of(theirs)) == Verdict("redo", "CON-5", "old")


@pytest.mark.spec("CON-5")
def test_other_spellings_of_a_path_are_the_same_file() -> None:
    mine = replace(DELETE, removes=(remove("a%20b"), remove("/abs/f")))
    assert verdict(mine, commit_of(remove("a b"))) == Verdict("redo", "CON-5", "a b")
    assert verdict(mine, commit_of(remove("file:///abs/f"))).rule == "CON-5"
    assert verdict(mine, commit_of(remove("a%2520b"))).outcome == "ok"


@pytest.mark.spec("CON-5")
def test_a_touched_file_counts_under_every_isolation() -> None:
    for isolation in ("Serializable", "WriteSerializable", "SnapshotIsolation"):
        mine = replace(DELETE, isolation=isolation)
        assert verdict(mine, commit_of(remove("old"), blind=True)).rule == "CON-5"


@pytest.mark.spec("CON-6")
@pytest.mark.parametrize(
    "theirs", [add("b", 5, 11), add("b", 11, 11), add("b")], ids=["across", "inside", "unknown"]
)
def test_rows_that_we_would_have_read_make_anew(theirs: Add) -> None:
    assert verdict(DELETE, commit_of(theirs)) == Verdict("redo", "CON-6", "b")


@pytest.mark.spec("CON-6")
def test_who_read_everything_is_touched_by_any_row() -> None:
    assert verdict(DELETE_ALL, commit_of(add("b", 1, 1))) == Verdict("redo", "CON-6", "b")
    assert verdict(DELETE_ALL, commit_of(remove("b"))).outcome == "ok"


@pytest.mark.spec("CON-7")
def test_blind_appends_pass_under_write_serializable() -> None:
    mine = replace(DELETE, isolation="WriteSerializable")
    assert verdict(mine, commit_of(add("b", 11, 11), blind=True)) == Verdict("ok", "CON-7")
    assert verdict(mine, commit_of(add("b", 11, 11), blind=False)).rule == "CON-6"
    assert verdict(mine, commit_of(add("b", 11, 11))).rule == "CON-6"
    assert verdict(DELETE, commit_of(add("b", 11, 11), blind=True)).rule == "CON-6"


@pytest.mark.spec("CON-8")
def test_rows_that_the_predicate_rules_out_do_not_matter() -> None:
    assert verdict(DELETE, commit_of(add("b", 1, 10))) == Verdict("ok", "CON-8")
    other = replace(DELETE, reads=Reads(where=where("p = 'z'")))
    assert verdict(other, commit_of(add("b", p="a"))) == Verdict("ok", "CON-8")
    assert verdict(other, commit_of(add("b", p="a"), add("c", p="z"))).path == "c"
    assert verdict(other, commit_of(add("b", p=None))).rule == "CON-8"


@pytest.mark.spec("CON-9")
def test_who_reads_nothing_always_passes() -> None:
    assert verdict(APPEND, commit_of(add("b"))) == Verdict("ok", "CON-9")
    assert verdict(APPEND, commit_of(remove("b"))) == Verdict("ok", "CON-9")
    assert verdict(DELETE, commit_of()) == Verdict("ok", "CON-9")
    snapshot = replace(DELETE, isolation="SnapshotIsolation")
    assert verdict(snapshot, commit_of(add("b", 11, 11))) == Verdict("ok", "CON-9")


own = st.lists(st.sampled_from(["a", "b", "c%20c", "c c", "./a"]), unique=True, max_size=3)
theirs = st.one_of(
    st.builds(add, st.sampled_from(["a", "b", "c%20c", "c c", "d"])),
    st.builds(remove, st.sampled_from(["a", "d"])),
    st.builds(Txn, app_id=st.sampled_from(["job", "other", ID_APP]), version=st.just(2)),
    st.sampled_from([METADATA, PROTOCOL, DomainMetadata(domain="d", configuration="")]),
    st.just(add("f").model_copy(update={"tags": {FIELDS_TAG: '["x"]'}})),
)


@given(
    own,
    st.lists(theirs, max_size=3, unique_by=repr),
    st.sampled_from([None, Txn(app_id="job", version=1)]),
    st.sampled_from([(), (DomainMetadata(domain="d", configuration="e"),)]),
    st.sampled_from([None, True, False]),
)
def test_appends_are_passed_quickly_only_where_they_pass(
    paths: list[str], actions: list[Action], txn: Txn | None, domains: Any, blind: bool | None
) -> None:
    mine = Intent("WRITE", 4, "append", tuple(map(add, paths)), txn=txn, domains=domains)
    verdict(mine, commit_of(*actions, blind=blind))


def test_two_appends_pass_quickly() -> None:
    given_ids = Txn(app_id=ID_APP, version=2)
    assert passes_blindly(APPEND, commit_of(given_ids, add("b"), blind=True))
    assert not passes_blindly(APPEND, commit_of(add("./mine"), blind=True))
    assert not passes_blindly(DELETE, commit_of(add("b"), blind=True))


files = st.lists(st.sampled_from("abcd"), unique=True, max_size=3)


def plainly(
    isolation: str, gone: list[str], threshold: int, added: dict[str, int], lost: list[str]
) -> bool:
    """The oracle: may a delete of `x > threshold` be committed after them?"""
    if set(gone) & (set(added) | set(lost)):
        return False
    return isolation == "SnapshotIsolation" or not any(x > threshold for x in added.values())


@pytest.mark.spec("CON-5", "CON-6", "CON-8", "CON-9")
@given(
    st.sampled_from(["Serializable", "WriteSerializable", "SnapshotIsolation"]),
    files,
    st.integers(0, 5),
    st.dictionaries(st.sampled_from("abcd"), st.integers(0, 5), max_size=3),
    files,
)
def test_deletes_agree_with_the_oracle(
    isolation: Isolation, gone: list[str], threshold: int, added: dict[str, int], lost: list[str]
) -> None:
    mine = Intent(
        "DELETE",
        4,
        "delete",
        removes=tuple(map(remove, gone)),
        reads=Reads(where=where(f"x > {threshold}")),
        isolation=isolation,
    )
    lost = [path for path in lost if path not in added]
    winner = commit_of(*(add(p, x, x) for p, x in added.items()), *map(remove, lost))
    expected = plainly(isolation, gone, threshold, added, lost)
    assert (verdict(mine, winner).outcome == "ok") is expected


def test_a_blind_append_is_one_that_reads_and_removes_nothing() -> None:
    assert APPEND.is_blind_append
    assert not DELETE.is_blind_append
    assert not replace(APPEND, metadata=METADATA).is_blind_append
    assert not replace(APPEND, adds=()).is_blind_append
    assert not replace(APPEND, kind="add columns").is_blind_append


def vector(positions: str) -> DeletionVectorDescriptor:
    return DeletionVectorDescriptor(
        storage_type="i", path_or_inline_dv=positions, size_in_bytes=1, cardinality=1
    )


def with_vector(path: str, positions: str, low: int = 0, high: int = 100) -> tuple[Remove, Add]:
    """Return the actions of a delete by rows."""
    return remove(path), add(path, low, high).model_copy(
        update={"deletion_vector": vector(positions)}
    )


BY_ROWS = replace(
    DELETE,
    removes=(remove("old"),),
    adds=(add("old").model_copy(update={"deletion_vector": vector("x")}),),
    row_deletes=frozenset({"old"}),
)


@pytest.mark.spec("CON-10")
@pytest.mark.parametrize("path", ["old", "other"])
def test_deletes_by_rows_may_be_united(path: str) -> None:
    assert verdict(BY_ROWS, commit_of(*with_vector(path, "y"))) == Verdict("rebase", "CON-10", path)


@pytest.mark.spec("CON-5", "CON-10")
def test_what_is_more_than_rows_makes_anew() -> None:
    winner = with_vector("old", "y")
    # The file goes, or we take it wholly; rows came beside.
    assert verdict(BY_ROWS, commit_of(remove("old"))) == Verdict("redo", "CON-5", "old")
    whole = replace(BY_ROWS, row_deletes=frozenset({"another"}))
    assert verdict(whole, commit_of(*winner)) == Verdict("redo", "CON-5", "old")
    assert verdict(replace(BY_ROWS, row_deletes=frozenset()), commit_of(*winner)).rule == "CON-5"
    assert verdict(BY_ROWS, commit_of(*winner, add("new", 11, 12))) == Verdict(
        "redo", "CON-6", "new"
    )
    assert verdict(BY_ROWS, commit_of(*winner, add("new", 1, 2))).outcome == "rebase"
    assert verdict(BY_ROWS, commit_of(METADATA, *winner)).rule == "CON-2"
