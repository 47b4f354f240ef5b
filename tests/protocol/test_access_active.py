"""A property has an effect only if the protocol supports it."""

import pytest

from txlog.actions.table import Protocol
from txlog.protocol.access import is_active
from txlog.protocol.features import ACTIVATION, FEATURES
from txlog.protocol.properties import Properties

VALUES = {"columnMapping": "name"}


@pytest.mark.parametrize("feature", ACTIVATION)
def test_a_property_needs_its_feature(feature: str) -> None:
    on = Properties({ACTIVATION[feature]: VALUES.get(feature, "true")})
    both = FEATURES[feature].kind == "reader-writer"
    listed = Protocol(
        min_reader_version=3 if both else 1,
        min_writer_version=7,
        reader_features=[feature] if both else None,
        writer_features=[feature],
    )
    assert is_active(feature, listed, on)
    assert not is_active(feature, listed, Properties())
    assert not is_active(feature, listed, Properties({ACTIVATION[feature]: "false"}))
    bare = Protocol(min_reader_version=1, min_writer_version=7, writer_features=[])
    assert not is_active(feature, bare, on)


@pytest.mark.parametrize(
    ("feature", "reader", "writer"),
    [("appendOnly", 1, 2), ("changeDataFeed", 1, 4), ("columnMapping", 2, 5)],
)
def test_legacy_versions_back_theirs(feature: str, reader: int, writer: int) -> None:
    on = Properties({ACTIVATION[feature]: VALUES.get(feature, "true")})
    protocol = Protocol(min_reader_version=reader, min_writer_version=writer)
    assert is_active(feature, protocol, on)
    older = Protocol(min_reader_version=1, min_writer_version=writer - 1)
    assert not is_active(feature, older, on)
