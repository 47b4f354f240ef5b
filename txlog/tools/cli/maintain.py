"""The commands that maintain a table."""

from __future__ import annotations

from typing import Annotated

import pyarrow as pa
import typer

from txlog import WriteOptions
from txlog.base.moments import moment_text
from txlog.base.texts import version_of
from txlog.tools.cli.examine import Dry, Json, TableUri
from txlog.tools.cli.output import (
    clock,
    newest_of,
    print_json,
    print_outcome,
    print_rows,
    print_text,
    working,
)
from txlog.tools.cli.tables import opened

maintenance = typer.Typer()

Partitions = Annotated[str | None, typer.Option(help="Only partitions for which this is true.")]
Retention = Annotated[float | None, typer.Option(help="Hours. Default: the table's own retention.")]
Delete = Annotated[
    bool, typer.Option("--delete", help="Delete the files; otherwise they are listed.")
]
Version = Annotated[str | None, typer.Option("--version", help="A version or the name of a pin.")]


@maintenance.command()
def compact(
    table: TableUri,
    where: Partitions = None,
    sort_by: Annotated[
        list[str] | None,
        typer.Option(help="Sort the rows of new files by this column; may be repeated."),
    ] = None,
    _dry_run: Dry = False,
    json: Json = False,
) -> None:
    """Rewrite small files, and files with many deleted rows, into fewer."""
    with working("Writing files"):
        done = opened(table).optimize.compact(where, sort_by=sort_by)
    print_outcome(done, json)


@maintenance.command()
def optimize(
    table: TableUri,
    where: Partitions = None,
    z_order: Annotated[
        list[str] | None, typer.Option(help="Order rows by this column; may be repeated.")
    ] = None,
    cluster: Annotated[
        bool, typer.Option("--cluster", help="Order new rows by the clustering columns.")
    ] = False,
    full: Annotated[bool, typer.Option("--full", help="With --cluster: order all rows.")] = False,
    target_file_bytes: Annotated[
        int | None, typer.Option(help="Default: delta.targetFileSize, or 128 MiB.")
    ] = None,
    _dry_run: Dry = False,
    json: Json = False,
) -> None:
    """Rewrite small files into fewer, or all files in an order that lets scans skip files."""
    if (z_order and cluster) or (full and not cluster):
        raise typer.BadParameter("give --z-order, or --cluster, or --cluster --full")
    verbs = opened(table).optimize
    options = WriteOptions(target_file_bytes=target_file_bytes)
    with working("Writing files"):
        if z_order:
            done = verbs.z_order(z_order, where, options=options)
        elif cluster:
            done = verbs.cluster(where, full=full, options=options)
        else:
            done = verbs.compact(where, options=options)
    print_outcome(done, json)


@maintenance.command()
def vacuum(
    table: TableUri,
    retention_hours: Retention = None,
    delete_files: Delete = False,
    no_enforce: Annotated[
        bool, typer.Option("--no-enforce", help="Allow a retention below the table's.")
    ] = False,
    lite: Annotated[
        bool, typer.Option("--lite", help="Only files that the log records as removed.")
    ] = False,
    trash: Annotated[
        bool, typer.Option("--trash", help="With --delete: move them to _txlog_trash.")
    ] = False,
    keep_version: Annotated[
        list[str] | None, typer.Option(help="A version or pin whose files stay; may be repeated.")
    ] = None,
    json: Json = False,
) -> None:
    """List or delete files that no version within the retention needs."""
    with working("Looking for files that are not needed"):
        decided = opened(table).vacuum(
            retention_hours,
            not delete_files,
            not no_enforce,
            lite=lite,
            trash=trash,
            keep_versions=[v for v in map(version_of, keep_version or ()) if v is not None],
        )
    _print_decided(decided, delete_files, json)


@maintenance.command()
def expire(
    table: TableUri,
    retention_hours: Retention = None,
    delete_files: Delete = False,
    json: Json = False,
) -> None:
    """List or delete files of the log that no version within the retention, and no pin, needs."""
    with working("Looking for files of the log that are not needed"):
        decided = opened(table).maintenance.expire(retention_hours, not delete_files)
    _print_decided(decided, delete_files, json)


def _print_decided(decided: pa.Table, deleted: bool, json: bool) -> None:
    gone = [row for row in decided.to_pylist() if row["decision"] == "delete"]
    if json:
        print_json({"deleted": deleted, "files": [row["file"] for row in gone]})
        return
    for row in gone:
        print_text(row["file"])
    size = sum(row["bytes"] for row in gone)
    done = "deleted" if deleted else "would delete (pass --delete)"
    print_text(f"{done}: {len(gone)} files, {size} bytes; {decided.num_rows - len(gone)} are kept")


@maintenance.command()
def trash(
    table: TableUri,
    empty: Annotated[bool, typer.Option("--empty", help="Delete these files permanently.")] = False,
    json: Json = False,
) -> None:
    """Restore the files that a vacuum moved to the trash, or delete them."""
    found = opened(table).maintenance
    if empty:
        count, what = found.empty_trash(), "deleted permanently"
    else:
        decided = found.put_back()
        count, what = decided["decision"].to_pylist().count("restore"), "put back"
    if json:
        print_json({"files": count, "deleted": empty})
    else:
        print_text(f"{what}: {count} files")


@maintenance.command()
def pin(
    table: TableUri,
    name: Annotated[str | None, typer.Argument(help="Its name. Default: list all.")] = None,
    version: Annotated[int | None, typer.Option(help="Default: the latest.")] = None,
    reason: Annotated[str | None, typer.Option(help="Why the version is kept.")] = None,
    move: Annotated[bool, typer.Option("--move", help="Move an existing pin.")] = False,
    delete: Annotated[bool, typer.Option("--delete", help="Delete the pin.")] = False,
    json: Json = False,
) -> None:
    """Name a version, so that vacuum and expire keep it; or list all pins."""
    pins = opened(table).pins
    if name is None:
        rows = [
            {
                "name": one.name,
                "version": one.version,
                "reason": one.reason,
                "created": None if one.created_ms is None else _time(one.created_ms),
            }
            for one in pins.list().values()
        ]
        print_rows(f"Pins of {table}", rows, json)
    elif delete:
        print_outcome(pins.delete(name), json)
    else:
        print_outcome((pins.update if move else pins.create)(name, version, reason), json)


@maintenance.command()
def versions(table: TableUri, json: Json = False) -> None:
    """List the versions that can still be opened."""
    header, shown = ("time", _time) if json else ("time (UTC)", clock)
    rows = [
        {
            "version": entry["version"],
            header: None if entry["timestamp"] is None else shown(entry["timestamp"]),
            "pins": entry["pins"],
        }
        for entry in newest_of(table).versions().to_pylist()
    ]
    print_rows(f"Versions of {table}", rows, json)


@maintenance.command()
def clone(
    table: TableUri,
    target: Annotated[str, typer.Argument(help="The folder of the clone, or its URI.")],
    shallow: Annotated[
        bool, typer.Option("--shallow", help="Copy no data, but refer to this table's files.")
    ] = False,
    version: Version = None,
    timestamp: Annotated[str | None, typer.Option(help="The version at this time.")] = None,
    replace: Annotated[
        bool, typer.Option("--replace", help="Replace an existing table by a new version.")
    ] = False,
    register: Annotated[
        bool,
        typer.Option("--register", help="With --shallow: vacuums of this table keep the files."),
    ] = False,
    json: Json = False,
) -> None:
    """Copy a version of a table to another table."""
    with working("Copying files"):
        made = opened(table).clone(
            target, shallow, version_of(version), timestamp, replace=replace, register=register
        )
    assert made.outcome is not None
    print_outcome(made.outcome, json)


@maintenance.command()
def generate(table: TableUri, json: Json = False) -> None:
    """Write manifests (lists of data files) for engines that do not read the log."""
    count = opened(table).maintenance.generate()
    if json:
        print_json({"manifests": count})
    else:
        print_text(f"wrote {count} manifests to _symlink_format_manifest")


def _time(time_ms: int) -> str:
    return moment_text(time_ms, separator="T", zone="+00:00")
