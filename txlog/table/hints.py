"""What replaces the names that tables and modules of other libraries have.

Each name has its library, the library's code, and the code of txlog. docs/hints.py makes this file
from docs/coming-from.md.
"""
# ruff: noqa: E501

OF_TABLE = {
    "__getitem__": ("pandas, polars and pyarrow", 'df["n"]', 't.to_arrow(["n"])["n"]'),
    "add_columns": (
        "pylance",
        'ds.add_columns({"m": "n * 2"})',
        't.alter.add_columns({"m": "n * 2"})',
    ),
    "add_files": (
        "pyiceberg",
        'table.add_files(["s3://…/a.parquet"])',
        "txlog.convert_to_delta(folder)",
    ),
    "alter_columns": (
        "pylance",
        'ds.alter_columns({"path": "p", "name": "q"})',
        't.alter.rename_column("p", "q")',
    ),
    "assign": (
        "pandas, polars and pyarrow",
        'df.assign(m=2 * df["n"])',
        'txlog.sql("SELECT *, n * 2 AS m FROM t", {"t": t})',
    ),
    "build_index": ("txlog before its first release", "t.build_index()", "t.indexes.build()"),
    "checkout_latest": ("pylance", "ds.checkout_latest()", "t.refresh()"),
    "checkout_version": ("pylance", "ds.checkout_version(1)", "t.at(1)"),
    "cleanup_metadata": (
        "deltalake",
        "dt.cleanup_metadata()",
        "t.maintenance.expire(dry_run=False)",
    ),
    "cleanup_old_versions": (
        "pylance",
        "ds.cleanup_old_versions(older_than=timedelta(days=14))",
        "t.vacuum(14 * 24, dry_run=False); t.maintenance.expire(14 * 24, dry_run=False)",
    ),
    "collect": ("pandas, polars and pyarrow", "df.collect()", "t.to_polars()"),
    "column_names": ("pandas, polars and pyarrow", "df.column_names", "t.schema.names"),
    "columns": ("pandas, polars and pyarrow", "df.columns", "t.schema.names"),
    "compact": ("txlog before its first release", "t.compact()", "t.optimize.compact()"),
    "compact_logs": ("deltalake", "dt.compact_logs(0, 1)", "t.maintenance.compact_log(0, 1)"),
    "config": ("pylance", "ds.config()", "t.properties"),
    "count_rows": ("pylance", "ds.count_rows()", "t.count()"),
    "create_checkpoint": ("deltalake", "dt.create_checkpoint()", "t.maintenance.checkpoint()"),
    "create_index": ("pylance", "ds.create_index(…)", 't.indexes.create("n")'),
    "create_scalar_index": (
        "pylance",
        'ds.create_scalar_index("n", "BTREE")',
        't.indexes.create("n")',
    ),
    "current_snapshot": ("pyiceberg", "table.current_snapshot()", "t.version, t.timestamp_ms"),
    "deletion_vectors": ("deltalake", "dt.deletion_vectors()", "t.scan().deletion_vectors()"),
    "describe_indices": ("pylance", "ds.describe_indices()", "t.indexes.list()"),
    "drop": ("pandas, polars and pyarrow", 'df.drop(columns="p")', 't.alter.drop_columns("p")'),
    "drop_columns": ("pylance", 'ds.drop_columns(["p"])', 't.alter.drop_columns("p")'),
    "drop_index": ("pylance", 'ds.drop_index("n_idx")', 't.indexes.drop("n_idx")'),
    "dtypes": ("pandas, polars and pyarrow", "df.dtypes", "t.schema"),
    "dynamic_partition_overwrite": (
        "pyiceberg",
        "table.dynamic_partition_overwrite(rows)",
        't.overwrite(rows, partition_mode="dynamic")',
    ),
    "file_uris": (
        "deltalake",
        'dt.file_uris(file_pruning_predicate=[("p", "=", "x")])',
        't.scan(where=[("p", "=", "x")]).file_uris()',
    ),
    "filter": (
        "pandas, polars and pyarrow",
        'df.filter(pl.col("n") > 1)',
        't.scan(where=txlog.col("n") > 1)',
    ),
    "generate": ("deltalake", "dt.generate()", "t.maintenance.generate()"),
    "get_add_actions": (
        "deltalake",
        "dt.get_add_actions(flatten=True)",
        't.files(statistics="flat")',
    ),
    "get_fragment": ("pylance", "ds.get_fragment(0)", "t.fragments().of_id(0)"),
    "get_fragments": ("pylance", "ds.get_fragments()", "t.fragments()"),
    "group_by": (
        "pandas, polars and pyarrow",
        'df.group_by("p").len()',
        'txlog.sql("SELECT p, count(*) FROM t GROUP BY p", {"t": t})',
    ),
    "groupby": (
        "pandas, polars and pyarrow",
        'df.groupby("p").size()',
        'txlog.sql("SELECT p, count(*) FROM t GROUP BY p", {"t": t})',
    ),
    "height": ("pandas, polars and pyarrow", "df.height", "t.count()"),
    "iloc": ("pandas, polars and pyarrow", "df.iloc[[0, 2]]", "t.take([0, 2])"),
    "index_statistics": ("pylance", 'ds.index_statistics("n_idx")', "t.indexes.list()"),
    "insert": ("pylance", "ds.insert(rows)", "t.append(rows)"),
    "inspect": ("pyiceberg", "table.inspect.files()", "t.files()"),
    "io": ("pyiceberg", "table.io", "from txlog.extend import context_of; context_of(t).store"),
    "is_deltatable": ("deltalake", "DeltaTable.is_deltatable(uri)", "txlog.Table.exists(uri)"),
    "join": (
        "pandas, polars and pyarrow",
        'df.join(other, on="n")',
        'txlog.sql("SELECT * FROM t JOIN u USING (n)", {"t": t, "u": rows})',
    ),
    "latest_version": ("pylance", "ds.latest_version", "t.at().version"),
    "limit": ("pandas, polars and pyarrow", "df.limit(2)", "t.head(2)"),
    "list_indices": ("pylance", "ds.list_indices()", "t.indexes.list()"),
    "load_as_version": (
        "deltalake",
        'dt.load_as_version("2030-01-01T00:00:00Z")',
        't.at(timestamp="2030-01-01T00:00:00Z", out_of_range="nearest")',
    ),
    "load_cdf": ("deltalake", "dt.load_cdf(1, 1).read_all()", "t.changes(1, 1).to_arrow()"),
    "loc": ("pandas, polars and pyarrow", 'df.loc[df["n"] > 1]', 't.to_arrow(where="n > 1")'),
    "location": ("pyiceberg", "table.location()", "t.uri"),
    "manage_snapshots": (
        "pyiceberg",
        'table.manage_snapshots().create_tag(1, "best").commit()',
        't.pins.create("best", version=1)',
    ),
    "merge_insert": (
        "pylance",
        'ds.merge_insert("n").when_matched_update_all().when_not_matched_insert_all().execute(rows)',
        't.merge(rows, on="n").when_matched_update_all().when_not_matched_insert_all().execute()',
    ),
    "num_rows": ("pandas, polars and pyarrow", "df.num_rows", "t.count()"),
    "optimize_index": ("txlog before its first release", "t.optimize_index()", "t.indexes.merge()"),
    "query": ("pandas, polars and pyarrow", 'df.query("n > 1")', 't.scan(where="n > 1")'),
    "read_transaction": ("pylance", "ds.read_transaction(1)", "t.history()"),
    "rename": (
        "pandas, polars and pyarrow",
        'df.rename(columns={"p": "q"})',
        't.alter.rename_column("p", "q")',
    ),
    "repair": (
        "deltalake",
        "dt.repair(dry_run=True)",
        't.maintenance.repair(missing_files=True)["path"]',
    ),
    "replace_field_metadata": (
        "pylance",
        'ds.replace_field_metadata("n", {"comment": "…"})',
        't.alter.set_column_metadata("n", {"comment": "…"})',
    ),
    "report": (
        "txlog before its first release",
        "t.report()",
        "from txlog.tools.report import report; report(t)",
    ),
    "scanner": (
        "pylance",
        'ds.scanner(columns=["n"], filter="n > 1").to_batches()',
        't.scan(columns=["n"], where="n > 1").to_batches()',
    ),
    "select": ("pandas, polars and pyarrow", 'df.select("n")', 't.scan(["n"])'),
    "shallow_clone": (
        "pylance",
        "ds.shallow_clone(new, 1)",
        "t.clone(new, shallow=True, version=1)",
    ),
    "shape": ("pandas, polars and pyarrow", "df.shape", "t.count(), len(t.schema)"),
    "slice": ("pylance", "ds.slice(1, 3)", "t.scan().slice(1, 2)"),
    "snapshot_as_of_timestamp": (
        "pyiceberg",
        "table.snapshot_as_of_timestamp(1893456000000)",
        't.at(timestamp=1893456000000, out_of_range="nearest")',
    ),
    "snapshots": ("pyiceberg", "table.snapshots()", "t.versions()"),
    "sort": (
        "pandas, polars and pyarrow",
        'df.sort("n")',
        'txlog.sql("SELECT * FROM t ORDER BY n", {"t": t})',
    ),
    "sort_by": (
        "pandas, polars and pyarrow",
        'df.sort_by("n")',
        'txlog.sql("SELECT * FROM t ORDER BY n", {"t": t})',
    ),
    "sort_values": (
        "pandas, polars and pyarrow",
        'df.sort_values("n")',
        'txlog.sql("SELECT * FROM t ORDER BY n", {"t": t})',
    ),
    "spec": ("pyiceberg", "table.spec()", "t.partition_columns"),
    "sql": ("pylance", 'ds.sql("SELECT n FROM dataset")', 'txlog.sql("SELECT n FROM t", {"t": t})'),
    "store": (
        "txlog before its first release",
        "t.store",
        "from txlog.extend import context_of; context_of(t).store",
    ),
    "table_config": ("deltalake", "dt.table_config", "t.properties"),
    "table_uri": ("deltalake", "dt.table_uri", "t.uri"),
    "tags": ("pylance", 'ds.tags.create("best", 1)', 't.pins.create("best", 1)'),
    "take_rows": ("pylance", "ds._take_rows([0, 1])", "t.take(row_ids=[0, 1])"),
    "to_dicts": ("pandas, polars and pyarrow", "df.to_dicts()", "t.to_arrow().to_pylist()"),
    "to_pyarrow_table": (
        "deltalake",
        'dt.to_pyarrow_table(columns=["n"], filters=[("n", ">", 1)])',
        't.to_arrow(columns=["n"], where=[("n", ">", 1)])',
    ),
    "to_pydict": ("pandas, polars and pyarrow", "df.to_pydict()", "t.to_arrow().to_pylist()"),
    "to_pylist": ("pandas, polars and pyarrow", "df.to_pylist()", "t.to_arrow().to_pylist()"),
    "to_table": ("pylance", "ds.to_table()", "t.to_arrow()"),
    "truncate_table": ("pylance", "ds.truncate_table()", "t.delete(None)"),
    "update_config": (
        "pylance",
        'ds.update_config({"owner": "me"})',
        't.alter.set_properties({"owner": "me"})',
    ),
    "update_incremental": ("deltalake", "dt.update_incremental()", "t.refresh()"),
    "update_schema": (
        "pyiceberg",
        'with table.update_schema() as update: update.add_column("extra", DoubleType())',
        't.alter.add_columns({"extra": pa.float64()})',
    ),
    "validate": ("pylance", "ds.validate()", "t.doctor()"),
    "with_columns": (
        "pandas, polars and pyarrow",
        'df.with_columns(m=pl.col("n") * 2)',
        'txlog.sql("SELECT *, n * 2 AS m FROM t", {"t": t})',
    ),
}

OF_MODULE = {
    "CommitProperties": (
        "deltalake",
        'CommitProperties(custom_metadata={"job": "7", "tries": 2, "userName": "me"})',
        't.append(rows, user_metadata={"job": "7", "tries": 2, "userName": "me"})',
    ),
    "DeltaTable": ("deltalake", "dt = DeltaTable(uri)", "t = txlog.Table(uri)"),
    "Field": (
        "deltalake",
        'Field("m", "long", metadata={"delta.generationExpression": "n * 2"})',
        'txlog.Table.create(new, pa.schema([*schema, pa.field("m", pa.int64(), metadata={"delta.generationExpression": "n * 2"})]))',
    ),
    "QueryBuilder": (
        "deltalake",
        'QueryBuilder().register("t", dt).execute("select n from t")',
        'txlog.sql("select n from t", {"t": t})',
    ),
    "convert_to_deltalake": (
        "deltalake",
        "convert_to_deltalake(folder)",
        "txlog.convert_to_delta(folder)",
    ),
    "create_table": (
        "pyiceberg",
        'catalog.create_table("db.t", schema, partition_spec=…, properties=…)',
        'txlog.Table.create(new, schema, partition_by=["p"], properties={"owner": "me"})',
    ),
    "create_table_if_not_exists": (
        "pyiceberg",
        'catalog.create_table_if_not_exists("db.t", schema)',
        'txlog.Table.create(uri, schema, mode="ignore")',
    ),
    "dataset": ("pylance", "lance.dataset(uri, version=1)", "txlog.Table(uri, version=1)"),
    "enable_nanosecond_timestamps": (
        "deltalake",
        "enable_nanosecond_timestamps(); write_deltalake(new, nanos)",
        'txlog.write(new, nanos, properties={"delta.feature.timestampNanos": "supported"})',
    ),
    "load_table": ("pyiceberg", 'catalog.load_table("db.t")', "t = txlog.Table(uri)"),
    "table_exists": ("pyiceberg", 'catalog.table_exists("db.t")', "txlog.Table.exists(uri)"),
    "write_dataset": (
        "pylance",
        'lance.write_dataset(rows, uri, mode="overwrite")',
        'txlog.write(uri, rows, mode="overwrite")',
    ),
    "write_deltalake": ("deltalake", "write_deltalake(uri, rows)", "txlog.write(new, rows)"),
}


def instead(hint: tuple[str, str, str]) -> str:
    """Return what an error says about a name."""
    library, theirs, ours = hint
    return f"Instead of {theirs} of {library}, use {ours}"
