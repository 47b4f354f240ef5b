"""Whether a table still has the columns that Spark took from it.

Spark asks for a schema when a frame is loaded, and for rows when the frame is used: much later,
perhaps. In between, another writer may change the columns.
"""

from __future__ import annotations

from collections.abc import Iterator

from txlog.changes.forms import tightened
from txlog.errors import SchemaMismatchError
from txlog.schema.types import StructType, type_name


def require_loaded(
    loaded: StructType, now: StructType, *, path: str, version: int, of_all: bool
) -> None:
    """Refuse rows of a version that would not be what Spark was told of them. Pure.

    Parameters
    ----------
    loaded
        The columns that Spark knows of.
    now
        The columns of the version.
    of_all
        Whether Spark is to know of all columns of the version, in their order, so that a new one
        is not left out unseen.

    Raises
    ------
    SchemaMismatchError
        A column came, went, is of another type, or may be null by now.
    """
    found = list(_changes(loaded, now))
    if of_all:
        found += [f"column {name} came" for name in now.names() if loaded.get(name) is None]
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
            yield f"column {field.name} went or was renamed"
        elif type_name(field.type) != type_name(found.type):
            yield (
                f"column {field.name} was {type_name(field.type)} "
                f"and became {type_name(found.type)}"
            )
        else:
            for name in tightened(StructType((found,)), StructType((field,)), "none"):
                yield f"column {name} may be null by now"
