"""Check that a table still has the columns that Spark has loaded.

Spark asks for a schema when a frame is loaded, and for rows when the frame is used, perhaps much
later. In between, another writer may change the columns.
"""

from __future__ import annotations

from collections.abc import Iterator

from txlog.changes.forms import tightened
from txlog.errors import SchemaMismatchError
from txlog.schema.types import StructType, type_name


def require_loaded(
    loaded: StructType, now: StructType, *, path: str, version: int, of_all: bool
) -> None:
    """Raise if the rows of a version do not fit the columns that Spark has loaded. Pure.

    Parameters
    ----------
    loaded
        The columns that Spark has loaded.
    now
        The columns of the version.
    of_all
        Whether Spark must know all columns of the version, in their order, so that a new column is
        not left out silently.

    Raises
    ------
    SchemaMismatchError
        A column was added or dropped, has another type, or is nullable now.
    """
    found = list(_changes(loaded, now))
    if of_all:
        found += [f"column {name} was added" for name in now.names() if loaded.get(name) is None]
        if not found and loaded.names() != now.names():
            found.append("the names or the order of the columns changed")
    if found:
        raise SchemaMismatchError(
            argument="schema",
            path=path,
            reason=f"version {version} has other columns than those that Spark took from the table "
            f"when it was loaded: {'; '.join(found)}",
            remedy="Load the stream again, without a schema of your own, and start it with the "
            "same checkpoint"
            if of_all
            else "Load the frame again; make a table of Spark's catalog again, which keeps columns",
        )


def _changes(loaded: StructType, now: StructType) -> Iterator[str]:
    for field in loaded.fields:
        found = now.get(field.name)
        if found is None:
            yield f"column {field.name} was dropped or renamed"
        elif type_name(field.type) != type_name(found.type):
            yield (
                f"column {field.name} was {type_name(field.type)} "
                f"and became {type_name(found.type)}"
            )
        else:
            for name in tightened(StructType((found,)), StructType((field,)), "none"):
                yield f"column {name} may be null now"
