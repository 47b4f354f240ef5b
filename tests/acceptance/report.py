"""Report the results of txlog and other engines: `python tests/acceptance/report.py`.

One row for each table and version with a reference; then the counts. What `deltalake`, its
`to_pyarrow_table` and duckdb did is on record in the corpus; txlog runs now.
"""

from __future__ import annotations

import argparse
import sys
from collections import Counter
from typing import Any

from corpus import ROOT, Case, cases
from judging import Finding, fault_of, judge
from rich.console import Console
from rich.progress import track
from rich.table import Table

ENGINES = {
    # Engine → the column of the index that tells whether it opened or read the latest version.
    "deltalake": "deltalake_open",
    "dlarrow": "dlarrow",
    "duckdb": "duckdb",
}
LABELS = {"dlarrow": "deltalake to_pyarrow_table"}


def engine_verdict(engine: str, finding: Finding) -> str:
    """Return what another engine did: right, wrong, refused, or `-` where nobody recorded it."""
    case = finding.case
    if finding.is_latest and fault_of(case) is not None:
        done = case.index[ENGINES[engine]]
        return "-" if not done else "right" if done.startswith("ERR") else "wrong"
    if finding.basis == "log only":
        return "-"  # They could not read rows that are not there.
    answer = _reference(finding).get("answer") or {}
    for verdict, names in (("right", "matching"), ("wrong", "differing"), ("error", "failing")):
        if engine in (answer.get(names) or ()):
            return verdict
    return "-"


def _reference(finding: Finding) -> dict[str, Any]:
    for reference in finding.case.references:
        version = None if reference["is_latest"] else reference["version"]
        if version == finding.version:
            return reference
    return {}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--all", action="store_true", help="show every row, not only differences")
    parser.add_argument("tables", nargs="*", help="only tables whose names contain one of these")
    arguments = parser.parse_args()
    if not cases():
        print(f"the corpus of other engines' tables is not at {ROOT}", file=sys.stderr)
        return 2
    chosen = [case for case in cases() if _is_chosen(case, arguments.tables)]
    console = Console(width=None if sys.stdout.isatty() else 180)
    shown = track(chosen, console=Console(stderr=True), description="judging", transient=True)
    findings = [finding for case in shown for finding in judge(case)]
    console.print(_rows(findings, everything=arguments.all))
    console.print(_counts(findings))
    return int(any(finding.verdict != "right" for finding in findings))


def _is_chosen(case: Case, parts: list[str]) -> bool:
    return not parts or any(part in case.name for part in parts)


def _rows(findings: list[Finding], *, everything: bool) -> Table:
    names = ["table", "version", "basis", "txlog", *(LABELS.get(name, name) for name in ENGINES)]
    table = Table(*names, title="Tables" if everything else "Tables on which engines differ")
    for finding in findings:
        others = [engine_verdict(engine, finding) for engine in ENGINES]
        if everything or {finding.verdict, *others} - {"right", "-"}:
            version = "latest" if finding.is_latest else str(finding.version)
            table.add_row(finding.case.name, version, finding.basis, finding.verdict, *others)
    return table


def _counts(findings: list[Finding]) -> Table:
    table = Table("engine", "right", "wrong", "refused", "error", "not judged", title="Counts")
    verdicts = {"txlog": Counter(finding.verdict for finding in findings)}
    for engine in ENGINES:
        verdicts[LABELS.get(engine, engine)] = Counter(
            engine_verdict(engine, finding) for finding in findings
        )
    for engine, counted in verdicts.items():
        cells = (str(counted[name]) for name in ("right", "wrong", "refused", "error", "-"))
        table.add_row(engine, *cells)
    return table


if __name__ == "__main__":
    sys.exit(main())
