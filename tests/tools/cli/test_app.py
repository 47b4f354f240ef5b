"""The commands, called as from a shell."""

import os
import re
import shlex
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from datetime import datetime, timedelta
from io import StringIO
from pathlib import Path
from typing import Any

import deltalake
import orjson
import polars
import pyarrow as pa
import pytest
from servers import localbucket

import txlog
from txlog.extend import context_of
from txlog.tools.cli import main
from txlog.tools.cli.app import run
from txlog.tools.cli.output import INTERRUPTED, PIPE_CLOSED, exit_code
from txlog.tools.report import report


@pytest.fixture
def path(tmp_path: Path) -> str:
    table = txlog.write(
        tmp_path / "a b%#", pa.table({"a": [1, 2, 3], "p": ["x", "x", "y"]}), partition_by="p"
    )
    table.append(pa.table({"a": [4], "p": ["x"]}), user_metadata="second")
    table.delete("a = 2")
    return table.uri


@pytest.fixture(autouse=True)
def wide(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "200")


def as_json(capsys: pytest.CaptureFixture[str], *arguments: str):
    assert run([*arguments, "--json"]) == 0
    return orjson.loads(capsys.readouterr().out)


def test_show(path: str, capsys: pytest.CaptureFixture[str]) -> None:
    found = as_json(capsys, "show", path)
    assert (found["version"], found["rows"], found["files"]) == (2, 3, 3)
    assert found["deleted_rows"] == 1
    assert found["partition_columns"] == ["p"]
    assert as_json(capsys, "show", path, "--version", "0")["rows"] == 3
    assert run(["show", path]) == 0
    assert "deletionVectors" in capsys.readouterr().out


def test_history(path: str, capsys: pytest.CaptureFixture[str]) -> None:
    found = as_json(capsys, "history", path, "--limit", "2")
    assert [entry["operation"] for entry in found] == ["DELETE", "WRITE"]
    assert found[1]["userMetadata"] == "second"
    assert run(["history", path]) == 0
    assert "CREATE TABLE AS SELECT" in capsys.readouterr().out


def test_schema_files_fragments(path: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert as_json(capsys, "schema", path)[1] == {
        "name": "p", "type": "string", "nullable": True, "partition": True
    }  # fmt: skip
    files = as_json(capsys, "files", path)
    assert [file["num_records"] for file in files] == [2, 1, 1]
    assert files[0]["partition_values"] == {"p": "x"}
    fragments = as_json(capsys, "fragments", path)
    assert [(f["id"], f["deleted_rows"]) for f in fragments] == [(0, 1), (1, 0), (2, 0)]
    for command in ("schema", "files", "fragments"):
        assert run([command, path]) == 0


def test_count(path: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert as_json(capsys, "count", path) == {"rows": 3}
    assert as_json(capsys, "count", path, "--where", "p = 'x'", "--version", "1") == {"rows": 3}
    assert run(["count", path]) == 0
    assert capsys.readouterr().out == "3\n"


def test_checkpoint(path: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert as_json(capsys, "checkpoint", path) == {"version": 2}
    log = Path(path) / "_delta_log"
    assert (log / "00000000000000000002.checkpoint.parquet").exists()


def test_compact_and_restore(path: str, capsys: pytest.CaptureFixture[str]) -> None:
    before = txlog.Table(path).to_arrow().sort_by("a")
    found = as_json(capsys, "compact", path)
    assert (found["version"], found["metrics"]["numAddedFiles"] < 3) == (3, True)
    assert txlog.Table(path).to_arrow().sort_by("a") == before
    assert run(["compact", path]) == 0
    assert capsys.readouterr().out == "there was nothing to do\n"
    assert as_json(capsys, "restore", path, "--version", "0")["version"] == 4
    assert run(["restore", path, "--version", "2"]) == 0
    assert "made version 5: " in capsys.readouterr().out
    assert run(["restore", path, "--timestamp", "2001-01-01"]) != 0
    nearest = ("--timestamp", "2001-01-01", "--nearest", "--ignore-missing-files")
    assert as_json(capsys, "restore", path, *nearest)["version"] == 6
    assert txlog.Table(path).count() == txlog.Table(path, version=0).count()


def test_capabilities(path: str, capsys: pytest.CaptureFixture[str]) -> None:
    found = {row["verb"]: row for row in as_json(capsys, "capabilities", path)}
    assert found["append"]["can"] is True
    assert found["changes"]["can"] is False
    assert found["changes"]["features"] == ["changeDataFeed"]
    assert run(["capabilities", path]) == 0
    assert "enableChangeDataFeed" in capsys.readouterr().out


def test_verify(path: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert as_json(capsys, "verify", path)["found"] is False
    counts = {"tableSizeBytes": 1, "numFiles": 3, "numMetadata": 1, "numProtocol": 1}
    checksum = Path(path) / "_delta_log" / "00000000000000000002.crc"
    checksum.write_bytes(orjson.dumps(counts))
    assert run(["verify", path]) == 1
    assert "tableSizeBytes: the checksum says 1" in capsys.readouterr().out
    checksum.write_bytes(orjson.dumps({**counts, "tableSizeBytes": size(path)}))
    assert as_json(capsys, "verify", path)["checked"]


def size(path: str) -> int:
    return sum(txlog.Table(path).files()["size_bytes"].to_pylist())


@pytest.mark.parametrize(
    ("arguments", "code", "says"),
    [
        (["show", "/no/table"], 4, "[not-found]"),
        (["count", "{path}", "--where", "nope = 1"], 2, "nope"),
        (["show", "{path}", "--version", "9"], 4, "latest is 2"),
    ],
)
def test_an_error_is_one_line(
    path: str, capsys: pytest.CaptureFixture[str], arguments: list[str], code: int, says: str
) -> None:
    assert run([part.format(path=path) for part in arguments]) == code
    captured = capsys.readouterr()
    assert captured.out == ""
    assert says in captured.err
    assert captured.err.count("\n") == 1


@pytest.mark.parametrize(
    ("command", "argument"),
    [
        (["update", "TABLE", "--set", "z=1"], "--set"),
        (["count", "TABLE", "--where", "z = 1"], "--where"),
        (["show", "TABLE", "--timestamp", "soon"], "--timestamp"),
        (["restore", "TABLE", "--timestamp", "soon"], "--timestamp"),
        (["diff", "TABLE", "0", "--on", "z"], "--on"),
        (["index", "create", "TABLE", "z"], "COLUMNS"),
        (["constraint", "TABLE", "c", "z > 1"], "CHECK"),
        (["set", "TABLE", "delta.appendOnly=maybe"], "PROPERTIES"),
        (["alter", "default", "TABLE", "z", "1"], "COLUMN"),
        (["pin", "TABLE", "7"], "NAME"),
        (["create", "new", "--column", "a=int", "--partition-by", "z"], "--partition-by"),
        (["vacuum", "TABLE", "--retention-hours", "1"], "--retention-hours"),
        (["optimize", "TABLE", "--z-order", "z"], "--z-order"),
    ],
)
def test_an_error_names_what_was_typed(
    path: str, capsys: pytest.CaptureFixture[str], command: list[str], argument: str
) -> None:
    assert run([path if word == "TABLE" else word for word in command]) in (2, 4)
    said = capsys.readouterr().err
    assert f"argument='{argument}'" in said, said


def kinds(kind: type[txlog.TxlogError]) -> Iterator[type[txlog.TxlogError]]:
    yield kind
    for below in kind.__subclasses__():
        yield from kinds(below)


def test_the_exit_code_is_that_of_the_page() -> None:
    page = Path("docs/guides/cli.md").read_text(encoding="utf-8")
    table = re.findall(r"^\| (\d+) \|.*\|(.*)\|$", page, re.MULTILINE)
    stated = {code: int(number) for number, cell in table for code in re.findall("`(.*?)`", cell)}
    assert stated.keys() <= {one.code for one in kinds(txlog.TxlogError)}
    assert {int(number) for number, _ in table} >= {0, INTERRUPTED, PIPE_CLOSED}
    needed: dict[str, Any] = {"path": "p", "version": 1, "operation": "read", "rule": "CON-1"}
    for kind in kinds(txlog.TxlogError):
        if kind.__module__ == "txlog.base.errors":
            fields = kind.__dataclass_fields__
            error = kind(**{name: needed[name] for name in needed if name in fields})
            assert exit_code(error) == stated.get(kind.code, 1), kind


@pytest.mark.slow
@pytest.mark.parametrize("fast", [True, False])
def test_a_warning_is_one_line(path: str, fast: bool) -> None:
    assert run(["checkpoint", path]) == 0
    (Path(path) / "_delta_log" / f"{2:020d}.checkpoint.parquet").write_bytes(b"no checkpoint")
    options = [] if fast else ["--json"]
    call = [sys.executable, "-m", "txlog", "count", path, *options]
    done = subprocess.run(call, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (0, "3\n" if fast else '{\n  "rows": 3\n}\n')
    assert done.stderr.startswith("txlog: warning: "), done.stderr
    assert done.stderr.count("\n") == 1, done.stderr


@pytest.mark.parametrize("arguments", [["nope"], ["show"], ["history", "x", "--limit", "y"]])
def test_a_wrong_call_exits_with_2(
    capsys: pytest.CaptureFixture[str], arguments: list[str]
) -> None:
    assert run(arguments) == 2
    assert capsys.readouterr().out == ""


BOTH = ["--version", "0", "--timestamp", "2026-01-01"]


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["restore"], "give the version to restore"),
        (["restore", *BOTH], "give the version to restore"),
        (["show", *BOTH], "give one of the two, not both"),
    ],
)
def test_a_version_or_a_time_and_not_both(
    path: str, capsys: pytest.CaptureFixture[str], arguments: list[str], says: str
) -> None:
    assert run([arguments[0], path, *arguments[1:]]) == 2
    told = " ".join(capsys.readouterr().err.replace("│", " ").split())  # In a frame.
    assert says in told
    assert "--version" in told
    assert "--timestamp" in told
    assert txlog.Table(path).version == 2


@pytest.mark.slow
def test_the_version_of_txlog(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["--version"]) == 0
    assert capsys.readouterr().out == f"txlog {txlog.__version__}\n"
    done = subprocess.run(
        [sys.executable, "-m", "txlog", "--version"], capture_output=True, text=True, check=False
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, f"txlog {txlog.__version__}\n", "")


def test_times_in_json_have_their_zone(path: str, capsys: pytest.CaptureFixture[str]) -> None:
    moment = datetime.fromisoformat(as_json(capsys, "show", path)["timestamp"])
    assert moment.utcoffset() == timedelta(0)
    assert round(moment.timestamp() * 1000) == txlog.Table(path).timestamp_ms
    # What it prints is a time that it takes.
    assert as_json(capsys, "count", path, "--timestamp", moment.isoformat()) == {"rows": 3}


@pytest.mark.parametrize("command", ["files", "fragments", "history", "capabilities", "show"])
def test_tables_fit_80_columns(
    path: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, command: str
) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    assert run([command, path]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert max(map(len, lines)) <= 80
    heads = {
        "files": ["fragment", "rows", "deleted", "bytes", "partition", "path"],
        "fragments": ["id", "durable", "rows", "deleted", "partition", "files"],
        "history": ["version", "time (UTC)", "operation", "what it did", "engine"],
        "capabilities": ["verb", "can", "features", "reason", "remedy"],
    }
    if command in heads:  # One line has them all, none cut.
        assert any(all(head in line for head in heads[command]) for line in lines)
    if command == "history":
        assert "deleted rows: 1" in "\n".join(lines)


def test_ctrl_c_while_a_command_runs(
    path: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupted(*_: Any) -> int:
        raise KeyboardInterrupt

    monkeypatch.setattr(txlog.Table, "count", interrupted)
    assert run(["count", path]) == 130
    assert capsys.readouterr() == ("", "")
    monkeypatch.setattr("txlog.tools.cli.app.run", interrupted)
    with pytest.raises(SystemExit) as leaving:
        main()
    assert leaving.value.code == 130


def test_the_program_is_installed(path: str) -> None:
    program = Path(sys.executable).with_name("txlog")
    done = subprocess.run(
        [str(program), "count", path], capture_output=True, text=True, check=False
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, "3\n", "")


def test_demo_refuses_a_folder_that_is_not_empty(
    path: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["demo", "--path", path]) == 1
    assert "not empty" in capsys.readouterr().err


@pytest.mark.spark
@pytest.mark.exhaustive  # It starts Spark anew.
def test_the_demonstration_holds_with_the_excerpt(tmp_path: Path) -> None:
    program = Path(sys.executable).with_name("txlog")
    folder = tmp_path / "flights"  # polars.read_delta fails where a folder has a space.
    done = subprocess.run(
        [str(program), "demo", "--excerpt", "--path", str(folder)],
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert "All checks succeeded" in done.stdout
    assert "✗" not in done.stdout
    assert done.stderr == ""  # Neither Java nor Spark says anything.
    table = txlog.Table(folder)
    deleted = int(table.history(1)[0]["operationMetrics"]["numDeletedRows"])
    assert deleted > 0
    assert table.count() == 8832 - deleted
    # The command and the code that it ends with are right.
    commands = [line.strip() for line in done.stdout.partition("Open it:")[2].splitlines()]
    (shown,) = (shlex.split(line) for line in commands if str(folder) in line and "(" not in line)
    assert shown[-2] in ("ui", "show")
    assert run(["show", shown[-1]]) == 0
    (polars_line,) = (line for line in commands if line.startswith("polars"))
    assert eval(polars_line, {"polars": polars}).height == table.count()
    (txlog_line,) = (line for line in commands if line.startswith("txlog.Table"))
    assert eval(txlog_line, {"txlog": txlog}).num_rows == table.count()
    (delta_line,) = (line for line in commands if line.startswith("deltalake"))
    query = eval(delta_line, {"deltalake": deltalake})
    assert pa.table(query.execute("SELECT count(*) AS n FROM t")).to_pylist() == [
        {"n": table.count()}
    ]


@pytest.mark.spark
@pytest.mark.exhaustive
def test_the_demonstration_holds_on_an_object_store() -> None:
    with localbucket() as server:
        uri = f"s3://{server.bucket}/flights"
        environment = {**os.environ, **server.options, "AWS_ENDPOINT_URL_S3": server.url}
        done = subprocess.run(
            [str(Path(sys.executable).with_name("txlog")), "demo", uri, "--excerpt"],
            env=environment, capture_output=True, text=True, timeout=400, check=False,
        )  # fmt: skip
        assert done.returncode == 0, done.stdout + done.stderr
        assert "All checks succeeded" in done.stdout
        table = txlog.Table(uri, storage_options=server.options)
        deleted = int(table.history(1)[0]["operationMetrics"]["numDeletedRows"])
        assert table.count() == 8832 - deleted < 8832
        other = deltalake.DeltaTable(uri, storage_options=server.options)
        assert other.version() == table.version
        twice = subprocess.run(
            [str(Path(sys.executable).with_name("txlog")), "demo", uri],
            env=environment, capture_output=True, text=True, timeout=60, check=False,
        )  # fmt: skip
        assert (twice.returncode, "not empty" in twice.stderr) == (1, True)


@pytest.mark.spark
@pytest.mark.exhaustive
def test_ctrl_c_in_the_demonstration_leaves_no_jvm(tmp_path: Path) -> None:
    program = Path(sys.executable).with_name("txlog")
    demo = subprocess.Popen(
        [str(program), "demo", "--excerpt", "--path", str(tmp_path / "flights")],
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
        start_new_session=True,
    )  # fmt: skip
    assert demo.stdout is not None
    for line in demo.stdout:
        if line.startswith("1."):  # Spark runs, and a stream begins.
            break
    os.killpg(demo.pid, signal.SIGINT)  # As a terminal does: to all of them.
    _, told = demo.communicate(timeout=120)
    assert (demo.returncode, told) == (130, "")
    for _ in range(100):
        try:
            os.killpg(demo.pid, 0)
        except ProcessLookupError:
            break
        time.sleep(0.2)
    else:
        os.killpg(demo.pid, signal.SIGKILL)
        pytest.fail("processes of the demonstration are left")


def test_a_plain_count_is_that_of_the_parser(
    path: str, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    for words in (["count", path], ["count", path + "/nowhere"], ["count", " "]):
        code = run(words)
        wanted = (code, *capfd.readouterr())
        monkeypatch.setattr(sys, "argv", ["txlog", *words])
        with pytest.raises(SystemExit) as caught:
            main()
        assert (caught.value.code, *capfd.readouterr()) == wanted


def test_a_plain_count_needs_no_parser(path: str) -> None:
    code = (
        "import sys; from txlog.tools.cli import main; sys.argv = ['txlog', 'count', {!r}]\n"
        "try: main()\nfinally: print(*{{'typer', 'rich', 'pandas'}} & set(sys.modules))"
    )
    done = subprocess.run(
        [sys.executable, "-c", code.format(path)], capture_output=True, text=True, check=True
    )
    rows, loaded = done.stdout.split("\n")[:2]
    old = int(pa.__version__.partition(".")[0]) < 24  # It imports pandas by itself.
    assert (rows, set(loaded.split()) - ({"pandas"} if old else set())) == ("3", set())


def test_commands_that_change_rows(path: str, capsys: pytest.CaptureFixture[str]) -> None:
    done = as_json(capsys, "update", path, "--set", "a=a + 10", "--where", "p = 'x'")
    assert done["metrics"]["numUpdatedRows"] == 2
    assert as_json(capsys, "delete", path, "--where", "a = 11")["version"] == 4
    assert sorted(txlog.Table(path).to_arrow()["a"].to_pylist()) == [3, 14]
    assert run(["update", path, "--set", "a"]) == 2
    assert run(["update", path, "--set", "a=p"]) == 1
    done = as_json(capsys, "update", path, "--set", "a=p", "--no-error-on-type-mismatch")
    assert done["metrics"]["numUpdatedRows"] == 2
    assert txlog.Table(path).to_arrow()["a"].to_pylist() == [None, None]


def test_commands_that_change_metadata(path: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert as_json(capsys, "set", path, "owner=me", "delta.appendOnly=true")["version"] == 3
    assert as_json(capsys, "show", path)["properties"]["owner"] == "me"
    assert as_json(capsys, "set", path, "owner=", "delta.appendOnly=")["version"] == 4
    assert run(["set", path, "owner"]) == 2
    assert run(["set", path, "a=1", "owner="]) == 2
    assert run(["constraint", path, "big", "a > 100"]) == 1
    assert as_json(capsys, "constraint", path, "small", "a < 100")["version"] == 5
    assert as_json(capsys, "constraint", path, "small", "--drop")["version"] == 6
    assert run(["constraint", path, "small"]) == 2


def test_alter(path: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["alter", "rename", path, "a", "b c"]) == 6
    assert "columnMapping" in capsys.readouterr().err
    assert as_json(capsys, "set", path, "delta.columnMapping.mode=name")["version"] == 3
    assert as_json(capsys, "alter", "rename", path, "a", "b c")["version"] == 4
    added = as_json(capsys, "alter", "add", path, "d=DECIMAL(10,2)", "i=INT")
    assert added["version"] == 5
    assert as_json(capsys, "alter", "widen", path, "i", "BIGINT")["version"] == 6
    assert as_json(capsys, "alter", "move", path, "i", "--first")["version"] == 7
    assert as_json(capsys, "alter", "drop", path, "d")["version"] == 8
    assert as_json(capsys, "alter", "nullable", path, "p", "--no")["version"] == 9
    assert as_json(capsys, "alter", "default", path, "i", "7")["version"] == 10
    assert as_json(capsys, "alter", "default", path, "i", "--drop")["version"] == 11
    assert run(["alter", "default", path, "i"]) == 2
    assert run(["alter", "sync-identity", path, "i"]) == 2
    assert run(["alter", "add", path, "e=NOTHING SUCH"]) == 2
    assert run(["alter", "nullable", path, "i", "--no"]) == 1
    assert txlog.Table(path).schema.names == ["i", "b c", "p"]


def test_vacuum(path: str, capsys: pytest.CaptureFixture[str]) -> None:
    txlog.Table(path).overwrite(pa.table({"a": [9], "p": ["x"]}))
    for file in Path(path).rglob("*.parquet"):
        os.utime(file, (1, 1))
    arguments = ("vacuum", path, "--retention-hours", "0", "--no-enforce")
    listed = as_json(capsys, *arguments)
    assert (listed["deleted"], len(listed["files"])) == (False, 3)
    assert run([*arguments]) == 0
    assert "would delete" in capsys.readouterr().out
    kept = as_json(capsys, *arguments, "--keep-version", "0")["files"]
    assert len(kept) < 3
    assert as_json(capsys, *arguments, "--delete")["deleted"] is True
    assert as_json(capsys, *arguments)["files"] == []
    assert run(["vacuum", path, "--retention-hours", "0"]) == 2


def test_pins_expire_and_clones(path: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert as_json(capsys, "pin", path) == []
    done = as_json(capsys, "pin", path, "best", "--version", "1", "--reason", "it was good")
    assert done["features_added"] == ["domainMetadata"]
    assert as_json(capsys, "pin", path)[0]["reason"] == "it was good"
    assert as_json(capsys, "count", path, "--version", "best")["rows"] == 4
    listed = as_json(capsys, "versions", path)[1]
    assert listed["pins"] == ["best"]
    assert listed["time"].endswith("+00:00")
    assert run(["versions", path]) == 0  # The table has the zone in its header alone.
    assert "time (UTC)" in (shown := capsys.readouterr().out)
    assert "+00:00" not in shown
    txlog.Table(path).maintenance.checkpoint()
    for file in Path(path).rglob("*.json"):
        os.utime(file, (1, 1))
    listed = as_json(capsys, "expire", path, "--retention-hours", "0")
    assert [Path(name).name for name in listed["files"]] == ["00000000000000000002.json"]
    assert as_json(capsys, "expire", path, "--retention-hours", "0", "--delete")["deleted"]
    assert run(["count", path, "--version", "2"]) == 4
    capsys.readouterr()
    other = f"{path}-clone"
    assert as_json(capsys, "clone", path, other, "--version", "best")["version"] == 0
    assert as_json(capsys, "count", other)["rows"] == 4
    assert run(["clone", path, other, "--shallow"]) == 1
    capsys.readouterr()
    assert as_json(capsys, "clone", path, other, "--shallow", "--replace")["version"] == 1
    assert as_json(capsys, "restore", path, "--version", "best")["version"] == 4
    assert as_json(capsys, "pin", path, "best", "--move", "--version", "4")["version"] == 5
    assert as_json(capsys, "pin", path, "best", "--delete")["version"] == 6


def test_branches(path: str, capsys: pytest.CaptureFixture[str]) -> None:
    done = as_json(capsys, "branch", "create", path, "audit", "--version", "1")
    assert done["features_added"] == ["domainMetadata", "tableBranching-dev"]
    rows = as_json(capsys, "count", path, "--version", "1")["rows"]
    on_branch = ("--branch", "audit")
    assert as_json(capsys, *on_branch, "delete", path, "--where", "a = 1")["version"] == 2
    assert as_json(capsys, *on_branch, "count", path)["rows"] == rows - 1
    assert as_json(capsys, "count", path, "--version", "1")["rows"] == rows
    (listed,) = as_json(capsys, "branch", "list", path)
    assert (listed["name"], listed["status"], listed["version"]) == ("audit", "open", 2)
    assert as_json(capsys, "branch", "diff", path, "audit", "--count")["delete"] == 1
    assert len(as_json(capsys, "branch", "diff", path, "audit")) == 1
    assert run([*on_branch, "vacuum", path]) == 6
    assert "without branch=" in capsys.readouterr().err
    assert run(["--branch", "other", "count", path]) == 4
    capsys.readouterr()
    assert as_json(capsys, "branch", "discard", path, "audit")["version"] == 4
    as_json(capsys, "branch", "create", path, "audit")
    as_json(capsys, *on_branch, "delete", path, "--where", "a = 1")
    assert as_json(capsys, *on_branch, "branch", "publish", path, "audit")["version"] == 6


def test_optimize_trash_and_generate(path: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert as_json(capsys, "optimize", path, "--z-order", "a")["version"] == 3
    assert as_json(capsys, "optimize", path)["version"] is None
    assert run(["optimize", path, "--cluster"]) == 2
    assert run(["optimize", path, "--cluster", "--z-order", "a"]) == 2
    capsys.readouterr()
    for file in Path(path).rglob("*.parquet"):
        os.utime(file, (1, 1))
    arguments = ("vacuum", path, "--retention-hours", "0", "--no-enforce", "--delete", "--trash")
    gone = as_json(capsys, *arguments)["files"]
    assert gone
    assert as_json(capsys, "trash", path)["files"] == len(gone)
    as_json(capsys, *arguments)
    assert as_json(capsys, "trash", path, "--empty") == {"files": len(gone), "deleted": True}
    assert as_json(capsys, "generate", path)["manifests"] == 2


def test_long_work_is_told_on_a_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    from txlog.tools.cli import output

    class Terminal(StringIO):
        def isatty(self) -> bool:
            return True

    terminal = Terminal()
    monkeypatch.setattr("sys.stderr", terminal)
    monkeypatch.setattr(output, "_PATIENCE_S", 0.01)
    with output.working("Copying files"):
        time.sleep(0.3)
    assert "Copying files" in terminal.getvalue()
    quick = Terminal()
    monkeypatch.setattr("sys.stderr", quick)
    monkeypatch.setattr(output, "_PATIENCE_S", 5)
    with output.working("Copying files"):
        pass
    assert "Copying" not in quick.getvalue()


def test_long_work_shows_how_far_it_is(
    path: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    from txlog.tools.cli import output

    class Terminal(StringIO):
        def isatty(self) -> bool:
            return True

    terminal = Terminal()
    monkeypatch.setattr("sys.stderr", terminal)
    monkeypatch.setattr(output, "_PATIENCE_S", 0)
    with output.working("Reading"):
        for _ in txlog.Table(path).to_batches():
            output._shown[0]._shown.refresh()
        output.print_text("done")
        assert output._shown == []
    told = terminal.getvalue()
    assert "Reading" in told
    assert "1/3" in told
    assert told.index("1/3") < told.index("3/3")
    assert capsys.readouterr().out == "done\n"


def test_diff_and_blame(path: str, capsys: pytest.CaptureFixture[str]) -> None:
    rows = as_json(capsys, "diff", path, "0", "--on", "a")
    assert sorted((row["_change_type"], row["a"]) for row in rows) == [("delete", 2), ("insert", 4)]
    assert as_json(capsys, "diff", path, "2", "0", "--count") == {
        "insert": 1, "delete": 1, "update": 0,
    }  # fmt: skip
    assert as_json(capsys, "diff", path, "0", "--where", "a > 3", "--column", "a") == [
        {"a": 4, "_change_type": "insert"}
    ]
    assert run(["diff", path, "0", "--count"]) == 0
    assert "insert" in capsys.readouterr().out
    (row,) = as_json(capsys, "blame", path, "--where", "a = 4")
    assert (row["_commit_version"], row["_operation"]) == (1, "WRITE")
    assert run(["blame", path, "--limit", "2"]) == 0
    assert run(["diff", path, "9"]) == 4


def test_doctor_and_repair(path: str, capsys: pytest.CaptureFixture[str]) -> None:
    found = as_json(capsys, "doctor", path)
    assert found["ok"]
    assert [one["code"] for one in found["findings"]] == ["deleted-rows"]
    (gone,) = txlog.Table(path).scan(where="a = 4").file_uris()
    Path(gone).unlink()
    assert run(["doctor", path]) == 1
    assert "error file-missing" in capsys.readouterr().out
    found = as_json(capsys, "repair", path, "--missing-files")
    assert (found["written"], found["repairs"][0]["decision"]) == (False, "do")
    assert run(["repair", path]) == 0
    assert "pass --write" in capsys.readouterr().out
    assert as_json(capsys, "repair", path, "--missing-files", "--write")["written"]
    assert txlog.Table(path).to_arrow()["a"].to_pylist() == [1, 3]
    assert run(["doctor", path]) == 0


def test_reasons_of_repair_are_in_the_words_of_commands(
    path: str, capsys: pytest.CaptureFixture[str]
) -> None:
    (gone,) = txlog.Table(path).scan(where="a = 4").file_uris()
    Path(gone).unlink()
    (row,) = as_json(capsys, "repair", path)["repairs"]
    assert "only --missing-files removes its rows" in row["reason"]
    last = Path(path) / "_delta_log" / f"{txlog.Table(path).version:020}.json"
    last.write_text("{broken", encoding="utf-8")
    assert run(["repair", path, "--json"]) == 0
    first, *_ = orjson.loads(capsys.readouterr().out)["repairs"]
    assert f"`txlog restore {shlex.quote(path)} --version 1` makes" in first["reason"]


def test_rows_by_key(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = str(tmp_path / "t")
    txlog.write(path, pa.table({"id": [1, 2, 3], "name": ["a", "b", "c"]}))
    assert run(["lookup", path, "3", "1", "9", "--on", "id", "--json"]) == 0
    assert orjson.loads(capsys.readouterr().out) == [{"id": 3, "name": "c"}, {"id": 1, "name": "a"}]
    assert run(["lookup", path, "b", "--on", "name", "--columns", "id"]) == 0
    assert "2" in capsys.readouterr().out
    assert run(["lookup", path, "x", "--on", "id"]) == 2
    assert "they are not values of 'id' (int64)" in capsys.readouterr().err


def test_indexes(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = str(tmp_path / "t")
    txlog.write(path, pa.table({"id": [3, 1, 2], "name": ["c", "a", "b"]}))
    assert run(["lookup", path, "3"]) == 2
    assert "the table has 0 indexes" in capsys.readouterr().err
    assert as_json(capsys, "index", "create", path, "id")["version"] == 1
    (shown,) = as_json(capsys, "index", "show", path)
    assert (shown["name"], shown["columns"], shown["files_covered"]) == ("id", ["id"], 1)
    assert as_json(capsys, "lookup", path, "3") == [{"id": 3, "name": "c"}]
    txlog.Table(path).append(pa.table({"id": [4], "name": ["d"]}))
    (report,) = as_json(capsys, "index", "merge", path, "--name", "id")
    assert (report["segments_before"], report["segments_after"], report["keys"]) == (2, 1, 4)
    (report,) = as_json(capsys, "index", "build", path, "--rebuild")
    assert (report["files_built"], report["files_left"]) == (2, 0)
    assert run(["index", "show", path]) == 0
    assert "hashed" in capsys.readouterr().out
    assert as_json(capsys, "index", "drop", path, "id")["version"] == 3
    assert run(["index", "drop", path, "id"]) == 4
    assert "no index 'id'" in capsys.readouterr().err


@pytest.mark.slow
@pytest.mark.parametrize("stamp_ms", [1_900_000_000_000, 10**15, 1 << 62])
def test_a_time_of_any_year_is_shown_at_each_door(path: str, stamp_ms: int) -> None:
    """A writer with a broken clock makes no door fail."""
    root = f"{path} of a broken clock"
    table = txlog.write(
        root, pa.table({"x": [1]}), properties={"delta.enableChangeDataFeed": "true"}
    )
    table.alter.set_properties({"delta.enableInCommitTimestamps": "true"})
    line = {"commitInfo": {"inCommitTimestamp": stamp_ms, "timestamp": stamp_ms}}
    context_of(table).store.put_if_absent(f"_delta_log/{2:020d}.json", orjson.dumps(line))
    txlog.Table(root).append(pa.table({"x": [2]}))
    table = txlog.Table(root)
    assert table.timestamp_ms == stamp_ms + 1
    assert txlog.Table(root, timestamp=stamp_ms).version == 2
    assert txlog.Table(root, timestamp=stamp_ms + 1).version == 3
    assert table.changes(3).to_arrow().num_rows == 1
    assert table.blame().to_arrow().num_rows == 2
    for command in (["show"], ["history"], ["versions"], ["versions", "--json"]):
        assert run([*command, root]) == 0
    assert "version" in report(table)._repr_html_()


def test_a_table_whose_latest_version_is_damaged(
    path: str, capsys: pytest.CaptureFixture[str]
) -> None:
    last = Path(path) / "_delta_log" / f"{2:020d}.json"
    last.write_text(last.read_text()[:30])
    assert run(["show", path]) == 5
    remedy = re.search("`txlog (restore [^`]*)`", capsys.readouterr().err)
    assert remedy is not None
    assert [entry["version"] for entry in as_json(capsys, "history", path)] == [1, 0]
    assert [row["version"] for row in as_json(capsys, "versions", path)] == [0, 1]
    assert run(["doctor", path]) == 1
    said = capsys.readouterr()
    assert "version-damaged" in said.out
    assert "This is version 1." in said.err
    (repair,) = as_json(capsys, "repair", path)["repairs"]
    assert (repair["action"], repair["decision"]) == ("restore version", "skip")
    assert as_json(capsys, *shlex.split(remedy[1]))["version"] == 3
    assert as_json(capsys, "show", path)["rows"] == 4


def test_rehearsals_of_the_protocol_are_json_too(
    path: str, capsys: pytest.CaptureFixture[str]
) -> None:
    version = txlog.Table(path).version
    for command, added, dropped in (
        (("add-feature", path, "rowTracking"), True, False),
        (("drop-feature", path, "deletionVectors"), True, True),  # It protects checkpoints.
        (("upgrade", path, "--reader", "3", "--writer", "7"), False, False),
    ):
        found = as_json(capsys, "alter", *command, "--dry-run")
        assert found["dry_run"] is True
        assert (bool(found["features_added"]), bool(found["features_dropped"])) == (added, dropped)
        assert found["before"]["minReaderVersion"] == 3
    assert txlog.Table(path).version == version


def test_binary_values_are_base_64_in_json(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    table = txlog.write(tmp_path, pa.table({"b": pa.array([b"\x00\xffa", None]), "n": [1, 2]}))
    rows = as_json(capsys, "head", table.uri)
    assert rows == [{"b": "AP9h", "n": 1}, {"b": None, "n": 2}]


def test_a_query_says_how_to_name_a_table(path: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["sql", "SELECT * FROM nope"]) == 4
    option, value = re.findall(r"(--table) (\S+)", capsys.readouterr().err)[0]
    assert run(["sql", "SELECT * FROM nope", option, value.replace("TABLE", path)]) == 0


@pytest.mark.slow
def test_a_report_names_commands(tmp_path: Path) -> None:
    pytest.importorskip("vl_convert")
    place = tmp_path / "t"
    table = txlog.write(place, pa.table({"a": [1]}))
    (place / table.files()["path"][0].as_py()).unlink()
    assert any("maintenance." in one.remedy for one in table.doctor())
    assert run(["report", str(place), "--output", str(tmp_path / "r.html")]) == 0
    page = (tmp_path / "r.html").read_text(encoding="utf-8")
    assert "txlog repair" in page
    assert "maintenance.repair" not in page
    assert "maintenance.repair" in report(table).html


def test_titles_show_no_secrets(capsys: pytest.CaptureFixture[str]) -> None:
    uri = "memory://u:hunter2@x/titled?k=hunter2"
    txlog.write(uri, pa.table({"a": [1]}))
    for command in ("show", "capabilities", "history", "files", "head"):
        assert run([command, uri]) == 0
    assert "hunter2" not in capsys.readouterr().out
