"""The fields of each action, and JSON bodies with good and odd values in them."""

from typing import Any

from hypothesis import strategies as st

# The fields of each action: on disk, in Python, and what a value must be. `!` is required.
FIELDS = {
    "add": "path path text!, partitionValues partition_values texts!, size size size!, "
    "modificationTime modification_time long!, dataChange data_change bool!, stats stats text, "
    "tags tags texts, deletionVector deletion_vector vector, baseRowId base_row_id long, "
    "defaultRowCommitVersion default_row_commit_version long, "
    "clusteringProvider clustering_provider text",
    "remove": "path path text!, deletionTimestamp deletion_timestamp long, "
    "dataChange data_change bool, extendedFileMetadata extended_file_metadata bool, "
    "partitionValues partition_values texts, size size long, stats stats text, tags tags texts, "
    "deletionVector deletion_vector vector, baseRowId base_row_id long, "
    "defaultRowCommitVersion default_row_commit_version long",
    "cdc": "path path text!, partitionValues partition_values texts!, size size size!, "
    "dataChange data_change bool, tags tags texts",
    "metaData": "id id text!, name name text, description description text, format format format, "
    "schemaString schema_string text, partitionColumns partition_columns names, "
    "createdTime created_time long, configuration configuration texts",
    "protocol": "minReaderVersion min_reader_version integer!, "
    "minWriterVersion min_writer_version integer!, readerFeatures reader_features names, "
    "writerFeatures writer_features names",
    "txn": "appId app_id text!, version version long!, lastUpdated last_updated long",
    "domainMetadata": "domain domain text!, configuration configuration text!, "
    "removed removed bool",
    "sidecar": "path path text!, sizeInBytes size_in_bytes size!, "
    "modificationTime modification_time long!, tags tags strings",
    "checkpointMetadata": "version version long!, tags tags strings",
    "vector": "storageType storage_type text!, pathOrInlineDv path_or_inline_dv text!, "
    "offset offset integer, sizeInBytes size_in_bytes short!, cardinality cardinality size!",
    "format": "provider provider text, options options texts",
}
texts = st.text(max_size=3)
maps = st.dictionaries(texts, st.none() | texts, max_size=2)
INTEGERS = {
    "long": (-(2**63), 2**63 - 1),
    "integer": (-(2**31), 2**31 - 1),
    "size": (0, 2**63 - 1),
    "short": (0, 2**31 - 1),
}
GOOD: dict[str, st.SearchStrategy[Any]] = {
    "text": texts,
    "bool": st.booleans(),
    "texts": maps,
    "strings": maps,
    "names": st.lists(texts, max_size=2),
    **{kind: st.integers(*bounds) for kind, bounds in INTEGERS.items()},
}
ODD = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-3, 3),
    st.sampled_from([2**31 - 1, 2**31, 2**63 - 1, 2**63, 2**64, -(2**63), -(2**63) - 1, 1.0, "é"]),
    texts,
    st.lists(texts | st.integers(), max_size=2),
    maps,
    st.dictionaries(texts, st.booleans() | st.sampled_from([0.5, -1.0]) | st.integers()),
    st.dictionaries(texts, st.lists(texts, max_size=1), max_size=2),
)


def fields_of(kind: str) -> list[tuple[str, str, str, bool]]:
    """Return the name on disk, that in Python, the type, and whether the field is required."""
    rows = (text.split() for text in FIELDS[kind].split(", "))
    return [(name, field, type_.rstrip("!"), type_.endswith("!")) for name, field, type_ in rows]


def bodies(kind: str, odd: st.SearchStrategy[Any]) -> st.SearchStrategy[dict[str, Any]]:
    """Bodies with good values mostly, and odd ones now and then; any optional field may lack."""
    needed, optional = {}, {}
    for name, _, type_, is_required in fields_of(kind):
        good = GOOD[type_] if type_ in GOOD else bodies(type_, odd)
        (needed if is_required else optional)[name] = st.one_of([good] * 9 + [odd])
    return st.fixed_dictionaries(needed, optional=optional)
