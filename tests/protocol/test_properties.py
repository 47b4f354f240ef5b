"""Table properties: read leniently, set strictly."""

import pytest

from txlog.base.errors import InvalidInputError, TxlogWarning
from txlog.protocol.properties import Properties, validate_properties

DAY_MS = 86_400_000


@pytest.mark.parametrize(
    ("name", "default"),
    [
        ("delta.appendOnly", False),
        ("delta.checkpointInterval", 100),
        ("delta.columnMapping.mode", "none"),
        ("delta.dataSkippingNumIndexedCols", 32),
        ("delta.deletedFileRetentionDuration", 7 * DAY_MS),
        ("delta.enableDeletionVectors", False),
        ("delta.inCommitTimestampEnablementVersion", None),
        ("delta.logRetentionDuration", 30 * DAY_MS),
        ("delta.parquet.compression.codec", "zstd"),
        ("delta.setTransactionRetentionDuration", None),
    ],
)
def test_defaults(name: str, default: object) -> None:
    assert Properties({}).get(name) == default
    assert Properties({name: None}).get(name) == default


@pytest.mark.parametrize(
    ("name", "text", "value"),
    [
        ("delta.appendOnly", "true", True),
        ("delta.appendOnly", " TRUE ", True),
        ("delta.appendOnly", "False", False),
        ("delta.checkpointInterval", "100", 100),
        ("delta.dataSkippingNumIndexedCols", "-1", -1),
        ("delta.columnMapping.mode", "id", "id"),
        ("delta.parquet.compression.codec", "SNAPPY", "snappy"),
        ("delta.inCommitTimestampEnablementVersion", "7", 7),
        ("delta.logRetentionDuration", "interval 30 days", 30 * DAY_MS),
        ("delta.logRetentionDuration", "INTERVAL 1 WEEK", 7 * DAY_MS),
        ("delta.logRetentionDuration", "2 hours", 7_200_000),
        ("delta.logRetentionDuration", "interval 0 seconds", 0),
        ("delta.logRetentionDuration", "interval 5 milliseconds", 5),
        ("delta.logRetentionDuration", "interval 3 minutes", 180_000),
    ],
)
def test_texts_are_read(name: str, text: str, value: object) -> None:
    assert Properties({name: text}).get(name) == value
    validate_properties({name: text})


WRONG = {
    "delta.appendOnly": ["yes", "", "1"],
    "delta.checkpointInterval": ["0", "-1", "ten", ""],
    "delta.dataSkippingNumIndexedCols": ["-2", "x"],
    "delta.columnMapping.mode": ["names", "both"],
    "delta.parquet.compression.codec": ["lzo"],
    "delta.logRetentionDuration": ["30", "interval", "interval 1 month", "interval -1 days", "day"],
    "delta.inCommitTimestampEnablementVersion": ["first"],
}


@pytest.mark.parametrize(("name", "text"), [(n, t) for n, found in WRONG.items() for t in found])
def test_wrong_texts_read_as_the_default_and_are_not_set(name: str, text: str) -> None:
    assert Properties({name: text}).get(name) == Properties({}).get(name)
    with pytest.raises(InvalidInputError, match=name) as caught:
        validate_properties({name: text})
    assert caught.value.argument == "properties"


def test_all_faults_are_in_one_error() -> None:
    wrong = {
        "delta.appendOnly": "perhaps",
        "delta.enableSuchThings": "1",
        "delta.checkpointInterval": 5,
        "mine": "anything",
    }
    with pytest.raises(InvalidInputError) as caught:
        validate_properties(wrong)  # type: ignore[arg-type]
    text = str(caught.value)
    assert "delta.appendOnly='perhaps'" in text
    assert "delta.enableSuchThings: no such property" in text
    assert "delta.checkpointInterval: the value must be a string, not int" in text
    assert "mine" not in text


def test_own_and_free_properties_pass() -> None:
    validate_properties({"mine": "", "delta.constraints.c": "a > 0"})


@pytest.mark.parametrize(
    ("text", "paths"),
    [
        ("", ()),
        ("a", (("a",),)),
        (" a , b.c ,`d.e`.f", (("a",), ("b", "c"), ("d.e", "f"))),
        ("`a``b`", (("a`b",),)),
        ("`x, y`,z", (("x, y",), ("z",))),
    ],
)
def test_lists_of_columns(text: str, paths: tuple[tuple[str, ...], ...]) -> None:
    name = "delta.dataSkippingStatsColumns"
    assert Properties({name: text}).get(name) == paths
    validate_properties({name: text})


@pytest.mark.parametrize("text", [",", "a,", "a..b", ".a", "a.", "`a", "a`b`"])
def test_torn_lists_of_columns(text: str) -> None:
    with pytest.raises(InvalidInputError, match="dataSkippingStatsColumns"):
        validate_properties({"delta.dataSkippingStatsColumns": text})


@pytest.mark.parametrize(
    "name", ["Delta.appendonly", "txlog.deletionformat", "delta.isolationlevel", "txlog.zebra"]
)
def test_names_that_would_have_no_effect_are_refused(name: str) -> None:
    with pytest.raises(InvalidInputError, match=r"no such property|Delta spells it"):
        validate_properties({name: "true"})


def test_properties_for_other_engines_are_kept() -> None:
    validate_properties(
        {
            "delta.logRetentionDuration": "interval 1 day",
            "delta.enableExpiredLogCleanup": "false",
            "delta.targetFileSize": "128mb",
        }
    )
    with pytest.warns(TxlogWarning, match=r"delta\.autoOptimize\.optimizeWrite, delta\.zebra"):
        validate_properties({"delta.autoOptimize.optimizeWrite": "true", "delta.zebra": "1"})
    with pytest.raises(InvalidInputError, match="enableExpiredLogCleanup='maybe'"):
        validate_properties({"delta.enableExpiredLogCleanup": "maybe"})
