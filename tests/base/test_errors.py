"""The error tree."""

import inspect
import pickle
from collections.abc import Callable
from dataclasses import MISSING, fields

import pyarrow as pa
import pytest

import txlog
from txlog.base.errors import (
    InvalidTypeError,
    NotFoundError,
    TxlogError,
    warn_caller,
)
from txlog.extend import table_facts


def test_errors_are_errors_of_python_too() -> None:
    for error in (NotFoundError(path="a"), InvalidTypeError(reason="b")):
        assert isinstance(error, FileNotFoundError | TypeError)
        assert str(pickle.loads(pickle.dumps(error))) == str(error)


def test_help_says_the_fields() -> None:
    assert list(inspect.signature(NotFoundError).parameters)[-2:] == ["path", "version"]


def kinds(kind: type[TxlogError] = TxlogError) -> list[type[TxlogError]]:
    return [kind, *(one for below in kind.__subclasses__() for one in kinds(below))]


URI = "s3://KEY:hunter2@bucket/t?signature=hunter2&a=b"


# Another test may have imported a module of a product twice.
@pytest.mark.parametrize("kind", {one.__name__: one for one in kinds()}.values())
def test_no_error_shows_the_secrets_of_a_uri(kind: type[TxlogError]) -> None:
    names = {one.name for one in fields(kind)}
    texts = dict.fromkeys(names & {"table", "path"}, URI)
    texts |= dict.fromkeys(("reason", "remedy"), f"{URI!r} is it")
    needed = {"version": 1} if "version" in names else {}
    for one in fields(kind):
        if one.name not in texts and (one.default is MISSING or "str" in str(one.type)):
            texts[one.name] = f"the fact {URI}"
    for name in needed:
        texts.pop(name, None)
    if "features" in names:
        texts["features"] = (URI,)  # type: ignore[assignment]
    error = kind(**texts, **needed)  # type: ignore[arg-type]
    for one in (error, pickle.loads(pickle.dumps(error))):
        assert "hunter2" not in f"{one} {one!r} {vars(one)}"
        assert "…@bucket/t?signature=…" in str(one)
    error.reason, error.table = f"at {URI}", URI
    assert "hunter2" not in f"{error}"


def test_an_error_shows_a_path_as_it_is() -> None:
    error = NotFoundError(path="/data/a?b=c&d=e@f", reason="'/data/x=1&y=2' is no table")
    assert error.path == "/data/a?b=c&d=e@f"
    assert "'/data/x=1&y=2'" in str(error)


@pytest.mark.parametrize(
    "uri", ["memory://u:hunter2@x/t?sig=hunter2", "file://u:hunter2@h/t", "zz://u:hunter2@h/t"]
)
def test_no_call_shows_the_secrets_of_a_uri(uri: str) -> None:
    calls: list[Callable[[], object]] = [
        lambda: txlog.Table(uri),
        lambda: txlog.convert_to_delta(uri),
        lambda: txlog.Table(uri, version="pin"),
        lambda: txlog.write(uri, pa.table({"a": [1]}), mode="x"),  # type: ignore[arg-type]
        lambda: txlog.Table.create(uri, pa.schema([]), partition_by="zz"),
    ]
    for call in calls:
        with pytest.raises(TxlogError) as caught:
            call()
        assert "hunter2" not in f"{caught.value} {vars(caught.value)}"
    with pytest.warns(txlog.TxlogWarning) as warned:
        warn_caller(f"{uri!r} is odd")
    assert "hunter2" not in str(warned[0].message)


def test_no_table_shows_the_secrets_of_its_uri() -> None:
    table = txlog.write("memory://u:hunter2@x/shown?sig=hunter2", pa.table({"a": [1]}))
    assert "hunter2" not in repr(table) + table._repr_html_()  # type: ignore[operator]
    assert "hunter2" not in repr(table.to_arrow) + table_facts(table).uri
