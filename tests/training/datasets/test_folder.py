"""`Datasets` and `Dataset`: the methods for users."""

import inspect
import os
import pickle
import shutil
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, ClassVar
from unittest.mock import Mock

import pyarrow as pa
import pytest

import txlog
from tests.training.datasets.homes import Ticking, catalog_in, rows_of, texts
from txlog.base.effects import rehearsing
from txlog.base.errors import (
    AlreadyExistsError,
    CommitConflictError,
    DataFileError,
    InvalidInputError,
    InvalidTypeError,
    NotFoundError,
    SchemaMismatchError,
    TxlogError,
    TxlogWarning,
    UnsupportedFeatureError,
)
from txlog.store.open import open_store
from txlog.training import Code, Dataset, Datasets, InlineRunner, Input, Loader
from txlog.training.datasets import aside, lifecycle, types
from txlog.training.datasets.commands import Create
from txlog.training.datasets.commits import AddCommit, read_rows
from txlog.training.datasets.ingest import StoredObjects
from txlog.training.datasets.ledger import Ledger
from txlog.training.datasets.limits import Limits
from txlog.training.datasets.prepare import opened_part
from txlog.training.datasets.values import Commit, Summary
from txlog.training.service.parts import part_answer


class Idle:
    """A runner that never does anything."""

    def submit(self, work: Any) -> None:
        return None


@pytest.fixture
def catalog(tmp_path: Path) -> Datasets:
    return Datasets(tmp_path / "root", runner=InlineRunner())


@pytest.fixture
def ds(catalog: Datasets) -> Dataset:
    made = catalog.create("t", "TABLE", rows_of("ab"), tags={"for": "test"})
    made.update(rows_of("cde"), "second", {"for": "training"})
    made.update(rows_of("f"), "third", {"for": "training", "clean": "yes"})
    return made


UUID = "5f0c9d0e-0000-4000-8000-000000000000"


def files_of(catalog: Datasets) -> set[str]:
    root = Path(catalog.root)
    return {str(p.relative_to(root)) for p in root.rglob("*") if p.is_file()}


# Making and updating ----------------------------------------------------------------------


def test_what_is_made_is_listed(catalog: Datasets, ds: Dataset) -> None:
    catalog.create("u", "TABLE", rows_of("x"), description="another")
    first, second = catalog.list()
    assert isinstance(first, Summary)
    assert (first.dataset_id, first.name, first.type) == (1, "t", "TABLE")
    assert [(c.commit_id, c.message, c.rows) for c in first.commits] == [
        (1, "Initial commit", 2), (2, "second", 3), (3, "third", 1),
    ]  # fmt: skip
    assert first.last_updated_ms >= first.created_ms
    assert first == ds.summary() == Datasets(catalog.root).dataset("t").summary()
    assert second.description == "another"
    assert [one.name for one in catalog.list(limit=1)] == ["t"]
    assert [one.name for one in catalog.list(after=1)] == ["u"]
    assert catalog.list(type="GENERIC") == []
    assert pickle.loads(pickle.dumps(first)) == first
    assert len({first, second}) == 2


def test_a_catalog_of_nothing_lists_nothing_and_makes_no_folder(tmp_path: Path) -> None:
    catalog = Datasets(tmp_path / "none")
    assert catalog.list() == []
    with pytest.raises(NotFoundError, match="There is none yet"):
        catalog.dataset("x")
    assert not (tmp_path / "none").exists()


@pytest.mark.parametrize("wanted", [1, "t"])
def test_data_sets_are_found(catalog: Datasets, ds: Dataset, wanted: int | str) -> None:
    assert catalog.dataset(wanted).uuid == ds.uuid
    assert catalog.dataset(ds.uuid).name == "t"
    with pytest.raises(NotFoundError, match=r"t \(1\)"):
        catalog.dataset("intents")


def test_a_taken_name_is_refused_before_anything_is_read(catalog: Datasets, ds: Dataset) -> None:
    before = files_of(catalog)
    reader = rows_of("ab").to_reader()
    with pytest.raises(AlreadyExistsError, match="'t' already"):
        catalog.create("t", "TABLE", reader)
    assert reader.read_all().num_rows == 2
    assert files_of(catalog) == before


def test_what_does_not_fit_makes_nothing(catalog: Datasets, ds: Dataset) -> None:
    before = files_of(catalog)

    def torn() -> Iterator[pa.RecordBatch]:
        yield rows_of("ab").to_batches()[0]
        raise SchemaMismatchError(field="label", reason="row 7 of 001.csv has no label")

    schema = rows_of("a").schema
    with pytest.raises(SchemaMismatchError, match=r"row 7 of 001\.csv"):
        catalog.create("new", "TABLE", pa.RecordBatchReader.from_batches(schema, torn()))
    with pytest.raises(SchemaMismatchError, match=r"row 7 of 001\.csv"):
        ds.update(pa.RecordBatchReader.from_batches(schema, torn()))
    with pytest.raises(InvalidInputError, match="takes its columns from its first rows"):
        catalog.create("new", "TABLE")
    with pytest.raises(NotFoundError, match="no type 'TABEL'"):
        catalog.create("new", "TABEL", rows_of("a"))
    assert files_of(catalog) == before
    assert len(ds.commits()) == 3
    assert [one.name for one in catalog.list()] == ["t"]


@pytest.mark.parametrize("name", ["", "a/b", "..", "a\0b", " a", "x" * 300])
def test_odd_names_are_refused(catalog: Datasets, name: str) -> None:
    with pytest.raises(InvalidInputError):
        catalog.create(name, "TABLE", rows_of("a"))
    assert catalog.list() == []


@pytest.mark.parametrize(
    "arguments",
    [
        {"tags": {f"t{i}": "x" for i in range(10_000)}},
        {"tags": {"a": 1}},
        {"tags": ["a"]},
        {"message": 7},
        {"message": "x" * 100_000},
        {"code": 7},
        {"inputs": [7]},
        {"txn": "job"},
        {"schema_mode": "overwrite"},
    ],
    ids=lambda arguments: repr(arguments)[:25],
)
def test_odd_arguments_are_refused(ds: Dataset, arguments: dict[str, Any]) -> None:
    with pytest.raises(InvalidInputError):
        ds.update(rows_of("x"), **arguments)
    assert len(ds.commits()) == 3


@pytest.mark.spec("DST-5", "DST-23")
def test_retries_with_a_txn_do_nothing(catalog: Datasets) -> None:
    made = [catalog.create("t", "TABLE", rows_of("ab"), txn=("http", 1)) for _ in range(2)]
    assert made[0].uuid == made[1].uuid
    ds = made[0]
    one = ds.update(rows_of("c"), "one", txn=("job", 1))
    ds.update(rows_of("d"), "two", txn=("job", 2))
    assert ds.update(rows_of("c"), "one", txn=("job", 1)) == one
    assert [commit.message for commit in ds.commits()] == ["Initial commit", "one", "two"]
    with pytest.raises(InvalidInputError, match="a later version of 'job' than 0"):
        ds.update(rows_of("e"), txn=("job", 0))


def test_a_commit_says_where_it_comes_from(catalog: Datasets, ds: Dataset, tmp_path: Path) -> None:
    table = txlog.write(str(tmp_path / "raw"), rows_of("ab"))
    given = [table, ds.commit(2), "s3://in/x.csv", Input("y", role="labels", digest="ab")]
    made = ds.update(table, inputs=given, code=Code("clean.py", "4f1c2e"))
    assert [(one.uri, one.role, one.version) for one in made.inputs] == [
        (table.uri, "table", 0),  # The source itself.
        (table.uri, "source", 0),
        (f"txlog-dataset:{ds.uuid}", "source", 2),
        ("s3://in/x.csv", "source", None),
        ("y", "labels", None),
    ]
    assert made == ds.commit()
    assert made.code == Code("clean.py", "4f1c2e")
    assert ds.commit(1) == ds.commits()[0]
    for wanted in (5, 0, "golden"):
        with pytest.raises((NotFoundError, InvalidInputError)):
            ds.commit(wanted)


# Deleting, hiding, names ------------------------------------------------------------------


def test_a_table_of_a_newer_format_is_refused(catalog: Datasets, ds: Dataset) -> None:
    ds.table().alter.set_properties({"txlog.dataset.format": "2"})
    with pytest.raises(UnsupportedFeatureError, match="has the format 2"):
        catalog.dataset("t").commits()


def test_names_of_files_that_are_no_text_are_escaped(catalog: Datasets, tmp_path: Path) -> None:
    path = os.fsdecode(os.fsencode(tmp_path) + b"/b\xe9.csv")
    Path(path).write_text("hello,greeting\n")
    made = catalog.create("t", "TEXT_INTENT", path).commit()
    assert made.inputs[0].uri.endswith("/b\\udce9.csv")
    odd = "\udce9"
    ds = catalog.dataset("t")
    for arguments in (
        {"code": odd}, {"code": Code("a", odd)}, {"inputs": [odd]}, {"txn": (odd, 1)},
        {"message": odd}, {"tags": {"a": odd}},
    ):  # fmt: skip
        with pytest.raises(InvalidInputError):
            ds.update(path, **arguments)
    with pytest.raises(InvalidInputError):
        ds.prepare(options={odd: "x"})
    assert len(ds.commits()) == 1


def test_a_deleted_data_set_comes_back(catalog: Datasets, ds: Dataset) -> None:
    ds.delete()
    assert catalog.list() == []
    assert [one.deleted for one in catalog.list(deleted=True)] == [True]
    for change in (
        lambda: ds.update(rows_of("x")), lambda: ds.prepare(), lambda: ds.tag("x", 1)
    ):  # fmt: skip
        with pytest.raises(NotFoundError, match="is deleted"):
            change()
    assert len(ds.commits()) == 3
    ds.undelete()
    assert ds.update(rows_of("x")).commit_id == 4


@pytest.mark.spec("DST-6", "DST-40")
def test_hidden_commits_are_not_picked(ds: Dataset) -> None:
    before = ds.prepare()
    ds.hide(2)
    assert [commit.hidden for commit in ds.commits()] == [False, True, False]
    assert ds.prepare().picked == (1, 3)
    assert ds.fetch(before.version_hash).picked == (1, 2, 3)
    ds.show(2)
    assert ds.prepare().version_hash == before.version_hash


def test_names_stand_for_commits_and_hashes(ds: Dataset) -> None:
    ds.tag("first", 1)
    made = ds.prepare("first")
    ds.tag("golden", made.version_hash)
    assert ds.commit("first").commit_id == 1
    assert ds.fetch("golden") == ds.fetch(made.version_hash)
    assert ds.summary().names == {"first": 1, "golden": made.version_hash}
    assert [c.commit_id for c in ds.diff("golden", 2).commits_added] == [2]
    ds.tag("first", 2)
    ds.tag("golden", None)
    assert ds.summary().names == {"first": 2}
    for target in (9, "v1zz", True, 1.5):
        with pytest.raises(TxlogError):
            ds.tag("x", target)  # type: ignore[arg-type]
    with pytest.raises(NotFoundError, match="Choose from first"):
        ds.commit("golden")


# Training sets ----------------------------------------------------------------------------


@pytest.mark.spec("DST-40")
@pytest.mark.parametrize(
    ("commit", "tags", "picked"),
    [
        (None, {}, (1, 2, 3)),
        (2, {}, (1, 2)),
        (None, {"for": "training"}, (2, 3)),
        (None, {"for": "training", "clean": "yes"}, (3,)),
        (2, {"for": "training"}, (2,)),
    ],
)
def test_commits_are_picked_by_tags(
    ds: Dataset, commit: int | None, tags: dict[str, str], picked: tuple[int, ...]
) -> None:
    asked = ds.prepare(commit, tags)
    assert asked.picked == picked
    made = ds.fetch(asked.version_hash)
    assert made.state == "READY"
    rows = [t for b in read_rows(ds.table(), picked, ["label"]) for t in b[0].to_pylist()]
    assert texts(made.table().to_arrow()) == "".join(rows)


@pytest.mark.spec("DST-2", "DST-40")
def test_a_commit_replaces_those_before_it(ds: Dataset, catalog: Datasets) -> None:
    before = ds.prepare()
    made = ds.update(rows_of("gh"), "all anew", {"for": "training"}, replace=True)
    assert made.replaces == 3
    ds.update(rows_of("i"), "one more", {"for": "training"})
    again = catalog.dataset("t")
    assert [one.replaces for one in again.commits()] == [0, 0, 0, 3, 0]
    assert again.prepare().picked == (4, 5)
    assert again.prepare(3).version_hash == before.version_hash
    assert again.prepare(tags={"for": "test"}).picked == (1,)  # The new commit is none of these.
    assert again.prepare(tags={"for": "training"}).picked == (4, 5)
    assert [c.commit_id for c in again.diff(3, 5).commits_removed] == [1, 2, 3]
    again.hide(4)
    assert again.prepare().picked == (1, 2, 3, 5)


@pytest.mark.spec("DST-40")
def test_a_commit_that_nobody_has_read_is_not_replaced(ds: Dataset, catalog: Datasets) -> None:
    read = ds.commit().commit_id
    catalog.dataset("t").update(rows_of("new"), "by another one")
    made = ds.update(rows_of("abcdef"), replace=read)
    assert (made.commit_id, made.replaces) == (5, 3)
    assert ds.prepare().picked == (4, 5)
    with pytest.raises(NotFoundError, match="Choose one up to 5"):
        ds.update(rows_of("x"), replace=6)
    with pytest.raises(TxlogError, match="replace"):
        ds.update(rows_of("x"), replace=-1)


@pytest.mark.spec("DST-40")
def test_a_pick_of_nothing_is_refused(ds: Dataset) -> None:
    with pytest.raises(InvalidInputError, match="no commit of 3 has for=dev"):
        ds.prepare(tags={"for": "dev"})
    with pytest.raises(NotFoundError, match="Choose one up to 3"):
        ds.prepare(4)
    for arguments in ({"form": "zip"}, {"options": {"a": 1}}, {"tags": {"a": 1}}, {"commit": 0}):
        with pytest.raises(InvalidInputError):
            ds.prepare(**arguments)  # type: ignore[arg-type]
    assert ds.training_sets() == []


@pytest.mark.spec("DST-41")
def test_the_same_pick_is_made_once(catalog: Datasets, ds: Dataset) -> None:
    one = ds.prepare(tags={"for": "training"})
    before = files_of(catalog)
    again = Datasets(catalog.root).dataset("t").prepare(tags={"for": "training"})
    assert again == one
    assert again.version_hash == one.version_hash
    assert files_of(catalog) == before
    assert ds.prepare(options={"x": "y"}).version_hash != one.version_hash
    assert ds.prepare(form="csv", tags={"for": "training"}).version_hash != one.version_hash


@pytest.mark.spec("DST-41")
def test_the_version_hash_of_a_recipe_never_changes() -> None:
    from txlog.training.datasets.training_set import ask, pick
    from txlog.training.datasets.values import Commit

    commits = [Commit("u", k, 0, "table/1", 1, f"{k}" * 64) for k in (2, 1)]
    asked = ask("u", "text-intent/1", pick(commits), "csv", {"a": "b"})
    assert asked.version_hash == "v182bb524ce5c459f77b479fd830961f81d958c027"
    assert asked.commit_ids == (1, 2)


def test_nobody_waits_for_what_is_made(catalog: Datasets, ds: Dataset) -> None:
    idle = Datasets(catalog.root, runner=Idle()).dataset("t")
    asked = idle.prepare()
    assert (asked.state, asked.root, asked.parts) == ("RUNNING", None, ())
    assert idle.fetch(asked.version_hash, wait_s=0.05).state == "RUNNING"
    with pytest.raises(NotFoundError, match="is RUNNING"):
        asked.table()
    with pytest.raises(NotFoundError, match="no training set 'v1zz'"):
        idle.fetch("v1zz")
    assert catalog.sweep() == 1  # The other process never claimed it.
    assert idle.fetch(asked.version_hash).state == "READY"
    assert catalog.sweep() == 0


def test_threads_make_training_sets(tmp_path: Path) -> None:
    ds = Datasets(tmp_path / "root").create("t", "TABLE", rows_of("ab"))
    asked = ds.prepare()
    made = ds.fetch(asked.version_hash, wait_s=60)
    assert made.state == "READY"
    batches = list(made.loader(batch_size=2, shuffle=None))
    assert [batch["label"].tolist() for batch in batches] == [["a", "b"]]
    assert isinstance(made.loader(batch_size=1), Loader)


def test_training_sets_are_downloaded(ds: Dataset, tmp_path: Path) -> None:
    made = ds.fetch(ds.prepare().version_hash)
    paths = made.download(tmp_path / "out")
    assert texts(pa.concat_tables([pa.parquet.read_table(p) for p in paths])) == "abcdef"
    assert all(Path(part.uri).is_file() for part in made.parts)


def test_catalogs_and_data_sets_pickle(catalog: Datasets, ds: Dataset) -> None:
    there, same = pickle.loads(pickle.dumps((catalog, ds)))
    assert same.update(rows_of("x")) == ds.commit()
    assert [one.name for one in there.list()] == ["t"]
    assert pickle.loads(pickle.dumps(ds.prepare())).table().count() == 7


def test_a_copied_folder_is_a_catalog(catalog: Datasets, ds: Dataset, tmp_path: Path) -> None:
    made = ds.fetch(ds.prepare().version_hash)
    shutil.copytree(catalog.root, tmp_path / "copy")
    shutil.rmtree(catalog.root)
    copy = Datasets(tmp_path / "copy").dataset("t")
    again = copy.fetch(made.version_hash)
    assert texts(again.table().to_arrow()) == "abcdef"
    assert len(copy.verify()) == 3


# Verifying and purging --------------------------------------------------------------------


@pytest.mark.spec("DST-33")
def test_verify_finds_what_was_changed_by_hand(ds: Dataset) -> None:
    assert [commit.commit_id for commit in ds.verify()] == [1, 2, 3]
    assert ds.verify(2) == [ds.commit(2)]
    with pytest.raises(UnsupportedFeatureError, match="append-only"):
        ds.table().delete("label = 'd'")
    ds.table().alter.set_properties({"delta.appendOnly": "false"})
    ds.table().delete("label = 'd'")
    with pytest.raises(DataFileError, match="commit 2 was made of 3 rows"):
        ds.verify()
    assert ds.verify(1)
    ds.table().restore(version=3)
    assert len(ds.verify()) == 3
    ds.table().append(pa.table({"commit_id": pa.array([9], pa.int32()), "id": [1], "label": ["x"]}))
    with pytest.raises(DataFileError, match=r"rows of the commits \['9'\]"):
        ds.verify()


def held_in(root: Path, text: bytes) -> list[Path]:
    """Return the data files that hold a text, uncompressed as such short ones are."""
    return [p for p in root.rglob("*.parquet") if p.is_file() and text in p.read_bytes()]


@pytest.mark.spec("DST-6")
def test_a_purged_commit_is_gone_for_good(catalog: Datasets, ds: Dataset) -> None:
    both, first = ds.prepare(), ds.prepare(1)
    ds.tag("both", both.version_hash)
    ds.table().optimize.compact()
    with pytest.raises(InvalidInputError, match="is not the name"):
        ds.purge(2, confirm="u")
    ds.purge(2, confirm="t")
    ds.purge(2, confirm="t")
    root = Path(catalog.root)
    assert not list((root / "data" / ds.uuid / "commit_id=2").glob("*"))
    assert [p.name for p in (root / "sets" / ds.uuid).iterdir() if any(p.rglob("*.parquet"))] == [
        first.version_hash
    ]
    assert [(c.purged, c.message) for c in ds.commits()] == [
        (False, "Initial commit"), (True, "second"), (False, "third"),
    ]  # fmt: skip
    with pytest.raises(NotFoundError, match="no training set"):
        ds.fetch(both.version_hash)
    assert ds.summary().names == {}
    assert ds.prepare().picked == (1, 3)
    assert [commit.commit_id for commit in ds.verify()] == [1, 3]
    assert ds.fetch(first.version_hash).state == "READY"
    assert ds.table().properties["delta.appendOnly"] == "true"
    assert ds.update(rows_of("x")).commit_id == 4


@pytest.mark.spec("DST-6")
def test_a_purged_data_set_is_gone_for_good(catalog: Datasets, ds: Dataset) -> None:
    ds.prepare()
    kept = catalog.create("u", "TABLE", rows_of("xy"))
    ds.purge(confirm="t")
    left = {path.partition("/")[0] for path in files_of(catalog) if ds.uuid in path}
    assert left == set()
    for call in (ds.summary, ds.commits, ds.prepare, ds.undelete, ds.table):
        with pytest.raises(NotFoundError, match="no data set 1"):
            call()
    assert [one.name for one in catalog.list(deleted=True)] == ["u"]
    assert kept.verify()
    assert catalog.create("t", "TABLE", rows_of("z")).dataset_id == 3


def test_objects_beside_the_rows_go_with_the_last_that_needs_them(
    catalog: Datasets, tmp_path: Path
) -> None:
    for name, size in {"a.bin": 9, "b.bin": 10}.items():
        (tmp_path / name).write_bytes(b"x" * (size << 20))
    one = catalog.create("one", "GENERIC", tmp_path / "a.bin")
    one.update(tmp_path / "b.bin")
    two = catalog.create("two", "GENERIC", tmp_path / "a.bin")
    objects = Path(catalog.root) / "files"

    def count() -> int:
        return sum(path.is_file() for path in objects.rglob("*"))

    assert count() == 2
    one.purge(2, confirm="one")
    assert count() == 1
    one.purge(confirm="one")
    assert count() == 1
    assert two.verify()
    two.purge(confirm="two")
    assert count() == 0


@pytest.mark.spec("DST-28")
def test_a_users_own_column_refers_to_no_object(tmp_path: Path) -> None:
    """Rows of a TABLE name an object in a column `uri`; to none of them does it belong."""
    catalog = Datasets(tmp_path / "root", runner=InlineRunner(), limits=Limits(row_bytes=4))
    files = pa.table({"name": ["f"], "content": [b"more than four"]})
    one = catalog.create("one", "GENERIC", files)
    (path,) = (tmp_path / "root" / "files").rglob("*/*")
    foreign = tmp_path / "root" / "files" / "notes.txt"
    foreign.write_text("of somebody")
    uris = [f"files/{path.parent.name}/{path.name}", "files/notes.txt", "files/../ledger", None]
    rows = pa.table({"uri": uris, "sha256": [path.name, "x", "y", "z"]})
    for name in ("mine", "yours"):
        catalog.create(name, "TABLE", rows)
    catalog.dataset("mine").purge(1, confirm="mine")
    catalog.dataset("mine").purge(confirm="mine")
    assert path.exists()
    assert foreign.exists()
    assert one.verify()
    one.purge(confirm="one")  # The rows of `yours` do not keep it.
    assert not path.exists()
    assert foreign.exists()
    assert catalog.dataset("yours").verify()


def test_objects_of_a_type_that_is_not_known_here_stay(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    catalog = Datasets(tmp_path / "root", runner=InlineRunner(), limits=Limits(row_bytes=4))
    files = pa.table({"name": ["f"], "content": [b"more than four"]})
    kept, gone = (catalog.create(name, "GENERIC", files) for name in ("kept", "gone"))
    with monkeypatch.context() as patch:
        patch.delitem(types._known, "GENERIC")
        gone.purge(confirm="gone")
    assert kept.verify()


class MovedClock(Ticking):
    """A clock that a test moves; times of files are those of the disk."""

    hours: ClassVar[int] = 0

    def now_ms(self) -> int:
        return super().now_ms() + MovedClock.hours * 3600_000


def pass_hours(root: str, hours: int) -> None:
    """Move the clock, and make the files of rows, objects and parts as old."""
    MovedClock.hours = hours
    at_s = time.time() - hours * 3600
    for folder in ("data", "files", "sets"):
        for path in Path(root, folder).rglob("*"):
            os.utime(path, (at_s, at_s))


@pytest.fixture
def old(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Datasets:
    monkeypatch.setattr(MovedClock, "hours", 0)
    catalog = catalog_in(open_store(tmp_path / "root"), effects=MovedClock())
    catalog._home.limits = Limits(row_bytes=4)
    return catalog


def long(name: str, content: bytes = b"more than four") -> pa.Table:
    return pa.table({"name": [name], "content": [content]})


@pytest.mark.spec("DST-28")
def test_what_nothing_refers_to_is_swept_after_a_day(
    old: Datasets, monkeypatch: pytest.MonkeyPatch
) -> None:
    one = old.create("one", "GENERIC", long("f", b"kept for ever"))
    two = old.create("two", "GENERIC", long("f", b"kept by a set"))
    assert two.prepare(form="csv").state == "READY"
    two.delete()
    whole = files_of(old)

    def broken() -> Iterator[pa.RecordBatch]:
        yield from long("g", b"of a refused update").to_batches()
        raise ValueError("the source broke")

    source = pa.RecordBatchReader.from_batches(long("g").schema, broken())
    with pytest.raises(Exception, match="the source broke"):
        one.update(source)

    def dies(*_: Any) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:  # A process that is killed deletes nothing either.
        patch.setattr(Ledger, "record", dies)
        patch.setattr("txlog.training.datasets.lifecycle.delete_tree", lambda _: None)
        with pytest.raises(KeyboardInterrupt):
            old.create("dead", "GENERIC", long("h", b"of a killed create"))
    left = files_of(old) - whole
    assert sum(path.startswith("files/") for path in left) == 2
    assert sum(path.endswith("00000.json") for path in left) == 1

    def swept(hours: int) -> set[str]:
        pass_hours(old.root, hours)
        old.sweep()
        told = ("ledger/", *(f"data/{made.uuid}/_delta_log/" for made in (one, two)))
        return {path for path in files_of(old) - whole if not path.startswith(told)}

    assert swept(0) == swept(23) == left
    assert swept(25) == set()
    assert whole <= files_of(old)
    two.undelete()
    for made in (one, two):
        assert made.verify()
    events = old._home.ledger.state().n
    swept(48)  # Not again on the same day.
    assert old._home.ledger.state().n == events
    swept(50)
    assert old._home.ledger.state().n == events + 1


def test_objects_stay_while_a_data_set_is_damaged(old: Datasets) -> None:
    old.create("one", "GENERIC", long("f"))
    two = old.create("two", "GENERIC", long("f", b"only of this one"))
    objects = {path for path in files_of(old) if path.startswith("files/")}
    log = Path(old.root) / "data" / two.uuid / "_delta_log" / f"{0:020}.json"
    text = log.read_bytes()
    log.write_bytes(text[:-20])
    pass_hours(old.root, 25)
    fresh = catalog_in(open_store(old.root), effects=MovedClock())
    with pytest.warns(TxlogWarning, match="'two'"):
        fresh.sweep()
    assert objects <= files_of(old)
    log.write_bytes(text)
    assert two.verify()


NEW = ("new", "GENERIC", long("f"))


@pytest.mark.spec("DST-29")
@pytest.mark.parametrize("verb", ["create", "update"])
def test_a_sweep_in_the_middle_of_a_verb_costs_no_content(
    old: Datasets, monkeypatch: pytest.MonkeyPatch, verb: str
) -> None:
    """A verb finds an old object in place that nothing refers to, and it is swept meanwhile."""
    MovedClock.hours = -25
    one = old.create("one", "GENERIC", long("f", b"another one"))
    MovedClock.hours = 0
    path = Path(old.root) / StoredObjects(open_store(old.root)).put(b"more than four")
    os.utime(path, (1, 1))
    write = AddCommit._described

    def sweeping(operation: AddCommit) -> Commit:
        commit = write(operation)
        monkeypatch.setattr(AddCommit, "_described", write)
        old.sweep()
        assert not path.exists()
        return commit

    def do(source: Any) -> Any:
        monkeypatch.setattr(AddCommit, "_described", sweeping)
        return one.update(source) if verb == "update" else old.create("new", "GENERIC", source)

    before = files_of(old)
    with pytest.raises(CommitConflictError, match="removed by a purge or a sweep") as caught:
        do(long("f").to_reader())  # It cannot be read again.
    assert caught.value.rule == "DST-29"
    assert not [
        p for p in files_of(old) - before if not p.startswith("ledger/") and "_log/" not in p
    ]
    StoredObjects(open_store(old.root)).put(b"more than four")
    os.utime(path, (1, 1))
    MovedClock.hours = 25  # The next sweep is a day later.
    do(long("f"))
    assert path.exists()
    for summary in old.list():
        assert old.dataset(summary.uuid).verify()


@pytest.mark.spec("DST-28")
@pytest.mark.parametrize("jumped", ["the clock of the sweep", "the clock of the files"])
def test_a_clock_that_jumps_by_a_day_costs_no_data_set(
    old: Datasets, monkeypatch: pytest.MonkeyPatch, jumped: str
) -> None:
    """The table of a `create` is there, the data set is not yet known, and a sweep begins."""
    kept = old.create("kept", "TABLE", rows_of("ab"))
    whole = files_of(old)
    record = Ledger.record

    def sweeping(ledger: Ledger, command: Any, *who: Any) -> Any:
        if isinstance(command, Create):
            monkeypatch.setattr(Ledger, "record", record)
            if jumped == "the clock of the files":
                pass_hours(old.root, 25)
            MovedClock.hours = 25
            old.sweep()
            MovedClock.hours = 0
        return record(ledger, command, *who)

    monkeypatch.setattr(Ledger, "record", sweeping)
    if jumped == "the clock of the files":
        with pytest.raises(CommitConflictError, match="a sweep deletes the table") as caught:
            old.create("new", "TABLE", rows_of("cd").to_reader())
        assert caught.value.rule == "DST-28"
        assert [one.name for one in old.list(deleted=True)] == ["kept"]
        assert {path for path in files_of(old) - whole if not path.startswith("ledger/")} == set()
        MovedClock.hours = 25
        monkeypatch.setattr(Ledger, "record", sweeping)
    assert old.create("new", "TABLE", rows_of("cd")).verify()  # It is made again.
    assert kept.verify()


@pytest.mark.spec("DST-28")
def test_a_catalog_without_a_data_set_is_swept(
    old: Datasets, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of creates that were refused, or died; but no file that is not txlog's."""
    assert old.sweep() == 0
    assert not Path(old.root).exists()

    def dies(*_: Any) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(Ledger, "record", dies)
        patch.setattr("txlog.training.datasets.lifecycle.delete_tree", lambda _: None)
        with pytest.raises(KeyboardInterrupt):
            old.create("dead", "GENERIC", long("h", b"of a killed create"))
    open_store(old.root).write_new(f"files/.staged/{UUID}/part.parquet", b"x")
    foreign = {"data/mine/a.csv", "sets/mine/b", "files/notes.txt", f"data/{UUID}", "data/x"}
    for path in foreign:
        open_store(old.root).write_new(path, b"x")
    left = files_of(old)
    assert {path.partition("/")[0] for path in left} == {"data", "files", "sets"}
    pass_hours(old.root, 23)
    old.sweep()
    assert files_of(old) == left
    pass_hours(old.root, 25)
    old.sweep()
    assert {path for path in files_of(old) if not path.startswith("ledger/")} == foreign
    assert old.create("one", "GENERIC", long("h", b"of a killed create")).verify()


@pytest.mark.spec("DST-28")
def test_a_sweep_asks_the_store_how_late_it_is(
    old: Datasets, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whether the clock of the process is ahead or not; without an answer nothing is deleted."""
    old.create("one", "TABLE", rows_of("a"))
    store = open_store(old.root)
    store.write_new("files/.staged/young", b"x")
    MovedClock.hours = 50
    old.sweep()
    assert store.info("files/.staged/young")
    listed, info = type(store).list_tree, type(store).info
    with monkeypatch.context() as patch:
        patch.setattr(type(store), "info", lambda *a: info(*a)._replace(modified_ms=0))
        patch.setattr(
            type(store),
            "list_tree",
            lambda *a: (file._replace(modified_ms=0) for file in listed(*a)),
        )
        MovedClock.hours = 100
        events = old._home.ledger.state().n
        with pytest.warns(TxlogWarning, match="has no times of files"):
            old.sweep()
        assert old._home.ledger.state().n == events
    assert store.info("files/.staged/young")
    pass_hours(old.root, 100)
    old.sweep()
    assert not [path for path in files_of(old) if path.startswith("files/")]


@pytest.mark.spec("DST-29")
def test_what_a_dead_sweep_set_aside_is_moved_back_or_deleted(
    old: Datasets, monkeypatch: pytest.MonkeyPatch
) -> None:
    kept = old.create("kept", "GENERIC", long("f", b"in use"))
    store = open_store(old.root)
    (path,) = (file for file in files_of(old) if file.startswith("files/"))
    unused = StoredObjects(store).put(b"of nobody")
    aside.set_aside(store, "0" * 36, [path, unused])
    name = path.rpartition("/")[2]
    store.write_new(f"{aside.ASIDE}/{UUID}", b"")
    store.write_new(f"{aside.ASIDE}/{UUID}.{name}", b"in u")  # Half of a copy.
    assert kept.verify()  # A reader puts it back.
    store.delete([path])  # The process was not dead, and has deleted it only now.
    copies = {file for file in files_of(old) if file.startswith(aside.ASIDE)}
    assert len(copies) == 5
    catalog_in(open_store(old.root), effects=MovedClock(1)).sweep()
    assert copies <= files_of(old)  # They may be of a process that is not dead.
    pass_hours(old.root, 25)
    log = Path(old.root) / "data" / kept.uuid / "_delta_log" / f"{0:020}.json"
    text = log.read_bytes()
    log.write_bytes(text[:-20])
    with pytest.warns(TxlogWarning, match="'kept'"):
        catalog_in(open_store(old.root), effects=MovedClock(1)).sweep()
    assert copies <= files_of(old)
    assert old._home.ledger.state().cleared == 0  # Nothing was cleared.
    log.write_bytes(text)
    MovedClock.hours = 50
    catalog_in(open_store(old.root), effects=MovedClock(2)).sweep()
    assert old._home.ledger.state().cleared == 1
    assert [file for file in files_of(old) if file.startswith("files/")] == [path]
    assert kept.verify()
    events = old._home.ledger.state().n
    old.sweep()
    assert old._home.ledger.state().n == events  # There is nothing to clear.


@pytest.mark.spec("DST-29")
def test_a_removal_of_which_only_copies_are_listed_is_not_dead(tmp_path: Path) -> None:
    """A hard link has the time of the object; the removal's own file may be listed too late."""
    store = open_store(tmp_path)
    store.write_new(f"{aside.ASIDE}/{UUID}.{'0' * 64}", b"a copy")
    assert aside.removals_before(store, 1 << 62) == []
    store.write_new(f"{aside.ASIDE}/{UUID}", b"")
    assert aside.removals_before(store, 1 << 62) == [UUID]


@pytest.mark.spec("DST-29")
def test_a_content_that_is_set_aside_again_is_still_found(
    old: Datasets, monkeypatch: pytest.MonkeyPatch
) -> None:
    old.create("kept", "GENERIC", long("f", b"in use"))
    store = open_store(old.root)
    (path,) = (file for file in files_of(old) if file.startswith("files/"))
    aside.set_aside(store, "0" * 36, [path])
    copies_of = aside.copies_of

    def moved_meanwhile(*of: Any) -> list[aside.Copy]:
        """The copy is put back and forgotten, and another removal sets the object aside."""
        found = copies_of(*of)
        monkeypatch.setattr(aside, "copies_of", copies_of)
        assert aside.is_back(store, path, found)
        aside.forget(store, ["0" * 36], found)
        aside.set_aside(store, UUID, [path])
        return found

    monkeypatch.setattr(aside, "copies_of", moved_meanwhile)
    assert aside.missing_of(store, [path]) == []
    assert path in files_of(old)


@pytest.mark.spec("DST-29")
def test_whatever_reads_a_content_finds_it_while_it_is_set_aside(old: Datasets) -> None:
    ds = old.create("kept", "GENERIC", long("f", b"in use"))
    made = ds.prepare(form="csv")
    store, root = open_store(old.root), f"{old.root}/"
    (part,) = (one for one in made.parts if aside.is_object(one.uri.removeprefix(root)))
    path = part.uri.removeprefix(root)
    readers = (
        lambda: ds.verify(),
        lambda: opened_part(part, None).read(),
        lambda: part_answer(part, None, None),
    )
    for number, read in enumerate(readers):
        aside.set_aside(store, f"{number:036}", [path])
        assert path not in files_of(old)
        assert read()
        assert path in files_of(old)


@pytest.mark.parametrize("whole", [False, True])
def test_a_purge_in_the_middle_of_an_update_costs_no_content(
    catalog: Datasets, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, whole: bool
) -> None:
    """An update finds an object in place; before it commits, the only commit with it is purged."""
    (tmp_path / "a.bin").write_bytes(b"x" * (9 << 20))
    one = catalog.create("one", "GENERIC", tmp_path / "a.bin")
    two = one if whole else catalog.create("two", "GENERIC")
    write = AddCommit._described

    def purging(operation: AddCommit) -> Commit:
        commit = write(operation)  # The object is there.
        one.purge(confirm="one")
        return commit

    with monkeypatch.context() as patch:
        patch.setattr(AddCommit, "_described", purging)
        if whole:
            with pytest.raises(NotFoundError, match="no data set 1"):
                two.update(tmp_path / "a.bin")
            assert not [path for path in files_of(catalog) if path.startswith("data/")]
        else:  # The content is stored again.
            assert two.update(tmp_path / "a.bin").commit_id == 1
            assert two.verify()


def test_a_purge_in_the_middle_of_create_costs_no_content(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A new data set finds an object in place, which is purged before the set is known."""
    catalog = Datasets(tmp_path / "root", runner=InlineRunner(), limits=Limits(row_bytes=9))
    data = pa.table({"name": ["f"], "content": [b"more than nine"]})
    one, record = catalog.create("one", "GENERIC", data), Ledger.record

    def purging(ledger: Ledger, command: Any, *who: Any) -> Any:
        if isinstance(command, Create):
            one.purge(confirm="one")
        return record(ledger, command, *who)

    with monkeypatch.context() as patch:
        patch.setattr(Ledger, "record", purging)
        two = catalog.create("two", "GENERIC", data, txn=("job", 1))
    assert two.verify()
    assert catalog.create("two", "GENERIC", data, txn=("job", 1)).uuid == two.uuid
    two.update(data, txn=("job", 2))
    three = catalog.create("three", "GENERIC")
    three.update(data, txn=("job", 3))
    for path in (tmp_path / "root" / "files").rglob("*"):
        if path.is_file():
            path.unlink()
    for made, number in ((two, 2), (three, 3)):
        with pytest.raises(DataFileError, match="contents that are gone"):
            made.update(data, txn=("job", number))
    with pytest.raises(DataFileError, match="contents that are gone"):
        catalog.create("two", "GENERIC", data, txn=("job", 1))


@pytest.mark.spec("DST-26")
def test_a_commit_that_is_purged_while_a_set_of_it_is_prepared(
    catalog: Datasets, ds: Dataset
) -> None:
    class Purging:
        """Another process purges a commit before the first worker begins."""

        def submit(self, work: Any) -> None:
            ds.purge(1, confirm="t")
            work()

    asked = Datasets(catalog.root, runner=Purging()).dataset("t")
    with pytest.raises(NotFoundError, match="has no training set"):
        asked.prepare()
    assert asked.training_sets() == []


def test_names_that_mean_a_number_or_a_hash_are_refused(catalog: Datasets, ds: Dataset) -> None:
    with pytest.raises(InvalidInputError, match="looks like a number"):
        catalog.create("3", "TABLE", rows_of("a"))
    with pytest.raises(InvalidInputError, match="looks like a number"):
        ds.tag("2", 1)
    version_hash = ds.prepare().version_hash
    with pytest.raises(InvalidInputError, match="taken for the hash"):
        ds.tag(version_hash, 1)
    ds.purge(1, confirm="t")
    with pytest.raises(NotFoundError, match="commit 1 of 't' is purged"):
        ds.tag("golden", 1)
    assert ds.summary().names == {}


def test_a_source_that_raises_anything_leaves_nothing(catalog: Datasets, ds: Dataset) -> None:
    before = files_of(catalog)

    def broken() -> Iterator[pa.RecordBatch]:
        yield from rows_of("ab").to_batches()
        raise ZeroDivisionError

    for make in (lambda rows: catalog.create("u", "TABLE", rows), ds.update):
        with pytest.raises((ZeroDivisionError, TxlogError)):
            make(pa.RecordBatchReader.from_batches(rows_of("ab").schema, broken()))
    with pytest.raises(InvalidInputError, match="beyond 64 bits"):
        ds.update(rows_of("a"), inputs=[Input("x", version=2**70)])
    assert files_of(catalog) == before


def test_a_damaged_data_set_is_an_error_of_its_own(catalog: Datasets, ds: Dataset) -> None:
    other = catalog.create("other", "TABLE", rows_of("a"))
    asked = Datasets(catalog.root, runner=Idle())
    for name in ("t", "other"):
        asked.dataset(name).prepare()
    shutil.rmtree(Path(catalog.root) / "data" / ds.uuid)
    fresh = Datasets(catalog.root, runner=InlineRunner())
    with pytest.warns(TxlogWarning, match="the data set 't' \\(1\\) is damaged"):
        assert [len(one.commits) for one in fresh.list()] == [0, 1]
    with pytest.warns(TxlogWarning, match="'t'"):
        assert fresh.dataset("other").lineage().nodes
    with pytest.warns(TxlogWarning, match="'t'"):
        assert fresh.sweep() == 2
    assert [one.state for one in other.training_sets()] == ["READY"]
    with pytest.raises(TxlogError):
        fresh.dataset("t").commits()


def test_verify_reads_the_contents_beside_the_rows(tmp_path: Path) -> None:
    catalog = Datasets(tmp_path / "root", runner=InlineRunner(), limits=Limits(row_bytes=9))
    data = pa.table({"name": ["f", "g"], "content": [b"more than nine", b"less"]})
    made = catalog.create("one", "GENERIC", data)
    assert len(made.verify()) == 1
    (stored,) = (p for p in (tmp_path / "root" / "files").rglob("*") if p.is_file())
    stored.write_bytes(b"tampered")
    with pytest.raises(DataFileError, match="commit 1 refers to a content"):
        made.verify()
    stored.unlink()
    with pytest.raises(DataFileError, match="the file is missing"):
        made.verify()


NEEDED: dict[str, Any] = {
    "name": "n", "type": "TABLE", "wanted": 1, "version_hash": "v1", "a": 1, "b": 1,
    "confirm": "no", "target": 1, "commit": 1, "source": rows_of("a"), "application": "a",
    "user": "ann", "dataset": "t", "run": "clean.py", "into": "made",
}  # fmt: skip
TAKEN = {("list", "deleted", "True"), ("diff", "key", "['x']"), ("diff", "key", "b'x'"),
         ("update", "inputs", "['x']"), ("dataset", "purged", "True"),
         ("update", "replace", "True"), ("on_commit", "run", "['x']"),
         ("run_steps", "timeout_s", "7.5"), ("share", "readers", "['x']"),
         ("share", "writers", "['x']"), ("access", "purged", "True"),
         ("acting_as", "limited", "True")}  # fmt: skip


def test_arguments_of_a_wrong_type_are_named(catalog: Datasets, ds: Dataset) -> None:
    for face in (catalog, ds):
        for name in (one for one in dir(face) if not one.startswith("_")):
            verb = getattr(type(face), name, None)
            if not callable(verb):
                continue
            parameters = list(inspect.signature(verb).parameters.values())[1:]
            needed = {p.name: NEEDED[p.name] for p in parameters if p.default is p.empty}
            for parameter in parameters:
                for value in (object(), 7.5, ["x"], b"x", True):
                    if (name, parameter.name, repr(value)) in TAKEN:
                        continue
                    with pytest.raises((TxlogError, TypeError, AttributeError)):
                        getattr(face, name)(**{**needed, parameter.name: value})
    assert len(ds.commits()) == 3
    with pytest.raises(InvalidInputError, match="wait_s"):
        ds.fetch("v1", wait_s=float("nan"))


# Differences and lineage ------------------------------------------------------------------


def test_the_difference_of_commits(ds: Dataset) -> None:
    diff = ds.diff(1, 3)
    assert [c.commit_id for c in diff.commits_added] == [2, 3]
    assert diff.commits_removed == ()
    assert (diff.rows_added, diff.rows_removed) == (4, 0)
    assert diff.statistics == {"numExamples": (2, 6)}
    assert diff.labels_added() == ["c", "d", "e", "f"]
    assert diff.added().read_all().to_pylist() == [
        {"id": 0, "label": "c", "commit_id": 2}, {"id": 1, "label": "d", "commit_id": 2},
        {"id": 2, "label": "e", "commit_id": 2}, {"id": 0, "label": "f", "commit_id": 3},
    ]  # fmt: skip
    assert diff.removed().read_all().num_rows == 0
    back = ds.diff(3, 1)
    assert back.labels_removed() == ["c", "d", "e", "f"]
    assert texts(back.removed().read_all()) == "cdef"
    with pytest.raises(InvalidInputError, match="without a key"):
        diff.changed()
    assert diff.to_json()["rows_added"] == 4


def test_the_difference_by_key(ds: Dataset) -> None:
    """Commit 2 has the rows 0c 1d 2e; commit 4 has 0c again, another 1, and a new 3."""
    new = pa.table({"id": [0, 1, 3], "label": ["c", "D", "n"]})
    ds.update(new, tags={"for": "dev"})
    old, later = ds.prepare(2, {"for": "training"}), ds.prepare(tags={"for": "dev"})
    diff = ds.diff(old.version_hash, later.version_hash, key="id")
    assert texts(diff.added().read_all()) == "n"
    assert texts(diff.removed().read_all()) == "e"
    assert texts(diff.changed()) == "D"
    with pytest.raises(InvalidInputError, match="no column 'nr'"):
        ds.diff(old.version_hash, later.version_hash, key="nr").changed()


def test_what_both_sides_have_is_not_read(ds: Dataset) -> None:
    for path in (Path(ds.table().uri) / "commit_id=1").glob("*.parquet"):
        path.unlink()
    assert texts(ds.diff(1, 2).added().read_all()) == "cde"


def test_changes_cannot_be_rehearsed(catalog: Datasets, ds: Dataset) -> None:
    """The ledger would count an event that nobody finds."""
    before = ds.commits()
    changes: list[Callable[[], object]] = [
        lambda: ds.update(rows_of("z")), lambda: ds.purge(1, confirm="t"), catalog.sweep
    ]  # fmt: skip
    for change in changes:
        with rehearsing(), pytest.raises(UnsupportedFeatureError, match="cannot be rehearsed"):
            change()
    assert ds.commits() == before == catalog.dataset("t").commits()
    assert ds.update(rows_of("z")).commit_id == len(before) + 1


def test_lineage_goes_up_and_down(catalog: Datasets, ds: Dataset, tmp_path: Path) -> None:
    table = txlog.write(str(tmp_path / "raw"), rows_of("ab"))
    made = ds.update(table, code=Code("clean.py", "1"))
    training = ds.prepare(tags={"for": "training"})
    child = catalog.create("child", "TABLE", rows_of("x"), inputs=[training, made])
    up = child.lineage()
    labels = {(node.kind, node.label) for node in up.nodes}
    assert labels >= {
        ("commit", "child @ 1"), ("training set", training.version_hash[:12]),
        ("commit", "t @ 4"), ("commit", "t @ 2"), ("commit", "t @ 3"),
        ("table", f"{table.uri}@0"), ("code", "clean.py@1"),
    }  # fmt: skip
    people = {node.label: node.user for node in up.nodes}
    assert people["t @ 4"] == made.user is not None
    assert people["clean.py@1"] is None
    assert f'"t @ 4, by {made.user}"' in up.to_dot()
    assert len(child.lineage(depth=1).nodes) == 3
    assert len(child.lineage(depth=0).nodes) == 1
    down = ds.lineage(2, "down")
    assert {node.label for node in down.nodes} == {
        "t @ 2", training.version_hash[:12], "child @ 1"
    }  # fmt: skip
    ds.purge(2, confirm="t")
    gone = {node.label: node.purged for node in child.lineage().nodes}
    assert training.version_hash[:12] in gone  # It stays as a name.
    dot = up.to_dot()
    assert dot.startswith("digraph lineage {")
    assert '"clean.py@1"' in dot
    assert up.to_json()["edges"][0].keys() == {"source", "target", "role"}
    with pytest.raises(InvalidInputError, match="'up' or 'down'"):
        ds.lineage(1, "sideways")  # type: ignore[arg-type]
    with pytest.raises(InvalidTypeError):
        ds.lineage(1, depth=1.5)  # type: ignore[arg-type]


def test_provenance_is_in_the_training_set_itself(ds: Dataset) -> None:
    ds.update(rows_of("x"), inputs=["s3://in/x.csv"])
    graph = ds.prepare().provenance()
    assert [node.kind for node in graph.nodes] == ["training set", *["commit"] * 4, "file"]


def test_a_purge_is_repeated_by_the_name(catalog: Datasets, ds: Dataset) -> None:
    place = Path(catalog.root) / "data" / ds.uuid
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(lifecycle, "delete_tree", Mock(side_effect=KeyboardInterrupt))
        with pytest.raises(KeyboardInterrupt):
            catalog.dataset("t").purge(confirm="t")
    assert place.exists()
    with pytest.raises(NotFoundError, match="no data set 't'"):
        catalog.dataset("t")
    for wanted in ("t", 1, ds.uuid):
        catalog.dataset(wanted, purged=True).purge(confirm="t")
    assert not list(place.glob("**/*.parquet"))
    catalog.create("t", "TABLE", rows_of("a"))
    assert catalog.dataset("t", purged=True).dataset_id == 2  # One that is there goes first.
    catalog.dataset("t").delete()
    with pytest.raises(NotFoundError, match=r"'t' \(2\) is deleted.*dataset\(2\)\.undelete"):
        catalog.dataset("t", purged=True)  # It would report a purge that leaves all bytes.
    catalog.dataset(2).purge(confirm="t")
    assert catalog.dataset("t", purged=True).dataset_id == 2


def test_a_deleted_data_set_says_how_to_get_it_back(catalog: Datasets, ds: Dataset) -> None:
    ds.delete()
    with pytest.raises(NotFoundError, match=r"'t' \(1\) is deleted.*dataset\(1\)\.undelete\(\)"):
        catalog.dataset("t")
