"""pylance reads deletion files of txlog in the place of its own, and adds deletions to them."""

from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyroaring import BitMap64

from txlog.fragments.deletion_file import decode_deletions, encode_deletions, parse_deletion_name

ROWS = 200_000
SETS = {
    "one": [ROWS - 1],
    "4999 rows": list(range(4999)),
    "5000 rows": list(range(5000)),
    "every tenth": list(range(3, ROWS, 10)),
    "straddling": list(range(60_000, 66_000)),
    "all but one": list(range(ROWS - 1)),
}


@pytest.mark.slow
@pytest.mark.parametrize("name", SETS)
def test_our_file_in_the_place_of_its_own(tmp_path: Path, name: str) -> None:
    lance: Any = pytest.importorskip("lance")
    ours, home = SETS[name], tmp_path / "table"
    data = pa.table({"x": pa.array(range(ROWS), pa.int64())})
    table = lance.write_dataset(data, str(home), max_rows_per_file=ROWS + 1)
    # As many other rows: its manifest keeps the kind of the file and the number, not the set.
    theirs = [(row + 1) % ROWS for row in ours]
    table.delete(f"x in ({', '.join(map(str, theirs))})")
    (file,) = (home / "_deletions").iterdir()
    said = parse_deletion_name(file.name)
    assert said is not None
    assert said[:2] == (0, 1)
    assert sorted(decoded(file, len(ours))) == sorted(theirs)
    file.write_bytes(encode_deletions(BitMap64(ours), kind=said.kind))

    def again() -> Any:  # A session keeps deletion files that it has read.
        return lance.dataset(str(home), session=lance.Session())

    left = sorted(set(range(ROWS)) - set(ours))
    assert again().count_rows() == len(left)
    assert again().to_table()["x"].to_pylist() == left
    again().delete(f"x = {left[0]}")
    assert again().count_rows() == len(left) - 1
    newer = [path for path in (home / "_deletions").iterdir() if path != file]
    if len(left) > 1:
        assert sorted(decoded(newer[0], len(ours) + 1)) == sorted([*ours, left[0]])


def decoded(file: Path, count: int) -> BitMap64:
    said = parse_deletion_name(file.name)
    assert said is not None
    return decode_deletions(
        file.read_bytes(), kind=said.kind, cardinality=count, rows=ROWS, path=file.name
    )
