"""Tests of the reading methods of a store."""

from __future__ import annotations

import pickle
from collections.abc import Callable

from txlog.base.effects import REAL
from txlog.base.errors import NotFoundError, TxlogError
from txlog.extend import Store, folders_in
from txlog.store.ranged import FileRanges, read_ranges

ODD_NAMES = (
    "space in name", "per%20cent", "hash#1", "question?x=1", "plus+and&", "ünïcödé", "e\u0301",
    "😀", "\uffee", "a=b", "[x]*", "..double", "quote'\"",
)  # fmt: skip

_MINUTE_MS = 60_000


def raised(kind: type[TxlogError], function: Callable[[], object]) -> TxlogError:
    """Return the error that a call raises; fail if it raises none, or one of another class."""
    try:
        function()
    except kind as error:
        return error
    raise AssertionError(f"{kind.__name__} was not raised")


class ReadingContract:
    """Define a subclass `Test…` with `make_store` and `fill`; then pytest runs the contract."""

    def make_store(self) -> Store:
        """Return a store of a new, empty folder; called once for each test."""
        raise NotImplementedError

    def fill(self, store: Store, path: str, data: bytes) -> None:
        """Create a file in the store's folder."""
        raise NotImplementedError

    def test_what_is_there_is_read(self) -> None:
        """A file is read whole and in parts, and its size and time are known."""
        store = self.make_store()
        for data in (b"", b"x", bytes(range(256)) * 1024):
            path = f"folder/deep/f{len(data)}"
            self.fill(store, path, data)
            assert store.read(path) == data
            assert store.read(store.resolve(path)) == data
            with store.open_input(path) as file:
                file.seek(len(data) // 2)
                assert file.read() == data[len(data) // 2 :]
            info = store.info(path)
            assert (info.name, info.size) == (f"f{len(data)}", len(data))
            self.check_time(store, path, info.modified_ms)

    def check_time(self, store: Store, path: str, modified_ms: int | None) -> None:
        """Check the time of a file that was written just now.

        A store whose clock is that of this machine may round times, but not by a minute. A listing
        gives the same time. A store without times of files, or with another clock, overrides this.
        """
        assert modified_ms is not None, "the store has no times of files"
        assert abs(REAL.now_ms() - modified_ms) < _MINUTE_MS
        folder, _, name = path.rpartition("/")
        assert modified_ms in {info.modified_ms for info in store.list_after(folder, name)}
        assert modified_ms in {info.modified_ms for info in store.list_tree(folder)}

    def test_ranges_of_many_files_are_read(self) -> None:
        """Ranges are returned in the requested order, and end at the end of a file."""
        store = self.make_store()
        for number in range(7):
            self.fill(store, f"r/{number}", b"%d of many" % number)
        # A local disk opens 64 files at a time; other stores read one after another.
        count = 70 if store.local_path("r/0") else 8
        asked = [
            FileRanges(store, f"r/{number % 7}", [(0, 2), (number % 4, 5), (8, 30)], 10)
            for number in range(count)
        ]
        for place, parts in enumerate(read_ranges([*asked, FileRanges(store, "gone", [], 1)])[:-1]):
            data = b"%d of many" % (place % 7)
            assert parts == [data[:2], data[place % 4 : 5], data[8:]]
        missing = FileRanges(store, "r/gone", [(0, 1)], 10)
        raised(NotFoundError, lambda: read_ranges([*asked, missing]))

    def test_what_is_missing_is_not_found(self) -> None:
        """All ways of reading a missing file raise the same error."""
        store = self.make_store()
        self.fill(store, "there/f", b"x")
        for path in ("missing", "there/missing", "no/folder/f"):
            raised(NotFoundError, lambda path=path: store.read(path))  # type: ignore[misc]
            raised(NotFoundError, lambda path=path: store.open_input(path))  # type: ignore[misc]
            raised(NotFoundError, lambda path=path: store.info(path))  # type: ignore[misc]
        assert list(store.list_after("no/folder", "")) == []
        assert list(store.list_tree("no/folder")) == []

    def test_names_are_literal(self) -> None:
        """No character of a name has a special meaning."""
        store = self.make_store()
        for name in ODD_NAMES:
            self.fill(store, f"odd/{name}", name.encode())
            self.fill(store, f"{name}/f", name.encode())
        for name in ODD_NAMES:
            assert store.read(f"odd/{name}") == name.encode()
            assert store.read(f"{name}/f") == name.encode()
            assert [info.name for info in store.list_after(name, "")] == ["f"]
        assert folders_in(store, "") == sorted([*ODD_NAMES, "odd"])
        listed = [info.name for info in store.list_after("odd", "")]
        assert listed == sorted(ODD_NAMES)

    def test_listing_starts_at_a_name_and_ascends(self) -> None:
        """The listing includes the name itself, but no folders and their files."""
        store = self.make_store()
        names = [f"{n:020d}.json" for n in (9, 0, 10, 2)]
        for name in names:
            self.fill(store, f"log/{name}", b"12")
        self.fill(store, f"log/{5:020d}.json/inside", b"")
        for since in ("", names[1], names[3], f"{3:020d}", names[2], "z"):
            listed = list(store.list_after("log", since))
            assert [info.name for info in listed] == sorted(n for n in names if n >= since)
            assert all(info.size == 2 for info in listed)

    def test_a_listing_is_never_an_old_one(self) -> None:
        """A new file is in the next listing."""
        store = self.make_store()
        for n in range(3):
            self.fill(store, f"log/{n}", b"")
            assert len(list(store.list_after("log", ""))) == n + 1

    def test_a_tree_is_listed_with_all_it_holds(self) -> None:
        """Names are relative to the folder."""
        store = self.make_store()
        for path in ("t/a", "t/p=1/b", "t/p=1/q=2/c", "u/d"):
            self.fill(store, path, b"x")
        assert [info.name for info in store.list_tree("t")] == ["a", "p=1/b", "p=1/q=2/c"]
        assert len(list(store.list_tree(""))) == 4

    def test_a_tree_is_listed_in_ranges(self) -> None:
        """Each file is in one range, whatever the names between them are."""
        store = self.make_store()
        for path in ("a.b", "a/b", "a0", "p=1/b", "p=1/q=2/c", "z"):
            self.fill(store, path, b"x")
        whole = list(store.list_tree(""))
        for bounds in ([], ["a/b"], ["Z", "a.b", "p=1", "p=1/c"], ["a", "a0", "zz"], ["a.b", "z"]):
            ranges = zip(["", *bounds], [*bounds, None], strict=True)
            pages = [page for one in ranges for page in store.list_pages(*one)]
            assert sorted(info for page in pages for info in page) == whole

    def test_folders_are_listed_without_what_they_hold(self) -> None:
        """Files are omitted; a missing folder has no subfolders."""
        store = self.make_store()
        for path in ("t/a", "t/q/b", "t/p=1/q=2/c", "t/p=1/q=3/c", "tt/d"):
            self.fill(store, path, b"x")
        assert folders_in(store, "") == ["t", "tt"]
        assert folders_in(store, "t") == ["p=1", "q"]
        assert folders_in(store, "t/q") == folders_in(store, "no/folder") == []

    def test_a_store_is_a_value(self) -> None:
        """A pickled copy equals the store, and works like it."""
        store = self.make_store()
        self.fill(store, "f", b"x")
        copy: Store = pickle.loads(pickle.dumps(store))
        assert copy == store
        assert copy.root == store.root
        assert copy.read("f") == b"x"
        shown = [str(value) for value in store.options.values() if len(str(value)) > 4]
        assert not [value for value in shown if value in repr(store)]
