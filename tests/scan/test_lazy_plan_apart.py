"""Plans of which workers read the log, against those of one process."""

import pickle
import shutil
import warnings
from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import txlog
from tests.examples import examples
from tests.moved import moved
from tests.predicates import predicates_over
from tests.scan.test_lazy_plan import as_read
from txlog.expressions.sql import as_expression
from txlog.fragments.fragment import Fragment
from txlog.scan.lazy_plan import LoggedPlan, plan_snapshot
from txlog.scan.plan import ScanPlan
from txlog.snapshot.live_files import load_files
from txlog.snapshot.load import load_snapshot
from txlog.store.open import open_store
from txlog.testing import Fault, FaultyStore

SCHEMA = pa.schema([("n", pa.int64()), ("t", pa.string()), ("p", pa.string())])
ALWAYS = {
    "txlog.snapshot.live_files:_LARGE_BYTES": 1,
    "txlog.scan.lazy_plan:APART_FROM": 1,
}


class Workers:
    """An engine of other processes, as far as pickles can tell."""

    in_process = False

    def __init__(self) -> None:
        self.items: list[Any] = []

    def map(self, function: Callable[[Any], Any], items: Iterable[Any]) -> Iterator[Any]:
        packed = pickle.dumps(function)
        for item in items:
            self.items.append(item)
            result = pickle.loads(packed)(pickle.loads(pickle.dumps(item)))
            yield pickle.loads(pickle.dumps(result))

    def __reduce__(self) -> Any:
        raise pickle.PicklingError("an engine does not go to its workers")


def make(path: Path, steps: list[str], policy: str, partitioned: bool) -> None:
    """Make a table by some steps; the last ones are newer than its checkpoint."""
    properties = {"delta.checkpointPolicy": policy, "delta.enableDeletionVectors": "true"}
    partitions = ["p"] if partitioned else []
    table = txlog.Table.create(path, SCHEMA, partitions, properties)
    for at, step in enumerate(["append", *steps]):
        match step:
            case "append" | "overwrite":
                rows = [
                    {"n": 10 * at + k, "t": None if k == 4 else "tu"[k % 2], "p": "ab%"[k % 3]}
                    for k in range(6)
                ]
                data = pa.Table.from_pylist(rows, SCHEMA)
                (table.append if step == "append" else table.overwrite)(data)
            case "delete rows":
                table.delete("n % 5 = 1")
            case "delete":
                table.delete(f"n < {10 * at - 15}")
            case "restore":  # Files are added again, some of them without their vectors.
                table.restore(max(1, table.version - 2))
            case _:
                table.maintenance.checkpoint()


def in_parts(log: Path, parts: int) -> None:
    """Divide classic checkpoints into parts."""
    for whole in log.glob("*[0-9].checkpoint.parquet"):
        rows = pq.read_table(whole)
        version = whole.name.partition(".")[0]
        for part in range(parts):
            share = rows.slice(part * len(rows) // parts, len(rows) // parts + 1)
            last = (part + 1) * len(rows) // parts - part * len(rows) // parts
            name = f"{version}.checkpoint.{part + 1:010}.{parts:010}.parquet"
            pq.write_table(share.slice(0, last), log / name, row_group_size=2)
        whole.unlink()


def planned(path: Path, engine: Workers | None, **asked: Any) -> ScanPlan:
    store = open_store(str(path))
    snapshot = load_snapshot(store)
    return plan_snapshot(
        store, snapshot, lambda: load_files(store, snapshot).live, engine=engine, **asked
    )


def by_path(fragments: Iterable[Fragment]) -> list[Fragment]:
    return sorted(fragments, key=lambda one: (one.path, str(one.deletion)))


STEPS = st.sampled_from(
    ["append", "append", "delete rows", "delete", "checkpoint", "overwrite", "restore"]
)
PREDICATES = st.none() | predicates_over(
    {
        "n": st.integers(-1, 80),
        "t": st.sampled_from(["t", "u", "v"]),
        "p": st.sampled_from(["a", "b", "%", "z"]),
    },
    texts=["t", "p"],
)


def facts(plan: ScanPlan) -> list[tuple[Any, ...]]:
    """Return the facts of files that reading needs. Partition values count only if it reads `p`."""
    if any(column.name == "p" for column in plan.reading.needed):
        return list(map(as_read, plan.to_read))
    return [as_read(replace(one, partition_values={})) for one in plan.to_read]


COLUMNS = st.sampled_from([None, ["n"], ["p"], ["n", "_rowaddr"]])


@pytest.mark.slow
@pytest.mark.spec("SPK-30")
@settings(max_examples=examples(60), deadline=None)
@given(
    before=st.lists(STEPS, max_size=6),
    after=st.lists(STEPS.filter(lambda step: step != "checkpoint"), max_size=4),
    kind=st.sampled_from(["classic", "parts", "v2"]),
    partitioned=st.booleans(),
    asked=st.lists(st.tuples(COLUMNS, PREDICATES), min_size=1, max_size=4),
    sizes=st.sampled_from([1, 3, 1 << 20]),
)
def test_the_plan_of_workers_is_that_of_one_process(
    before: list[str],
    after: list[str],
    kind: str,
    partitioned: bool,
    asked: list[tuple[list[str] | None, Any]],
    sizes: int,
) -> None:
    policy = "v2" if kind == "v2" else "classic"
    small = {
        "txlog.checkpoint.write:_ROW_GROUP": 2,
        "txlog.checkpoint.sidecars:PART_ROWS": 3,
        "txlog.checkpoint.read:_SHARE_BYTES": sizes,
    }
    with TemporaryDirectory() as root, moved(small):
        path = Path(root)
        make(path, [*before, "append", "checkpoint", *after], policy, partitioned)
        if kind == "parts":
            in_parts(path / "_delta_log", 3)
        for columns, where in asked:
            expected = planned(path, None, columns=columns, where=where)
            with moved(ALWAYS):
                engine = Workers()
                found = planned(path, engine, columns=columns, where=where)
                assert isinstance(found, LoggedPlan)
                assert facts(found) == facts(expected)
                assert engine.items
                for again in (found, replace(found)):  # With and without what is cached.
                    assert sorted(again.paths.to_pylist()) == sorted(expected.paths.to_pylist())
                    assert again.explanation == expected.explanation
                    assert list(again.fragments) == list(expected.fragments)
                    assert again.certain == expected.certain
                    assert again.count() == expected.count()


@pytest.fixture(name="v2")
def fixture_v2(tmp_path: Path) -> Path:
    """Make a table with two checkpoints: one in a file, and a newer one with sidecars."""
    path = tmp_path / "t"
    properties = {"delta.checkpointPolicy": "classic"}
    table = txlog.Table.create(path, SCHEMA, ["p"], properties)
    data = pa.Table.from_pylist([{"n": k, "t": "t", "p": "ab"[k % 2]} for k in range(8)], SCHEMA)
    table.append(data)
    table.maintenance.checkpoint()
    with moved({"txlog.checkpoint.sidecars:PART_ROWS": 1}):
        table.alter.set_properties({"delta.checkpointPolicy": "v2"})
        table.append(data)
        table.maintenance.checkpoint()
    return path


def damage(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:-30])


@pytest.mark.slow
@pytest.mark.spec("SPK-31")
@pytest.mark.parametrize("how", [Path.unlink, damage], ids=["missing", "damaged"])
@pytest.mark.parametrize("where", [None, "n > 3", "p = 'a'"])
def test_a_damaged_sidecar_never_makes_a_part_the_whole(
    v2: Path, how: Callable[[Path], None], where: str | None
) -> None:
    expected = by_path(txlog.Table(v2).scan(where=where).fragments())
    how(min((v2 / "_delta_log" / "_sidecars").iterdir()))
    predicate = as_expression(where)
    with moved(ALWAYS):
        with pytest.warns(txlog.TxlogWarning, match="damaged"):
            found = planned(v2, Workers(), where=predicate).fragments
        assert by_path(found) == expected
        for commit in (v2 / "_delta_log").glob("*.json"):
            if ".checkpoint." not in commit.name and int(commit.stem) < 4:
                commit.unlink()
        for classic in (v2 / "_delta_log").glob("*.checkpoint.parquet"):
            classic.unlink()
        with pytest.raises(txlog.LogCorruptError, match="sidecar"):
            _ = planned(v2, Workers(), where=predicate).fragments


class Failing(Workers):
    """Something happens to the file of one share before its worker reads it, the first time."""

    def __init__(self, share: int, fault: str, path: Path) -> None:
        super().__init__()
        self.share, self.fault, self.path = share, fault, path
        self.struck: str | None = None  # The path of the file.

    def map(self, function: Callable[[Any], Any], items: Iterable[Any]) -> Iterator[Any]:
        for number, item in enumerate(items):
            work = function
            if number == self.share and self.struck is None:
                self.struck = item.path
                if self.fault == "throttled":
                    refusals = [Fault(name, 1, "not_done") for name in ("open_input", "read")]
                    work = replace(function, store=FaultyStore(function.store, refusals))  # type: ignore[type-var]  # A dataclass.
                else:
                    {"missing": Path.unlink, "damaged": damage}[self.fault](self.path / item.path)
            yield from super().map(work, [item])


@pytest.mark.slow
@pytest.mark.spec("SPK-31")
@settings(max_examples=examples(60), deadline=None)
@given(
    before=st.lists(STEPS, min_size=1, max_size=4),
    after=st.lists(STEPS.filter(lambda step: step != "checkpoint"), max_size=2),
    kind=st.sampled_from(["classic", "parts", "v2"]),
    fault=st.sampled_from(["missing", "damaged", "throttled"]),
    share=st.integers(0, 5),
    is_cleaned=st.booleans(),
    where=PREDICATES,
)
def test_a_share_that_cannot_be_read_never_makes_a_part_the_whole(
    before: list[str], after: list[str], kind: str, fault: str, share: int, is_cleaned: bool,
    where: Any,
) -> None:  # fmt: skip
    small = {
        "txlog.checkpoint.write:_ROW_GROUP": 2,
        "txlog.checkpoint.sidecars:PART_ROWS": 3,
        "txlog.checkpoint.read:_SHARE_BYTES": 1,
    }
    with TemporaryDirectory() as root, moved(small):
        path, log = Path(root), Path(root, "_delta_log")
        policy = "v2" if kind == "v2" else "classic"
        make(path, [*before, "append", "checkpoint", *after], policy, True)
        if kind == "parts":
            in_parts(log, 3)
        newest = load_snapshot(open_store(root)).checkpoint[0].version
        for file in log.iterdir() if is_cleaned else ():  # As a clean-up of the log leaves it.
            if file.name[:20].isdecimal() and int(file.name[:20]) < newest:
                file.unlink()
        expected = by_path(planned(path, None, where=where).fragments)
        engine = Failing(share, fault, path)
        found: Any
        with moved(ALWAYS), warnings.catch_warnings(record=True) as said:
            warnings.simplefilter("always")
            try:
                found = by_path(planned(path, engine, where=where).fragments)
            except txlog.TxlogError as error:
                found = error
            if engine.struck is None or (fault != "throttled" and not is_cleaned):
                assert found == expected
                assert bool(said) is (engine.struck is not None)
            elif fault == "throttled":
                assert isinstance(found, txlog.StoreError)
                assert not said
                assert by_path(planned(path, engine, where=where).fragments) == expected
            else:
                assert isinstance(found, txlog.LogCorruptError)
                assert found.path == engine.struck


@pytest.mark.spec("SPK-31")
def test_a_checkpoint_that_is_replaced_while_workers_read_it(tmp_path: Path) -> None:
    """Row groups that were chosen in another file are never taken for those of this one."""
    with moved({"txlog.checkpoint.read:_SHARE_BYTES": 1} | ALWAYS):
        make(tmp_path, ["append"] * 4 + ["checkpoint"], "classic", True)
        (name,) = (tmp_path / "_delta_log").glob("*.checkpoint.parquet")
        rows = pq.read_table(name)
        pq.write_table(rows, name, row_group_size=5)
        other = tmp_path.with_name("other")
        pq.write_table(rows, other, row_group_size=2)

        class Replacing(Workers):
            def map(self, function: Callable[[Any], Any], items: Iterable[Any]) -> Iterator[Any]:
                shutil.copy(other, name)
                yield from super().map(function, items)

        expected = by_path(txlog.Table(tmp_path).scan(where="n > 0").fragments())
        engine = Replacing()
        found = planned(tmp_path, engine, where=as_expression("n > 0"))
        assert by_path(found.fragments) == expected
        layouts = {item.layout for item in engine.items}
        assert len(layouts) == 2  # That of the first attempt, and that of the second one.
