"""The dependencies of a verb: the store, the effects (clock, ids, randomness), and the engine."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from txlog.base.effects import REAL, Effects
from txlog.base.errors import InvalidInputError, InvalidTypeError
from txlog.base.threads import Engine, Threads, is_in_process
from txlog.protocol.properties import INDEX_PREFIX
from txlog.store.base import Store

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from txlog.fragments.fragment import Fragment
    from txlog.lookup.indexed import GivenKeys
    from txlog.lookup.indexes import Coverage
    from txlog.lookup.lookup import LookupCache
    from txlog.scan.plan import ScanPlan
    from txlog.snapshot.snapshot import Snapshot


class Lookups:
    """The cache of look-ups of a table, which is made at its first use. It pickles empty.

    Parameters
    ----------
    folder
        A local folder for index segments from remote stores.
    """

    def __init__(self, folder: str | None = None) -> None:
        self.folder = folder
        self.made: LookupCache | None = None

    def cache(self) -> LookupCache:
        """Return the cache."""
        from txlog.lookup.lookup import LookupCache

        if self.made is None:
            self.made = LookupCache(segment_folder=self.folder)
        return self.made

    def __reduce__(self) -> tuple[type[Lookups], tuple[str | None]]:
        return Lookups, (self.folder,)


@dataclass(frozen=True)
class Context:
    """The store of a table, the effects, and the engine that works on many files at once."""

    store: Store
    effects: Effects = REAL
    engine: Engine = field(default_factory=Threads)
    time_zone: str | None = None  # Of predicates and values in SQL. None: that of the engine.
    lookups: Lookups = field(default_factory=Lookups, repr=False, compare=False)

    @property
    def zone(self) -> str | None:
        """The time zone of predicates: a Spark session has one, else it is UTC (None)."""
        return self.time_zone or getattr(self.engine, "time_zone", None)

    def indexed(
        self,
        snapshot: Snapshot,
        plan: ScanPlan,
        keys: GivenKeys | None = None,
        *,
        fragments: Callable[[], Sequence[Fragment]] | None = None,
        coverages: dict[tuple[str, ...], Coverage] | None = None,
    ) -> ScanPlan:
        """Return a plan that uses an index of the table if there is one for its rows.

        The arguments are those of `txlog.lookup.indexed.indexed_plan`.
        """
        if not any(name.startswith(INDEX_PREFIX) for name in snapshot.metadata.configuration):
            return plan
        from txlog.lookup.indexed import indexed_plan

        return indexed_plan(
            self.store,
            snapshot,
            plan,
            self.lookups.cache(),
            keys=keys,
            fragments=fragments,
            coverages=coverages,
        )

    def __post_init__(self) -> None:
        if not callable(getattr(self.engine, "map", None)):
            raise InvalidTypeError(
                argument="engine",
                reason=f"a {type(self.engine).__name__} is not an engine: it has no method map",
                remedy="Make an engine from a Spark session with "
                "txlog.spark_ext.SparkEngine(spark)",
            )
        if not is_in_process(self.engine):
            require_shared(
                self.store,
                argument="engine",
                remedy="Omit the engine, or put the table in a store that all workers reach",
            )


def require_shared(store: Store, *, argument: str, remedy: str) -> None:
    """Raise unless workers in other processes can read the files of a store.

    Raises
    ------
    InvalidInputError
        The store is in the memory of this process.
    """
    from txlog.store.memory import MemoryStore

    if isinstance(store, MemoryStore):
        raise InvalidInputError(
            argument=argument,
            reason=f"{store.root} is in the memory of this process, and workers in other "
            "processes cannot read it",
            remedy=remedy,
        )
