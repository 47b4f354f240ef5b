"""Clones have the same rows as their sources, and change independently."""

import json
import os
import shutil
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import deltalake
import polars as pl
import pyarrow as pa
import pytest

import txlog
from tests.clocks import store_keeps_pace as store_keeps_pace
from tests.verbs.test_vacuum import FORMS, SCHEMA, content, rows
from txlog.base.effects import Effects
from txlog.base.errors import (
    AlreadyExistsError,
    DataFileError,
    InvalidInputError,
    NotFoundError,
    TxlogError,
    UnsupportedFeatureError,
)
from txlog.base.threads import Threads
from txlog.commit.context import Context
from txlog.snapshot.references import RegisteredClone, clones_of
from txlog.testing import FaultyStore, open_store
from txlog.verbs.clone import CloneOptions, clone

MANY = pa.table({"k": range(3000), "g": ["a b" if k % 2 else "_b" for k in range(3000)]}, SCHEMA)
TRACKED = {"delta.enableRowTracking": "true"}
KINDS = [*FORMS, TRACKED]


def source_of(root: Path, properties: dict[str, str], partition_by: tuple[str, ...] = ()) -> Any:
    table = txlog.Table.create(root, SCHEMA, partition_by, properties)
    table.append(MANY)
    table.append(rows(5000, 5001))
    table.delete("k % 7 = 1")
    return table


def make_old(root: Path) -> None:
    for path in root.rglob("*"):
        os.utime(path, (1, 1))


@pytest.mark.slow
@pytest.mark.spec("MNT-20", "MNT-21", "MNT-22")
@pytest.mark.parametrize("properties", KINDS)
@pytest.mark.parametrize("shallow", [False, True])
def test_a_clone_is_what_its_source_was(
    tmp_path: Path, properties: dict[str, str], shallow: bool
) -> None:
    source = source_of(tmp_path / "s s", properties, ("g",))
    expected, then = content(source), content(txlog.Table(source.uri, version=1))
    clone = source.clone(tmp_path / "c%20c", shallow)
    assert (clone.version, content(clone)) == (0, expected)
    assert clone.schema == source.schema
    assert clone.properties == source.properties
    assert clone.protocol == source.protocol
    assert clone.metadata.id != source.metadata.id
    assert len(list((tmp_path / "c%20c").rglob("*.parquet"))) == (0 if shallow else 4)
    if properties == TRACKED:
        ids = ["k", "_rowid"]
        assert clone.to_arrow(ids).sort_by("k") == source.to_arrow(ids).sort_by("k")
    older = source.clone(tmp_path / "older", shallow, version=1)
    assert content(older) == then
    # Neither sees what is written to the other, and each goes on as any table does.
    source.append(rows(7000))
    clone.delete("k < 100")
    clone.append(rows(8000))
    clone.optimize.compact()
    clone.maintenance.checkpoint()
    left = txlog.Table(tmp_path / "c%20c")
    assert left.count("k = 8000") == 1
    assert left.count("k = 7000 OR k < 100") == 0
    assert content(txlog.Table(clone.uri, version=0)) == expected
    assert content(txlog.Table(source.uri, version=source.version - 1)) == expected
    clone.restore(0)
    assert content(clone) == expected
    if properties == TRACKED:
        found = clone.to_arrow(["_rowid"])["_rowid"]
        assert len(found.unique()) == len(found)
    if not shallow:
        shutil.rmtree(tmp_path / "s s")
        assert content(txlog.Table(clone.uri)) == expected


@pytest.mark.spec("MNT-22")
def test_other_engines_read_deep_clones(tmp_path: Path) -> None:
    source = source_of(tmp_path / "s", {"delta.enableDeletionVectors": "false"}, ("g",))
    source.clone(tmp_path / "d")
    expected = sorted(source.to_arrow()["k"].to_pylist())
    read = deltalake.DeltaTable(tmp_path / "d").to_pyarrow_table()["k"].to_pylist()
    assert sorted(read) == expected
    assert pl.read_delta(str(tmp_path / "d"))["k"].sort().to_list() == expected


@pytest.mark.spec("MNT-21", "MNT-22")
def test_a_clone_of_a_clone(tmp_path: Path) -> None:
    source = source_of(tmp_path / "s", {})
    expected = content(source)
    shallow = source.clone(tmp_path / "one", shallow=True)
    again = shallow.clone(tmp_path / "two", shallow=True)
    deep = again.clone(tmp_path / "three")
    assert content(again) == content(deep) == expected
    shutil.rmtree(tmp_path / "one")
    assert content(txlog.Table(again.uri)) == expected
    shutil.rmtree(tmp_path / "s")
    assert content(txlog.Table(deep.uri)) == expected
    assert deltalake.DeltaTable(tmp_path / "three").version() == 0


@pytest.mark.spec("VAC-6", "MNT-10")
def test_vacuums_heed_registered_clones(tmp_path: Path) -> None:
    source = source_of(tmp_path / "s", {})
    expected = content(source)
    told = source.clone(tmp_path / "told", shallow=True, register=True)
    source.append(rows(6000))
    untold = source.clone(tmp_path / "untold", shallow=True)
    far = told.clone(tmp_path / "far", shallow=True, register=True)
    told.overwrite(rows(1))
    source.overwrite(rows(2))
    for name in ("s", "told", "untold"):
        make_old(tmp_path / name)
    for table in (untold, told, source):
        table.vacuum(0, dry_run=False, enforce_retention_duration=False)
    assert content(txlog.Table(far.uri)) == expected
    assert content(txlog.Table(told.uri, version=0)) == expected
    with pytest.raises(TxlogError):
        txlog.Table(untold.uri).to_arrow()
    assert sorted(source.maintenance.clones().values()) == [far.uri, told.uri]
    shutil.rmtree(tmp_path / "told")
    with pytest.raises(NotFoundError, match="forget_clone"):
        source.vacuum()
    with pytest.raises(NotFoundError, match="Choose from"):
        source.maintenance.forget_clone("other")
    source.maintenance.forget_clone(os.path.relpath(told.uri))
    source.vacuum(0, dry_run=False, enforce_retention_duration=False)
    assert content(txlog.Table(far.uri)) == expected  # It is registered here, too (MNT-16).
    source.maintenance.forget_clone(far.uri)
    source.vacuum(0, dry_run=False, enforce_retention_duration=False)
    with pytest.raises(TxlogError):
        txlog.Table(far.uri).to_arrow()


@pytest.mark.parametrize("shallow", [False, True])
def test_a_table_is_replaced_by_a_clone(tmp_path: Path, shallow: bool) -> None:
    source = source_of(tmp_path / "s", {})
    target = txlog.write(tmp_path / "t", pa.table({"other": [1]}))
    with pytest.raises(AlreadyExistsError):
        source.clone(tmp_path / "t", shallow)
    clone = source.clone(tmp_path / "t", shallow, replace=True, txn=("copy", 1))
    assert (clone.version, content(clone)) == (1, content(source))
    assert clone.metadata.id == target.metadata.id
    assert source.clone(tmp_path / "t", shallow, replace=True, txn=("copy", 1)).outcome.skipped
    source.append(rows(9000))
    source.delete("k = 5000")
    again = source.clone(tmp_path / "t", shallow, replace=True, txn=("copy", 2))
    assert content(again) == content(source)
    assert content(txlog.Table(again.uri, version=1)) == content(
        txlog.Table(source.uri, version=source.version - 2)
    )
    # Files that it had are not copied again.
    parquet = list((tmp_path / "t").glob("*.parquet"))
    assert len(parquet) == (1 if shallow else 1 + source.files().num_rows)
    assert again.history(1)[0]["operation"] == "CLONE"
    same = source.clone(tmp_path / "t", shallow, replace=True)
    assert content(same) == content(source)
    assert len({f.fragment_id for f in same.fragments()}) == len(same.fragments())


@pytest.mark.spec("MNT-22")
def test_a_copy_takes_no_place_and_a_failure_leaves_none(tmp_path: Path) -> None:
    source = source_of(tmp_path / "s", {})
    name = source.files()["path"][0].as_py()
    (tmp_path / "c").mkdir()
    (tmp_path / "c" / name).write_bytes(b"of another")
    clone = source.clone(tmp_path / "c")
    assert content(clone) == content(source)
    assert (tmp_path / "c" / name).read_bytes() == b"of another"
    (tmp_path / "s" / name).unlink()
    with pytest.raises(NotFoundError):
        source.clone(tmp_path / "d")
    assert not list((tmp_path / "d").rglob("*.*"))
    assert source.clone(tmp_path / "e", shallow=True).count() == source.count()


@pytest.mark.spec("MNT-23")
def test_what_cannot_be_cloned_is_refused(tmp_path: Path) -> None:
    source = source_of(tmp_path / "s", {})
    for place in (tmp_path / "s", tmp_path / "s" / "in", tmp_path):
        with pytest.raises(
            (InvalidInputError, AlreadyExistsError), match=r"is inside the folder|already"
        ):
            source.clone(place)
    with pytest.raises(InvalidInputError, match="needs no file"):
        source.clone(tmp_path / "c", register=True)
    with pytest.raises(InvalidInputError, match="no such property"):
        source.clone(tmp_path / "c", properties={"delta.enableNothing": "true"})
    with pytest.raises(UnsupportedFeatureError, match="allowed_schemes"):
        source.clone("memory://clone", shallow=True)
    assert content(source.clone("memory://clone")) == content(source)
    changed = source.clone(tmp_path / "c", properties={"delta.enableChangeDataFeed": "true"})
    assert "changeDataFeed" in changed.protocol.writer_features
    changed.append(rows(1))
    assert changed.changes(1).to_arrow().num_rows == 1


def test_columns_in_files_of_their_own_are_cloned(tmp_path: Path) -> None:
    source = source_of(tmp_path / "s", {"delta.feature.txlog.fragments": "supported"})
    source.alter.add_columns({"twice": "2 * k"})
    for shallow in (False, True):
        clone = source.clone(tmp_path / f"c{shallow}", shallow)
        assert content(clone) == content(source)
        clone.append(pa.table({"k": [1], "g": ["x"], "twice": [2]}))
        clone.alter.add_columns({"more": "k"})
        assert clone.count("twice = 2 * k AND more = k") == source.count() + 1
        assert content(source.clone(clone.uri, shallow, replace=True)) == content(source)
    shutil.rmtree(tmp_path / "s")
    assert txlog.Table(tmp_path / "cFalse").to_arrow().num_rows


# The registration -----------------------------------------------------------------------------


def overwritten(root: Path) -> Any:
    """Make a table whose latest version has none of the files of version 0."""
    source = txlog.write(root, rows(1, 2))
    source.overwrite(rows(3))
    make_old(root)
    return source


def clean(table: Any) -> None:
    table.vacuum(0, dry_run=False, enforce_retention_duration=False)


def at_commit(path: Path, step: int, other: Any) -> Context:
    """Return the context of a table for whose commits others act before the given one."""
    store = FaultyStore(open_store(path), before={("put_if_absent", step): other})
    return Context(store, Effects(), Threads(1))


@pytest.mark.spec("MNT-15", "MNT-11")
@pytest.mark.parametrize("what", ["pin", "vacuum", "vacuum and pin"])
def test_others_act_before_the_commit_of_a_registered_clone(tmp_path: Path, what: str) -> None:
    source = overwritten(tmp_path / "s")
    source.pins.create("to have the feature", version=1)

    def other() -> None:
        table = txlog.Table(source.uri)
        if "pin" in what:
            table.pins.create("first", version=0)
        if "vacuum" in what:
            clean(table)

    target = at_commit(tmp_path / "t", 1, other)
    clone(
        source._context,
        txlog.Table(source.uri, version=0).snapshot,
        target,
        CloneOptions(True, register=True),
    )
    clean(source.refresh())
    assert sorted(txlog.Table(tmp_path / "t").to_arrow()["k"].to_pylist()) == [1, 2]


@pytest.mark.spec("MNT-15")
def test_a_pin_before_the_registration_is_no_conflict(tmp_path: Path) -> None:
    source = overwritten(tmp_path / "s")
    old = txlog.Table(source.uri, version=0)
    source.pins.create("first", version=0)  # It adds a feature.
    made = old.clone(tmp_path / "t", shallow=True, register=True)
    assert source.refresh().maintenance.clones() == {made.metadata.id: made.uri}
    source.pins.delete("first")
    clean(source)
    assert made.count("k = 1") == made.to_arrow().num_rows - 1 == 1


@pytest.mark.spec("MNT-15")
def test_a_retried_clone_is_registered(tmp_path: Path) -> None:
    """Whoever committed it: with its `txn`, the second call finds what is missing."""
    source = overwritten(tmp_path / "s")
    old = txlog.Table(source.uri, version=0)
    made = old.clone(tmp_path / "t", shallow=True, txn=("copy", 1))
    assert source.refresh().maintenance.clones() == {}
    again = old.clone(tmp_path / "t", shallow=True, register=True, txn=("copy", 1))
    assert again.outcome.skipped
    assert source.refresh().maintenance.clones() == {made.metadata.id: made.uri}
    version = source.version
    old.clone(tmp_path / "t", shallow=True, register=True, txn=("copy", 1))
    assert source.refresh().version == version
    clean(source)
    assert made.to_arrow().num_rows == 2


@pytest.mark.spec("MNT-15", "MNT-24")
@pytest.mark.parametrize("register", [False, True])
def test_a_version_whose_files_are_gone_is_not_cloned(tmp_path: Path, register: bool) -> None:
    source = overwritten(tmp_path / "s")
    old = txlog.Table(source.uri, version=0)
    clean(source)
    with pytest.raises(txlog.DataFileError, match="clone a later version"):
        old.clone(tmp_path / "t", shallow=True, register=register)
    assert not (tmp_path / "t").exists()
    assert source.refresh().maintenance.clones() == {}
    assert source.clone(tmp_path / "t", shallow=True, register=register).to_arrow().num_rows == 1


@pytest.mark.spec("MNT-15")
def test_a_clone_that_fails_is_not_registered(tmp_path: Path) -> None:
    source = overwritten(tmp_path / "s")
    made = source.clone(tmp_path / "t", shallow=True, register=True)
    known = source.refresh().snapshot.controls.domains

    def other() -> None:
        txlog.write(tmp_path / "u", rows(9))

    with pytest.raises(AlreadyExistsError):
        clone(
            source._context, source.snapshot, at_commit(tmp_path / "u", 1, other),
            CloneOptions(True, register=True),
        )  # fmt: skip
    left = source.refresh().snapshot.controls.domains
    assert {name for name, one in left.items() if not one.removed} == set(known)
    # Also if there was a table before.
    txlog.Table(tmp_path / "u").alter.set_properties({"delta.appendOnly": "true"})
    with pytest.raises(UnsupportedFeatureError):
        source.clone(tmp_path / "u", shallow=True, register=True, replace=True)
    assert list(source.refresh().maintenance.clones().values()) == [made.uri]
    # A clone over a registered one that fails leaves the registration as it was.
    txlog.Table(made.uri).alter.set_properties({"delta.appendOnly": "true"})
    with pytest.raises(UnsupportedFeatureError):
        source.clone(made.uri, shallow=True, register=True, replace=True)
    (found,) = clones_of(source.refresh().snapshot)
    assert found == RegisteredClone(made.metadata.id, made.uri)


@pytest.mark.spec("MNT-15")
def test_a_second_call_finds_what_the_first_did_not_record(tmp_path: Path) -> None:
    """The process ends after the clone is committed."""
    source = overwritten(tmp_path / "s")

    class Death(BaseException):
        pass

    def dies() -> None:
        raise Death

    store = FaultyStore(open_store(source.uri), before={("put_if_absent", 2): dies})
    with pytest.raises(Death):
        clone(
            Context(store, Effects(), Threads(1)), txlog.Table(source.uri, version=0).snapshot,
            at_commit(tmp_path / "t", 9, dies), CloneOptions(True, register=True),
        )  # fmt: skip
    (left,) = clones_of(source.refresh().snapshot)
    assert not left.is_made
    clean(later(source, 25))  # Now only the clone itself keeps its files.
    made = txlog.Table(tmp_path / "t")
    assert made.to_arrow().num_rows == 2
    with pytest.raises(AlreadyExistsError):
        source.clone(made.uri, shallow=True, register=True)
    assert clones_of(source.refresh().snapshot) == [RegisteredClone(made.metadata.id, made.uri)]


@dataclass(frozen=True)
class Later(Effects):
    hours: int = 0

    def now_ms(self) -> int:
        return super().now_ms() + self.hours * 3_600_000


def later(table: Any, hours: int) -> Any:
    found = txlog.Table(table.uri)
    found._context = replace(found._context, effects=Later(hours))
    return found


@pytest.mark.spec("MNT-15", "MNT-11")
def test_a_clone_that_was_never_made_blocks_nobody_for_ever(tmp_path: Path) -> None:
    """While it may still be made, its version is kept: files and log."""
    source = overwritten(tmp_path / "s")
    files = set((tmp_path / "s").glob("*.parquet"))
    version_0 = tmp_path / "s" / "_delta_log" / f"{0:020d}.json"

    class Death(BaseException):
        pass

    def dies() -> None:
        raise Death

    with pytest.raises(Death):
        clone(
            source._context, txlog.Table(source.uri, version=0).snapshot,
            at_commit(tmp_path / "t", 1, dies), CloneOptions(True, register=True),
        )  # fmt: skip
    source.maintenance.checkpoint()
    for hours in (0, 23):
        clean(later(source, hours))
        later(source, hours).maintenance.expire(0, dry_run=False)
        assert set((tmp_path / "s").glob("*.parquet")) == files
        assert version_0.exists()
    with pytest.raises(UnsupportedFeatureError, match="being made"):
        source.alter.drop_feature("appendOnly", truncate_history=True)
    (left,) = clones_of(source.refresh().snapshot)
    # A later clone to this place completes the registration.
    made = source.clone(tmp_path / "t", shallow=True, register=True, version=0)
    assert made.metadata.id == left.id
    assert source.refresh().maintenance.clones() == {left.id: made.uri}
    shutil.rmtree(made.uri)
    with pytest.raises(NotFoundError, match="forget_clone"):
        clean(source)  # It was made, so somebody may have moved it.
    source.maintenance.forget_clone(left.id)
    with pytest.raises(Death):
        clone(
            source._context, txlog.Table(source.uri, version=0).snapshot,
            at_commit(tmp_path / "v", 1, dies), CloneOptions(True, register=True),
        )  # fmt: skip
    clean(later(source, 25))
    assert set((tmp_path / "s").glob("*.parquet")) < files
    later(source, 25).maintenance.checkpoint()
    later(source, 25).maintenance.expire(0, dry_run=False)
    assert not version_0.exists()


@pytest.mark.spec("MNT-15")
def test_another_clone_is_made_over_a_registered_one_at_once(tmp_path: Path) -> None:
    """Each attempt keeps its own version."""
    source = txlog.write(tmp_path / "s", rows(1))
    for k in (2, 3):
        source.overwrite(rows(k))
    make_old(tmp_path / "s")
    source.clone(tmp_path / "t", shallow=True, register=True)

    def other() -> None:
        again = txlog.Table(source.uri, version=1)
        again.clone(tmp_path / "t", shallow=True, register=True, replace=True)
        clean(txlog.Table(source.uri))

    version_0 = txlog.Table(source.uri, version=0).snapshot
    options = CloneOptions(True, replace=True, register=True)
    clone(source._context, version_0, at_commit(tmp_path / "t", 1, other), options)
    clean(source.refresh())
    assert txlog.Table(tmp_path / "t").to_arrow()["k"].to_pylist() == [1]
    assert txlog.Table(tmp_path / "t", version=1).to_arrow()["k"].to_pylist() == [2]


@dataclass(frozen=True)
class Slow(Effects):
    """Between any two looks at the clock, two hours pass."""

    looks: list[int] = field(default_factory=list)

    def now_ms(self) -> int:
        self.looks.append(len(self.looks))
        return super().now_ms() + 2 * 3_600_000 * len(self.looks)


@pytest.mark.spec("MNT-15")
def test_a_slow_clone_is_registered_again(tmp_path: Path) -> None:
    """So the record is young when the clone is committed."""
    source = overwritten(tmp_path / "s")
    target = txlog.write(tmp_path / "t", rows(5))
    slow = Context(open_store(source.uri), Slow(), Threads(1))

    def other() -> None:  # The clone has to be tried again.
        txlog.Table(target.uri).append(rows(6))

    version_0 = txlog.Table(source.uri, version=0).snapshot
    options = CloneOptions(True, replace=True, register=True)
    clone(slow, version_0, at_commit(tmp_path / "t", 1, other), options)
    source.refresh()
    done = [one["operation"] for one in source.history(3)]
    assert done == ["FINISH CLONE", "REGISTER CLONE", "REGISTER CLONE"]
    assert clones_of(source.snapshot) == [RegisteredClone(target.metadata.id, target.uri)]
    clean(source)
    assert txlog.Table(target.uri).to_arrow().num_rows == 2


@pytest.mark.spec("MNT-15")
@pytest.mark.parametrize(
    "text",
    [
        "[1]",
        '[{"id": 1}]',
        '"x"',
        '[{"id": "a", "version": 1, "startedTime": 1, "txn": [1, 2]}]',
        '[{"id": "a", "version": 1, "startedTime": 1, "of": 1}]',
    ],
)
def test_a_registration_that_cannot_be_read_deletes_nothing(tmp_path: Path, text: str) -> None:
    source = overwritten(tmp_path / "s")
    made = source.clone(tmp_path / "t", shallow=True, register=True)
    facts = json.dumps({"location": made.uri, "attempts": json.loads(text)})
    commit = {
        "domainMetadata": {
            "domain": f"txlog.clone.{made.metadata.id}", "configuration": facts, "removed": False
        }
    }  # fmt: skip
    path = tmp_path / "s" / "_delta_log" / f"{source.refresh().version + 1:020d}.json"
    path.write_text(json.dumps(commit))
    with pytest.raises(txlog.LogCorruptError, match="attempts"):
        clean(txlog.Table(source.uri))


@pytest.mark.spec("MNT-16")
@pytest.mark.parametrize("between", ["not registered", "deleted", "replaced"])
def test_a_clone_of_a_clone_outlives_the_clone_between(tmp_path: Path, between: str) -> None:
    oldest = source_of(tmp_path / "a b", {"delta.enableDeletionVectors": "true"}, ("g",))
    first = oldest.clone(tmp_path / "b", shallow=True)
    first.append(rows(9000))
    middle = first.clone(tmp_path / "c", shallow=True, register=between != "not registered")
    last = middle.clone(tmp_path / "d", shallow=True, register=True)
    expected = content(last)
    for table in (oldest, first, middle):
        assert table.refresh().maintenance.clones()[last.metadata.id] == last.uri
    if between != "not registered":
        shutil.rmtree(middle.uri)
        if between == "replaced":
            txlog.write(middle.uri, rows(7))
    for table in (oldest, first):
        if between == "deleted":
            table.maintenance.forget_clone(middle.uri)
        table.overwrite(rows(9))
        make_old(Path(table.uri))
        clean(table)
        assert content(txlog.Table(last.uri)) == expected
        table.maintenance.forget_clone(last.uri)
    clean(oldest)
    with pytest.raises(TxlogError):
        txlog.Table(last.uri).to_arrow()


@pytest.mark.spec("MNT-16")
def test_a_clone_over_the_table_whose_files_it_names(tmp_path: Path) -> None:
    first = overwritten(tmp_path / "a")
    middle = first.clone(tmp_path / "b", shallow=True, register=True)
    with pytest.raises(InvalidInputError, match="inside the folder"):
        middle.clone(tmp_path / "a" / "c", shallow=True, register=True)
    again = middle.clone(first.uri, shallow=True, register=True, replace=True)
    assert again.to_arrow().num_rows == 1
    assert list(again.maintenance.clones().values()) == [middle.uri]


@pytest.mark.spec("MNT-16")
@pytest.mark.parametrize("hours", [23, 25])
def test_files_are_kept_while_a_clone_of_a_clone_is_made(tmp_path: Path, hours: int) -> None:
    first = txlog.write(tmp_path / "a", rows(1, 2))
    middle = first.clone(tmp_path / "b", shallow=True)
    first.overwrite(rows(3))
    make_old(tmp_path / "a")
    files = set((tmp_path / "a").glob("*.parquet"))

    class Death(BaseException):
        pass

    def dies() -> None:
        clean(txlog.Table(first.uri))
        raise Death

    with pytest.raises(Death):
        clone(
            middle._context, middle.snapshot,
            at_commit(tmp_path / "c", 1, dies), CloneOptions(True, register=True),
        )  # fmt: skip
    clean(later(first, hours))
    assert (set((tmp_path / "a").glob("*.parquet")) == files) == (hours == 23)
    if hours == 23:
        made = middle.refresh().clone(tmp_path / "c", shallow=True, register=True)
        clean(later(first, 25))
        assert made.to_arrow().num_rows == 2
        assert first.refresh().maintenance.clones() == {made.metadata.id: made.uri}
        return
    with pytest.raises(DataFileError, match="missing") as caught:
        middle.refresh().clone(tmp_path / "d", shallow=True, register=True)
    assert "to be registered there" in str(caught.value.__notes__)
    assert not (tmp_path / "d").exists()
    assert [one.uri for one in clones_of(first.refresh().snapshot)] == [str(tmp_path / "c")]


@pytest.mark.spec("MNT-16")
def test_a_lost_source_blocks_nobody_for_ever(tmp_path: Path) -> None:
    first = txlog.write(tmp_path / "a", rows(1, 2))
    middle = first.clone(tmp_path / "b", shallow=True)

    class Death(BaseException):
        pass

    def dies() -> None:
        raise Death

    with pytest.raises(Death):
        clone(
            middle._context, middle.snapshot,
            at_commit(tmp_path / "c", 1, dies), CloneOptions(True, register=True),
        )  # fmt: skip
    shutil.rmtree(middle.uri)
    (left,) = clones_of(first.refresh().snapshot)
    with pytest.raises(NotFoundError, match="forget_clone") as caught:
        clean(first)
    assert left.id in str(caught.value)
    clean(later(first, 25))
    first.refresh().maintenance.forget_clone(left.id)
    clean(first)


@pytest.mark.spec("MNT-16")
def test_a_retried_clone_of_a_clone_is_registered_everywhere(tmp_path: Path) -> None:
    first = txlog.write(tmp_path / "a", rows(1, 2))
    middle = first.clone(tmp_path / "b", shallow=True)
    made = middle.clone(tmp_path / "c", shallow=True, txn=("copy", 1))
    middle.overwrite(rows(3))  # The clone names files that its source does not name any more.
    middle.clone(tmp_path / "c", shallow=True, register=True, txn=("copy", 1))
    for table in (first, middle):
        assert table.refresh().maintenance.clones() == {made.metadata.id: made.uri}
    first.overwrite(rows(4))
    make_old(tmp_path / "a")
    clean(first)
    assert made.to_arrow().num_rows == 2


def test_the_log_has_no_password_of_a_uri(tmp_path: Path) -> None:
    source = txlog.write("memory://ann:MARK0@one/t", MANY)
    clone = source.clone(tmp_path / "new")
    clone = source.clone(tmp_path / "new", replace=True)
    assert clone.history()[0]["operationParameters"]["source"] == "delta.`memory://…@one/t`"
    with pytest.raises(InvalidInputError, match="storage options"):
        source.clone(tmp_path / "shallow", shallow=True)
    assert not (tmp_path / "shallow").exists()
    other = txlog.write("memory://ann:MARK0@two/t", MANY)
    other.merge(source, on="k").when_matched_update_all().execute()
    other.append(source.to_arrow())
    other.restore(0)
    logs = [path.read_bytes() for path in (tmp_path / "new" / "_delta_log").iterdir()]
    for table in (source, other):
        store = table._context.store
        logs += [store.read(f"_delta_log/{one.name}") for one in store.list_tree("_delta_log")]
    assert logs
    assert not any(b"MARK0" in text for text in logs)


def test_a_lost_clone_may_have_clones_that_need_the_files(tmp_path: Path) -> None:
    source = txlog.write(tmp_path / "s", pa.table({"x": [1]}))
    between = source.clone(tmp_path / "b", shallow=True, register=True)
    last = between.clone(tmp_path / "c", shallow=True, register=True)
    source.refresh().overwrite(pa.table({"x": [2]}))
    shutil.rmtree(between.uri)
    source.refresh().maintenance.forget_clone(last.uri)  # As if an earlier release had made it.
    with pytest.raises(NotFoundError, match="make deep clones of them first"):
        clean(source)
    kept = last.clone(tmp_path / "d", shallow=False)
    source.refresh().maintenance.forget_clone(between.uri)
    clean(source.refresh())
    assert kept.to_arrow().to_pydict() == {"x": [1]}
