"""`txlog datasets …`: from upload to training on the command line."""

import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import orjson
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from txlog.base.effects import Effects
from txlog.tools.cli.app import run
from txlog.training import Datasets


@pytest.fixture(autouse=True)
def wide(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "200")


class Shell:
    """Runs `txlog datasets COMMAND ROOT …`."""

    def __init__(self, root: Path, capsys: pytest.CaptureFixture[str]) -> None:
        self.root, self.capsys = root, capsys

    def __call__(self, command: str, *arguments: str, code: int = 0) -> str:
        assert run(["datasets", command, str(self.root / "root"), *arguments]) == code
        out, err = self.capsys.readouterr()
        return out + err

    def json(self, command: str, *arguments: str) -> Any:
        return orjson.loads(self(command, *arguments, "--json"))


@pytest.fixture
def shell(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Shell:
    for name, text in {"1.csv": "hello,greeting\nhi,greeting\n", "2.csv": "bye,farewell\n"}.items():
        (tmp_path / name).write_text(text)
    return Shell(tmp_path, capsys)


def test_parts_of_a_split_are_those_of_the_library(shell: Shell, tmp_path: Path) -> None:
    rows = [f"utterance {n},label {n % 3}" for n in range(40)]
    (tmp_path / "many.csv").write_text("\n".join(rows) + "\n")
    shell("create", "intents", str(tmp_path / "many.csv"), "--type", "TEXT_INTENT")
    words = ("--split", "train=0.75", "--split", "test=0.25", "--key", "utterance")
    found = Datasets(tmp_path / "root").dataset("intents")
    texts = []
    for part in ("train", "test"):
        made = shell.json("prepare", "intents", *words, "--part", part)
        split = {"train": 0.75, "test": 0.25}
        asked = found.prepare(split=split, part=part, key="utterance")
        assert made["version_hash"] == asked.version_hash
        texts += asked.table().to_arrow()["utterance"].to_pylist()
    assert sorted(texts) == sorted(f"utterance {n}" for n in range(40))
    assert "is no number" in shell("prepare", "intents", "--split", "a=x", code=2)
    assert "part" in shell("prepare", "intents", *words, code=2)


def test_who_did_it_and_who_may(shell: Shell, tmp_path: Path) -> None:
    shell("create", "intents", str(tmp_path / "1.csv"), "--type", "TEXT_INTENT")
    shell("create", "other", str(tmp_path / "2.csv"), "--type", "TEXT_INTENT")
    access = shell.json("share", "intents", "--reader", "ann", "--no-writer", "--owner", "bob")
    assert access == {"owner": "bob", "readers": ["ann"], "writers": []}
    assert shell.json("show", "intents")["access"] == access
    assert "ann" in shell("share", "intents", "--reader", "ann", "--no-writer")
    assert shell.json("share", "intents") == access  # Without options it changes nothing.
    for words in (("--reader", "x", "--no-reader"), ("--all", "--reader", "x")):
        assert "not both" in shell("share", "intents", *words, code=2)
    assert shell.json("show", "intents")["access"] == access
    assert shell.json("share", "other", "--all", "--no-writer")["readers"] is None
    assert shell.json("share", "other", "--all")["writers"] is None
    changes = shell.json("audit", "--dataset", "intents")
    assert [one["action"] for one in changes] == ["committed", "created", "shared"]
    assert orjson.loads(changes[-1]["details"]) == access
    assert {one["dataset"] for one in shell.json("audit")} == {"intents", "other"}
    assert "shared" in shell("audit")


def test_steps_run_on_the_command_line(shell: Shell, tmp_path: Path) -> None:
    (tmp_path / "programs").mkdir()
    program = tmp_path / "programs" / "copy.py"
    program.write_text("import sys\nprint('once')\nsys.exit(1)\n")
    shell("create", "intents", str(tmp_path / "1.csv"), "--type", "TEXT_INTENT")
    words = [f"--run={sys.executable}", "--run=copy.py", "--into=copied", "--rows=all"]
    added = shell.json("on-commit", "intents", *words, "--step", "copy")
    assert (added["name"], added["run"]) == ("copy", [sys.executable, "copy.py"])
    assert (added["rows"], added["state"], added["waiting"]) == ("all", "WAITING", [1])
    folder = ("--folder", str(program.parent))
    assert "exit code 1: once" in " ".join(shell("run-steps", *folder, code=1).split())
    assert [one["state"] for one in shell.json("steps")] == ["FAILED"]
    program.write_text("import os, shutil, sys\n"
                       "with open(os.environ['TXLOG_OUTPUT'], 'wb') as out:\n"
                       "    shutil.copyfileobj(sys.stdin.buffer, out)\n")  # fmt: skip
    (run,) = shell.json("run-steps", "copy", *folder, "--timeout", "60")
    assert (run["state"], run["made"]["rows"], run["made"]["replaces"]) == ("DONE", 2, 0)
    assert "IDLE" in shell("steps")
    shell("remove-step", "copy")
    assert shell.json("steps") == []
    assert "There is none yet" in shell("run-steps", "copy", code=4)


@pytest.mark.slow
def test_steps_run_again_and_again(
    shell: Shell, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Until it is interrupted, as by Ctrl-C."""
    shell("create", "intents", str(tmp_path / "1.csv"), "--type", "TEXT_INTENT")
    shell("on-commit", "intents", "--run", "gone.py", "--into", "made")
    slept: list[float] = []

    def sleep(_: Effects, seconds: float) -> None:
        slept.append(seconds)
        if len(slept) == 3:
            raise KeyboardInterrupt

    monkeypatch.setattr(Effects, "sleep_s", sleep)
    told = shell("run-steps", "--folder", str(tmp_path), "--every", "7", code=130)
    assert slept == [7.0, 7.0, 7.0]
    assert told.count("FAILED") == 3


def test_from_upload_to_training(shell: Shell, tmp_path: Path) -> None:
    one, two = str(tmp_path / "1.csv"), str(tmp_path / "2.csv")
    made = shell.json(
        "create", "intents", one, "--type", "TEXT_INTENT", "--tag", "category=test set",
        "--description", "What people say",
    )  # fmt: skip
    assert (made["dataset_id"], made["type"], len(made["commits"])) == (1, "TEXT_INTENT", 1)
    arguments = (
        "update", "intents", two, "--message", "More", "--tag", "category=training set",
        "--input", "s3://in/raw.csv", "--code", "clean.py@4f1c", "--txn", "job:1",
    )  # fmt: skip
    added = shell.json(*arguments)
    assert (added["commit_id"], added["tags"]) == (2, {"category": "training set"})
    assert added["code"] == {"name": "clean.py", "version": "4f1c"}
    assert shell.json(*arguments) == added
    assert [one["name"] for one in shell.json("list")] == ["intents"]
    assert shell.json("list", "--type", "GENERIC") == []

    asked = shell.json("prepare", "intents", "--tag", "category=training set", "--form", "csv")
    assert (asked["state"], asked["commits"]) == ("READY", [2])
    out = tmp_path / "out"
    fetched = shell.json("fetch", "intents", asked["version_hash"], "--to", str(out))
    assert fetched == asked
    assert {file.name for file in out.iterdir()} == {"examples.csv", "labels.csv"}

    told = shell.json("diff", "intents", "1", "2")
    assert (told["rows_added"], told["labels_added"]) == (1, ["farewell"])
    (row,) = shell.json("diff", "intents", "1", "2", "--rows")
    assert (row["change"], row["utterance"]) == ("added", "bye")
    graph = shell.json("lineage", "intents", "2")
    assert {node["label"] for node in graph["nodes"]} >= {"s3://in/raw.csv", "clean.py@4f1c"}
    assert shell("lineage", "intents", "2", "--dot").startswith("digraph lineage")
    assert shell.json("lineage", "intents", "2", "--down")["edges"][0]["role"] == "picked"

    for command in (
        ("tag", "intents", "golden", "2"), ("hide", "intents", "golden"),
        ("unhide", "intents", "2"), ("hide", "intents", "1"),
    ):  # fmt: skip
        assert shell(*command) == ""
    shown = shell.json("show", "1")
    assert [commit["hidden"] for commit in shown["commits"]] == [True, False]
    assert shown["names"] == {"golden": 2}
    assert [one["state"] for one in shown["training_sets"]] == ["READY"]
    assert [one["commit_id"] for one in shell.json("verify", "intents")] == [1, 2]
    assert shell.json("sweep") == {"taken_over": 0}

    text = shell("show", "intents")
    assert all(word in text for word in ("What people say", "hidden", "READY", "golden"))
    assert "greeting" not in shell("list")
    for command in (("prepare", "intents"), ("lineage", "intents"), ("diff", "intents", "2", "2")):
        assert shell(*command)

    shell("delete", "intents")
    told = shell("show", "intents", code=4)
    assert f"`txlog datasets undelete {shell.root / 'root'} 1`" in told
    assert told == shell("update", "intents", one, code=4)
    assert shell.json("list") == []
    assert shell.json("list", "--deleted")[0]["deleted"]
    shell("undelete", "1")
    shell("purge", "intents", "--commit", "1", "--confirm", "intents")
    assert shell.json("show", "intents")["commits"][0]["purged"]
    shell("purge", "intents", "--confirm", "intents")
    assert shell.json("list", "--deleted") == []


def test_what_is_wrong_is_said(shell: Shell, tmp_path: Path) -> None:
    pq.write_table(pa.table({"id": [1]}), tmp_path / "a.parquet")
    assert "no data set 'x'" in shell("show", "x", code=4)
    assert "digits" in shell("create", "7", str(tmp_path / "a.parquet"), code=2)
    shell("create", "seven", str(tmp_path / "a.parquet"))
    assert shell.json("show", "1")["name"] == "seven"
    assert "'seven' already" in shell("create", "seven", str(tmp_path / "a.parquet"), code=1)
    assert "NAME=VALUE" in shell("prepare", "seven", "--tag", "a", code=2)
    assert "APPLICATION:VERSION" in shell("update", "seven", "x", "--txn", "job", code=2)
    assert "is not the name" in shell("purge", "seven", "--confirm", "8", code=2)
    assert "no commit of 1 has a=b" in shell("prepare", "seven", "--tag", "a=b", code=2)


def test_examples_are_exported_for_other_tools(shell: Shell, tmp_path: Path) -> None:
    shell("create", "intents", str(tmp_path / "1.csv"), "--type", "TEXT_INTENT")
    made = shell.json("prepare", "intents")["version_hash"]
    paths = shell.json("export", "intents", made, "--to", str(tmp_path / "tars"))
    assert [Path(path).name for path in paths] == ["00000.tar"]
    shell("create", "again", str(tmp_path / "tars"), "--type", "TEXT_INTENT")
    digests = [shell.json("show", name)["commits"][0]["digest"] for name in ("intents", "again")]
    assert digests[0] == digests[1]
    told = shell("export", "intents", made, "--form", "huggingface", "--to", str(tmp_path / "hf"))
    assert "1 files" in told
    assert "must have no files" in shell("export", "intents", made, "--to", str(tmp_path), code=1)
    assert "was expected" in shell(
        "export", "intents", made, "--form", "lmdb", "--to", str(tmp_path / "x"), code=2
    )


def test_a_training_set_that_fails_ends_with_1(shell: Shell, tmp_path: Path) -> None:
    pq.write_table(pa.table({"id": [1]}), tmp_path / "a.parquet")
    shell("create", "t", str(tmp_path / "a.parquet"))
    for file in (tmp_path / "root" / "data").rglob("commit_id=1/*.parquet"):
        file.unlink()
    assert "FAILED" in shell("prepare", "t", code=1)


@pytest.mark.slow
def test_a_service_and_its_tokens(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    httpx = pytest.importorskip("httpx")
    pytest.importorskip("uvicorn")
    made = []
    for options in (["julia", "--right", "write"], ["ada", "--dataset", "a", "--dataset", "b"]):
        assert run(["datasets", "token", *options, "--json"]) == 0
        made.append(orjson.loads(capsys.readouterr().out))
    assert made[1]["entry"]["datasets"] == ["a", "b"]
    assert run(["datasets", "token", "julia", "--right", "all"]) == 2
    tokens = tmp_path / "tokens.json"
    tokens.write_bytes(orjson.dumps({"tokens": [one["entry"] for one in made]}))
    (tmp_path / "in").mkdir()
    (tmp_path / "in/1.csv").write_text("hello,greeting\n")
    command = [sys.executable, "-m", "txlog", "datasets", "serve", str(tmp_path / "root")]
    options = ["--port", "0", "--tokens", str(tokens), "--source", f"in={tmp_path / 'in'}"]
    with subprocess.Popen(
        [*command, *options], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as server:
        try:
            assert server.stdout is not None
            url = server.stdout.readline().split(" at ")[1].strip()
            body = {"name": "a", "type": "TEXT_INTENT", "source": "in/1.csv"}
            assert httpx.post(f"{url}/v1/datasets", json=body).status_code == 401
            headers = {"Authorization": f"Bearer {made[0]['token']}"}
            answer = httpx.post(f"{url}/v1/datasets", json=body, headers=headers)
            assert (answer.status_code, answer.json()["commits"][0]["rows"]) == (201, 1)
        finally:
            server.send_signal(signal.SIGINT)
            out, err = server.communicate(timeout=30)
        assert (server.returncode, err) == (0, ""), out
