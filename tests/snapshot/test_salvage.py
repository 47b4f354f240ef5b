"""A damaged commit or checkpoint takes no version with it that does not need it.

Every verb that needs only sound versions works beside it, and each remedy can be followed.
"""

import contextlib
import json
import re
import shutil
import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import deltalake
import pyarrow as pa
import pytest
from hypothesis import Phase, example, given, settings
from hypothesis import strategies as st

import txlog
from tests.examples import examples
from txlog.base.errors import LogCorruptError, StoreError, TxlogError, TxlogWarning
from txlog.extend import open_sound
from txlog.log.names import commit_name

LAST = 9
LAYOUTS: dict[str, tuple[int, ...]] = {"none": (), "early": (3,), "two": (3, 6), "newest": (LAST,)}


@dataclass(frozen=True)
class Made:
    """A table without damage, and the rows of each version."""

    path: Path
    checkpoints: tuple[int, ...]
    rows: list[list[int]] = field(repr=False)
    times: list[int] = field(repr=False)


def rows_of(table: txlog.Table) -> list[int]:
    return sorted(table.to_arrow(["x"])["x"].to_pylist())


def ids(*numbers: int) -> pa.Table:
    return pa.table({"x": pa.array(numbers, pa.int64())})


def make(path: Path, checkpoints: tuple[int, ...]) -> Made:
    properties = {
        "delta.checkpointInterval": "100",
        "delta.enableDeletionVectors": "true",
        "delta.enableInCommitTimestamps": "true",
    }
    table = txlog.write(path, ids(0, 1, 2), properties=properties)
    verbs: list[Callable[[int], Any]] = [
        lambda n: table.append(ids(n, n + 1)),
        lambda n: table.delete(f"x = {n - 10}"),
        lambda n: table.update({"x": "x + 1"}, f"x = {n - 10}"),
        lambda n: table.append(ids(n)),
        lambda n: table.overwrite(ids(n, n + 1, n + 2)),
    ]
    rows = [rows_of(table)]
    for version in range(1, LAST + 1):
        verbs[version % len(verbs)](10 * version)
        if table.version < version:
            table.append(ids(1000 + version))
        rows.append(rows_of(table))
        if version in checkpoints:
            table.maintenance.checkpoint()
    times = table.versions()["timestamp"].to_pylist()
    return Made(path, checkpoints, rows, times)


@pytest.fixture(scope="module")
def tables(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Made]:
    folder = tmp_path_factory.mktemp("sound")
    return {name: make(folder / name, versions) for name, versions in LAYOUTS.items()}


def twice(text: str) -> str:
    """Return a commit that names one of its files twice."""
    lines = text.splitlines()
    body = next((json.loads(line) for line in lines if line.startswith('{"add"')), None)
    if body is None:
        return text[:20]
    gone = {"remove": {"path": body["add"]["path"], "dataChange": True, "deletionTimestamp": 1}}
    if "deletionVector" in body["add"]:
        gone["remove"]["deletionVector"] = body["add"]["deletionVector"]
    sealed = [re.sub(r',?"txlogCrc32":"[0-9a-f]*"', "", line) for line in lines]
    return "\n".join([*sealed, json.dumps(gone)]) + "\n"


def without_paths(text: str) -> str:
    """Return a commit whose JSON is sound, but whose file actions lack a field."""
    sealed = re.sub(r',?"txlogCrc32":"[0-9a-f]*"', "", text)
    return sealed.replace('"path"', '"pfad"') if '"path"' in sealed else "{}"[:1]


KINDS: dict[str, Callable[[str], str | None]] = {
    "gone": lambda _: None,
    "empty": lambda _: "",
    "torn": lambda text: text[: len(text) // 2],
    "odd": lambda text: text.replace('"path"', '"pfad"').replace('"commitInfo"', '"commitInfo'),
    "twice": twice,
    "no path": without_paths,
}


@dataclass(frozen=True)
class Damaged:
    """A damaged copy of a table."""

    made: Made
    path: Path
    commits: frozenset[int]
    kinds: tuple[str, ...]
    lost_checkpoints: frozenset[int]

    def sound(self) -> list[int]:
        """Return the versions that need no damaged file: the oracle."""
        bases = [-1, *(at for at in self.made.checkpoints if at not in self.lost_checkpoints)]
        return [
            version
            for version in range(LAST + 1)
            if any(
                base <= version and self.commits.isdisjoint(range(base + 1, version + 1))
                for base in bases
            )
        ]


def damaged(
    made: Made, folder: Path, hits: dict[int, str], lost: frozenset[int],
    compacted: tuple[int, int] | None = None,
) -> Damaged:  # fmt: skip
    path = folder / "t"
    shutil.copytree(made.path, path)
    if compacted is not None:
        txlog.Table(path).maintenance.compact_log(*compacted)
    for version, kind in hits.items():
        file = path / "_delta_log" / commit_name(version)
        text = KINDS[kind](file.read_text())
        if text is None:
            file.unlink()
        else:
            file.write_text(text)
    for version in lost & set(made.checkpoints):
        file = path / "_delta_log" / f"{version:020d}.checkpoint.parquet"
        file.write_bytes(file.read_bytes()[:50])
    return Damaged(made, path, frozenset(hits), tuple(hits.values()), lost)


cases = st.tuples(
    st.sampled_from(sorted(LAYOUTS)),
    st.dictionaries(st.integers(0, LAST), st.sampled_from(sorted(KINDS)), max_size=2),
    st.frozensets(st.sampled_from([3, 6, LAST]), max_size=2),
)


def readers(version: int, other: int) -> Iterator[tuple[str, Callable[[txlog.Table], Any]]]:
    """Yield the verbs that need only the sound versions `version` and `other`."""
    yield "history", lambda table: len(table.history())
    yield "versions", lambda table: table.versions().num_rows
    yield "doctor", lambda table: table.doctor()
    yield "repair", lambda table: table.maintenance.repair()
    yield "blame", lambda table: table.blame().to_arrow()
    yield "diff", lambda table: table.diff(other, version).to_arrow()
    yield "files", lambda table: table.files().num_rows
    yield "partitions", lambda table: table.partitions().num_rows
    yield "capabilities", lambda table: table.capabilities()
    yield "at", lambda table: rows_of(table.at(other))
    yield "html", lambda table: table._repr_html_()


@pytest.mark.slow
@pytest.mark.spec("REC-11")
@given(case=cases)
@example(case=("none", {5: "torn"}, frozenset()))
@example(case=("two", {4: "torn"}, frozenset()))
@example(case=("two", {2: "empty", 8: "twice"}, frozenset({6})))
@example(case=("none", {LAST: "gone"}, frozenset()))
@settings(max_examples=examples(60), deadline=None, phases=[Phase.explicit, Phase.generate])
def test_verbs_that_need_only_sound_versions_work(tables: dict[str, Made], case: Any) -> None:
    name, hits, lost = case
    with TemporaryDirectory() as folder, warnings.catch_warnings():
        warnings.simplefilter("ignore", TxlogWarning)
        held_to(damaged(tables[name], Path(folder), hits, lost))


def held_to(case: Damaged) -> None:
    sound = case.sound()
    for version in sound:
        assert rows_of(txlog.Table(case.path, version=version)) == case.made.rows[version]
    if not sound:
        return
    last = sound[-1]
    if LAST in sound:
        assert rows_of(txlog.Table(case.path)) == case.made.rows[LAST]
    for version, other in {(last, sound[0]), (sound[0], sound[0])}:
        for name, verb in readers(version, other):
            try:
                verb(txlog.Table(case.path, version=version))
            except TxlogError as error:
                raise AssertionError((name, version, other)) from error
    if LAST not in sound and ("gone" not in case.kinds or LAST not in case.commits):
        follow(case, last)


@pytest.mark.slow
@pytest.mark.spec("REC-11")
@given(case=cases, compacted=st.booleans())
@example(case=("two", {4: "torn"}, frozenset()), compacted=False)
@example(case=("two", {4: "no path"}, frozenset({6})), compacted=False)
@example(case=("two", {5: "twice"}, frozenset()), compacted=False)
@example(case=("none", {8: "twice"}, frozenset()), compacted=False)
@example(case=("early", {1: "gone"}, frozenset()), compacted=True)
@settings(max_examples=examples(60), deadline=None, phases=[Phase.explicit, Phase.generate])
def test_the_versions_that_are_listed_are_those_that_open(
    tables: dict[str, Made], case: Any, compacted: bool
) -> None:
    """The oracle opens each version and reads its rows."""
    name, hits, lost = case
    with TemporaryDirectory() as folder:
        found = damaged(tables[name], Path(folder), hits, lost, (1, 5) if compacted else None)
        opening = []
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", TxlogWarning)
            for version in range(LAST + 1):
                with contextlib.suppress(TxlogError):
                    txlog.Table(found.path, version=version).to_arrow()
                    opening.append(version)
            if not opening:
                return
            table = txlog.Table(found.path, version=opening[-1])
        with warnings.catch_warnings(record=True) as seen:
            warnings.simplefilter("always")
            listed = table.versions()["version"].to_pylist()
        assert listed == opening
        lacking = {*range(opening[-1] + 1)} - {*opening}
        shown = {
            version
            for one in seen
            for first, last in re.findall(
                r"(\d+)(?: to (\d+))?[, ]", str(one.message).split("(")[0]
            )
            for version in range(int(first), int(last or first) + 1)
            if "cannot be opened" in str(one.message)
        }
        gone = {version for version, kind in hits.items() if kind == "gone"}
        assert shown <= lacking
        if not gone:
            assert shown == lacking
            if lacking:
                assert any(commit_name(version) in str(seen[-1].message) for version in hits)


def follow(case: Damaged, last: int) -> None:
    """Do what the errors say: restore the newest version that opens."""
    try:
        found = rows_of(txlog.Table(case.path))
    except LogCorruptError as error:
        remedy = error.remedy
    else:  # Later commits name the files that were in doubt.
        assert "twice" in case.kinds
        assert found == case.made.rows[LAST]
        return
    named = re.search(r"restore\((\d+)\)", remedy)
    assert named, remedy
    version = int(named[1])
    table, cause = open_sound(str(case.path))
    assert (cause is None) == ("twice" in case.kinds and table.version == LAST)
    findings = [one for one in table.doctor() if one.severity == "error"]
    assert findings
    assert all("restore(" in one.remedy for one in findings)
    outcome = table.restore(version)
    assert outcome.version is not None
    assert outcome.version >= LAST
    again = txlog.Table(case.path)
    assert (again.version, rows_of(again)) == (outcome.version, case.made.rows[version])
    again.append(ids(5))
    assert rows_of(txlog.Table(case.path)) == sorted([*case.made.rows[version], 5])
    theirs = deltalake.DeltaTable(case.path).version()
    assert theirs == again.version
    assert not [one for one in again.doctor() if one.severity == "error"]


@pytest.mark.slow
@pytest.mark.spec("REC-5", "REC-11")
def test_a_later_commit_ends_the_doubt(tables: dict[str, Made], tmp_path: Path) -> None:
    """Version 5 names a file twice, and version 6 names it again."""
    case = damaged(tables["two"], tmp_path, {5: "twice"}, frozenset())
    with pytest.raises(LogCorruptError, match="names the same file twice"):
        txlog.Table(case.path, version=5).count()
    for version in (4, 6, LAST):
        assert rows_of(txlog.Table(case.path, version=version)) == case.made.rows[version]
    for file in (case.path / "_delta_log").glob("*checkpoint*"):
        file.unlink()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert rows_of(txlog.Table(case.path)) == case.made.rows[LAST]


@pytest.fixture(scope="module")
def listed(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """Return a table with a column file, and one with deletions in Lance's form: version 2."""
    found = {}
    for form in ("delta", "lance"):
        path = found[form] = tmp_path_factory.mktemp("listed") / form
        properties = {"txlog.deletionFormat": form, "delta.feature.txlog.fragments": "supported"}
        table = txlog.write(path, ids(1, 2, 3), properties=properties)
        table.append(ids(4, 5))
        if form == "lance":
            table.delete("x = 2")
        else:
            table.alter.add_columns({"y": "x + 1"})
    return found


def with_protocols(path: Path, lists: list[bool]) -> None:
    """Commit protocols with or without the feature `txlog.fragments`, as another writer would."""
    for version, is_listed in enumerate(lists, txlog.Table(path).version + 1):
        features = ["deletionVectors", *(["txlog.fragments"] if is_listed else [])]
        names = {"readerFeatures": features, "writerFeatures": features}
        action = {"protocol": {"minReaderVersion": 3, "minWriterVersion": 7, **names}}
        (path / "_delta_log" / commit_name(version)).write_text(json.dumps(action) + "\n")


def without_highest_ids(path: Path) -> None:
    """Remove the record of the highest fragment id, which another writer would not have made."""
    for file in (path / "_delta_log").glob("*.json"):
        text = re.sub(r',?"txlogCrc32":"[0-9a-f]*"', "", file.read_text())
        lines = text.splitlines(keepends=True)
        file.write_text("".join(line for line in lines if not line.startswith('{"txn"')))


@pytest.mark.slow
@pytest.mark.spec("REC-11", "FRG-13", "FRG-14", "FRG-19")
@given(
    form=st.sampled_from(["delta", "lance"]),
    lists=st.lists(st.booleans(), max_size=12),
    checkpoint=st.booleans(),
    recorded=st.booleans(),
)
@example(form="delta", lists=[True] * 4 + [False] * 6, checkpoint=False, recorded=True)
@example(form="delta", lists=[False, True, False], checkpoint=True, recorded=False)
@example(form="lance", lists=[], checkpoint=False, recorded=False)
@settings(max_examples=examples(20), deadline=None, phases=[Phase.explicit, Phase.generate])
def test_files_that_need_a_feature_which_the_protocol_lacks(
    listed: dict[str, Path], form: str, lists: list[bool], checkpoint: bool, recorded: bool
) -> None:
    with TemporaryDirectory() as folder:
        path = Path(folder) / "t"
        shutil.copytree(listed[form], path)
        rows = txlog.Table(path).to_arrow().sort_by("x")
        if not recorded:
            without_highest_ids(path)
        if checkpoint:
            txlog.Table(path).maintenance.checkpoint()
        with_protocols(path, [*lists, False])
        table = txlog.Table(path)
        opens = [version for version, is_listed in enumerate([True] * 3 + lists) if is_listed]
        with pytest.raises(LogCorruptError, match="does not list it") as caught:
            table.to_arrow()
        assert 'alter.add_features("txlog.fragments")' in caught.value.remedy
        (named,) = map(int, re.findall(r"Version (\d+) opens", caught.value.remedy))
        assert named in opens
        if opens == list(range(len(opens))):  # Else another one may be newer.
            assert named == opens[-1]
        (repair,) = table.maintenance.repair(dry_run=False).to_pylist()
        assert f"Table.restore({named})" in repair["reason"]
        assert (repair["action"], repair["decision"]) == ("restore version", "skip")
        mended = shutil.copytree(path, Path(folder) / "mended")
        txlog.Table(path).restore(named)
        txlog.Table(mended).alter.add_features("txlog.fragments")
        txlog.Table(mended).append(rows.slice(0, 1))
        for each, more in ((path, 0), (mended, 1)):
            assert txlog.Table(each).to_arrow().num_rows == rows.num_rows + more
            ids_of = [one.id for one in txlog.Table(each).fragments()]
            assert len(set(ids_of)) == len(ids_of)
            assert [one for one in txlog.Table(each).doctor() if one.severity == "error"] == []
        assert txlog.Table(mended).to_arrow().sort_by("x").slice(1) == rows


@pytest.mark.spec("REC-10")
def test_a_damaged_commit_makes_no_checkpoint_suspicious(
    tables: dict[str, Made], tmp_path: Path
) -> None:
    case = damaged(tables["two"], tmp_path, {8: "twice"}, frozenset())
    table = txlog.Table(case.path, version=8)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        with pytest.raises(LogCorruptError, match=r"Version 7 opens, and its restore\(7\)"):
            table.count()


def test_pins_and_times_find_older_versions(tables: dict[str, Made], tmp_path: Path) -> None:
    made = tables["none"]
    case = damaged(made, tmp_path, {}, frozenset())
    txlog.Table(case.path).pins.create("good", 4)
    file = case.path / "_delta_log" / commit_name(7)
    file.write_text(file.read_text()[:30])
    with pytest.raises(LogCorruptError, match="Version 6 opens"):
        txlog.Table(case.path)
    assert txlog.Table(case.path, version="good").version == 4
    assert txlog.Table(case.path, timestamp=made.times[5]).version == 5
    table, cause = open_sound(str(case.path))
    assert table.version == 6
    assert "Version 6 opens" in str(cause)
    assert table.restore("good").version == LAST + 2  # The pin made a version, too.
    assert rows_of(txlog.Table(case.path)) == made.rows[4]


def test_commits_that_are_damaged_below_a_checkpoint(
    tables: dict[str, Made], tmp_path: Path
) -> None:
    case = damaged(tables["two"], tmp_path, {5: "torn"}, frozenset())
    table = txlog.Table(case.path)
    entry = table.history()[LAST - 5]
    assert sorted(entry) == ["damage", "timestamp", "version"]
    assert "JSON" in entry["damage"]
    assert table.history().to_arrow()["damage"].null_count == LAST
    with pytest.warns(TxlogWarning, match=r"05\.json is damaged and skipped"):
        blamed = table.at(8).blame().to_arrow()
    versions = dict(
        zip(blamed["x"].to_pylist(), blamed["_commit_version"].to_pylist(), strict=True)
    )
    assert (versions[40], versions[51], versions[1007]) == (4, None, 7)
    with pytest.warns(TxlogWarning, match=r"05\.json is damaged and skipped"):
        changed = table.diff(4, 7).to_arrow()
    assert sorted(changed["x"].to_pylist()) == [51, 1007]


def test_the_remedy_of_a_damaged_commit_below_a_checkpoint(
    tables: dict[str, Made], tmp_path: Path
) -> None:
    case = damaged(tables["early"], tmp_path, {2: "torn"}, frozenset())
    table = txlog.Table(case.path)
    (finding,) = [one for one in table.doctor() if one.code == "commit-damaged"]
    assert "maintenance.checkpoint(), then maintenance.expire(0, dry_run=False)" in finding.remedy
    table.maintenance.checkpoint()
    table.maintenance.expire(0, dry_run=False)
    again = txlog.Table(case.path)
    assert not [one for one in again.doctor() if one.code == "commit-damaged"]
    assert rows_of(again) == case.made.rows[LAST]


def test_doctor_finds_a_file_action_without_a_path_below_a_checkpoint(
    tables: dict[str, Made], tmp_path: Path
) -> None:
    case = damaged(tables["two"], tmp_path, {5: "no path"}, frozenset())
    (finding,) = [one for one in txlog.Table(case.path).doctor() if one.severity == "warning"]
    assert (finding.code, finding.path) == ("commit-damaged", f"_delta_log/{commit_name(5)}")


def test_where_no_version_is_left(tables: dict[str, Made], tmp_path: Path) -> None:
    case = damaged(tables["none"], tmp_path, {0: "torn"}, frozenset())
    with pytest.raises(LogCorruptError, match="JSON") as caught:
        open_sound(str(case.path))
    assert "opens" not in caught.value.remedy.replace("may still open", "")


def test_a_restore_whose_checkpoint_fails_can_be_repeated(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "t"
    table = txlog.write(path, ids(0))
    for number in range(1, 4):
        table.append(ids(number))
    (path / "_delta_log" / commit_name(2)).write_text("{")
    opened, _ = open_sound(str(path))

    def failing(_self: Any) -> int:
        raise StoreError(path="_last_checkpoint", operation="put", reason="the disk is full")

    with monkeypatch.context() as patch:
        patch.setattr("txlog.table.maintenance.TableMaintenance.checkpoint", failing)
        with pytest.warns(TxlogWarning, match=r"version 4 is committed.*full.*restore it again"):
            assert opened.restore(1).version == 4
    with pytest.raises(LogCorruptError):
        txlog.Table(path)
    opened, _ = open_sound(str(path))
    assert opened.restore(1).version == 5
    assert rows_of(txlog.Table(path)) == [0, 1]
