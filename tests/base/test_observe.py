"""Events of `logging`, and spans and metrics in the SDK of OpenTelemetry."""

import json
import logging
import re
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path
from threading import get_ident
from typing import Any

import pyarrow as pa
import pytest

import txlog
from txlog.base import observe

HERE = Path(__file__).parent
PAGE = HERE.parents[1] / "docs" / "guides" / "observe.md"
ROWS = pa.table({"id": [1, 2, 3]})


def events(caplog: pytest.LogCaptureFixture) -> list[dict[str, Any]]:
    """Return the facts of the events, without the times and the table."""
    found = []
    for record in caplog.records:
        if record.thread != get_ident():  # Another test's training set is still made.
            continue
        facts = {
            name.removeprefix("txlog_"): value
            for name, value in vars(record).items()
            if name.startswith("txlog_")
        }
        if facts.get("operation") != "OPEN":
            facts.pop("duration_s", None)
            facts.pop("table", None)
            found.append(facts)
    return found


class TestLogging:
    @pytest.fixture(autouse=True)
    def quiet_before(self, caplog: pytest.LogCaptureFixture) -> None:
        """Catch nothing before a test asks, at whatever level a package left the root logger."""
        caplog.set_level("WARNING", "txlog")

    def test_a_commit_is_told_with_its_facts(
        self, tmp_path: Path, caplog: pytest.LogCaptureFixture
    ) -> None:
        table = txlog.write(tmp_path, ROWS)
        caplog.set_level("DEBUG", "txlog")
        table.append(ROWS)
        started, planned, committed = events(caplog)
        size = table.files()["size_bytes"].to_pylist()[-1]
        plan = {"kind": "append", "read_version": 0, "added_files": 1, "added_bytes": size}
        plan |= {"added_rows": 3, "removed_files": 0}
        assert started == {"event": "started", "operation": "WRITE", "read_version": 0}
        assert planned == {"event": "planned", "operation": "WRITE", **plan}
        made = {"event": "committed", "operation": "WRITE", "version": 1, "attempts": 1}
        assert committed == made | plan
        record = caplog.records[-1]
        assert (record.name, record.levelname) == ("txlog.commit", "INFO")
        assert vars(record)["txlog_table"] == table.uri
        assert 0 < vars(record)["txlog_duration_s"] < 60
        assert "committed (version=1" in record.getMessage()

    def test_a_delete_tells_its_rows(
        self, tmp_path: Path, caplog: pytest.LogCaptureFixture
    ) -> None:
        table = txlog.write(tmp_path, pa.table({"id": range(100)}))
        caplog.set_level("INFO", "txlog")
        table.delete("id < 7")
        (committed,) = events(caplog)
        assert committed["deleted_rows"] == 7
        assert (committed["added_rows"], committed["added_files"]) == (0, 0)

    def test_what_was_recorded_is_skipped(
        self, tmp_path: Path, caplog: pytest.LogCaptureFixture
    ) -> None:
        table = txlog.write(tmp_path, ROWS, txn=("loader", 1))
        caplog.set_level("INFO", "txlog")
        table.append(ROWS, txn=("loader", 1))
        table.delete("id = 9")
        told = [(one["event"], one["reason"]) for one in events(caplog)]
        assert told == [("skipped", "recorded already"), ("skipped", "nothing to change")]

    def test_a_lost_race_is_told(self, tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
        table = txlog.write(tmp_path, ROWS)
        with table.transaction() as tx:
            tx.append(ROWS)
            txlog.Table(tmp_path).append(ROWS)
            caplog.set_level("INFO", "txlog")
        retried, committed = events(caplog)
        assert retried == {
            "event": "retried", "operation": committed["operation"], "attempt": 2,
            "read_version": 1,
        }  # fmt: skip
        assert (committed["version"], committed["attempts"]) == (2, 2)

    def test_a_conflict_is_told_with_its_rule(
        self, tmp_path: Path, caplog: pytest.LogCaptureFixture
    ) -> None:
        table = txlog.write(tmp_path, ROWS)
        caplog.set_level("INFO", "txlog")
        with table.transaction() as tx:
            tx.append(ROWS)
            txlog.Table(tmp_path).alter.add_columns({"y": pa.int64()})
            caplog.clear()
        conflict, retried, committed = events(caplog)
        assert conflict["rule"].startswith("CON-")
        assert conflict["version"] == 1
        assert (retried["attempt"], retried["read_version"]) == (2, 1)
        assert (committed["version"], committed["attempts"]) == (2, 2)

    def test_a_refusal_is_told_with_its_code(
        self, tmp_path: Path, caplog: pytest.LogCaptureFixture
    ) -> None:
        table = txlog.write(tmp_path, ROWS)
        caplog.set_level("INFO", "txlog")
        with pytest.raises(txlog.CommitConflictError), table.transaction() as tx:  # noqa: PT012
            tx.append(ROWS)
            other = pa.table({"y": [1]})
            txlog.Table(tmp_path).overwrite(other, schema_mode="overwrite")
            caplog.clear()
        *_, failed = events(caplog)
        assert failed["error"] == "commit-conflict"
        assert caplog.records[-1].levelname == "WARNING"

    def test_reading_opening_and_maintenance_are_told(
        self, tmp_path: Path, caplog: pytest.LogCaptureFixture
    ) -> None:
        txlog.write(tmp_path, ROWS)
        caplog.set_level("DEBUG", "txlog")
        table = txlog.Table(tmp_path)
        opened = vars(caplog.records[0])
        assert (opened["txlog_event"], opened["txlog_version"]) == ("opened", 0)
        assert caplog.records[0].name == "txlog.open"
        (size,) = table.files()["size_bytes"].to_pylist()
        caplog.clear()
        table.to_arrow()
        list(table.to_batches())
        plan = {"event": "planned", "operation": "SCAN", "files": 1, "bytes": size}
        read = {"event": "read", "operation": "SCAN", "rows": 3}
        assert events(caplog) == [plan, read, plan, read]
        caplog.clear()
        table.head(2)
        table.take([0])
        table.lookup([3, 3], on="id")
        table.count()
        told = [(one["operation"], one["rows"]) for one in events(caplog)]
        assert told == [("SCAN", 2), ("TAKE", 1), ("LOOKUP", 2), ("SCAN", 3)]
        caplog.clear()
        table.maintenance.checkpoint()
        (tmp_path / "part-0.parquet").write_bytes(b"x" * 10)
        table.vacuum(retention_hours=0, enforce_retention_duration=False)  # A dry run.
        table.vacuum(retention_hours=0, enforce_retention_duration=False, dry_run=False)
        told = [one for one in events(caplog) if one["event"] in ("checkpointed", "removed")]
        assert told == [
            {"event": "checkpointed", "operation": "CHECKPOINT", "version": 0},
            {"event": "removed", "operation": "VACUUM", "files": 1, "bytes": 10},
        ]

    def test_an_operation_within_one_of_another_table_is_told_apart(
        self, tmp_path: Path, caplog: pytest.LogCaptureFixture
    ) -> None:
        source = txlog.write(tmp_path / "source", ROWS)
        table = txlog.write(tmp_path / "target", ROWS)
        caplog.set_level("DEBUG", "txlog")
        table.append(source.scan())
        told = [(vars(one)["txlog_event"], Path(vars(one)["txlog_table"]).name)
                for one in caplog.records]  # fmt: skip
        assert ("read", "source") in told
        assert ("committed", "target") in told
        assert {name for event, name in told if event in ("started", "committed")} == {"target"}

    def test_a_reader_that_stops_is_told(
        self, tmp_path: Path, caplog: pytest.LogCaptureFixture
    ) -> None:
        table = txlog.write(tmp_path, ROWS)
        caplog.set_level("DEBUG", "txlog")
        batches = table.to_batches(batch_size=1)
        next(batches)
        del batches
        assert events(caplog)[-1] == {"event": "read", "operation": "SCAN", "rows": 1}

    def test_no_event_holds_secrets(self, tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
        caplog.set_level("DEBUG", "txlog")
        table = txlog.write(tmp_path, ROWS)
        with observe.observed("OPEN", "s3://key:hush@bucket/t?token=hush", "open") as seen:
            seen.note("opened", {"version": 1})
        table.append(ROWS, user_metadata="hush")
        with pytest.raises(txlog.InvalidInputError):
            table.delete("hush = 'hush'")
        assert any("bucket/t" in record.getMessage() for record in caplog.records)
        for record in caplog.records:
            told = {name: value for name, value in vars(record).items() if "txlog" in name}
            assert "hush" not in repr(told) + record.getMessage()

    def test_what_observes_breaks_no_verb(
        self, tmp_path: Path, caplog: pytest.LogCaptureFixture, capsys: pytest.CaptureFixture[str]
    ) -> None:
        table = txlog.write(tmp_path, ROWS)
        caplog.set_level("DEBUG", "txlog")

        def broken(record: logging.LogRecord) -> bool:
            raise RuntimeError("a broken filter")

        logger = logging.getLogger("txlog.commit")
        logger.addFilter(broken)
        try:
            assert table.append(ROWS).version == 1
        finally:
            logger.removeFilter(broken)
        assert "a broken filter" in capsys.readouterr().err

    def test_nothing_is_printed_where_nobody_set_logging_up(self, tmp_path: Path) -> None:
        code = (
            "import logging, sys, txlog, pyarrow as pa\n"
            f"table = txlog.write({str(tmp_path / 't')!r}, pa.table({{'id': [1]}}))\n"
            "try: table.delete('no = 1')\n"
            "except txlog.InvalidInputError: print('raised')"
        )
        done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
        assert (done.stdout, done.stderr) == ("raised\n", "")

    def test_the_page_lists_each_event_with_its_level(self) -> None:
        text = PAGE.read_text("utf-8")
        listed = re.findall(r"^\| `(\w+)` \| [^|]+ \| (DEBUG|INFO|WARNING) \|", text, re.MULTILINE)
        levels = {event: logging.getLevelName(level) for event, level in observe.EVENTS.items()}
        assert dict(listed) == levels


@pytest.fixture(scope="module")
def watched(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """What a process told the SDK of OpenTelemetry."""
    for package in ("opentelemetry.sdk", "prometheus_client"):
        pytest.importorskip(package)
    folder = str(tmp_path_factory.mktemp("watched"))
    done = subprocess.run(
        [sys.executable, "-W", "error", HERE / "watched.py", folder, PAGE],
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert done.stderr == ""
    found: dict[str, Any] = json.loads(done.stdout)
    return found


class TestOpenTelemetry:
    @pytest.mark.slow
    def test_each_operation_is_a_span(self, watched: dict[str, Any]) -> None:
        names = [span["name"] for span in watched["spans"]]
        assert names == [
            "CREATE TABLE AS SELECT flights", "OPEN flights", "WRITE flights", "nightly",
            "WRITE flights", "DELETE flights", "DELETE flights", "SCAN flights", "SCAN flights",
            "DELETE flights", "CHECKPOINT flights", "SCAN flights",
        ]  # fmt: skip
        assert {span["kind"] for span in watched["spans"] if span["name"] != "nightly"} == {
            "SpanKind.CLIENT"
        }

    @pytest.mark.slow
    def test_a_span_has_the_names_of_the_conventions(self, watched: dict[str, Any]) -> None:
        write, caller = watched["spans"][2:4]
        found = write["attributes"]
        assert found["db.system.name"] == "delta"
        assert found["db.operation.name"] == "WRITE"
        assert found["db.collection.name"].endswith("/flights")
        assert (found["txlog.version"], found["txlog.attempts"]) == (1, 1)
        assert write["parent_id"] == caller["context"]["span_id"]
        assert [event["name"] for event in write["events"]] == ["started", "planned", "committed"]
        scan = watched["spans"][7]["attributes"]
        assert scan["db.response.returned_rows"] == 3
        assert (scan["txlog.files"], scan["txlog.rows"]) == (2, 3)

    @pytest.mark.slow
    def test_a_failure_has_its_code_and_no_text(self, watched: dict[str, Any]) -> None:
        failed = watched["spans"][9]
        assert failed["status"] == {"status_code": "ERROR"}
        assert failed["attributes"]["error.type"] == "invalid-input"
        assert "very secret" not in json.dumps(watched)

    def test_metrics_add_up(self, watched: dict[str, Any]) -> None:
        totals: dict[str, float] = {}
        for name, _, attributes, amount in watched["points"]:
            assert attributes["db.system.name"] == "delta"
            assert attributes["db.collection.name"].endswith("/flights")
            totals[name] = totals.get(name, 0) + amount
        assert totals["txlog.commits"] == 4
        assert totals["txlog.skips"] == 1
        assert totals["txlog.retries"] == 1
        assert totals["txlog.added.rows"] == 4
        assert totals["txlog.read.files"] == 2 + 2
        assert totals["db.client.response.returned_rows"] == 3 + 1 + 2
        failed = [one for one in watched["points"] if "error.type" in one[2]]
        assert [(one[0], one[2]["error.type"]) for one in failed] == [
            ("db.client.operation.duration", "invalid-input")
        ]

    def test_prometheus_gets_them(self, watched: dict[str, Any]) -> None:
        text = watched["scraped"]
        written = re.search(r'txlog_commits_total\{.*db_operation_name="WRITE".*\} 1.0', text)
        assert written is not None
        assert "db_client_operation_duration_seconds_bucket{" in text
        named = set(
            re.findall(r"\b(?:txlog|db_client)_[a-z_]+(?:_total|_bucket)", PAGE.read_text())
        )
        assert [name for name in named if name not in text.replace("_conflicts_", "_commits_")] in (
            [], ["txlog_conflicts_total"],
        )  # fmt: skip

    def test_the_page_lists_each_metric(self) -> None:
        made = {name: ("counter", unit) for name, unit, _ in observe.COUNTERS.values()}
        for name, unit, _, _ in observe.HISTOGRAMS.values():
            made[name] = ("histogram", unit)
        rows = re.findall(
            r"^\| `([\w.]+)` \| (counter|histogram) \| (\S+) \|", PAGE.read_text(), re.MULTILINE
        )
        assert {name: (kind, unit) for name, kind, unit in rows} == made

    def test_the_names_are_those_of_the_conventions(self) -> None:
        if find_spec("opentelemetry.semconv") is None:
            pytest.skip("opentelemetry-semantic-conventions is not installed")
        from opentelemetry.semconv._incubating.attributes import db_attributes
        from opentelemetry.semconv._incubating.metrics import db_metrics
        from opentelemetry.semconv.attributes import error_attributes

        assert db_attributes.DB_SYSTEM_NAME == "db.system.name"
        assert db_attributes.DB_OPERATION_NAME == "db.operation.name"
        assert db_attributes.DB_COLLECTION_NAME == "db.collection.name"
        assert db_attributes.DB_RESPONSE_RETURNED_ROWS == "db.response.returned_rows"
        assert error_attributes.ERROR_TYPE == "error.type"
        names = {
            db_metrics.DB_CLIENT_OPERATION_DURATION,
            db_metrics.DB_CLIENT_RESPONSE_RETURNED_ROWS,
        }
        assert {name for name, *_ in observe.HISTOGRAMS.values()} == names
