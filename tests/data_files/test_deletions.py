"""The actions of files that are live in a version, beside models that are validated one by one."""

from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from tests.moved import moved
from txlog.actions.file import Add, DeletionVectorDescriptor, Remove
from txlog.actions.ndjson import decode, encode
from txlog.commit.intent import Intent, encode_commit
from txlog.data_files.deletions import adds_of, removes_of
from txlog.log.names import LogFile
from txlog.snapshot.commits import file_rows, parse_commit

NAMES = st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=6)
MAPS = st.dictionaries(NAMES, st.none() | NAMES, max_size=3)
LONGS = st.integers(0, 2**63 - 1)
VECTORS = st.builds(
    DeletionVectorDescriptor,
    storage_type=st.just("u"),
    path_or_inline_dv=st.just("vBn[lx{q8@P<9BNH/isA"),
    offset=st.none() | st.integers(0, 100),
    size_in_bytes=st.integers(1, 100),
    cardinality=st.integers(0, 100),
)


@st.composite
def adds(draw: st.DrawFn) -> list[Add]:
    paths = draw(st.lists(st.from_regex(r"[a-z0-9]{1,8}", fullmatch=True), min_size=1, unique=True))
    return [
        Add(
            path=path,
            partition_values=draw(MAPS),
            size=draw(LONGS),
            modification_time=draw(LONGS),
            data_change=draw(st.booleans()),
            stats=draw(st.sampled_from([None, '{"numRecords":3}'])),
            tags=draw(st.none() | MAPS),
            deletion_vector=draw(st.none() | VECTORS),
            base_row_id=draw(st.none() | LONGS),
            default_row_commit_version=draw(st.none() | LONGS),
            clustering_provider=draw(st.none() | NAMES),
        )
        for path in paths
    ]


def removed(add: Add, now_ms: int, data_change: bool) -> Remove:
    shared: dict[str, Any] = {
        name: value
        for name, value in add.model_dump().items()
        if name in Remove.model_fields and name != "stats"
    }
    stated = {"deletion_timestamp": now_ms, "data_change": data_change}
    return Remove.model_validate({**shared, **stated, "extended_file_metadata": True})


@given(files=adds(), now_ms=LONGS, data_change=st.booleans(), at_once=st.sampled_from([1, 2, 1024]))
def test_files_become_actions(
    files: list[Add], now_ms: int, data_change: bool, at_once: int
) -> None:
    name = "00000000000000000000.json"
    commit = parse_commit(encode(files), LogFile(name, "commit", 0))
    rows = file_rows([commit])
    with moved({"txlog.data_files.deletions:_ROWS_AT_ONCE": at_once}):
        removes = removes_of(rows, now_ms, data_change=data_change)
        assert adds_of(rows) == files
    assert removes == [removed(add, now_ms, data_change) for add in files]
    assert decode(encode(removes), path=name) == removes
    removes[0].model_copy(update={"stats": "{}"})
    assert "stats" not in removes[-1].model_fields_set  # All of them share the set.


def test_a_commit_of_many_actions_has_the_same_text() -> None:
    files = tuple(
        Add(path=f"{n}", partition_values={}, size=n, modification_time=n, data_change=True)
        for n in range(70)
    )
    intent = Intent("WRITE", 3, "append", adds=files)
    found = []
    for few in (1, 1000):
        with moved({"txlog.snapshot.commits:FEW_FILES": few}):
            found.append(
                encode_commit(intent, highest_id=4, timestamp_ms=5, stamped=False, txn_id="me")
            )
    many, listed = found
    assert many.data == listed.data
    assert many.rows is None
    parsed = parse_commit(many.data, LogFile("00000000000000000004.json", "commit", 4))
    assert list(parsed.rows) == listed.rows
