"""Values for the templates of pages of data sets, from the public API of data sets."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, cast

from txlog.base.texts import number_or_name
from txlog.tools.report.page import time_text
from txlog.tools.ui.cells import Cell, Grid, cell, grid, link, pairs_text, shortened
from txlog.tools.ui.pages import PAGE_ROWS, Page, address, paged
from txlog.tools.ui.places import Place, Places
from txlog.training import Commit, Dataset, Datasets, Graph, Summary, TrainingSet

if TYPE_CHECKING:
    from txlog.training import Direction

# The pages of a data set, by the last part of their URLs.
NAMES = {"": "Commits", "sets": "Training sets", "lineage": "Lineage"}


@dataclass(frozen=True)
class Visit:
    """A data set that a page shows."""

    places: Places
    place: Place  # Of the folder of data sets.
    folder: Datasets
    dataset: Dataset

    def address(self, page: str = "", **parameters: Any) -> str:
        """Return the address of another page of the data set."""
        return dataset_address(self.place, self.dataset.dataset_id, page, **parameters)


def dataset_address(place: Place, number: int, page: str = "", **parameters: Any) -> str:
    """Return the address of a page of a data set."""
    step = f"/{page}" if page else ""
    return link(f"/datasets/{place.key}/{number}{step}", **parameters)


def listed(place: Place, opened: Datasets, *, after: int | None) -> Page:
    """Return one page of the data sets of a folder whose numbers are greater than `after`."""
    found = opened.list(PAGE_ROWS + 1, after)
    shown = found[:PAGE_ROWS]
    more = shown[-1].dataset_id if len(found) > PAGE_ROWS else None
    return {
        "grid": grid(
            f"Data sets of {place.name}",
            ["Number", "Data set", "Type", "Commits", "Rows", "Changed", "Description"],
            [_row(place, one) for one in shown],
        ),
        "steps": _steps(opened),
        "before": link(f"/datasets/{place.key}") if after else None,
        "after": link(f"/datasets/{place.key}", after=more) if more else None,
    }


def _steps(opened: Datasets) -> Grid | None:
    """Return the steps that make one data set from another; None if there are none."""
    steps = opened.steps()
    if not steps:
        return None
    return grid(
        "Steps",
        ["Step", "Input", "Program", "Result", "State", "Done", "Waiting", "Error"],
        [
            [
                one.name,
                one.input,
                one.run if isinstance(one.run, str) else " ".join(one.run),
                one.into,
                one.state,
                one.done,
                ranges_text(one.waiting) or (f"at the branch {one.branch}" if one.branch else ""),
                shortened(one.error.text) if one.error else "",
            ]
            for one in steps
        ],
    )


def _row(place: Place, one: Summary) -> list[Cell]:
    return [
        Cell(str(one.dataset_id), "n"),
        Cell(one.name, "", dataset_address(place, one.dataset_id)),
        cell(one.type),
        cell(len(one.commits)),
        cell(sum(commit.rows for commit in one.commits if not commit.purged)),
        cell(time_text(one.last_updated_ms)),
        cell(one.description),
    ]


def commits(visit: Visit, *, offset: int) -> Page:
    """Return the facts of a data set and one page of its commits, newest first."""
    summary = visit.dataset.summary()
    names = _names_of(summary.names)
    newest = summary.commits[::-1]
    shown = newest[offset : offset + PAGE_ROWS + 1]
    uri = f"{visit.folder.root.rstrip('/')}/data/{summary.uuid}"
    table = visit.places.at_uris([uri])[0]
    facts = [
        ("Description", summary.description),
        ("Type", summary.type),
        ("Number", str(summary.dataset_id)),
        ("Id", summary.uuid),
        ("Made", time_text(summary.created_ms)),
        ("Changed", time_text(summary.last_updated_ms)),
        ("State", "deleted; undelete restores it" if summary.deleted else None),
    ]
    return {
        "facts": [(name, value) for name, value in facts if value],
        "table": table and address(table),
        "total": len(newest),
        "grid": grid(
            f"Commits of {summary.name}",
            ["Commit", "Names", "Time", "Rows", "Message", "Tags", "State", "Digest", "Made from"],
            [_commit(visit, one, names, table) for one in shown[:PAGE_ROWS]],
        ),
        **paged(len(shown), offset, lambda at: visit.address(offset=at)),
    }


def _commit(
    visit: Visit, one: Commit, names: Mapping[int | str, str], table: Place | None
) -> list[Cell]:
    rows = address(table, "rows", where=f"commit_id = {one.commit_id}") if table else ""
    on = "" if one.branch is None else f"on the branch {one.branch}"
    state = "purged" if one.purged else "hidden" if one.hidden else on
    return [
        Cell(str(one.commit_id), "n", "" if one.purged else rows),
        cell(names.get(one.commit_id)),
        cell(time_text(one.created_ms)),
        cell(one.rows),
        cell(one.message),
        cell(pairs_text(one.tags)),
        cell(state),
        cell(one.digest[:12]),
        Cell("lineage", "", visit.address("lineage", of=one.commit_id)),
    ]


def training_sets(visit: Visit, *, offset: int) -> Page:
    """Return one page of the training sets of a data set, newest first."""
    names = _names_of(visit.dataset.summary().names)
    newest = visit.dataset.training_sets()[::-1]
    shown = newest[offset : offset + PAGE_ROWS + 1]
    tables = visit.places.at_uris(list(map(_table_uri, shown)))
    return {
        "total": len(newest),
        "grid": grid(
            f"Training sets of {visit.dataset.name}",
            ["Training set", "Names", "State", "Commits", "Form", "Options", "Examples", "Parts",
             "Bytes", "Made from"],
            [
                _training_set(visit, one, names, table)
                for one, table in zip(shown[:PAGE_ROWS], tables, strict=False)
            ],
        ),
        **paged(len(shown), offset, lambda at: visit.address("sets", offset=at)),
    }  # fmt: skip


def _table_uri(one: TrainingSet) -> str | None:
    """Return the URI of the table with the examples of a training set; None without a table."""
    folder = next((part.name.partition("/")[0] for part in one.parts if "/" in part.name), None)
    return f"{one.root}/{folder}" if one.root and folder else None


def _training_set(
    visit: Visit, one: TrainingSet, names: Mapping[int | str, str], table: Place | None
) -> list[Cell]:
    failed = one.state == "FAILED"
    state = shortened(f"FAILED: {one.error.text}") if one.error else one.state
    counts = [part.rows for part in one.parts if part.rows is not None]
    return [
        Cell(one.version_hash[:14], "", address(table) if table else ""),
        cell(names.get(one.version_hash)),
        Cell(state, "error" if failed else ""),
        cell(ranges_text(one.picked)),
        cell(one.form),
        cell(pairs_text(one.options)),
        cell(sum(counts) if counts else None),
        cell(len(one.parts)),
        cell(sum(part.bytes for part in one.parts)),
        Cell("lineage", "", visit.address("lineage", of=one.version_hash)),
    ]


def lineage(visit: Visit, *, of: str | None, direction: str | None) -> Page:
    """Return the inputs of a commit or a training set, or everything that was made from it."""
    wanted = cast("Direction", direction or "up")
    target: int | str | None = None if of is None else number_or_name(of)
    graph = visit.dataset.lineage(target, wanted)
    start = graph.nodes[0]
    return {
        "start": start.label,
        "direction": wanted,
        "grid": _edges(graph, wanted),
        "other": visit.address("lineage", of=of, direction="down" if wanted == "up" else "up"),
        "nodes": len(graph.nodes),
    }


def _edges(graph: Graph, direction: str) -> Any:
    nodes = {node.id: node for node in graph.nodes}
    rows = []
    for edge in graph.edges:
        source, target = nodes[edge.source], nodes[edge.target]
        far = source if direction == "up" else target
        rows.append(
            (
                Cell(target.title),
                cell(edge.role),
                Cell(source.title + (" (purged)" if source.purged else "")),
                far.kind,
                (far.digest or "")[:12],
            )
        )
    heads = ["Result", "Role", "Source", "Kind", "Digest"]
    return grid("Lineage", heads, rows)


def _names_of(names: Mapping[str, int | str]) -> dict[int | str, str]:
    """Return the names of each commit and training set, separated by commas."""
    found: dict[int | str, list[str]] = {}
    for name, target in sorted(names.items()):
        found.setdefault(target, []).append(name)
    return {target: ", ".join(some) for target, some in found.items()}


def ranges_text(numbers: Sequence[int]) -> str:
    """Return ascending numbers in a short form: `1 to 4, 7`."""
    ranges: list[list[int]] = []
    for number in numbers:
        if ranges and ranges[-1][1] == number - 1:
            ranges[-1][1] = number
        else:
            ranges.append([number, number])
    return ", ".join(str(a) if a == b else f"{a} to {b}" for a, b in ranges)
