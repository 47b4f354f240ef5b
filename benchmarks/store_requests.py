"""Requests of each verb on an object store, beside deltalake's on the same server."""

import argparse
import sys
from datetime import UTC, datetime
from pathlib import Path

from bench import commit, put_section

ROOT = Path(__file__).parents[1]
sys.path[:0] = [str(ROOT), str(ROOT / "tests" / "store")]

from beside_deltalake import AFTER, FILES, count  # noqa: E402


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--dry", action="store_true", help="only print")
    given = parser.parse_args()
    lines = [f"| {verb} | {ours} | {theirs} |" for verb, (ours, theirs) in count().items()]
    text = "\n".join(
        [
            "## Requests on an object store",
            "",
            (
                f"{datetime.now(UTC):%Y-%m-%d}, commit {commit()}. {FILES} files of 100 rows, a "
                f"checkpoint and {AFTER} commits after it; requests that a proxy in front of "
                "LocalBucket counted. The merge updates 5 rows of one file and adds 5."
            ),
            "",
            "| | txlog | deltalake |",
            "|---|---|---|",
            *lines,
            "",
        ]
    )
    print("\n" + text)
    if not given.dry:
        put_section(text)


if __name__ == "__main__":
    main()
