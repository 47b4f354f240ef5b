from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from txlog.base.errors import LogCorruptError, NotFoundError
from txlog.log.names import parse_name
from txlog.log.segment import choose_segment, rebuildable

UUID = "80a083e8-7026-4e79-81be-64bd76c43a11"


def files(*names: str):
    found = [parse_name(name) for name in names]
    assert None not in found
    return found


def commit(version: int) -> str:
    return f"{version:020d}.json"


def checkpoint(version: int) -> str:
    return f"{version:020d}.checkpoint.parquet"


@pytest.mark.parametrize(
    "name",
    [
        "_last_checkpoint",
        ".00000000000000000000.json.crc",
        "00000000000000000000.json.tmp",
        "0.json",
        "00000000000000000000.JSON",
        "000000000000000000000.json",
        "00000000000000000000.checkpoint.parquet.crc",
        "00000000000000000000.checkpoint.0000000002.0000000001.parquet",
        "00000000000000000000.checkpoint.0000000000.0000000001.parquet",
        "00000000000000000000.checkpoint.xyz.parquet",
        "00000000000000000005.00000000000000000005.compacted.json",
        "٠٠٠٠٠٠٠٠٠٠٠٠٠٠٠٠٠٠٠٠.json",
        "00000000000000000000.json\n",
    ],
)
def test_other_names_are_ignored(name: str) -> None:
    assert parse_name(name) is None


def test_names_are_read() -> None:
    part = parse_name("00000000000000000007.checkpoint.0000000001.0000000003.parquet")
    assert part is not None
    assert (part.kind, part.version, part.part, part.parts) == ("checkpoint", 7, 1, 3)
    v2 = parse_name(f"00000000000000000007.checkpoint.{UUID}.json")
    assert v2 is not None
    assert v2.uuid == UUID
    compaction = parse_name("00000000000000000002.00000000000000000005.compacted.json")
    assert compaction is not None
    assert (compaction.kind, compaction.version, compaction.end) == ("compaction", 2, 5)


def names(segment) -> list[str]:
    return [file.name for file in (*segment.checkpoint, *segment.deltas)]


def test_the_newest_checkpoint_and_the_commits_after_it() -> None:
    log = files(*map(commit, range(6)), checkpoint(2), checkpoint(4))
    assert names(choose_segment(log, version=None)) == [checkpoint(4), commit(5)]
    assert names(choose_segment(log, version=3)) == [checkpoint(2), commit(3)]
    assert names(choose_segment(log, version=1)) == [commit(0), commit(1)]


def test_an_incomplete_multi_part_checkpoint_is_passed_over() -> None:
    part = "00000000000000000002.checkpoint.000000000{}.0000000002.parquet"
    log = files(*map(commit, range(4)), part.format(1))
    assert choose_segment(log, version=None).checkpoint == ()
    log += files(part.format(2))
    assert names(choose_segment(log, version=None)) == [part.format(1), part.format(2), commit(3)]


def test_a_compaction_stands_for_its_commits() -> None:
    compaction = "00000000000000000001.00000000000000000003.compacted.json"
    log = files(commit(0), commit(3), commit(4), compaction)
    assert names(choose_segment(log, version=None)) == [commit(0), compaction, commit(4)]
    with pytest.raises(LogCorruptError, match="gap"):
        choose_segment(log, version=2)


def test_a_checkpoint_alone_is_enough() -> None:
    assert names(choose_segment(files(checkpoint(9)), version=None)) == [checkpoint(9)]


def test_damaged_checkpoints_can_be_left_out() -> None:
    log = files(*map(commit, range(3)), checkpoint(2))
    segment = choose_segment(log, version=None, unusable=[checkpoint(2)])
    assert names(segment) == [commit(0), commit(1), commit(2)]


def test_what_cannot_be_made_is_an_error() -> None:
    with pytest.raises(NotFoundError):
        choose_segment([], version=None)
    with pytest.raises(NotFoundError, match="latest is 1"):
        choose_segment(files(commit(0), commit(1)), version=2)
    with pytest.raises(LogCorruptError, match=commit(1)):
        choose_segment(files(commit(0), commit(2)), version=None)


@pytest.mark.parametrize(
    "left",
    [
        [commit(5), commit(6), checkpoint(5)],
        [checkpoint(5)],
        [*map(commit, range(3, 8)), checkpoint(5), checkpoint(7)],
    ],
    ids=["usual", "checkpoint-alone", "late-commits"],
)
def test_a_version_that_was_cleaned_up_is_not_damage(left: list[str]) -> None:
    with pytest.raises(
        NotFoundError, match=r"can reconstruct is 5: .*older versions were cleaned up"
    ):
        choose_segment(files(*left), version=4)


@pytest.mark.parametrize("version", [4, 5, 6])
def test_a_log_without_beginning_or_checkpoint_is_damaged(version: int) -> None:
    with pytest.raises(LogCorruptError, match=commit(0)):
        choose_segment(files(commit(5), commit(6)), version=version)


@pytest.mark.spec("REC-10")
def test_commits_count_where_a_compaction_is_not_needed() -> None:
    compaction = "00000000000000000001.00000000000000000003.compacted.json"
    log = files(*map(commit, range(5)), compaction)
    assert names(choose_segment(log, version=None)) == list(map(commit, range(5)))


def test_a_damaged_commit_is_stood_for_by_a_compaction() -> None:
    compaction = "00000000000000000001.00000000000000000003.compacted.json"
    log = files(*map(commit, range(5)), compaction)
    segment = choose_segment(log, version=None, unusable=[commit(2)])
    assert names(segment) == [commit(0), compaction, commit(4)]


@pytest.mark.spec("REC-10")
@pytest.mark.parametrize(
    "newest",
    [
        commit(3),
        checkpoint(3),
        f"{3:020d}.checkpoint.0000000001.0000000002.parquet",
        "00000000000000000001.00000000000000000003.compacted.json",
    ],
)
def test_a_damaged_file_shows_that_its_version_exists(newest: str) -> None:
    log = files(*map(commit, range(3)), newest)
    with pytest.raises(LogCorruptError, match=commit(3)):
        choose_segment(log, version=None, unusable=[newest])
    assert choose_segment(log, version=2, unusable=[newest]).version == 2


@given(
    st.sets(st.integers(0, 8)),
    st.sets(st.integers(0, 8)),
    st.sets(st.tuples(st.integers(0, 8), st.integers(0, 8)).filter(lambda p: p[0] < p[1])),
    st.none() | st.integers(0, 8),
)
def test_a_segment_covers_every_version_once(
    commits: set[int],
    checkpoints: set[int],
    compactions: set[tuple[int, int]],
    version: int | None,
) -> None:
    log = files(
        *map(commit, commits),
        *map(checkpoint, checkpoints),
        *(f"{a:020d}.{b:020d}.compacted.json" for a, b in compactions),
    )
    latest = max({*commits, *checkpoints, *(end for _, end in compactions)}, default=-1)
    target = latest if version is None else version
    base = max((c for c in checkpoints if c <= target), default=-1)
    reached = {base}  # The oracle: every version that steps lead to.
    for at in range(base, target):
        if at in reached:
            reached |= {at + 1} & commits
            reached |= {end for start, end in compactions if start == at + 1 and end <= target}
    possible = target in reached and bool(commits | checkpoints) and 0 <= target <= latest
    try:
        segment = choose_segment(log, version=version)
    except (NotFoundError, LogCorruptError):
        assert not possible
        return
    assert possible
    covered = [segment.checkpoint_version] if segment.checkpoint else []
    for file in segment.deltas:
        covered.extend(range(file.version, max(file.end, file.version) + 1))
    assert covered == list(range(covered[0], segment.version + 1))
    assert segment.version == target
    assert segment.checkpoint or covered[0] == 0
    if set(range(base + 1, target + 1)) <= commits:
        assert all(file.kind == "commit" for file in segment.deltas)


@given(
    names=st.lists(
        st.one_of(
            st.integers(0, 7).map(commit),
            st.integers(0, 7).map(checkpoint),
            st.tuples(st.integers(0, 6), st.integers(1, 4)).map(
                lambda pair: f"{pair[0]:020d}.{pair[0] + pair[1]:020d}.compacted.json"
            ),
        ),
        unique=True,
        max_size=14,
    )
)
def test_rebuildable_versions_are_those_that_have_a_segment(names: list[str]) -> None:
    listed = [file for name in names if (file := parse_name(name))]
    expected = []
    for version in range(12):
        with suppress(NotFoundError, LogCorruptError):
            choose_segment(listed, version=version)
            expected.append(version)
    assert rebuildable(listed) == expected
