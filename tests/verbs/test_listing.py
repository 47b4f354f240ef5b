"""The files of a table are the same in one listing and in ranges of names."""

import pickle
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, ClassVar

import pyarrow as pa
import pyarrow.compute as pc
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import txlog
from tests.examples import examples
from tests.moved import moved
from txlog.commit.context import Context
from txlog.snapshot.load import load_snapshot
from txlog.snapshot.snapshot import Snapshot
from txlog.store.base import ObjectInfo, RangesBy, pages_in_folders
from txlog.store.local.local import LocalStore
from txlog.verbs.listing import _NO_BOUND, list_files
from txlog.verbs.vacuum import VacuumRequest, vacuum

NAMES = st.text("ab=0/_.", min_size=1, max_size=6).filter(
    lambda name: all(step.strip(".") for step in name.split("/"))
)


class Ranged(LocalStore):
    """A store that lists ranges, and says which."""

    asked: ClassVar[list[tuple[str, str | None]]] = []
    whole: ClassVar[list[str]] = []  # The folders that were listed with all below them.

    def ranges_by(self) -> RangesBy:
        return "names"

    def list_pages(self, after: str, until: str | None) -> Iterator[Any]:
        self.asked.append((after, until))
        return super().list_pages(after, until)


class Foldered(Ranged):
    """A store whose requests are for a folder, or for all below a folder."""

    def ranges_by(self) -> RangesBy:
        return "folders"

    def list_pages(self, after: str, until: str | None) -> Iterator[Any]:
        self.asked.append((after, until))
        return pages_in_folders(self._level, self._below, after, until)

    def _level(self, folder: str) -> tuple[list[ObjectInfo], list[str]]:
        at = folder.rstrip("/")
        files = [one._replace(name=folder + one.name) for one in self.list_after(at, "")]
        return files, [f"{folder}{name}/" for name in self.list_folders(at)]

    def _below(self, folder: str) -> Iterator[list[ObjectInfo]]:
        self.whole.append(folder)
        yield [one._replace(name=folder + one.name) for one in self.list_tree(folder.rstrip("/"))]


class Elsewhere:
    """An engine whose work leaves the process."""

    in_process = False

    def map(self, function: Callable[[Any], Any], items: Iterable[Any]) -> Iterator[Any]:
        sent = pickle.loads(pickle.dumps(function))
        for item in items:
            yield pickle.loads(pickle.dumps(sent(pickle.loads(pickle.dumps(item)))))


def opened(root: Path, engine: Any = None, kind: type[Ranged] = Ranged) -> tuple[Context, Snapshot]:
    store = kind(str(root))
    context = Context(store) if engine is None else Context(store, engine=engine)
    return context, load_snapshot(store)


@pytest.mark.spec("VAC-12")
@settings(max_examples=examples(60))
@given(
    st.sets(NAMES, max_size=12),
    st.integers(1, 5),
    st.integers(1, 3),
    st.integers(1, 4),
    st.booleans(),
    st.sampled_from([Ranged, Foldered]),
    st.sampled_from([None, "x", ["y", "x"]]),
)
def test_ranges_find_what_one_listing_finds(
    names: set[str], size: int, sampled: int, page: int, is_elsewhere: bool,
    kind: type[Ranged], partition_by: Any,
) -> None:  # fmt: skip
    with TemporaryDirectory() as folder:
        root = Path(folder) / "t"
        table = txlog.write(
            root, pa.table({"x": [0], "y": [1], "z": [0]}), partition_by=partition_by
        )
        for x in range(4):
            table.append(pa.table({"x": [x], "y": [x % 2], "z": [0]}))
        table.delete("x = 2")
        for name in sorted(names, key=len):
            path = root / name
            if all(not one.is_file() for one in [path, *path.parents]) and not path.exists():
                path.parent.mkdir(parents=True, exist_ok=True)
                path.write_bytes(b"of nobody")
        context, snapshot = opened(root, Elsewhere() if is_elsewhere else None, kind)
        whole = list_files(context, snapshot)
        with moved(
            {
                "txlog.verbs.listing:_RANGE": size,
                "txlog.verbs.listing:_SAMPLED": sampled,
                "txlog.verbs.listing:_FOLDER": 1,
                "txlog.verbs.listing:_PAGE": page,
                "txlog.store.local.disk:_PAGE": page,
            }
        ):
            found = list_files(context, snapshot)
            decided = vacuum(context, snapshot, VacuumRequest(0, enforce=False)).decided
        assert found.files.sort_by("file") == whole.files.sort_by("file")
        assert sorted(found.chains) == sorted(whole.chains)
        assert decided == vacuum(context, snapshot, VacuumRequest(0, enforce=False)).decided


def test_a_large_table_is_listed_in_many_ranges(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = txlog.write(
        tmp_path / "t", pa.table({"x": [*range(40)], "y": [0] * 40}), partition_by="x"
    )
    context, snapshot = opened(tmp_path / "t")
    monkeypatch.setattr(Ranged, "asked", [])
    with moved({"txlog.verbs.listing:_RANGE": 10, "txlog.verbs.listing:_SAMPLED": 2}):
        found = list_files(context, snapshot)
    # 40 files, each second one of which may begin a range, and each fifth of those does.
    assert len(Ranged.asked) == 4
    assert [until for _, until in Ranged.asked[:-1]] == [after for after, _ in Ranged.asked[1:]]
    assert found.files.num_rows == table.files().num_rows


def listed_folders(root: Path, least: int) -> tuple[list[tuple[str, str | None]], list[str]]:
    """Return the ranges of a listing, and the folders that were listed with all below them."""
    Foldered.asked.clear()
    Foldered.whole.clear()
    context, snapshot = opened(root, kind=Foldered)
    moves = {"_RANGE": 10, "_SAMPLED": 2, "_FOLDER": least}
    with moved({f"txlog.verbs.listing:{name}": value for name, value in moves.items()}):
        found = list_files(context, snapshot)
    assert found.files.num_rows == 60
    return [*Foldered.asked], [*Foldered.whole]


def test_folders_of_many_files_are_listed_apart_and_small_ones_are_not(tmp_path: Path) -> None:
    rows = pa.table({"a": [n % 3 for n in range(60)], "b": [*range(60)], "c": [0] * 60})
    txlog.write(tmp_path / "t", rows, partition_by=["a", "b"])
    asked, whole = listed_folders(tmp_path / "t", 4)
    assert sorted(after for after, _ in asked) == ["", "a=0/", "a=1/", "a=2/"]
    assert sorted(one for one in whole if one[0] == "a") == ["a=0/", "a=1/", "a=2/"]
    asked, whole = listed_folders(tmp_path / "t", 21)
    assert (asked, whole) == ([("", None)], [""])


def test_files_elsewhere_and_odd_names_divide_no_listing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    source = txlog.write(
        tmp_path / "s", pa.table({"x": [*range(20)], "y": [0] * 20}), partition_by="x"
    )
    clone = source.clone(tmp_path / "t", shallow=True)
    clone.append(pa.table({"x": [*range(20)], "y": [1] * 20}))
    context, snapshot = opened(tmp_path / "t")
    monkeypatch.setattr(Ranged, "asked", [])
    with moved({"txlog.verbs.listing:_RANGE": 4, "txlog.verbs.listing:_SAMPLED": 1}):
        found = list_files(context, snapshot)
    assert len(Ranged.asked) > 2
    assert all(after.startswith("x=") for after, _ in Ranged.asked[1:])
    assert found.files.num_rows == 20


@pytest.mark.parametrize("name", ["", "/a/b", "s3://b/c", "a//b", "a/./b", "../b", "a\x01"])
def test_names_that_divide_no_listing(name: str) -> None:
    odd = pc.match_substring_regex(pa.array([name, "x=1/part-0.parquet", "a.b/..c"]), _NO_BOUND)
    assert odd.to_pylist() == [True, False, False]
