"""Tests of the writing methods of a store, and of concurrent writers of the same names."""

from __future__ import annotations

import multiprocessing
import threading
from concurrent.futures import ProcessPoolExecutor, ThreadPoolExecutor
from typing import Any

from txlog.base.errors import InvalidInputError, NotFoundError, TxlogError
from txlog.extend import Store
from txlog.testing.reading_contract import ODD_NAMES, ReadingContract, raised

_THREADS = 8
_START_S = 60  # How long the writers wait for each other, in seconds.

_barrier: Any = None


def body(who: int, n: int) -> bytes:
    """Return the content that a writer puts at the n-th name; it differs for each writer."""
    return f"{who}:{n};".encode() * 1000


def put_all(store: Store, who: int, names: int, barrier: Any) -> list[str]:
    """Put a file at each name, and return the names that were created."""
    barrier.wait(_START_S)
    paths = [f"log/{n:020d}" for n in range(names)]
    return [
        path for n, path in enumerate(paths) if store.put_if_absent(path, body(who, n)) == "created"
    ]


def race_of_threads(store: Store, names: int) -> list[list[str]]:
    """Return the names that each of several threads created."""
    barrier = threading.Barrier(_THREADS)
    with ThreadPoolExecutor(_THREADS) as pool:
        runs = [pool.submit(put_all, store, who, names, barrier) for who in range(_THREADS)]
        return [run.result() for run in runs]


def race_of_processes(store: Store, names: int, processes: int) -> list[list[str]]:
    """Return the names that each of several processes created."""
    context = multiprocessing.get_context("spawn")  # A fork would copy locks that threads hold.
    barrier = context.Barrier(processes)
    with ProcessPoolExecutor(
        processes, mp_context=context, initializer=_use, initargs=(barrier,)
    ) as pool:
        runs = [pool.submit(_put_all_here, store, who, names) for who in range(processes)]
        return [run.result() for run in runs]


def _use(barrier: Any) -> None:
    global _barrier
    _barrier = barrier


def _put_all_here(store: Store, who: int, names: int) -> list[str]:
    return put_all(store, who, names, _barrier)


class StoreContract(ReadingContract):
    """Define a subclass `Test…` with `make_store`; then pytest runs the contract."""

    shared_between_processes = True  # Whether other processes see the same files.
    names_in_races = 50
    processes_in_races = 3

    def fill(self, store: Store, path: str, data: bytes) -> None:
        """Create a file in the store's folder."""
        store.write_new(path, data)

    def test_it_is_writable(self) -> None:
        """`require_writable` does not raise."""
        self.make_store().require_writable()

    def test_the_first_put_stays(self) -> None:
        """A later put does not change a file, however the file was created."""
        store = self.make_store()
        assert store.put_if_absent("log/0", b"first") == "created"
        assert store.put_if_absent("log/0", b"second") == "exists"
        store.write_new("log/1", b"by other means")
        assert store.put_if_absent("log/1", b"late") == "exists"
        assert store.put_if_absent("log/2", b"") == "created"
        assert store.put_if_absent("log/2", b"not empty") == "exists"
        assert [store.read(f"log/{n}") for n in range(3)] == [b"first", b"by other means", b""]
        assert [info.name for info in store.list_tree("")] == ["log/0", "log/1", "log/2"]

    def test_odd_names_can_be_put(self) -> None:
        """Each name can be put once."""
        store = self.make_store()
        for name in ODD_NAMES:
            assert store.put_if_absent(name, name.encode()) == "created"
            assert store.put_if_absent(name, b"") == "exists"
            assert store.read(name) == name.encode()

    def test_threads_race_and_one_wins(self) -> None:
        """Each name has one winner, and the file has the winner's bytes."""
        store = self.make_store()
        self._judge(store, race_of_threads(store, self.names_in_races))

    def test_processes_race_and_one_wins(self) -> None:
        """Each name has one winner, and the file has the winner's bytes."""
        if not self.shared_between_processes:
            return
        store = self.make_store()
        self._judge(store, race_of_processes(store, self.names_in_races, self.processes_in_races))

    def _judge(self, store: Store, winners: list[list[str]]) -> None:
        for n in range(self.names_in_races):
            won = [who for who, names in enumerate(winners) if f"log/{n:020d}" in names]
            assert len(won) == 1, f"name {n} was created by {won}"
            assert store.read(f"log/{n:020d}") == body(won[0], n)
        assert len(list(store.list_tree(""))) == self.names_in_races

    def test_no_reader_sees_a_part(self) -> None:
        """A file is complete as soon as it can be read or listed."""
        store = self.make_store()
        data = bytes(1_000_000)
        done = threading.Event()

        def watch() -> list[int]:
            sizes = set()
            while not done.is_set():
                for n in range(20):
                    try:
                        sizes.add(len(store.read(f"log/{n}")))
                    except NotFoundError:
                        break
                sizes.update(info.size for info in store.list_after("log", "0"))
            return sorted(sizes)

        with ThreadPoolExecutor(1) as pool:
            seen = pool.submit(watch)
            try:
                for n in range(20):
                    store.put_if_absent(f"log/{n}", data)
            finally:
                done.set()
            assert seen.result() in ([], [len(data)])

    def test_a_hint_is_replaced(self) -> None:
        """The file has exactly the new bytes, and no other file remains."""
        store = self.make_store()
        for data in (b"long content", b"short", b""):
            store.replace("log/hint", data)
            assert store.read("log/hint") == data
        assert [info.name for info in store.list_tree("")] == ["log/hint"]

    def test_an_output_is_whole_when_its_block_ends(self) -> None:
        """It counts its bytes, and may be closed inside the block."""
        store = self.make_store()
        with store.open_output("p=1/data") as file:
            file.write(b"abc")
            file.write(memoryview(b"def"))
            assert file.tell() == 6
        assert store.read("p=1/data") == b"abcdef"
        with store.open_output("closed") as file:
            file.write(b"x")
            file.close()
        assert store.read("closed") == b"x"

    def test_an_output_that_fails_leaves_nothing(self) -> None:
        """The caller's error is raised unchanged."""
        store = self.make_store()
        for error in (RuntimeError("mine"), FileNotFoundError("mine"), KeyboardInterrupt()):
            try:
                with store.open_output("p=1/data") as file:
                    file.write(bytes(3_000_000))
                    raise error
            except BaseException as caught:
                assert caught is error  # noqa: PT017 - of any class, also exits
            assert list(store.list_tree("")) == []

    def test_an_output_overwrites_nothing(self) -> None:
        """If the name exists, an error is raised, at the end at the latest, and its file stays."""
        store = self.make_store()
        store.write_new("data", b"old")

        def output() -> None:
            with store.open_output("data") as file:
                file.write(b"new")

        raised(TxlogError, lambda: store.write_new("data", b"new"))
        raised(TxlogError, output)
        assert store.read("data") == b"old"

    def test_deleting_passes_over_what_is_missing(self) -> None:
        """The other files are deleted."""
        store = self.make_store()
        for name in ("a", "f/b", "f/c"):
            store.write_new(name, b"")
        store.delete(["missing", "a", "no/folder", "f/b"])
        store.delete([])
        assert [info.name for info in store.list_tree("")] == ["f/c"]

    def test_files_are_moved(self) -> None:
        """Missing files are skipped, new folders are created, and existing targets stay."""
        store = self.make_store()
        store.write_new("a", b"of a")
        store.write_new("f/b", b"of b")
        store.move([("a", "new/folder/a"), ("missing", "new/missing"), ("f/b", "b")])
        store.move([])
        assert [info.name for info in store.list_tree("")] == ["b", "new/folder/a"]
        assert [store.read("b"), store.read("new/folder/a")] == [b"of b", b"of a"]
        raised(TxlogError, lambda: store.move([("b", "new/folder/a")]))
        assert [store.read("b"), store.read("new/folder/a")] == [b"of b", b"of a"]

    def test_deleting_stays_below_the_root(self) -> None:
        """If one path is outside of the root, nothing is deleted."""
        store = self.make_store()
        store.write_new("a", b"")
        for path in ("../x", "f/../../x", "", store.resolve("") + "x/y"):
            raised(InvalidInputError, lambda path=path: store.delete(["a", path]))  # type: ignore[misc]
        assert store.read("a") == b""
