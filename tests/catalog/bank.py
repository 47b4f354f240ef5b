"""A process that moves money between accounts in three tables, until it is killed."""

import random
import sys
from contextlib import suppress

from txlog import Catalog
from txlog.base.errors import CommitConflictError, RetriesExhaustedError, StoreError
from txlog.catalog.transaction import CatalogTransaction

TABLES = ("checking", "savings", "loans")
ACCOUNTS = 4
START = 100


def moved(changes: CatalogTransaction, chance: random.Random) -> bool:
    """Move some money if it is there; return whether it was."""
    source, target = chance.sample([(t, a) for t in TABLES for a in range(ACCOUNTS)], 2)
    amount = chance.randint(1, 50)
    have = changes[source[0]].to_arrow(["v"], where=f"id = {source[1]}")["v"].to_pylist()[0]
    if have < amount:
        return False
    changes[source[0]].update({"v": str(have - amount)}, f"id = {source[1]}")
    changes[target[0]].update({"v": f"v + {amount}"}, f"id = {target[1]}")
    return True


def main(database: str, seed: int) -> None:
    catalog, chance = Catalog(database), random.Random(seed)
    while True:
        with suppress(CommitConflictError, RetriesExhaustedError, StoreError):
            if catalog.run(lambda changes: moved(changes, chance), attempts=3):
                sys.stdout.write("moved\n")
                sys.stdout.flush()


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]))
