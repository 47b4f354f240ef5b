"""Values of blob columns are read lazily, in ranges, and never wrongly."""

import io
import pickle
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import txlog
from tests.examples import examples
from txlog.extend import context_of
from txlog.fragments.packs import HEAD_BYTES
from txlog.scan.blobs import Packs, blobs_of

VALUE = bytes(range(256)) * 5


def made(root: Path, values: list[bytes | None], above: int = 10) -> txlog.Table:
    table = txlog.Table.create(root, pa.schema([txlog.blob("b", above=above)]))
    table.append(pa.table({"b": pa.array(values, pa.binary())}))
    return table


def the_pack(table: txlog.Table) -> Path:
    (pack,) = Path(table.uri).glob("_blobs/*")
    return pack


@pytest.mark.spec("BLB-10")
@settings(max_examples=examples(40), deadline=None)
@given(data=st.data())
def test_a_file_of_a_value_is_like_one_of_its_bytes(
    data: st.DataObject, shared: txlog.Table
) -> None:
    steps = st.one_of(
        st.tuples(st.just("read"), st.integers(-1, 1500)),
        st.tuples(st.just("seek"), st.integers(0, 1500)),
        st.tuples(st.just("tell"), st.none()),
    )
    ours = shared.blobs(shared.to_arrow()["b"])[0]
    assert ours is not None
    with ours.open() as one, io.BytesIO(VALUE) as other:
        for name, argument in data.draw(st.lists(steps, max_size=8)):
            given_ = () if argument is None else (argument,)
            assert getattr(one, name)(*given_) == getattr(other, name)(*given_)
    offset, length = data.draw(st.integers(0, 1400)), data.draw(st.integers(0, 1400))
    assert ours.read_range(offset, length) == VALUE[offset : offset + length]


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> txlog.Table:
    return made(tmp_path_factory.mktemp("blobs") / "t", [VALUE, b"in row", None, b""])


def test_small_values_and_nulls(shared: txlog.Table) -> None:
    column = shared.to_arrow()["b"]
    for values in (column, column.combine_chunks(), column.to_pylist()):
        large, small, null, empty = shared.blobs(values)
        assert null is None
        assert large is not None
        assert small is not None
        assert empty is not None
        assert (large.read(), small.read(), empty.read()) == (VALUE, b"in row", b"")
        assert (large.size, small.size, empty.size) == (len(VALUE), 6, 0)
        assert small.read_range(3, 9) == b"row"
        assert small.open().read() == b"in row"


def test_a_value_pickles_without_its_bytes(shared: txlog.Table) -> None:
    blob = shared.blobs(shared.to_arrow()["b"])[0]
    sent = pickle.dumps(blob)
    assert VALUE not in sent
    assert pickle.loads(sent).read() == VALUE


def test_only_the_asked_bytes_are_read(
    shared: txlog.Table, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[tuple[int, int]] = []
    real = Packs._read

    def counted(self: Packs, place: str, start: int, end: int, whole: str) -> bytes:
        asked.append((start, end))
        return real(self, place, start, end, whole)

    monkeypatch.setattr(Packs, "_read", counted)
    column = shared.to_arrow()["b"]
    blob = shared.blobs(column)[0]
    assert asked == []
    assert blob is not None
    assert blob.read_range(100, 10) == VALUE[100:110]
    assert blob.read_range(200, 10) == VALUE[200:210]
    head = HEAD_BYTES
    assert asked == [(0, head), (head + 100, head + 110), (head + 200, head + 210)]


def damaged(change: str, table: txlog.Table) -> Any:
    """Damage the pack or the struct, and return the struct."""
    (struct, *_) = table.to_arrow()["b"].to_pylist()
    pack = the_pack(table)
    data = bytearray(pack.read_bytes())
    if change == "missing":
        pack.unlink()
    elif change == "short":
        pack.write_bytes(data[:-1])
    elif change == "empty":
        pack.write_bytes(b"")
    elif change == "byte":
        data[-1] ^= 1
        pack.write_bytes(data)
    elif change == "head":
        data[5] ^= 1
        pack.write_bytes(data)
    elif change == "magic":
        data[0] ^= 1
        pack.write_bytes(data)
    else:
        name, by = change.split(" ")
        struct[name] += int(by)
    return struct


@pytest.mark.spec("BLB-10")
@pytest.mark.parametrize(
    "change",
    ["missing", "short", "empty", "byte", "head", "magic", "size 1", "size -1", "offset 1",
     "offset -1", "offset -16", "offset 4000000000"],
)  # fmt: skip
@pytest.mark.parametrize("how", ["read", "range", "open"])
def test_damage_is_an_error_and_never_other_bytes(change: str, how: str, tmp_path: Path) -> None:
    table = made(tmp_path / "t", [VALUE])
    (blob,) = table.blobs([damaged(change, table)])
    assert blob is not None
    read = {"read": blob.read, "range": lambda: blob.read_range(0, blob.size),
            "open": lambda: blob.open().read()}[how]  # fmt: skip
    if change in ("byte", "head") and how != "read":  # A range has no checksum.
        assert len(read()) == len(VALUE)
        return
    with pytest.raises(txlog.DataFileError) as caught:
        read()
    error = caught.value
    assert error.table == table.uri
    assert "_blobs/" in error.path
    assert "bytes 0 to" in error.reason
    assert pickle.loads(pickle.dumps(error)).reason == error.reason


@pytest.mark.parametrize(
    "values",
    [1, "text", [1], [{"data": None}], [{"path": "x", "offset": 1, "size": 2, "data": None}],
     [{"path": "_blobs/x.blobs", "offset": -1, "size": 2, "data": None}],
     pa.array([1, 2]), pa.array([{"path": "a"}])],
)  # fmt: skip
def test_what_is_no_blob_is_refused(values: Any, shared: txlog.Table) -> None:
    with pytest.raises(txlog.InvalidInputError):
        shared.blobs(values)


def test_a_path_leads_nowhere_else(tmp_path: Path) -> None:
    """Only the name in a path counts, so a struct cannot name files of others."""
    table = made(tmp_path / "t", [VALUE])
    secret = tmp_path / "secret.blobs"
    secret.write_bytes(the_pack(table).read_bytes())
    struct = {**table.to_arrow()["b"].to_pylist()[0], "path": str(secret)}
    (blob,) = table.blobs([struct])
    assert blob is not None
    with pytest.raises(txlog.DataFileError, match="does not exist"):
        blob.read()


@pytest.mark.spec("BLB-9")
def test_a_clone_finds_packs_of_its_source_in_other_processes(tmp_path: Path) -> None:
    table = made(tmp_path / "t", [VALUE])
    clone = table.clone(tmp_path / "c", shallow=True)
    column = clone.to_arrow()["b"]
    packs = Packs(context_of(clone).store, clone.snapshot).settle()
    (blob,) = pickle.loads(pickle.dumps(blobs_of(packs, column)))
    assert blob.read() == VALUE


def test_columns_of_other_libraries_and_single_values(shared: txlog.Table) -> None:
    column = shared.to_arrow()["b"]
    whole = [VALUE, b"in row", None, b""]
    for values in (shared.to_pandas()["b"], shared.to_polars()["b"]):
        assert [blob and blob.read() for blob in shared.blobs(values)] == whole
    struct = column[0].as_py()
    floats = {**struct, "offset": float(struct["offset"]), "size": float(struct["size"])}
    for one in (struct, floats):
        (blob,) = shared.blobs(one)
        assert blob is not None
        assert blob.read() == VALUE
    for wrong in (1.5, -1.0, float("nan"), True, "3"):
        with pytest.raises(txlog.InvalidInputError):
            shared.blobs([{**struct, "size": wrong}])
