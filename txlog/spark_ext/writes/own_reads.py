"""Which version of a table a frame reads that is written to the same table.

Its rows replace those of that version. If another writer has changed these, the write would undo
it, and Spark does not say of a frame what it reads.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from txlog.base.errors import CommitConflictError, TxlogError
from txlog.base.texts import without_secrets
from txlog.spark_ext.plans import class_of, each, has_plan, java_class, kept_parts, plans_of
from txlog.spark_ext.reads.marks import READ_BRANCH, READ_TABLE, READ_VERSION
from txlog.spark_ext.source.options import Options
from txlog.store.branches import branch_id, branch_option, chain_of
from txlog.store.open import open_store
from txlog.store.places import same_place
from txlog.verbs.same_rows import EVERY_FILE, has_other_rows

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from txlog.snapshot.snapshot import Snapshot
    from txlog.store.base import Store

_CONNECT = "_plan"  # There is no public way to get the plan of a frame.
_OWN_FORMAT = "txlog"
LATER = -1
"""A version that no mark has: that of a read which asks for the latest one."""
_OF_CHOICE = ("versionasof", "timestampasof", "endingversion", "endingtimestamp")


@dataclass(frozen=True)
class Relation:
    """Files, or a table of the data source, with its options in lower case."""

    options: Mapping[str, str]
    is_source: bool  # Whether it is a table of txlog's data source.


def version_read(df: DataFrame, store: Store, latest: int) -> int | None:
    """Return the earliest version of a table that a frame reads, or None if it does not read it.

    A version that the caller has chosen does not count: its rows are meant to replace later ones.
    The data source reads the latest version when the frame is computed, which is `latest` or a
    later one. On Spark Connect, names of views and tables of the server count as reads of it.
    """
    found = [
        version
        for one in _relations(df)
        if (version := latest if one is None else version_of(one, store, latest)) is not None
    ]
    return min(found, default=None)


def reads_latest(df: DataFrame, store: Store) -> bool:
    """Return whether a frame has the rows that a table has when the frame is computed.

    On Spark Connect, this is not known of names of views and tables of the server.
    """
    found = (one for one in _relations(df) if one is not None)
    return any(version_of(one, store, LATER) == LATER for one in found)


def reads_table(df: DataFrame, store: Store) -> bool:
    """Return whether a frame reads a table, in a version that the caller has not chosen.

    On Spark Connect, this is not known of names of views and tables of the server.
    """
    found = (one for one in _relations(df) if one is not None)
    return any(version_of(one, store, 0) is not None for one in found)


# Leaves of a plan that have the same rows whenever they are computed.
_FIXED_LEAVES = frozenset(
    {"LocalRelation", "OneRowRelation", "Range", "LogicalRDD", "InMemoryRelation"}
)
# Parts of a plan whose result depends on the time, or on the order in which tasks run.
_UNSETTLED = ("CURRENT_LIKE", "LIMIT", "WINDOW", "PYTHON_UDF")
_UNSETTLED_NODES = frozenset({"Deduplicate", "DeduplicateWithinWatermark", "Sample"})


def is_settled(df: DataFrame) -> bool:
    """Return whether a frame certainly has the same rows whenever it is computed.

    Its parts may then be computed at different times. False on Spark Connect, which does not say
    what a plan reads, for sources that Spark asks again each time, and where `is_repeatable` is.
    """
    if not has_plan(df) or not is_repeatable(df):
        return False
    return all(_is_fixed(leaf) for one in plans_of(df) for leaf in each(one.collectLeaves()))


def is_repeatable(df: DataFrame) -> bool:
    """Return whether the same input certainly gives a frame of Spark the same rows.

    False for random numbers, the clock, functions in Python, and what depends on the order in
    which tasks run: `LIMIT`, windows, duplicates of which one stays. A frame that Python made of
    an RDD counts as input. On Spark Connect this is not known.
    """
    patterns = java_class(df, "org.apache.spark.sql.catalyst.trees.TreePattern")
    unsettled = [getattr(patterns, name)() for name in _UNSETTLED]
    for one in plans_of(df):
        if not one.deterministic() or any(map(one.containsPattern, unsettled)):
            return False
        if any(class_of(node) in _UNSETTLED_NODES for node in _nodes(one)):
            return False
    return True


def _nodes(plan: Any) -> Iterator[Any]:
    yield plan
    for child in each(plan.children()):
        yield from _nodes(child)


def require_unchanged(
    df: DataFrame | None, source: DataFrame | None, store: Store, base: Snapshot, asked: int
) -> None:
    """Raise if a change reads its table in its source or in a subquery, and other rows are there.

    A writer has changed the table since the version that they read, at the first attempt or
    at a later one, when Spark may have computed them already. Of rows that the data source has
    read and Spark keeps, nobody knows the version. A version that the caller has chosen does not
    count. On Spark Connect, names of views and tables of the server are not looked at, nor
    are subqueries.

    Parameters
    ----------
    df
        The frame with the changed rows, which reads the table itself. None: it is not known yet.
    source
        The other side of a merge.
    base
        The version of the log that is changed.
    asked
        The version of the log at the first attempt: what the data source has read if it was asked.

    Raises
    ------
    CommitConflictError
        They read a version with other rows, or Spark keeps rows of an unknown version.
    """
    if _keeps_latest(df, store) or _keeps_latest(source, store):
        raise CommitConflictError(
            version=base.version,
            rule="CON-30",
            path=store.root,
            reason="the change is computed from rows of the table that Spark keeps (cache or "
            "persist), and Spark does not say of which version they are, because the frame reads "
            "the latest one each time it is computed",
            remedy="Nothing was committed. Make the frame by toDF or spark_ext.read, or name the "
            "version (option versionAsOf), before Spark keeps it; or call unpersist",
        )
    read = {version_of(one, store, asked) for one in _of_change(df, source)}
    for version in sorted(one for one in read if one is not None):
        if has_other_rows(store, base, version, EVERY_FILE):
            raise CommitConflictError(
                version=base.version,
                rule="CON-30",
                path=store.root,
                reason=f"the change is computed from other rows of version {version} of the table, "
                f"and an earlier statement of this session or another writer has changed it since. "
                f"{_why_it_stays(df, source)}",
                remedy="Nothing was committed. Make the frame (by toDF or spark_ext.read) or the "
                "view anew just before the statement, with foreachBatch inside the function, and "
                f"run the statement again. If the rows of version {version} are meant, name it "
                "where they are read",
            )


def _why_it_stays(df: DataFrame | None, source: DataFrame | None) -> str:
    """Say why a frame does not follow its table; see `followed`."""
    frame = df if source is None else source
    if frame is not None and not has_plan(frame):
        return "Frames of Spark Connect stay at the version that was read"
    return (
        "The frame cannot follow the table: its columns have changed, Spark keeps its rows (cache "
        "or persist), or its rows were computed before the first attempt"
    )


def _keeps_latest(df: DataFrame | None, store: Store) -> bool:
    """Return whether Spark keeps rows that the data source has read, of whichever version."""
    if df is None or not has_plan(df) or not reads_latest(df, store):
        return False
    return any(version_of(one, store, LATER) == LATER for one in kept_relations(df))


def change_reads_table(df: DataFrame | None, source: DataFrame | None, store: Store) -> bool:
    """Return whether a change reads its table in its source or in a subquery.

    The frames are those of `require_unchanged`, and what it does not look at does not count.
    """
    return any(version_of(one, store, 0) is not None for one in _of_change(df, source))


def _of_change(df: DataFrame | None, source: DataFrame | None) -> Iterator[Relation]:
    """Yield the relations of the source of a change, and those of subqueries of its frame."""
    if source is not None:
        yield from (one for one in _relations(source) if one is not None)
    for inner in plans_of(df)[1:] if df is not None and has_plan(df) else ():
        yield from relations_of_plan(inner)


def _is_fixed(leaf: Any) -> bool:
    if class_of(leaf) in _FIXED_LEAVES:
        return True
    one = relation_of(leaf)
    return one is not None and (not one.is_source or "versionasof" in one.options)


def version_of(one: Relation, store: Store, latest: int) -> int | None:
    """Return the version of a table that a relation reads, or None.

    A branch and its table count as different tables: their versions have nothing in common.
    """
    chosen = one.options.get(READ_TABLE.lower())
    if chosen is not None:
        version = int(one.options[READ_VERSION.lower()])
        if one.options.get(READ_BRANCH.lower()) != branch_id(store):
            return None
        return version if same_place(chosen, without_secrets(store.root)) else None
    path = one.options.get("path")
    if not one.is_source or path is None or any(name in one.options for name in _OF_CHOICE):
        return None
    try:
        root = open_store(path, store.options).root
        chosen_branch = branch_option(Options(one.options).storage)
    except TxlogError:  # It is in another kind of store.
        return None
    if not _is_branch(chosen_branch, store):
        return None
    return latest if same_place(root, store.root) else None


def _is_branch(option: str | None, store: Store) -> bool:
    """Return whether a storage option chooses the branch that a store shows, or none does."""
    branch = chain_of(store)
    if option is None or branch is None:
        return option is None and branch is None
    return option in (branch.name, branch.token)


def _relations(df: DataFrame) -> Iterator[Relation | None]:
    """Yield the relations that a frame reads; None stands for a name that only a server knows."""
    if has_plan(df):
        for one in plans_of(df):
            yield from relations_of_plan(one)
    else:
        session: Any = df.sparkSession
        yield from _of_message(getattr(df, _CONNECT).to_proto(session.client))


def relations_of_plan(plan: Any) -> Iterator[Relation]:
    """Yield the relations of a plan of the JVM, without those of its subqueries."""
    for leaf in each(plan.collectLeaves()):
        found = relation_of(leaf)
        if found is not None:
            yield found


def kept_relations(df: DataFrame | None) -> Iterator[Relation]:
    """Yield the relations whose rows Spark keeps for a frame of classic Spark, or for parts of it.

    None for other frames.
    """
    for part in kept_parts(df) if df is not None and has_plan(df) else ():
        for plan in (part, *each(part.subqueriesAll())):
            yield from relations_of_plan(plan)


def relation_of(leaf: Any) -> Relation | None:
    """Return what a leaf of a plan reads; None if it has neither files nor options."""
    kind = class_of(leaf)
    # Relations of other sources, such as JDBC, have neither files nor options.
    if kind == "LogicalRelation" and class_of(leaf.relation()) == "HadoopFsRelation":
        options = leaf.relation().options()
        names = ("path", READ_TABLE, READ_VERSION, READ_BRANCH)
        found = {name.lower(): options.get(name.lower()) for name in names}
        given = {name: str(one.get()) for name, one in found.items() if one.isDefined()}
        return Relation(given, is_source=False)
    if kind == "DataSourceV2Relation":
        given = {
            str(name).lower(): str(value)
            for name, value in dict(leaf.options().asCaseSensitiveMap()).items()
        }
        return Relation(given, leaf.table().name().lower() == _OWN_FORMAT)
    return None


def _of_message(message: Any) -> Iterator[Relation | None]:
    """Yield the relations in a message of Spark Connect, at any depth."""
    name = message.DESCRIPTOR.name
    if name == "DataSource":
        options = {key.lower(): value for key, value in message.options.items()}
        options |= {"path": message.paths[0]} if len(message.paths) == 1 else {}
        yield Relation(options, message.format.lower() == _OWN_FORMAT)
        return
    if name in ("NamedTable", "SQL"):
        yield None
    for field, value in message.ListFields():
        if field.message_type is None:
            continue
        for inner in _members(value):
            if hasattr(inner, "ListFields"):
                yield from _of_message(inner)


def _members(value: Any) -> Iterator[Any]:
    """Yield the messages in a field's value: a message, or several, or those of a mapping."""
    if hasattr(value, "ListFields"):
        yield value
    elif hasattr(value, "values"):
        yield from value.values()
    else:
        yield from value
