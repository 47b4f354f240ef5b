"""Values for the templates of the pages of a table."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import pyarrow as pa

from txlog import Capability, Table
from txlog.base.arrow import pc
from txlog.base.columns import first_rows
from txlog.base.errors import LogCorruptError, TxlogError
from txlog.base.remedies import Asked, on_command_line
from txlog.extend import told_pairs, told_text
from txlog.tools.report.charts import size_text
from txlog.tools.report.page import content, number_text, time_text
from txlog.tools.ui.cells import (
    Cell,
    Head,
    cell,
    grid,
    link,
    pairs_text,
    rows_grid,
    shortened,
)
from txlog.tools.ui.places import Place, Places
from txlog.tools.ui.schemas import columns_of, metadata_changes

PAGE_ROWS = 50
_OLD_ROW = "update_preimage"
MOST_COLUMNS = 40  # On pages of rows, unless the user names columns.
_INDEX = "txlog.index."  # The prefix of the properties that define indexes.
SAMPLE = 8  # The number of data files that a report opens.

Page = dict[str, Any]


def address(place: Place, page: str = "", **parameters: Any) -> str:
    """Return the address of a page of a table."""
    return link(f"/tables/{place.key}" + (f"/{page}" if page else ""), **parameters)


@dataclass(frozen=True)
class Visit:
    """A table at the version that a page shows. `asked` is the version in the URL of the page."""

    place: Place
    table: Table
    asked: str | None
    places: Places

    def address(self, page: str = "", **parameters: Any) -> str:
        """Return the address of another page of this version."""
        return address(self.place, page, version=self.asked, **parameters)

    def at(self, version: int, page: str = "") -> str:
        """Return the address of a page of another version."""
        return address(self.place, page, version=version)


def told(remedy: str, uri: str | None) -> str:
    """Return a remedy with what to type: pages change no table."""
    return on_command_line(remedy, Asked(uri)).rstrip(".")


def _refusal(verb: Capability, uri: str) -> str:
    return f"{verb.reason} {told(verb.remedy, uri)}".strip()


def names_of(text: str | None) -> list[str] | None:
    """Return the names in a text that separates them by commas; None if it has none."""
    return [name.strip() for name in (text or "").split(",") if name.strip()] or None


def is_in(place: Place, namespace: str) -> bool:
    """Return whether a table is in a namespace of the catalog, or in one below it."""
    return place.is_named and place.name.casefold().startswith(f"{namespace.casefold()}.")


def overview(visit: Visit) -> Page:
    """Return the overview of a table: figures, branches, properties, and the allowed verbs."""
    table = visit.table
    files = table.files(["size_bytes", "num_deleted"])
    metadata, protocol = table.metadata, table.protocol
    features = {*(protocol.reader_features or ()), *(protocol.writer_features or ())}
    is_main = visit.place.branch is None  # A branch has no pins.
    pins = table.pins.list().values() if is_main else ()
    pinned = [pin.name for pin in pins if pin.version == table.version]
    indexes = [one[len(_INDEX) :] for one in table.properties if one.startswith(_INDEX)]
    facts = [
        ("Name", metadata.name),
        ("Branch", visit.place.branch),
        ("Description", metadata.description),
        ("Version", f"{table.version}, made {time_text(table.timestamp_ms)}"),
        ("Pinned as", ", ".join(pinned)),
        ("Partitioned by", ", ".join(table.partition_columns)),
        ("Indexes", ", ".join(sorted(indexes))),
        ("Made", time_text(metadata.created_time)),
        ("Id", metadata.id),
        ("Protocol", f"reader {protocol.min_reader_version}, writer {protocol.min_writer_version}"),
        ("Features", ", ".join(sorted(features))),
    ]
    return {
        "numbers": [
            ("rows", number_text(table.count())),
            ("columns", number_text(len(table.schema))),
            ("data files", number_text(files.num_rows)),
            ("bytes", size_text(pc.sum(files["size_bytes"]).as_py() or 0)),
            ("deleted rows in files", number_text(pc.sum(files["num_deleted"]).as_py() or 0)),
        ],
        "facts": [(name, value) for name, value in facts if value],
        "branches": grid(
            "Branches",
            ["Branch", Head("Base", style="n"), Head("Version", style="n")],
            _branches(visit) if is_main else [],
        ),
        "properties": grid(
            "Properties",
            ["Property", "Value"],
            sorted((name, value or "") for name, value in table.properties.items()),
        ),
        "verbs": grid(
            "Capabilities",
            ["Verb", "Allowed", "Reason, or features that it may add"],
            [
                (verb, bool(one), ", ".join(one.may_add) or _refusal(one, table.uri))
                for verb, one in table.capabilities().items()
            ],
        ),
    }


def _branches(visit: Visit) -> list[list[Cell]]:
    """Return a row for each open branch of a table; none if its latest version is damaged."""
    try:
        found = visit.places.branches(visit.place)
    except LogCorruptError:
        return []
    return [
        [
            Cell(row["name"], "", address(place)),
            Cell(number_text(row["base_version"]), "n", visit.at(row["base_version"])),
            Cell(number_text(row["version"]), "n"),
        ]
        for place, row in found
    ]


def rows(
    visit: Visit,
    *,
    columns: str | None,
    where: str | None,
    offset: int,
) -> Page:
    """Return a page of rows. If the log has row counts, files before the page are not read."""
    table = visit.table
    chosen = names_of(columns)
    names = table.schema.names
    left_out = len(names) - MOST_COLUMNS if chosen is None else 0
    scan = table.scan(names[:MOST_COLUMNS] if left_out > 0 else chosen, where)
    found = scan.slice(offset, PAGE_ROWS + 1) if offset else scan.head(PAGE_ROWS + 1)
    asked = {"columns": columns, "where": where}
    return {
        "grid": rows_grid(f"Rows of {visit.place.name}", found.slice(0, PAGE_ROWS)),
        "left_out": max(0, left_out),
        "explain": visit.address("explain", **asked),
        **paged(found.num_rows, offset, lambda at: visit.address("rows", **asked, offset=at)),
        "total": table.count() if where is None else None,
    }


def paged(found: int, offset: int, at: Any) -> Page:
    """Return links to the previous and next page, and the numbers of the first and last row.

    `found` is the number of rows that were read: one more than a page has if there are more.
    """
    return {
        "first": offset + 1 if found else 0,
        "last": offset + min(found, PAGE_ROWS) if found else 0,
        "before": at(max(0, offset - PAGE_ROWS)) if offset else None,
        "after": at(offset + PAGE_ROWS) if found > PAGE_ROWS else None,
    }


def explain(visit: Visit, *, columns: str | None, where: str | None) -> Page:
    """Return the number of files that a scan reads, and of those that it skips for each reason."""
    table = visit.table
    plan = table.scan(names_of(columns), where).explain()
    read = plan.files_to_read
    return {
        "facts": [
            ("Columns", ", ".join(plan.columns)),
            ("Predicate", plan.predicate or "none: all rows"),
        ],
        "numbers": [
            ("files to read", f"{read:,} of {plan.files:,}"),
            ("bytes to read at most", size_text(plan.bytes_to_read)),
            ("skipped by partition values", number_text(plan.pruned_by_partition)),
            ("skipped by statistics", number_text(plan.pruned_by_statistics)),
            ("files with deleted rows", number_text(plan.files_with_deletions)),
        ],
        "rows": visit.address("rows", columns=columns, where=where),
    }


def schema(visit: Visit) -> Page:
    """Return the columns, and the versions that changed the schema or the properties."""
    table = visit.table
    partitions = set(table.partition_columns)
    columns = columns_of(table.snapshot.schema)
    return {
        "columns": grid(
            "Columns",
            ["Column", "Type", "May be null", "Partition", "Comment", "Other metadata"],
            [
                (
                    one.path,
                    one.type,
                    one.nullable,
                    "yes" if one.path in partitions else "",
                    one.metadata.get("comment"),
                    pairs_text({k: v for k, v in one.metadata.items() if k != "comment"}),
                )
                for one in columns
            ],
        ),
        "changes": grid(
            "Changes of the schema and the properties",
            ["Version", "What changed"],
            [
                (
                    Cell(
                        str(one.version), "n", address(visit.place, "schema", version=one.version)
                    ),
                    shortened("; ".join(one.what)),
                )
                for one in metadata_changes(table)
            ],
        ),
    }


def history(visit: Visit, *, offset: int) -> Page:
    """Return one page of the commits, newest first."""
    table = visit.table
    entries = table.history(offset + PAGE_ROWS + 1)[offset:]
    return {
        "grid": grid(
            f"Versions of {visit.place.name}",
            ["Version", "Time", "Operation", "By", "Parameters", "Metrics", "Changed rows"],
            [_entry(visit, entry) for entry in entries[:PAGE_ROWS]],
        ),
        **paged(
            len(entries), offset,
            lambda at: visit.address("history", offset=at),
        ),
    }  # fmt: skip


def _entry(visit: Visit, entry: Mapping[str, Any]) -> list[Cell]:
    version = entry["version"]
    before = Cell("compare", "", address(visit.place, "diff", start=version - 1, end=version))
    return [
        Cell(str(version), "n", visit.at(version)),
        cell(time_text(entry["timestamp"])),
        cell(told_text(entry, "operation") or "?"),
        cell(told_text(entry, "userName", "engineInfo")),
        cell(pairs_text(told_pairs(entry, "operationParameters"))),
        cell(pairs_text(told_pairs(entry, "operationMetrics"))),
        before if version else Cell(""),
    ]


def diff(
    visit: Visit,
    *,
    start: int | str | None,
    end: int | str | None,
    on: str | None,
    where: str | None,
    offset: int,
) -> Page:
    """Return the rows that differ between two versions."""
    table = visit.table
    last = table.version if end is None else end
    first = (last - 1 if isinstance(last, int) and last else 0) if start is None else start
    found = table.diff(first, last, on=names_of(on), where=where)
    names = found.schema.names
    kept: list[pa.RecordBatch] = []
    skipped = 0
    for batch in first_rows(found.to_batches(), offset + PAGE_ROWS + 1):
        over = max(0, offset - skipped)
        skipped += batch.num_rows
        if over < batch.num_rows:
            kept.append(batch.slice(over))
    shown = pa.Table.from_batches(kept, schema=found.schema)
    change = names[-1]
    told = _telling(shown.slice(0, PAGE_ROWS), change, found.on)
    ordered = shown.select([change, *told])
    made = rows_grid(f"Rows that differ between {first} and {last}", ordered.slice(0, PAGE_ROWS))
    for row in made.rows:  # The change types are `insert`, `delete`, `update_preimage`, ….
        row[0] = replace(row[0], style=row[0].text.partition("_")[0])
    asked = {"start": first, "end": last, "on": on, "where": where}
    return {
        "start": first,
        "end": last,
        "key": ", ".join(found.on),
        "left_out": len(names) - 1 - len(told),
        "grid": made,
        **paged(ordered.num_rows, offset, lambda at: visit.address("diff", **asked, offset=at)),
    }


def _telling(rows: pa.Table, change: str, key: Sequence[str]) -> list[str]:
    """Return the columns of differing rows to show, in their order: all of them, if they are few.

    Of many, the key and the columns in which updated rows differ are the first to be chosen.
    """
    names = [name for name in rows.schema.names if name != change]
    if len(names) <= MOST_COLUMNS:
        return names
    # Each old row is followed by the new one, but for the last row of a page.
    before = pc.indices_nonzero(
        pc.equal(rows[change].slice(0, max(0, rows.num_rows - 1)), _OLD_ROW)
    )
    old, new = rows.take(before), rows.take(pc.add(before, 1))
    differ = {
        name
        for name, one, other in zip(rows.schema.names, old.columns, new.columns, strict=True)
        if not one.equals(other)
    }
    wanted = sorted(names, key=lambda name: (name not in key, name not in differ))
    chosen = set(wanted[:MOST_COLUMNS])
    return [name for name in names if name in chosen]


def files(visit: Visit, *, offset: int) -> Page:
    """Return one page of the data files."""
    table = visit.table
    names = ["path", "size_bytes", "num_records", "num_deleted", "partition_values"]
    names.append("modification_time")
    logical = dict(
        zip(table.snapshot.physical_partition_columns, table.partition_columns, strict=True)
    )
    found = table.files(names)
    some = found.slice(offset, PAGE_ROWS + 1)
    heads = ["File", "Bytes", "Rows", "Deleted rows", "Partition", "Written"]
    return {
        "total": found.num_rows,
        "grid": grid(
            f"Data files of {visit.place.name}",
            heads,
            [
                (
                    row["path"],
                    row["size_bytes"],
                    row["num_records"],
                    row["num_deleted"],
                    pairs_text({logical.get(k, k): v for k, v in row["partition_values"] or ()}),
                    cell(time_text(row["modification_time"])),
                )
                for row in some.slice(0, PAGE_ROWS).to_pylist()
            ],
        ),
        **paged(some.num_rows, offset, lambda at: visit.address("files", offset=at)),
    }


def pins(visit: Visit) -> Page:
    """Return the pins of a table."""
    table = visit.table
    found = sorted(table.pins.list().values(), key=lambda pin: (pin.version, pin.name))
    return {
        "names": [pin.name for pin in found],
        "grid": grid(
            f"Pins of {visit.place.name}",
            ["Pin", "Version", "Reason", "Made"],
            [
                (
                    pin.name,
                    Cell(str(pin.version), "n", visit.at(pin.version)),
                    pin.reason,
                    cell(time_text(pin.created_ms)),
                )
                for pin in found
            ],
        ),
    }


def report(visit: Visit, made: Any) -> Page:
    """Return the figures, findings and charts of a report."""
    return {**content(made.facts), "download": visit.address("report.html")}


def table_row(place: Place, table: Table) -> list[Cell]:
    """Return the row of a table for the list of tables."""
    metadata = table.metadata
    text = ": ".join(filter(None, [metadata.name, metadata.description]))
    return [
        Cell(place.name, "", address(place)),
        Cell(str(table.version), "n"),
        Cell(str(len(table.schema)), "n"),
        cell(time_text(table.timestamp_ms)),
        cell(text),
    ]


def broken_row(place: Place, error: TxlogError) -> list[Cell]:
    """Return the row of a table that cannot be opened, with the reason."""
    reason = Cell(shortened(error.reason or error.summary), "error")
    return [Cell(place.name, "", address(place)), Cell(""), Cell(""), Cell(""), reason]


TABLE_HEADS: list[str | Head] = [
    "Table", Head("Version", style="n"), Head("Columns", style="n"), "Changed", "Description",
]  # fmt: skip
