"""Attempts at one put: what is written once, what is overwritten, and what remains."""

import errno
import os
import threading
from pathlib import Path

import pytest
from broken_disk import BrokenDisk, Crash
from hypothesis import given
from hypothesis import strategies as st

from txlog.base.effects import REAL
from txlog.base.errors import OutcomeUnknownError, TxlogError
from txlog.store.local import put
from txlog.store.local.disk import Disk
from txlog.store.local.local import LocalStore
from txlog.store.local.put import Turn
from txlog.testing import CountingStore, FaultyStore

LONG, SHORT = b"long" * 100, b"short"


def names(root: Path) -> list[str]:
    return sorted(path.name for path in (root / "log").iterdir())


def lose_then_win(store: LocalStore, first: bytes = LONG, then: bytes = SHORT) -> None:
    """Find a name taken, and put other bytes under the next one."""
    with store.attempts() as attempt:
        assert attempt("log/0", first) == "exists"
        assert attempt("log/1", then) == "created"


@pytest.fixture
def root(tmp_path: Path) -> Path:
    taken(tmp_path)
    return tmp_path


def taken(root: Path) -> None:
    LocalStore(str(root)).put_if_absent("log/0", b"theirs")


def test_the_same_bytes_are_written_once(root: Path) -> None:
    disk = BrokenDisk(0, Crash())
    lose_then_win(LocalStore(str(root), disk=disk), LONG, LONG)
    assert disk.steps.count("create") == disk.steps.count("write") == 1
    assert disk.steps.count("link") == 2
    assert (root / "log" / "1").read_bytes() == LONG
    assert names(root) == ["0", "1"]


def test_other_bytes_are_synced_before_they_are_linked(root: Path) -> None:
    disk = BrokenDisk(0, Crash())
    lose_then_win(LocalStore(str(root), disk=disk))
    assert disk.steps.count("create") == 1
    again = disk.steps[disk.steps.index("reopen") :]
    assert again == [
        "reopen", "write", "truncate", "sync_data", "close", "link", "unlink", "sync_folder",
    ]  # fmt: skip


@given(st.lists(st.binary(max_size=20), min_size=1, max_size=6))
def test_what_lands_is_the_last_attempt(
    tmp_path_factory: pytest.TempPathFactory, tries: list[bytes]
) -> None:
    root = tmp_path_factory.mktemp("t")
    for number in range(len(tries) - 1):
        LocalStore(str(root)).put_if_absent(f"log/{number}", b"theirs")
    with LocalStore(str(root)).attempts() as attempt:
        answers = [attempt(f"log/{number}", data) for number, data in enumerate(tries)]
    assert answers == ["exists"] * (len(tries) - 1) + ["created"]
    found = [(root / "log" / str(number)).read_bytes() for number in range(len(tries))]
    assert found == [b"theirs"] * (len(tries) - 1) + [tries[-1]]
    assert len(names(root)) == len(tries)


def test_nothing_stays_of_an_attempt_given_up(root: Path) -> None:
    with LocalStore(str(root)).attempts() as attempt:
        assert attempt("log/0", LONG) == "exists"
        assert len(names(root)) == 2
    with pytest.raises(KeyboardInterrupt):
        interrupted(LocalStore(str(root)))
    assert names(root) == ["0"]


def interrupted(store: LocalStore) -> None:
    with store.attempts() as attempt:
        attempt("log/0", LONG)
        raise KeyboardInterrupt


@pytest.mark.parametrize("after", [False, True])
@pytest.mark.parametrize("then", [LONG, SHORT, LONG * 2])
def test_an_error_at_any_step_leaves_all_or_nothing(
    tmp_path: Path, after: bool, then: bytes
) -> None:
    counted = BrokenDisk(0, Crash())
    taken(tmp_path / "count")
    lose_then_win(LocalStore(str(tmp_path / "count"), disk=counted), LONG, then)
    for n in range(1, len(counted.steps) + 1):
        root = tmp_path / f"t{n}"
        taken(root)
        disk = BrokenDisk(n, OSError(errno.EIO, "x"), after=after)
        outcome: TxlogError | None = None
        try:
            lose_then_win(LocalStore(str(root), disk=disk), LONG, then)
        except TxlogError as error:
            outcome = error
        step = disk.steps[n - 1]
        if step == "create" and after:
            continue  # No file system makes a file and says that it did not.
        final = root / "log" / "1"
        if final.exists():
            assert final.read_bytes() == then, step
        assert final.exists() == (outcome is None or isinstance(outcome, OutcomeUnknownError)), step
        temporary = [name for name in names(root) if name.startswith(".")]
        assert len(temporary) == int(step == "unlink" and not after), step


@pytest.mark.parametrize("after", [False, True])
def test_a_crash_at_any_step_leaves_all_or_nothing_under_the_name(
    tmp_path: Path, after: bool
) -> None:
    counted = BrokenDisk(0, Crash())
    taken(tmp_path / "count")
    lose_then_win(LocalStore(str(tmp_path / "count"), disk=counted))
    for n in range(1, len(counted.steps) + 1):
        root = tmp_path / f"t{n}"
        taken(root)
        with pytest.raises(Crash):
            lose_then_win(LocalStore(str(root), disk=BrokenDisk(n, Crash(), after=after)))
        assert (root / "log" / "0").read_bytes() == b"theirs"
        final = root / "log" / "1"
        assert not final.exists() or final.read_bytes() == SHORT
        assert [name for name in names(root) if not name.startswith(".")] in (["0"], ["0", "1"])


def test_a_file_with_another_name_is_not_written_over(root: Path) -> None:
    """As if a network file system had linked it, and everybody had been told otherwise."""

    class Forked(Disk):
        def link(self, source: str, target: str) -> None:
            if target.endswith("0"):
                os.link(source, f"{target}-too")
            super().link(source, target)

    lose_then_win(LocalStore(str(root), disk=Forked()))
    assert (root / "log" / "0-too").read_bytes() == LONG
    assert (root / "log" / "1").read_bytes() == SHORT
    assert names(root) == ["0", "0-too", "1"]


@pytest.mark.parametrize("data", [SHORT, LONG], ids=["other bytes", "the same bytes"])
@pytest.mark.parametrize("replaced", [False, True])
def test_a_file_that_somebody_tidied_up_is_written_again(
    root: Path, data: bytes, replaced: bool
) -> None:
    with LocalStore(str(root)).attempts() as attempt:
        assert attempt("log/0", LONG) == "exists"
        for path in (root / "log").glob(".*"):
            path.unlink()
            if replaced and data is SHORT:
                path.mkdir()
        assert attempt("log/1", data) == "created"
    assert (root / "log" / "1").read_bytes() == data


def test_stores_around_a_store_see_every_attempt(root: Path) -> None:
    counting, faulty = CountingStore(LocalStore(str(root))), FaultyStore(LocalStore(str(root)))
    for store in (counting, faulty):
        with store.attempts() as attempt:
            assert attempt("log/0", b"x") == attempt("log/0", b"x") == "exists"
    assert counting.requests["put_if_absent"] == 2
    assert faulty.calls == [("put_if_absent", "log/0")] * 2


def test_a_turn_is_waited_for_but_not_for_long(tmp_path: Path) -> None:
    held, other = Turn(), Turn()
    held.wait_for(str(tmp_path))
    other.wait_for(str(tmp_path))  # Goes on without.
    assert other._descriptor is None
    waiter = threading.Thread(target=other.wait_for, args=(str(tmp_path),))
    waiter.start()
    held.leave()
    waiter.join()
    assert (other._descriptor is not None) == (os.name != "nt")
    other.leave()
    other.leave()
    Turn().wait_for(str(tmp_path / "missing"))


@pytest.mark.spec("GUA-13")
@pytest.mark.skipif(os.name == "nt", reason="nobody waits for a turn there")
def test_others_give_way_to_who_has_precedence(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = LocalStore(str(tmp_path))
    landed: list[str] = []

    def commit(name: str) -> None:
        with store.attempts() as attempt:
            attempt(name, SHORT)
        landed.append(name)

    with store.precedence(), store.precedence() as again:  # The second is that of the first.
        assert again
        other = threading.Thread(target=commit, args=("log/0",))
        other.start()
        commit("log/1")  # Its own is not waited for.
        store.put_if_absent("log/hint", SHORT)  # Nor is anything but a commit.
        assert landed == ["log/1"]
    other.join()
    assert landed == ["log/1", "log/0"]
    monkeypatch.setattr(put, "_LONGEST_WAY_S", 0.05)
    with store.precedence():
        for name in ("log/2", "log/3"):  # The second does not even wait.
            other = threading.Thread(target=commit, args=(name,))
            other.start()
            other.join()
            monkeypatch.setattr(put, "_LONGEST_WAY_S", 1e9)
    assert landed[2:] == ["log/2", "log/3"]
    monkeypatch.setattr(put, "_LONGEST_QUEUE_S", 1e9)
    answers: list[bool] = []

    def ask() -> None:
        with store.precedence(briefly=True) as answer:
            answers.append(answer)

    with store.precedence():
        for since_s, longest_s in ((-1e9, 0.05), (REAL.monotonic_s(), 1e9)):  # Nor does this one.
            put._IN_VAIN[str(tmp_path)] = since_s, 1e3
            monkeypatch.setattr(put, "_LONGEST_WAY_S", longest_s)
            other = threading.Thread(target=ask)
            other.start()
            other.join()
    ask()
    assert answers == [False, False, True]
    put._IN_VAIN[str(tmp_path)] = 0.0, 5.0
    monkeypatch.setattr(put, "_LONGEST_WAY_S", 0.0)
    pauses = []
    for _ in range(7):
        put._IN_VAIN[str(tmp_path)] = -1e9, put._IN_VAIN[str(tmp_path)][1]  # It is over.
        with store.precedence():
            other = threading.Thread(target=put.give_way, args=(str(tmp_path),))
            other.start()
            other.join()
        pauses.append(put._IN_VAIN[str(tmp_path)][1])
    assert pauses == [10, 20, 40, 80, 80, 80, 80]
    put._IN_VAIN[str(tmp_path)] = -1e9, 80.0
    put.give_way(str(tmp_path))
    assert str(tmp_path) not in put._IN_VAIN  # It was not in vain.


def test_who_has_landed_or_given_up_keeps_no_turn(root: Path) -> None:
    for landing in (True, False):
        with LocalStore(str(root)).attempts() as attempt:
            attempt("log/0", LONG)
            if landing:
                attempt("log/1", LONG)
        turn = Turn()
        turn.wait_for(str(root / "log"))
        assert (turn._descriptor is not None) == (os.name != "nt")
        turn.leave()
