"""Options of the data source: those that are known, and those that are nearly so."""

import re
from pathlib import Path

import pytest

import txlog.spark_ext
from txlog.errors import InvalidInputError
from txlog.spark_ext.options import KNOWN, Options
from txlog.spark_ext.source import TxlogDataSource

_ASKED = re.compile(r"\.(?:text|flag|number|names|moment|choice)\(\s*\"(\w+)\"")


def test_every_option_that_is_asked_for_is_known() -> None:
    folder = Path(txlog.spark_ext.__file__).parent
    asked = {
        name for path in folder.rglob("*.py") for name in _ASKED.findall(path.read_text("utf-8"))
    }
    assert len(asked) > 20
    assert asked <= set(KNOWN)


@pytest.mark.parametrize("name", KNOWN)
def test_known_options_pass_in_any_case(name: str) -> None:
    for spelled in (name, name.lower(), name.upper()):
        Options({spelled: "x"}).require_spelled()


@pytest.mark.parametrize(
    ("name", "meant"),
    [
        ("replace_where", "replaceWhere"),
        ("mergeSchemas", "mergeSchema"),
        ("maxFilePerTrigger", "maxFilesPerTrigger"),
        ("partition-by", "partitionBy"),
        ("column", "columns"),
        ("startVersion", "startingVersion"),
        ("version", "versionAsOf"),
        ("timestamp", "timestampAsOf"),
    ],
)
def test_names_that_are_nearly_those_of_options_are_refused(name: str, meant: str) -> None:
    with pytest.raises(InvalidInputError, match=f"{meant} may be meant"):
        TxlogDataSource({"path": "t", name: "1"})


@pytest.mark.parametrize(
    "name",
    ["header", "checkpointLocation", "queryName", "compression", "delta.appendOnly", "mode",
     "timestampFormat", "dateFormat", "serialization.format", "maxColumns", "numPartitions"],
)  # fmt: skip
def test_options_of_others_pass(name: str) -> None:
    Options({name: "x"}).require_spelled()


def test_several_paths_are_refused() -> None:
    with pytest.raises(InvalidInputError, match="several paths"):
        Options({"paths": '["a", "b"]'}).store()
