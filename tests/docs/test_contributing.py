"""The example verb of CONTRIBUTING.md works."""

import re
from pathlib import Path

import pyarrow as pa

import txlog
from txlog.commit.operation import execute

GUIDE = Path(__file__).parents[2] / "CONTRIBUTING.md"


def test_the_verb_of_the_guide_works(tmp_path: Path) -> None:
    (code,) = re.findall(r"```python\n(.*?)```", GUIDE.read_text(encoding="utf-8"), flags=re.DOTALL)
    names: dict[str, object] = {}
    exec(code, names)
    table = txlog.write(tmp_path / "t", pa.table({"x": [1]}))
    operation = names["SetDescription"]("of planes")  # type: ignore[operator]
    done = execute(
        operation, table._context, table.snapshot, txn=("job", 1), user_metadata="asked for"
    )
    assert (done.outcome.operation, done.outcome.version) == ("SET DESCRIPTION", 1)
    opened = txlog.Table(tmp_path / "t")
    assert opened.metadata.description == "of planes"
    assert opened.history(1)[0]["userMetadata"] == "asked for"
    assert execute(operation, opened._context, opened.snapshot, txn=("job", 1)).outcome.skipped
    assert not execute(operation, opened._context, opened.snapshot).outcome
