"""For people who extend txlog: the contract of stores, and faults to try code with."""

from txlog.testing.faults import Fault, FaultKind, FaultyStore
from txlog.testing.logs import unsealed
from txlog.testing.reading_contract import ReadingContract
from txlog.testing.store_contract import StoreContract

__all__ = ["Fault", "FaultKind", "FaultyStore", "ReadingContract", "StoreContract", "unsealed"]
