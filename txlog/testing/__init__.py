"""Tools for extensions of txlog: the contract of stores, and stores for tests.

One store fails by a plan, one counts requests, and one is slow. They can wrap each other, and
`open_table` opens a table in them::

    store = CountingStore(LatencyStore(open_store("/data/flights"), delay_s=0))
    open_table(store).to_arrow()
    print(store.requests, store.bytes)
"""

from txlog.extend import open_store, open_table
from txlog.testing.faults import (
    Crash,
    CrashingStore,
    CrashPoint,
    Fault,
    FaultKind,
    FaultyStore,
    crash_points,
)
from txlog.testing.reading_contract import ReadingContract
from txlog.testing.store_contract import StoreContract
from txlog.testing.stores import CountingStore, LatencyStore, Request, unsealed

__all__ = [
    "CountingStore",
    "Crash",
    "CrashPoint",
    "CrashingStore",
    "Fault",
    "FaultKind",
    "FaultyStore",
    "LatencyStore",
    "ReadingContract",
    "Request",
    "StoreContract",
    "crash_points",
    "open_store",
    "open_table",
    "unsealed",
]


def __dir__() -> list[str]:
    return [*__all__]
