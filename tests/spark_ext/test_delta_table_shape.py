"""`DeltaTable` has the methods of delta-spark's class, and names those that txlog lacks."""

import inspect
import pickle
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.errors import AnalysisException
from pyspark.sql.types import LongType

import txlog
from txlog.base.errors import InvalidInputError
from txlog.spark_ext.delta import (
    DeltaMergeBuilder,
    DeltaOptimizeBuilder,
    DeltaTable,
    DeltaTableBuilder,
    IdentityGenerator,
)

# The public methods of delta-spark 4.4.1, `delta.tables`, and their parameters.
METHODS = {
    DeltaTable: {
        "toDF": "",
        "alias": "aliasName",
        "generate": "mode",
        "delete": "condition=None",
        "update": "condition=None, set=None",
        "merge": "source, condition",
        "vacuum": "retentionHours=None",
        "history": "limit=None",
        "detail": "",
        "convertToDelta": "sparkSession, identifier, partitionSchema=None",
        "forPath": "sparkSession, path, hadoopConf={}, branch=None",  # The last one is our own.
        "forName": "sparkSession, tableOrViewName, branch=None",  # Here, too.
        "create": "sparkSession=None",
        "createIfNotExists": "sparkSession=None",
        "replace": "sparkSession=None",
        "createOrReplace": "sparkSession=None",
        "isDeltaTable": "sparkSession, identifier",
        "upgradeTableProtocol": "readerVersion, writerVersion",
        "addFeatureSupport": "featureName",
        "dropFeatureSupport": "featureName, truncateHistory=None",
        "restoreToVersion": "version",
        "restoreToTimestamp": "timestamp",
        "optimize": "",
        "clone": "target, isShallow=False, replace=False, properties=None",
        "cloneAtVersion": "version, target, isShallow=False, replace=False, properties=None",
        "cloneAtTimestamp": "timestamp, target, isShallow=False, replace=False, properties=None",
    },
    DeltaMergeBuilder: {
        "whenMatchedUpdate": "condition=None, set=None",
        "whenMatchedUpdateAll": "condition=None",
        "whenMatchedDelete": "condition=None",
        "whenNotMatchedInsert": "condition=None, values=None",
        "whenNotMatchedInsertAll": "condition=None",
        "whenNotMatchedBySourceUpdate": "condition=None, set=None",
        "whenNotMatchedBySourceDelete": "condition=None",
        "withSchemaEvolution": "",
        # The arguments are our own.
        "execute": "txn=None, on_error='error', quarantine=None",
    },
    DeltaTableBuilder: {
        "tableName": "identifier",
        "location": "location",
        "comment": "comment",
        "addColumn": "colName, dataType, nullable=True, generatedAlwaysAs=None, "
        "generatedByDefaultAs=None, comment=None",
        "addColumns": "cols",
        "partitionedBy": "*cols",
        "clusterBy": "*cols",
        "property": "key, value",
        "execute": "",
    },
    DeltaOptimizeBuilder: {
        "where": "partitionFilter",
        "executeCompaction": "",
        "executeZOrderBy": "*cols",
    },
}
NAMES = [(kind, name) for kind, methods in METHODS.items() for name in methods]


@pytest.mark.parametrize(("kind", "name"), NAMES, ids=lambda part: getattr(part, "__name__", part))
def test_methods_take_what_delta_sparks_take(kind: type, name: str) -> None:
    plain = [
        parameter.replace(annotation=parameter.empty)
        for parameter in inspect.signature(getattr(kind, name)).parameters.values()
        if parameter.name != "self"
    ]
    assert ", ".join(map(str, plain)) == METHODS[kind][name]


def test_class_methods_are_class_methods() -> None:
    of_the_class = {
        name for name, found in vars(DeltaTable).items() if isinstance(found, classmethod)
    }
    assert of_the_class == {
        "convertToDelta", "forPath", "forName", "create", "createIfNotExists", "replace",
        "createOrReplace", "isDeltaTable",
    }  # fmt: skip


def test_classes_are_there_by_delta_sparks_names() -> None:
    import txlog.spark_ext.delta as home

    delta_spark = {"IdentityGenerator", *(kind.__name__ for kind in METHODS)}
    assert set(home.__all__) == delta_spark
    assert IdentityGenerator() == IdentityGenerator(start=1, step=1)


@pytest.fixture
def table(tmp_path: Path) -> DeltaTable:
    # No argument that is wrong needs a session.
    session: Any = None
    return DeltaTable(session, txlog.write(tmp_path / "t", pa.table({"a": [1]})))


@pytest.mark.parametrize(
    ("method", "arguments", "named"),
    [
        ("delete", (5,), "condition"),
        ("update", ("a = 1", {"a": 2}), "set"),
        ("update", ("a = 1", {1: "a"}), "set"),
        ("update", ("a = 1", None), "set"),
        ("update", (7, {"a": "2"}), "condition"),
        ("merge", (None, "a = b"), "source"),
        ("alias", (None,), "aliasName"),
        ("generate", (None,), "mode"),
        ("restoreToVersion", ("1",), "version"),
        ("restoreToVersion", (True,), "version"),
        ("restoreToTimestamp", (17,), "timestamp"),
        ("addFeatureSupport", (None,), "featureName"),
        ("upgradeTableProtocol", ("3", 7), "readerVersion"),
    ],
)
def test_wrong_arguments_are_named(
    table: DeltaTable, method: str, arguments: Any, named: str
) -> None:
    with pytest.raises(TypeError) as caught:
        getattr(table, method)(*arguments)
    assert isinstance(caught.value, InvalidInputError)  # Which is a ValueError.
    assert caught.value.argument == named


@pytest.mark.parametrize(
    ("method", "arguments", "named"),
    [
        ("forPath", (None, "a\0b"), "path"),
        ("forPath", (None, "memory://names/t"), "path"),
        ("forPath", (None, "s3://b/t", {"aws_nothing": "x"}), "hadoopConf"),
        ("isDeltaTable", (None, ""), "identifier"),
        ("convertToDelta", (None, "parquet.`memory://names/t`"), "identifier"),
        ("upgradeTableProtocol", (99, 7), "readerVersion"),
        ("upgradeTableProtocol", (1, 0), "writerVersion"),
        ("addFeatureSupport", ("nothing",), "featureName"),
        ("dropFeatureSupport", ("nothing",), "featureName"),
        ("clone", ("/a\0b",), "target"),
        ("clone", ("c", "yes"), "isShallow"),
    ],
)
def test_wrong_values_are_named(table: DeltaTable, method: str, arguments: Any, named: str) -> None:
    txlog.write("memory://names/t", pa.table({"a": [1]}))
    with pytest.raises(InvalidInputError) as caught:
        getattr(table, method)(*arguments)
    assert caught.value.argument == named


def test_an_order_by_no_column_is_refused(table: DeltaTable) -> None:
    with pytest.raises(InvalidInputError, match="no column is given") as caught:
        table.optimize().executeZOrderBy()
    assert caught.value.argument == "cols"


def test_a_builder_names_its_arguments(tmp_path: Path) -> None:
    session: Any = None

    def builder(place: str = "n") -> DeltaTableBuilder[DeltaTable]:
        made = DeltaTableBuilder(session, "create", DeltaTable)
        return made.location(place if ":" in place else str(tmp_path / place))

    text: Any = "1"
    wrong = IdentityGenerator(text)
    first = builder()
    with pytest.raises(InvalidInputError, match="start needs to be an int") as caught:
        first.addColumn("i", LongType(), generatedByDefaultAs=wrong)
    assert caught.value.argument == "generatedByDefaultAs"
    still = builder().addColumn("i", LongType(), generatedAlwaysAs=IdentityGenerator(1, 0))
    with pytest.raises(InvalidInputError, match="the step must not be 0") as caught:
        still.execute()
    assert caught.value.argument == "cols"
    in_memory = builder("memory://names/new").addColumn("i", LongType())
    with pytest.raises(InvalidInputError, match="memory of this process") as caught:
        in_memory.execute()
    assert caught.value.argument == "location"
    assert not txlog.Table.exists("memory://names/new")  # Nothing was half made.


def test_scripts_catch_errors_of_spark(table: DeltaTable, tmp_path: Path) -> None:
    session: Any = None
    with pytest.raises(AnalysisException) as missing:
        DeltaTable.forPath(session, str(tmp_path / "none"))
    table.clone(str(tmp_path / "other"))
    with pytest.raises(AnalysisException) as taken:
        table.clone(str(tmp_path / "other"))
    for caught, kind in ((missing, txlog.NotFoundError), (taken, txlog.AlreadyExistsError)):
        again: Any = pickle.loads(pickle.dumps(caught.value))
        assert isinstance(again, kind)
        assert str(again) == caught.value.getMessage() == str(caught.value)
        assert (again.code, again.getCondition()) == (kind.code, None)


def test_features_and_versions_of_the_protocol(table: DeltaTable) -> None:
    table.addFeatureSupport("v2Checkpoint")
    assert "v2Checkpoint" in (table.table.protocol.writer_features or ())
    table.dropFeatureSupport("v2Checkpoint", True)
    assert "v2Checkpoint" not in (table.table.protocol.writer_features or ())
    before = table.table.protocol
    table.upgradeTableProtocol(before.min_reader_version, before.min_writer_version)
    with pytest.raises(InvalidInputError):
        table.upgradeTableProtocol(1, 1)


def test_manifests(table: DeltaTable) -> None:
    table.generate("symlink_format_manifest")
    (manifest,) = Path(table.table.uri, "_symlink_format_manifest").glob("manifest")
    assert len(manifest.read_text().splitlines()) == 1
    with pytest.raises(InvalidInputError):
        table.generate("other")


def test_clones(table: DeltaTable, tmp_path: Path) -> None:
    table.table.append(pa.table({"a": [2]}))
    deep = table.clone(str(tmp_path / "deep"), properties={"owner": "me"})
    old = table.cloneAtVersion(0, f"delta.`{tmp_path / 'old'}`", isShallow=True)
    assert (deep.table.count(), old.table.count()) == (2, 1)
    assert deep.table.properties["owner"] == "me"
    with pytest.raises(txlog.AlreadyExistsError):
        table.clone(str(tmp_path / "deep"))
    assert table.clone(str(tmp_path / "deep"), replace=True).table.version == 1


def test_options_of_hadoop_are_refused_and_not_shown(table: DeltaTable) -> None:
    session: Any = None
    with pytest.raises(InvalidInputError, match=r"fs\.s3a\.secret\.key") as caught:
        DeltaTable.forPath(session, table.table.uri, {"fs.s3a.secret.key": "hidden"})
    assert "hidden" not in str(caught.value)
