"""A vacuum keeps the files that a log or a clone names, in whatever words."""

import json
import os
import re
import shutil
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any
from urllib.parse import quote, unquote

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import txlog
from tests.examples import examples
from txlog.base.errors import InvalidInputError
from txlog.testing import unsealed

NAMES = ["t", "a%41b", "a b", "é", "T"]


def make_old(folder: Path) -> None:
    for path in folder.rglob("*"):
        if path.is_file() and not path.is_symlink():
            os.utime(path, (1, 1))


def vacuum(uri: Path, **options: Any) -> pa.Table:
    return txlog.Table(uri).vacuum(0, dry_run=False, enforce_retention_duration=False, **options)


def values(uri: Path) -> list[int]:
    return sorted(txlog.Table(uri).to_arrow()["x"].to_pylist())


class World:
    """A table's folder, other names for it and for its files, and files to which nothing refers."""

    def __init__(self, base: Path, name: str) -> None:
        self.base, self.root = base, base / "home" / name
        for value in range(3):
            txlog.write(self.root, pa.table({"x": [value]}), mode="append")
        self.files = sorted(self.root.glob("*.parquet"))
        (self.root / "sub").mkdir()
        self.files[1] = self.files[1].rename(self.root / "sub" / self.files[1].name)
        (base / "link").symlink_to(self.root)
        (base / "link to home").symlink_to(self.root.parent)
        (base / "link to sub").symlink_to(self.root / "sub")
        (self.root / "alias").symlink_to("sub")
        for place, file in enumerate(self.files):
            (base / f"file {place}").symlink_to(file)
            (self.root / f"file {place}").symlink_to(file)
            os.link(file, base / f"hard {place}")
        # These have nearly the names of the files.
        live = self.files[0]
        over = "".join(f"%{ord(character):02X}" for character in live.name)
        for orphan in (live.name.upper(), over, f"sub/{live.name}", f"sub2/{live.name}"):
            path = self.root / orphan
            path.parent.mkdir(exist_ok=True)
            path.write_bytes(b"of nobody")
        make_old(self.root)

    def homes(self) -> list[Path]:
        """Return the names by which the table can be opened."""
        return [self.root, self.base / "link", self.base / "link to home" / self.root.name]

    def places(self, number: int) -> list[str]:
        """Return paths of a file, absolute or relative to the table."""
        below = self.files[number].relative_to(self.root)
        found = [below, *(home / below for home in self.homes())]
        found += [Path(f"file {number}"), self.base / f"file {number}"]
        found += [self.base / f"hard {number}"]
        if number == 1:
            found += [Path("alias", below.name), self.base / "link to sub" / below.name]
        return list(map(str, found))

    def rewrite(self, spelled: Callable[[int], str]) -> None:
        """Let the log name the files otherwise."""
        for commit in sorted((self.root / "_delta_log").glob("*.json")):
            lines = [json.loads(line) for line in unsealed(commit.read_bytes()).splitlines()]
            for line in lines:
                for file in self.files:
                    if "add" in line and line["add"]["path"] == file.name:
                        line["add"]["path"] = spelled(self.files.index(file))
            commit.write_text("\n".join(map(json.dumps, lines)))

    def meant(self) -> list[Path]:
        """Return the files that the log names, as a plain reader of URIs finds them."""
        found = []
        for commit in (self.root / "_delta_log").glob("*.json"):
            for line in unsealed(commit.read_bytes()).splitlines():
                path = json.loads(line).get("add", {}).get("path")
                if path is not None:
                    plain = re.sub(r"(?i)^file:(//localhost)?/*(?=/)", "", path)
                    found.append(self.root / os.path.normpath(unquote(plain)))
        return found

    def on_disk(self) -> set[Path]:
        """Return the files below the table, without links and its log."""
        return {
            path
            for path in self.root.rglob("*")
            if path.is_file() and not path.is_symlink() and "_delta_log" not in path.parts
        }


ENCODINGS: list[Callable[[str], str]] = [
    quote,
    lambda path: "".join(f"%{byte:02x}" if byte != ord("/") else "/" for byte in path.encode()),
]
NOISE = ["/", "//", "/./", "/no/../"]
SCHEMES = ["", "file:", "file://", "FILE:///", "file://localhost", "file:////"]


@st.composite
def spellings(draw: st.DrawFn) -> Any:
    """Draw a function from the paths of a file to one text that means it."""
    choice, encoding = draw(st.integers(0, 8)), draw(st.sampled_from(ENCODINGS))
    noise, scheme = draw(st.sampled_from(NOISE)), draw(st.sampled_from(SCHEMES))

    def spelled(places: list[str]) -> str:
        path = places[choice % len(places)]
        head, slash, name = path.rpartition("/")
        text = encoding(head) + (noise if slash else "") + encoding(name)
        return scheme + text if path.startswith("/") else text

    return spelled


@pytest.mark.slow
@pytest.mark.spec("VAC-1", "VAC-10")
@settings(max_examples=examples(200), deadline=None)
@given(
    name=st.sampled_from(NAMES),
    opened=st.integers(0, 2),
    texts=st.lists(spellings(), min_size=3, max_size=3),
    lite=st.booleans(),
)
def test_every_spelling_of_a_live_file_keeps_it(
    name: str, opened: int, texts: list[Any], lite: bool
) -> None:
    with TemporaryDirectory() as folder:
        world = World(Path(os.path.realpath(folder)), name)
        world.rewrite(lambda number: str(texts[number](world.places(number))))
        home = world.homes()[opened]
        assert values(home) == [0, 1, 2]
        before = world.on_disk()
        needed = {one for one in before if any(map(one.samefile, world.meant()))}
        assert needed == set(world.files)
        found = txlog.Table(home).doctor()
        assert not {"file-missing", "file-size"} & {one.code for one in found}
        vacuum(home, lite=lite)
        assert world.on_disk() == (before if lite else needed)
        assert values(home) == [0, 1, 2]


@pytest.mark.spec("VAC-1", "VAC-10")
@settings(max_examples=examples(100), deadline=None)
@given(opened=st.integers(0, 2), was=spellings(), text=spellings(), lite=st.booleans())
def test_a_file_that_is_removed_in_one_spelling_and_live_in_another_stays(
    opened: int, was: Any, text: Any, lite: bool
) -> None:
    with TemporaryDirectory() as folder:
        world = World(Path(os.path.realpath(folder)), "a%41b")
        world.rewrite(lambda number: str(text(world.places(number))))
        removed = {"path": was(world.places(1)), "deletionTimestamp": 1, "dataChange": True}
        commit = world.root / "_delta_log" / f"{3:020d}.json"
        commit.write_text(json.dumps({"remove": removed}))
        home = world.homes()[opened]
        expected = values(home)  # The log compares its own texts, as the protocol says.
        vacuum(home, lite=lite)
        assert values(home) == expected


@pytest.mark.spec("VAC-1", "VAC-10")
@pytest.mark.parametrize("lite", [False, True])
def test_a_file_that_was_removed_in_two_spellings_and_is_live_in_one_stays(
    tmp_path: Path, lite: bool
) -> None:
    world = World(tmp_path, "t")
    world.rewrite(lambda number: quote(world.places(number)[0]))
    name, root = world.files[1].name, world.root
    past = [{"remove": {"path": f"{folder}/{name}", "deletionTimestamp": 1, "dataChange": True}}
            for folder in ("sub", "alias")]  # fmt: skip
    add = {"path": f"alias/{name}", "size": world.files[1].stat().st_size,
           "partitionValues": {}, "modificationTime": 1, "dataChange": True}  # fmt: skip
    for version, lines in ((3, past), (4, [{"add": add}])):
        (root / "_delta_log" / f"{version:020d}.json").write_text("\n".join(map(json.dumps, lines)))
    assert values(root) == [0, 1, 2]
    # A remove of the same name and deletion vector ends with the add, so this one has another.
    odd = {"storageType": "i", "pathOrInlineDv": "", "sizeInBytes": 0, "cardinality": 0}
    (root / "_delta_log" / f"{5:020d}.json").write_text(
        json.dumps({"remove": {**past[1]["remove"], "deletionVector": odd}})
    )
    vacuum(root, lite=lite)
    assert values(root) == [0, 1, 2]


@pytest.mark.slow
@pytest.mark.spec("VAC-6", "VAC-10")
@pytest.mark.parametrize("name", ["a%41b", "a b"])
@pytest.mark.parametrize("cloned", range(3))
@pytest.mark.parametrize("opened", range(3))
def test_registered_clones_are_heeded_by_every_name(
    tmp_path: Path, name: str, cloned: int, opened: int
) -> None:
    world = World(tmp_path, name)
    world.rewrite(lambda number: quote(str(world.files[number].relative_to(world.root))))
    txlog.Table(world.root).delete("x = 1")
    (tmp_path / "clones" / "a%41b").mkdir(parents=True)
    (tmp_path / "to clones").symlink_to(tmp_path / "clones")
    clone = tmp_path / "to clones" / "a%41b" / "c"
    txlog.Table(world.homes()[cloned]).clone(clone, shallow=True, register=True)
    txlog.Table(world.root).overwrite(pa.table({"x": [9]}))
    make_old(world.root)
    vacuum(world.homes()[opened])
    assert values(clone) == [0, 2]
    assert values(world.root) == [9]
    real = tmp_path / "clones" / "a%41b" / "c"
    txlog.Table(world.homes()[opened]).maintenance.forget_clone(str(real))
    vacuum(world.root)
    assert len(world.on_disk()) == 1


@pytest.mark.spec("VAC-6", "MNT-10")
@pytest.mark.parametrize("again", [False, True])
def test_a_clone_is_heeded_after_its_link_leads_elsewhere(tmp_path: Path, again: bool) -> None:
    """The link names the current one of several tables."""
    source = txlog.write(tmp_path / "s", pa.table({"x": [1]}))
    txlog.write(tmp_path / "other", pa.table({"x": [7]}))
    (tmp_path / "c").mkdir()
    (tmp_path / "current").symlink_to(tmp_path / "c")
    if again:
        source.clone(tmp_path / "c", shallow=True, register=True)
    source.clone(tmp_path / "current", shallow=True, register=True, replace=again)
    (tmp_path / "current").unlink()
    (tmp_path / "current").symlink_to(tmp_path / "other")
    txlog.write(tmp_path / "s", pa.table({"x": [9]}), mode="overwrite")
    make_old(tmp_path / "s")
    vacuum(tmp_path / "s")
    assert values(tmp_path / "c") == [1]


@pytest.mark.spec("MNT-23")
def test_a_clone_is_not_made_inside_its_source_through_a_link(tmp_path: Path) -> None:
    world = World(tmp_path, "a%41b")
    world.rewrite(lambda number: quote(str(world.files[number].relative_to(world.root))))
    (tmp_path / "to base").symlink_to(tmp_path)
    for one in world.homes():
        for other in (*(home / "in" for home in world.homes()), tmp_path / "link to sub" / "in"):
            with pytest.raises(InvalidInputError, match="is inside the folder"):
                txlog.Table(one).clone(other)
        with pytest.raises(InvalidInputError, match="is inside the folder"):
            txlog.Table(one).clone(tmp_path / "to base" / "home")
    for beside in ("aAb", "a%41b2", "a"):
        clone = world.root.parent / beside
        txlog.Table(world.root).clone(clone, shallow=True)
        assert values(clone) == [0, 1, 2]


@pytest.mark.spec("VAC-10")
def test_a_path_of_another_machine_is_not_taken_for_gone(tmp_path: Path) -> None:
    world = World(tmp_path, "t")
    there = "file:///nfs/of/another/machine/t"
    world.rewrite(lambda number: f"{there}/{world.files[number].relative_to(world.root)}")
    vacuum(world.root)
    assert set(world.files) <= world.on_disk()


@pytest.mark.spec("VAC-6")
def test_two_tables_may_be_clones_of_each_other(tmp_path: Path) -> None:
    one, other = tmp_path / "one", tmp_path / "other"
    table = txlog.write(one, pa.table({"x": [1]}))
    table.clone(other, shallow=True, register=True).append(pa.table({"x": [2]}))
    txlog.Table(other).clone(one, shallow=True, replace=True, register=True)
    for uri in (one, other):
        make_old(uri)
    for uri in (one, other):
        vacuum(uri)
        assert values(one) == values(other) == [1, 2]


# Rounds ------------------------------------------------------------------------------------------


def history_of(root: Path) -> None:
    for value in range(4):
        txlog.write(root, pa.table({"x": [value]}), mode="overwrite")
    txlog.Table(root).pins.create("p", 0)
    (root / "orphan").write_bytes(b"1")
    make_old(root)
    time.sleep(0.02)  # The clock of a file system may be some milliseconds behind.


@pytest.mark.slow
@pytest.mark.spec("VAC-6", "VAC-11")
@settings(max_examples=examples(100), deadline=None)
@given(
    hours=st.sampled_from([0, 1]),
    lite=st.booleans(),
    trash=st.booleans(),
    keep=st.lists(st.sampled_from([1, 2, "p"]), max_size=2),
    note=st.sampled_from([None, "why"]),
)
def test_many_rounds_do_what_one_round_does(
    hours: float, lite: bool, trash: bool, keep: list[int | str], note: str | None
) -> None:
    with TemporaryDirectory() as folder, pytest.MonkeyPatch.context() as patch:
        one, many = Path(folder) / "one", Path(folder) / "many"
        history_of(one)
        shutil.copytree(one, many)
        options: dict[str, Any] = {"lite": lite, "trash": trash, "keep_versions": keep}

        def after(uri: Path) -> tuple[Any, ...]:
            done = txlog.Table(uri).vacuum(
                hours, dry_run=False, enforce_retention_duration=False, user_metadata=note,
                **options,
            )  # fmt: skip
            decisions = done.select(["file", "bytes", "decision", "reason"]).to_pylist()
            disk = {
                str(path.relative_to(uri)): path.read_bytes()
                for path in uri.rglob("*")
                if path.is_file() and "_delta_log" not in path.parts
            }
            notes = [
                (entry.get("operation"), entry.get("userMetadata"))
                for entry in txlog.Table(uri).history()
                if "VACUUM" in str(entry.get("operation"))
            ]
            return (
                decisions,
                {re.sub(r"trash/\d+", "trash", at): b for at, b in disk.items()},
                notes,
            )

        decided, disk, notes = after(one)
        patch.setattr("txlog.verbs.vacuum._AT_ONCE", 1)
        patch.setattr("txlog.verbs.vacuum.VACUUM_HOLDS_MS", 0)
        in_rounds = after(many)
        assert in_rounds[:2] == (decided, disk)
        assert set(in_rounds[2]) == set(notes)
        gone = sum(row["decision"] == "delete" for row in decided)
        assert len(in_rounds[2]) == 2 * gone
        for version in keep:
            assert txlog.Table(many, version=version).count() == 1


# What is gone already ----------------------------------------------------------------------------


@pytest.mark.spec("VAC-8")
def test_a_lite_vacuum_says_once_that_it_deletes_a_file(tmp_path: Path) -> None:
    table = txlog.write(tmp_path / "t", pa.table({"x": [1]}))
    table.overwrite(pa.table({"x": [2]}))
    time.sleep(0.02)
    assert vacuum(tmp_path / "t", lite=True)["decision"].to_pylist() == ["delete"]
    version = txlog.Table(table.uri).version
    for options in ({"lite": True}, {"lite": True, "trash": True}, {}):
        assert "delete" not in vacuum(tmp_path / "t", **options)["decision"].to_pylist()
    assert txlog.Table(table.uri).version == version


@pytest.mark.spec("VAC-3")
def test_deletion_files_are_deleted_after_their_feature_was_dropped(tmp_path: Path) -> None:
    root = tmp_path / "t"
    properties = {"txlog.deletionFormat": "lance", "delta.feature.txlog.fragments": "supported"}
    schema = pa.schema([("x", pa.int64())])
    table = txlog.Table.create(root, schema, properties=properties)
    table.append(pa.table({"x": list(range(100))}))
    table.delete("x = 1")
    clone = table.clone(tmp_path / "deep")
    assert list((root / "_deletions").iterdir())
    for uri in (table.uri, clone.uri):
        folder = Path(uri) / "_deletions"
        (folder / "of somebody.arrow").write_bytes(b"")
        txlog.Table(uri).alter.drop_feature("txlog.fragments")
        make_old(Path(uri))
        assert values(Path(uri)) == [0, *range(2, 100)]
        vacuum(Path(uri))
        assert [path.name for path in folder.iterdir()] == ["of somebody.arrow"]
        with suppress(txlog.TxlogError):
            txlog.Table(uri).restore(1)
        assert txlog.Table(uri).count() in (99, 100)


@pytest.mark.spec("BLB-6")
def test_a_vacuum_leaves_the_folder_alone_in_a_table_without_blobs(tmp_path: Path) -> None:
    table = txlog.Table.create(tmp_path, pa.schema([pa.field("id", pa.int64())]))
    table.append(pa.table({"id": [1]}))
    other = tmp_path / "_blobs" / "x.blobs"
    other.parent.mkdir()
    other.write_bytes(b"x")
    os.utime(other, (1_000_000_000, 1_000_000_000))
    table.vacuum(dry_run=False)
    assert other.exists()
