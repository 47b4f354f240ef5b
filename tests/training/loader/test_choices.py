"""Weights, functions that choose rows, parts, patterns and epochs of a loader."""

from __future__ import annotations

import pickle
from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import txlog
from tests.examples import examples
from tests.training.loader.plain_loader import batches_of, epoch_of, weighted
from tests.training.loader.test_loader import (
    SHUFFLES,
    blocks,
    ids_of,
    made,
    plain_shuffle,
    table,
    tables,
)
from txlog.base.errors import InvalidInputError, InvalidTypeError
from txlog.testing import CountingStore, LatencyStore, open_store, open_table
from txlog.training import ClassWeights, Loader, RowFunction, Shuffle, class_weights, split_where
from txlog.training.loader.weights import weights_of

_ = table  # A fixture.


def odd(rows: pa.RecordBatch) -> Any:
    return pc.not_equal(pc.bit_wise_and(rows["id"], 1), 0)


def tens(rows: pa.RecordBatch) -> list[float]:
    return [id % 10 / 4 for id in rows["id"].to_pylist()]


@pytest.mark.slow
@pytest.mark.spec("LDR-12", "LDR-13", "LDR-14")
@given(st.data())
@settings(max_examples=examples(40))
def test_rows_are_those_of_the_plain_order(data: st.DataObject) -> None:
    """With weights, functions, both or neither, any number of ranks sees the plain order."""
    table = data.draw(tables())
    shuffle = data.draw(SHUFFLES)
    where = data.draw(st.sampled_from([None, "id % 3 <> 1", "p = 1"]))
    keep = data.draw(st.sampled_from([None, RowFunction(["id"], odd)]))
    weights = data.draw(st.sampled_from([None, "x", "id", RowFunction(["id", "p"], tens)]))
    if weights == "x" and "x" not in table.scan().schema.names:
        weights = "z"
    ranks, batch_size = data.draw(st.integers(1, 4)), data.draw(st.integers(1, 9))
    epoch = data.draw(st.integers(0, 9))
    kept = where if keep is None else " AND ".join(filter(None, [where, "id % 2 = 1"]))
    plain = blocks(table, (shuffle and shuffle.block_rows) or 5, kept)
    of = {
        None: lambda _: 1.0, "x": lambda id: id / 2, "z": lambda id: id / 2, "id": float
    }.get(weights if isinstance(weights, str) else None, lambda _: 1.0)  # fmt: skip
    if isinstance(weights, RowFunction):
        of = lambda id: id % 10 / 4  # noqa: E731 # One of several functions.
    known = {id: of(id) for block in plain for id in block}
    if weights is not None and known and not any(known.values()):
        with pytest.raises(InvalidInputError, match="the weights of all rows are 0"):
            Loader(table, batch_size=1, where=where, keep=keep, weights=weights)
        return
    if weights is not None and known:
        plain = weighted(plain, known, shuffle and shuffle.seed, epoch)
    rows = epoch_of(plain, plain_shuffle(shuffle), epoch)
    stop = data.draw(st.integers(0, 1 + len(rows) // (batch_size * ranks)))

    def loader(rank: int, ranks: int) -> Loader:
        made = Loader(
            table, batch_size=batch_size, where=where, shuffle=shuffle, even="short",
            keep=keep, weights=weights, rank=rank, world_size=ranks, columns=["id"],
            threads=data.draw(st.integers(0, 2)),
        )  # fmt: skip
        made.set_epoch(epoch)
        return made

    for rank in range(ranks):
        one = loader(rank, ranks)
        assert one.num_rows == len(rows)
        wanted = batches_of(rows, batch_size, rank, ranks, "short")
        batches = iter(one)
        assert [b["id"].tolist() for b, _ in zip(batches, range(stop), strict=False)] == wanted[
            :stop
        ]
        state = one.state_dict()
        if state["epoch"] == epoch:
            other = loader(0, 1)
            other.load_state_dict(state)
            rest = batches_of(rows, batch_size, 0, 1, "short", state["position"])
            assert ids_of(other) == rest


@pytest.mark.spec("LDR-13")
@given(
    st.lists(st.floats(0, 1e9) | st.sampled_from([0.0, 1.0, 1e-300, 1e300]), min_size=1).filter(
        any
    ),
    st.integers(1, 7),
    st.integers(0, 2**64 - 1),
    st.integers(1, 40),
)
@settings(max_examples=examples(200))
def test_a_row_comes_as_often_as_its_weight_says(
    values: list[float], size: int, seed: int, epochs: int
) -> None:
    """Each epoch has all N rows; after E of them a row with the share w came about E·w times."""
    counts = np.array([len(values[at : at + size]) for at in range(0, len(values), size)])
    weights = weights_of(np.array(values), counts, seed)
    total = np.zeros(len(values), np.int64)
    for epoch in range(epochs):
        times = [weights.times(block, epoch) for block in range(len(counts))]
        assert [int(some.sum()) for some in times] == weights.counts(epoch).tolist()
        together = np.concatenate(times)
        assert int(together.sum()) == len(values)
        total += together
        share = weights.units / 2.0**weights.bits
        assert (together >= np.floor(share)).all()
        assert (together <= np.ceil(share)).all()
    # The offsets are a golden section apart: their discrepancy grows with the logarithm.
    assert (abs(total - epochs * share) <= 2 + np.log2(epochs)).all()
    exact = np.array(values) / max(values)
    assert np.allclose(share, exact / exact.sum() * len(values), atol=1e-6)


def test_classes_come_equally_often(tmp_path: Path) -> None:
    labels = ["common"] * 900 + ["rare"] * 90 + [None] * 10
    table = txlog.write(str(tmp_path), pa.table({"id": range(1000), "label": labels}))
    weights = class_weights(table, "label")
    assert weights.column == "label"
    assert weights.weights == pytest.approx({"common": 10 / 27, "rare": 100 / 27, None: 100 / 3})
    loader = Loader(
        table, batch_size=100, columns=["id", "label"], weights=weights, fill={"label": "none"}
    )
    for _ in range(3):
        found = [text for batch in loader for text in batch["label"].tolist()]
        for label in ("common", "rare", "none"):
            assert abs(found.count(label) - 1000 / 3) < 10
    assert class_weights(table, "label", "id < 900") == ClassWeights("label", {"common": 1.0})
    with pytest.raises(InvalidInputError, match="no row has it") as raised:
        class_weights(table, "label", "id < 0")
    assert raised.value.argument == "where"
    with pytest.raises(InvalidInputError, match=r"its value 'rare' has no weight") as raised:
        Loader(table, batch_size=1, weights=ClassWeights("label", {"common": 1.0, None: 2.0}))


def test_classes_of_numbers_are_those_that_compare_as_equal(tmp_path: Path) -> None:
    nan = float("nan")
    table = txlog.write(str(tmp_path), pa.table({"x": [0.0, -0.0, nan, 1.0]}))
    table.append(pa.table({"x": [nan, 1.0]}))
    weights = class_weights(table, "x")
    assert list(weights.weights.values()) == [1.0, 1.0, 1.0]
    assert Loader(table, batch_size=1, weights=weights).num_rows == 6
    nested = txlog.write(str(tmp_path / "n"), pa.table({"l": [[1]]}))
    with pytest.raises(InvalidInputError, match="has no classes") as raised:
        class_weights(nested, "l")
    assert raised.value.argument == "column"


def test_an_endless_loader_has_batches_on_each_rank(table: txlog.Table) -> None:
    with pytest.raises(InvalidInputError, match="some ranks might end") as raised:
        made(table, epochs=None, even="short", rank=0, world_size=2)
    assert raised.value.argument == "even"
    with pytest.raises(InvalidInputError, match="an epoch of 200 rows has no batch") as raised:
        next(iter(made(table, epochs=None, batch_size=201)))
    assert raised.value.argument == "epochs"
    assert made(table, epochs=None)


@pytest.mark.spec("LDR-14")
def test_a_state_belongs_to_its_weights_and_function(table: txlog.Table) -> None:
    state = made(table, weights="id").state_at(2)
    made(table, weights=RowFunction(["id"], lambda rows: rows["id"])).load_state_dict(state)
    for other in (
        made(table),
        made(table, weights=RowFunction(["id"], tens)),
        made(table, weights="id", keep=RowFunction(["id"], odd)),
    ):
        with pytest.raises(InvalidInputError, match="it is of another order") as raised:
            other.load_state_dict(state)
        assert raised.value.argument == "state"


@pytest.mark.parametrize(
    ("arguments", "argument", "reason"),
    [
        ({"weights": "y"}, "weights", "y"),
        ({"weights": 3}, "weights", "int was not expected"),
        ({"weights": "s"}, "weights", "the weights are no numbers, in fragment 0"),
        ({"weights": "n"}, "weights", r"the weight -1.0 was found, at position 1 of fragment 0"),
        ({"weights": RowFunction(["id"], len)}, "weights", r"values of the shape \(\) for 4 rows"),
        ({"keep": RowFunction(["id"], lambda rows: rows["id"])}, "keep", "of the type int64"),
        ({"keep": odd}, "keep", "function was not expected"),
        ({"columns": ["q*"]}, "columns", "no column has a name like this"),
        ({"split": {"a": 1}}, "part", "split, part and key are given together"),
        ({"key": "id"}, "split", "split, part and key are given together"),
        ({"split": {"a": 0.5}, "part": "a", "key": "id"}, "split", "their sum is 0.5"),
        ({"split": {"a": 1}, "part": "b", "key": "id"}, "part", "there is no part 'b'"),
        ({"split": {"a": 1}, "part": "a", "key": "nope"}, "key", "nope"),
        ({"epochs": 0}, "epochs", "a whole number from 1 was expected, not 0"),
    ],
)  # fmt: skip
def test_wrong_arguments(
    tmp_path: Path, arguments: dict[str, Any], argument: str, reason: str
) -> None:
    data = {"id": range(4), "s": ["a"] * 4, "n": [1, -1, 2, None]}
    table = txlog.write(str(tmp_path), pa.table(data))
    with pytest.raises(InvalidInputError, match=reason) as raised:
        Loader(table, batch_size=2, **{"columns": ["id"], **arguments})
    assert raised.value.argument == argument
    wrong_type = argument in ("weights", "keep") and "was not expected" in reason
    assert isinstance(raised.value, InvalidTypeError) == wrong_type


def test_parts_of_a_split(table: txlog.Table) -> None:
    split = {"train": 0.7, "test": 0.3}
    found = {}
    for part in split:
        loader = made(table, split=split, part=part, key="id", where="id > 9", even="short")
        found[part] = sorted(chain(*ids_of(loader)))
    for part, ids in found.items():
        where = f"id > 9 AND {split_where(part, split, 'id')}"
        assert ids == sorted(table.to_arrow(["id"], where)["id"].to_pylist())
    assert sorted(found["train"] + found["test"]) == list(range(10, 200))


def test_the_time_zone_of_the_table_holds_for_a_part(tmp_path: Path) -> None:
    times = pa.array([0, 3600 * 20 * 10**6], pa.timestamp("us", "UTC"))
    txlog.write(str(tmp_path), pa.table({"id": [1, 2], "t": times}))
    zoned = txlog.Table(str(tmp_path), time_zone="Australia/Melbourne")
    loader = Loader(
        zoned, batch_size=1, columns=["id"], where="CAST(t AS DATE) = DATE'1970-01-02'",
        split={"all": 1}, part="all", key="id",
    )  # fmt: skip
    assert ids_of(loader) == [[2]]


def test_columns_by_pattern(tmp_path: Path) -> None:
    struct = pa.array([{"x1": 1, "x2": 2, "y": 3}])
    data = pa.table({"emb_1": [1], "emb_2": [2], "id": [3], "st": struct, "a*": [5], "ab": [6]})
    table = txlog.write(str(tmp_path), data)

    def names(*columns: str) -> list[str]:
        loader = Loader(table, batch_size=1, columns=list(columns))
        return list(loader.schema.names)

    assert names("id", "emb_*") == ["id", "emb_1", "emb_2"]
    assert names("emb_*", "emb_1") == ["emb_1", "emb_2"]
    assert names("st.x?", "i*") == ["st.x1", "st.x2", "id"]
    assert names("a*") == ["a*"]  # A column with this very name.
    assert names("[ai]*") == ["id", "a*", "ab"]


@pytest.mark.spec("LDR-15")
@given(st.data())
@settings(max_examples=examples(20))
def test_several_epochs_are_one_iteration(data: st.DataObject) -> None:
    """Also by several workers of a rank, and from a state in the middle."""
    table = data.draw(tables())
    shuffle, epochs = data.draw(SHUFFLES), data.draw(st.integers(1, 3))
    ranks, workers = data.draw(st.integers(1, 3)), data.draw(st.integers(1, 3))
    arguments: dict[str, Any] = {
        "batch_size": data.draw(st.integers(1, 7)), "columns": ["id"], "shuffle": shuffle,
        "even": data.draw(st.sampled_from(["drop", "pad", "short"])), "threads": 0,
        "rank": data.draw(st.integers(0, ranks - 1)), "world_size": ranks,
    }  # fmt: skip
    single = Loader(table, **arguments)
    wanted = [ids_of(single) for _ in range(epochs)]
    flat = list(chain(*wanted))
    if not flat:
        assert ids_of(Loader(table, **arguments, epochs=epochs)) == []
        return
    parts = []
    for worker in range(workers):
        mine = Loader(table, **arguments, epochs=epochs)
        parts.append(ids_of(mine.batches(worker, workers)))
        assert mine.epoch == epochs
    assert [parts[i % workers][i // workers] for i in range(sum(map(len, parts)))] == flat
    loader = Loader(table, **arguments, epochs=epochs)
    batches = iter(loader)
    stop = data.draw(st.integers(1, len(flat)))
    assert [next(batches)["id"].tolist() for _ in range(stop)] == flat[:stop]
    again = Loader(table, **arguments, epochs=epochs)
    again.load_state_dict(loader.state_dict())
    assert ids_of(again) == flat[stop:]
    if arguments["even"] == "short":
        return
    endless = iter(Loader(table, **arguments, epochs=None))
    assert [next(endless)["id"].tolist() for _ in flat] == flat
    assert len(loader) == len(flat)
    with pytest.raises(TypeError, match="it never ends"):
        len(Loader(table, **arguments, epochs=None))


def test_weights_work_on_rows_with_texts_and_images_of_one_file(tmp_path: Path) -> None:
    """A row that a batch has twice is read once and is there twice, in columns of all kinds."""
    data = pa.table({"id": range(6), "s": list("abcdef"), "l": [[i] * i for i in range(6)]})
    table = txlog.write(str(tmp_path), data)
    weights = RowFunction(["id"], lambda _: [0, 3, 0, 0, 3, 0])
    (batch,) = Loader(table, batch_size=6, weights=weights, shuffle=Shuffle(seed=3))
    assert sorted(batch["id"].tolist()) == [1, 1, 1, 4, 4, 4]
    assert [ord(text) - ord("a") for text in batch["s"]] == batch["id"].tolist()
    assert np.diff(batch["l"].offsets).tolist() == batch["id"].tolist()


def test_the_second_epoch_makes_no_request(tmp_path: Path) -> None:
    """With a cache, what a store far away has is read once, also by another process's loader."""
    written = txlog.write(str(tmp_path / "table"), pa.table({"id": range(2000)}))
    written.append(pa.table({"id": range(2000, 3000)}))
    written.delete("id % 7 = 0")
    store = CountingStore(LatencyStore(open_store(written.uri), 0))
    table = open_table(store)
    arguments: dict[str, Any] = {"batch_size": 50, "cache": tmp_path / "cache"}
    loader = Loader(table, **arguments)
    plain = Loader(written, batch_size=50)
    assert ids_of(loader) == ids_of(plain)
    store.reset()
    assert ids_of(loader) == ids_of(plain)
    assert not store.requests
    pickle.loads(pickle.dumps(loader))
    other = Loader(table, **arguments)
    store.reset()
    assert sum(map(len, ids_of(other))) == 2550
    assert set(store.requests) == {"info"}
    with pytest.raises(InvalidInputError, match="cannot be created") as raised:
        Loader(table, batch_size=1, cache=tmp_path / "table" / "_delta_log" / f"{0:020}.json" / "x")
    assert raised.value.argument == "cache"
