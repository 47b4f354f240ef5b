"""Steps: programs that make commits of one data set from those of another."""

from __future__ import annotations

import hashlib
import itertools
import json
import os
import sys
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

import pyarrow as pa
import pyarrow.compute as pc
import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from tests.examples import examples
from txlog.base.errors import (
    AlreadyExistsError,
    CommitConflictError,
    InvalidInputError,
    NotFoundError,
    TxlogError,
)
from txlog.extend import as_reader
from txlog.training import Code, Datasets, InlineRunner
from txlog.training.datasets.program import Program, ProgramError
from txlog.training.datasets.step_main import function_of
from txlog.training.datasets.step_state import (
    AddStep,
    ClaimStep,
    FinishStep,
    RemoveStep,
    StepClaim,
    StepState,
    decide_step,
    next_steps,
)
from txlog.training.datasets.values import Failure

CLEAN = """
import pyarrow as pa
import pyarrow.compute as pc

def run(rows):
    print("cleaning")
    table = rows.read_all()
    return table.filter(pc.greater(table["x"], 0))

def total(rows):
    return pa.table({"total": [pc.sum(rows.read_all()["x"]).as_py()]})

def nothing(rows):
    return None

def broken(rows):
    raise ValueError("no such luck")
"""


def numbers(*values: int) -> pa.Table:
    return pa.table({"x": pa.array(values, pa.int64())})


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    made = tmp_path / "programs"
    made.mkdir()
    (made / "clean.py").write_text(CLEAN)
    return made


@pytest.fixture
def datasets(tmp_path: Path) -> Datasets:
    made = Datasets(tmp_path / "root", runner=InlineRunner(), user="ann")
    made.create("raw", "TABLE", numbers(1, -2, 3), tags={"for": "training"})
    return made


@pytest.fixture
def here(monkeypatch: pytest.MonkeyPatch) -> None:
    """Functions are called in this process."""

    def called(program: Program, rows: pa.RecordBatchReader, _: Mapping[str, str]) -> Any:
        monkeypatch.chdir(program._folder)
        assert isinstance(program._run, str)
        made = function_of(program._run)(rows)
        return pa.table({}).to_reader() if made is None else as_reader(made)

    monkeypatch.setattr(Program, "run", called)


def values_of(datasets: Datasets, name: str, column: str = "x") -> list[int]:
    """Return the values that a training set of all commits has."""
    return datasets.dataset(name).prepare().table().to_arrow()[column].to_pylist()


# Programs ----------------------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.spec("DST-70", "DST-71", "DST-72", "DST-74")
def test_a_step_runs_for_each_commit_once(datasets: Datasets, folder: Path) -> None:
    added = datasets.on_commit("raw", run="clean.py", into="clean")
    assert (added.state, added.waiting, added.done) == ("WAITING", (1,), 0)
    datasets.on_commit("raw", run="clean.py", into="clean")  # The same one again.
    raw = datasets.dataset("raw")
    raw.update(numbers(4, -5), "more", {"for": "test"})
    (first, second) = datasets.run_steps(folder=folder)
    assert [(one.commit_id, one.state, one.log) for one in (first, second)] == [
        (1, "DONE", "cleaning\n"), (2, "DONE", "cleaning\n"),
    ]  # fmt: skip
    assert datasets.run_steps(folder=folder) == []
    clean = datasets.dataset("clean")
    made = clean.commits()
    assert [first.made, second.made] == made
    assert [one.tags for one in made] == [{"for": "training"}, {"for": "test"}]
    assert [one.user for one in made] == ["ann", "ann"]
    assert [[i.version for i in one.inputs] for one in made] == [[1], [2]]
    assert made[0].inputs[0].digest == raw.commit(1).digest
    assert made[0].code is not None
    assert (made[0].code.name, len(made[0].code.version or "")) == ("clean.py", 16)
    assert values_of(datasets, "clean") == [1, 3, 4]
    labels = [node.label for node in clean.lineage(1).nodes]
    assert labels[1:] == ["raw @ 1", f"clean.py@{made[0].code.version}"]
    assert [one.state for one in datasets.steps()] == ["IDLE"]


@pytest.mark.usefixtures("here")
@pytest.mark.spec("DST-71", "DST-74")
def test_a_step_over_all_rows_replaces_what_it_made(datasets: Datasets, folder: Path) -> None:
    datasets.on_commit("raw", run="clean.py", into="clean")
    datasets.on_commit("clean", run="clean.py:total", into="totals", rows="all")
    assert [one.state for one in datasets.steps()] == ["WAITING", "IDLE"]
    datasets.run_steps(folder=folder)
    assert values_of(datasets, "totals", "total") == [4]
    raw = datasets.dataset("raw")
    for value in (10, 20):
        raw.update(numbers(value))
    runs = [(one.step, one.commit_id) for one in datasets.run_steps(folder=folder)]
    assert sorted(runs) in (
        [("clean", 2), ("clean", 3), ("totals", 2), ("totals", 3)],
        [("clean", 2), ("clean", 3), ("totals", 3)],
    )
    assert values_of(datasets, "totals", "total") == [34]
    last = datasets.dataset("totals").commit()
    assert last.replaces == last.commit_id - 1
    assert [one.version for one in last.inputs] == [1, 2, 3]


@pytest.mark.usefixtures("here")
@pytest.mark.spec("DST-74")
def test_what_replaces_is_replaced_below(datasets: Datasets, folder: Path) -> None:
    datasets.on_commit("raw", run="clean.py", into="clean")
    datasets.run_steps(folder=folder)
    datasets.dataset("raw").update(numbers(7, 8), replace=True)
    datasets.run_steps(folder=folder)
    assert values_of(datasets, "clean") == [7, 8]


@pytest.mark.usefixtures("here")
@pytest.mark.spec("DST-71")
def test_hidden_commits_are_left_out(datasets: Datasets, folder: Path) -> None:
    datasets.on_commit("raw", run="clean.py", into="clean")
    raw = datasets.dataset("raw")
    raw.update(numbers(5))
    raw.hide(1)
    (run,) = datasets.run_steps(folder=folder)
    assert run.commit_id == 2
    raw.show(1)
    assert datasets.run_steps(folder=folder) == []  # It runs forward only.
    assert values_of(datasets, "clean") == [5]


@pytest.mark.usefixtures("here")
@pytest.mark.spec("DST-72")
def test_a_commit_of_which_nothing_is_left_makes_none(datasets: Datasets, folder: Path) -> None:
    datasets.on_commit("raw", run="clean.py:nothing", into="none")
    (run,) = datasets.run_steps(folder=folder)
    assert (run.state, run.made) == ("DONE", None)
    assert [one.name for one in datasets.list()] == ["raw"]
    assert datasets.run_steps(folder=folder) == []
    datasets.on_commit("raw", run="clean.py:nothing", into="all", rows="all")
    (run,) = datasets.run_steps(folder=folder)
    assert (run.state, run.made) == ("DONE", None)


@pytest.mark.usefixtures("here")
@pytest.mark.spec("DST-74")
def test_the_way_out_of_a_result_without_rows_is_named(datasets: Datasets, folder: Path) -> None:
    datasets.on_commit("raw", run="clean.py", into="clean", rows="all")
    datasets.run_steps(folder=folder)
    raw = datasets.dataset("raw")
    raw.update(numbers(-1), replace=True)
    raw.update(numbers(-5, 6))
    raw.hide(3)
    (run,) = datasets.run_steps(folder=folder)
    assert run.error is not None
    assert run.error.text.endswith("Hide the commit 2 of 'raw' to pass it over")
    raw.hide(2)
    raw.show(3)
    datasets.run_steps(folder=folder)
    assert values_of(datasets, "clean") == [1, 3, 6]


def test_a_command_reads_and_writes_arrow(datasets: Datasets, folder: Path) -> None:
    (folder / "copy.py").write_text(
        "import os, shutil, sys\n"
        "with open(os.environ['TXLOG_OUTPUT'], 'wb') as out:\n"
        "    shutil.copyfileobj(sys.stdin.buffer, out)\n"
        "names = ('COMMIT', 'INPUT', 'STEP', 'DATASETS')\n"
        "print(*(os.environ['TXLOG_' + name] for name in names))\n"
    )
    datasets.on_commit("raw", run=[sys.executable, "copy.py"], into="copied", name="copy")
    (run,) = datasets.run_steps("copy", folder=folder)
    assert run.log.split() == ["1", "raw", "copy", datasets.root]
    assert values_of(datasets, "copied") == [1, -2, 3]
    code = datasets.dataset("copied").commit().code
    assert code is not None
    assert code.name == f"{sys.executable} copy.py"
    assert code.version == hashlib.sha256((folder / "copy.py").read_bytes()).hexdigest()[:16]


def test_a_function_of_a_module(datasets: Datasets, folder: Path) -> None:
    datasets.on_commit("raw", run="clean:run", into="clean")
    datasets.run_steps(folder=folder)
    assert values_of(datasets, "clean") == [1, 3]
    digest = hashlib.sha256((folder / "clean.py").read_bytes()).hexdigest()[:16]
    assert datasets.dataset("clean").commit().code == Code("clean:run", digest)
    datasets.on_commit("raw", run=["sh", "-c", "x" * 5000], into="long")
    (run,) = datasets.run_steps("long", folder=folder)
    assert run.error is not None
    assert run.error.code == "program"  # No word of a command need be a path.


@pytest.mark.slow
def test_usual_python_runs(datasets: Datasets, folder: Path) -> None:
    """Annotations, dataclasses, processes, and a file named like a module of Python."""
    (folder / "tokenize.py").write_text(CLEAN)
    (folder / "twice.py").write_text(
        "from __future__ import annotations\n"
        "import multiprocessing\n"
        "from dataclasses import dataclass\n"
        "import pyarrow as pa\n"
        "@dataclass\n"
        "class Twice:\n"
        "    x: int\n"
        "def twice(x):\n"
        "    return Twice(2 * x)\n"
        "def run(rows):\n"
        "    with multiprocessing.get_context('spawn').Pool(1) as pool:\n"
        "        made = pool.map(twice, rows.read_all()['x'].to_pylist())\n"
        "    return pa.table({'x': [one.x for one in made]})\n"
    )
    datasets.on_commit("raw", run="twice.py", into="made")
    datasets.on_commit("made", run="tokenize.py", into="clean")
    runs = datasets.run_steps(folder=folder, timeout_s=120)
    assert [run.error for run in runs] == [None, None]
    assert values_of(datasets, "clean") == [2, 6]


@pytest.mark.usefixtures("here")
def test_rows_have_the_types_that_were_given(datasets: Datasets, folder: Path) -> None:
    (folder / "same.py").write_text("def run(rows):\n    return rows.read_all()\n")
    schema = pa.schema(
        [("v", pa.list_(pa.field("element", pa.float32()), 2)), ("h", pa.float16())],
        metadata={"k": "v"},
    )
    given = pa.table({"v": [[1.0, 2.0]], "h": pa.array([0.5], pa.float16())}, schema)
    datasets.create("vectors", "TABLE", given)
    datasets.on_commit("vectors", run="same.py", into="copied")
    (run,) = datasets.run_steps(folder=folder)
    assert run.error is None
    found = datasets.dataset("copied").table().to_arrow().drop_columns(["commit_id"])
    assert found.schema.equals(schema, check_metadata=True)
    assert found.to_pylist() == given.to_pylist()


PROGRAMS = {
    "ends with 3": "import sys; print('on the way'); sys.exit(3)",
    "dies": "import os, signal; os.kill(os.getpid(), signal.SIGKILL)",
    "writes nothing": "import sys; sys.stdin.buffer.read()",
    "writes no Arrow": "import os; open(os.environ['TXLOG_OUTPUT'], 'w').write('x' * 100)",
    "reads nothing": "import sys; sys.stdin.close(); sys.exit(4)",
    "sleeps": "import time; time.sleep(600)",
    "leaves a child that holds its input": "import subprocess, sys\n"
    "subprocess.run([sys.executable, '-c', 'import time; time.sleep(600)'])",
    "cuts its output off": "import os, pyarrow as pa\n"
    "out = pa.ipc.new_stream(os.environ['TXLOG_OUTPUT'], pa.schema([('x', pa.int64())]))\n"
    "out.write_batch(pa.record_batch({'x': [1]}))\n"
    "os._exit(0)",
}
SAYS = {
    "ends with 3": "ended with the exit code 3: on the way",
    "dies": "was killed by the signal 9",
    "writes nothing": "wrote no file; TXLOG_OUTPUT has its path",
    "writes no Arrow": "wrote no Arrow stream",
    "reads nothing": "ended with the exit code 4",
    "sleeps": "ran longer than 1.5 seconds",
    "leaves a child that holds its input": "ran longer than 1.5 seconds",
    "cuts its output off": "did not end its Arrow stream",
}


@pytest.mark.slow
@pytest.mark.spec("DST-71")
@pytest.mark.parametrize("kind", list(PROGRAMS))
def test_a_program_that_fails_changes_nothing(datasets: Datasets, folder: Path, kind: str) -> None:
    (folder / "bad.py").write_text(PROGRAMS[kind])
    raw = datasets.dataset("raw")
    raw.update(pa.table({"x": range(200_000)}))  # More than a pipe holds.
    raw.hide(1)
    datasets.on_commit("raw", run=[sys.executable, "bad.py"], into="made")
    for attempt in (1, 2):
        (run,) = datasets.run_steps(folder=folder, timeout_s=1.5 if "1.5" in SAYS[kind] else None)
        assert (run.state, run.made, run.commit_id) == ("FAILED", None, 2)
        assert run.error is not None
        assert run.error.code == "program"
        assert SAYS[kind] in run.error.text
        (step,) = datasets.steps()
        assert (step.state, step.waiting, step.attempt) == ("FAILED", (2,), attempt)
        assert step.error == run.error
    assert [one.name for one in datasets.list()] == ["raw"]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("run", "said"),
    [
        ("clean.py:broken", "ValueError: no such luck"),
        ("clean.py:none", "clean.py has no function 'none'"),
        ("gone.py", "there is no file 'gone.py'"),
        ("gone:run", "No module named 'gone'"),
        (["/no/such/program"], "cannot be started"),
    ],
)
def test_a_function_that_fails_says_why(
    datasets: Datasets, folder: Path, run: Any, said: str
) -> None:
    datasets.on_commit("raw", run=run, into="made")
    (done,) = datasets.run_steps(folder=folder)
    assert done.error is not None
    assert said in done.error.text


@pytest.mark.usefixtures("here")
def test_a_failed_step_is_tried_again_and_others_go_on(datasets: Datasets, folder: Path) -> None:
    datasets.on_commit("raw", run="clean.py:broken", into="a")
    datasets.on_commit("raw", run="clean.py", into="b")
    datasets.on_commit("a", run="clean.py", into="c")
    runs = datasets.run_steps(folder=folder)
    assert [(one.step, one.state) for one in runs] == [("a", "FAILED"), ("b", "DONE")]
    (folder / "clean.py").write_text(
        CLEAN.replace('raise ValueError("no such luck")', "return rows")
    )
    runs = datasets.run_steps(folder=folder)
    assert [(one.step, one.state) for one in runs] == [("a", "DONE"), ("c", "DONE")]
    assert values_of(datasets, "c") == [1, 3]


@pytest.mark.usefixtures("here")
def test_an_interrupted_run_binds_nobody(
    datasets: Datasets, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    datasets.on_commit("raw", run="clean.py", into="clean")
    with monkeypatch.context() as patch:
        patch.setattr(Program, "run", interrupted)
        with pytest.raises(KeyboardInterrupt):
            datasets.run_steps(folder=folder)
    (step,) = datasets.steps()
    assert step.state == "FAILED"
    assert step.error == Failure("interrupted", "the run was interrupted")
    monkeypatch.setattr(Program, "run", lambda _, rows, __: rows)
    datasets.run_steps(folder=folder)
    assert values_of(datasets, "clean") == [1, -2, 3]


def interrupted(*_: Any) -> Any:
    raise KeyboardInterrupt


def test_rows_that_do_not_fit_fail(datasets: Datasets, folder: Path) -> None:
    (folder / "other.py").write_text("def run(rows):\n    import pyarrow as pa\n"
                                     "    return pa.table({'x': ['no number']})\n")  # fmt: skip
    datasets.create("made", "TABLE", numbers(1))
    datasets.on_commit("raw", run="other.py", into="made")
    (run,) = datasets.run_steps(folder=folder)
    assert run.error is not None
    assert run.error.code == "schema-mismatch"
    assert len(datasets.dataset("made").commits()) == 1


@pytest.mark.usefixtures("here")
def test_a_data_set_of_another_type_is_made(datasets: Datasets, folder: Path) -> None:
    (folder / "label.py").write_text(
        "import pyarrow as pa\n"
        "def run(rows):\n"
        "    xs = rows.read_all()['x'].to_pylist()\n"
        "    labels = [['big'] if x > 2 else ['small'] for x in xs]\n"
        "    return pa.table({'utterance': [str(x) for x in xs], 'labels': labels})\n"
    )
    datasets.on_commit("raw", run="label.py", into="intents", type="TEXT_INTENT")
    datasets.run_steps(folder=folder)
    made = datasets.dataset("intents")
    assert made.type == "TEXT_INTENT"
    assert made.prepare().statistics == {"numExamples": 3, "numLabels": 2}


# What is refused -----------------------------------------------------------------------------


@pytest.mark.spec("DST-70")
def test_steps_run_in_no_circle(datasets: Datasets) -> None:
    datasets.on_commit("raw", run="a.py", into="b")
    datasets.on_commit("b", run="a.py", into="c")
    for source, into in (("raw", "raw"), ("c", "raw"), ("b", "raw")):
        with pytest.raises(InvalidInputError, match="on its own result: raw ← "):
            datasets.on_commit(source, run="a.py", into=into)
    with pytest.raises(AlreadyExistsError, match="the step 'b' makes the data set 'b' already"):
        datasets.on_commit("c", run="a.py", into="b", name="other")
    with pytest.raises(AlreadyExistsError, match="there is a step 'b' already"):
        datasets.on_commit("raw", run="other.py", into="b")
    datasets.remove_step("b")
    datasets.on_commit("raw", run="other.py", into="b")
    assert [(one.name, one.run) for one in datasets.steps()] == [("c", "a.py"), ("b", "other.py")]
    with pytest.raises(NotFoundError, match="Choose from c, b"):
        datasets.remove_step("x")
    with pytest.raises(NotFoundError, match="Choose from c, b"):
        datasets.run_steps("x")


@pytest.mark.parametrize(
    "arguments",
    [
        {"run": "clean"}, {"run": "../clean.py"}, {"run": "/x/clean.py"}, {"run": ""}, {"run": []},
        {"run": [1]}, {"run": None}, {"run": ["a", ""]}, {"rows": "some"}, {"into": "1"},
        {"into": "a/b"}, {"type": "NONE"}, {"name": ""}, {"dataset": "none"}, {"into": None},
    ],
)  # fmt: skip
def test_odd_arguments_are_refused(datasets: Datasets, arguments: dict[str, Any]) -> None:
    given: dict[str, Any] = {"run": "clean.py", "into": "clean", **arguments}
    with pytest.raises(TxlogError):
        datasets.on_commit(given.pop("dataset", "raw"), **given)
    assert datasets.steps() == []


@pytest.mark.usefixtures("here")
def test_a_step_of_deleted_data_sets_stops(datasets: Datasets, folder: Path) -> None:
    datasets.on_commit("raw", run="clean.py", into="clean")
    datasets.run_steps(folder=folder)
    raw, clean = datasets.dataset("raw"), datasets.dataset("clean")
    raw.update(numbers(9))
    for one in (raw, clean):
        one.delete()
        (step,) = datasets.steps()
        assert step.state == "STOPPED"
        assert step.error is not None
        assert step.error.text == (
            f"the data set {one.name!r} ({one.dataset_id}) is deleted. Undelete it, or remove the "
            "step"
        )
        assert datasets.run_steps(folder=folder) == []
        one.undelete()
    datasets.run_steps(folder=folder)
    assert values_of(datasets, "clean") == [1, 3, 9]


@pytest.mark.usefixtures("here")
@pytest.mark.spec("DST-72")
def test_a_step_that_is_added_anew_goes_on(datasets: Datasets, folder: Path) -> None:
    datasets.on_commit("raw", run="clean.py", into="clean")
    datasets.run_steps(folder=folder)
    datasets.remove_step("clean")
    datasets.dataset("raw").update(numbers(8))
    (folder / "other.py").write_text(CLEAN)
    added = datasets.on_commit("raw", run="other.py", into="clean")
    assert (added.done, added.waiting) == (1, (2,))
    datasets.run_steps(folder=folder)
    assert values_of(datasets, "clean") == [1, 3, 8]


@pytest.mark.usefixtures("here")
def test_data_sets_that_are_made_anew_are_other_ones(datasets: Datasets, folder: Path) -> None:
    datasets.on_commit("raw", run="clean.py", into="clean")
    datasets.run_steps(folder=folder)
    datasets.dataset("raw").delete()
    datasets.create("raw", "TABLE", numbers(7))
    with pytest.raises(AlreadyExistsError, match="Remove that step first"):
        datasets.on_commit("raw", run="clean.py", into="clean")
    datasets.remove_step("clean")
    datasets.on_commit("raw", run="clean.py", into="clean")
    datasets.run_steps(folder=folder)
    assert values_of(datasets, "clean") == [1, 3, 7]


@pytest.mark.usefixtures("here")
def test_an_input_that_somebody_else_makes_is_found(datasets: Datasets, folder: Path) -> None:
    datasets.on_commit("raw", run="clean.py", into="clean")
    datasets.on_commit("clean", run="clean.py", into="final")
    datasets.remove_step("clean")
    datasets.create("clean", "TABLE", numbers(5))
    (run,) = datasets.run_steps(folder=folder)
    assert (run.step, run.state) == ("final", "DONE")
    assert values_of(datasets, "final") == [5]


def test_the_folder_of_programs_must_exist(datasets: Datasets, folder: Path) -> None:
    datasets.on_commit("raw", run="clean.py", into="clean")
    with pytest.raises(InvalidInputError, match="is no folder"):
        datasets.run_steps(folder=folder / "none")
    assert [one.attempt for one in datasets.steps()] == [0]


def test_steps_are_in_the_audit(datasets: Datasets, folder: Path) -> None:
    datasets.on_commit("raw", run="clean.py", into="clean")
    datasets.on_commit("clean", run="clean.py", into="cleaner")
    datasets.remove_step("clean")
    rows = [row for row in datasets.audit().to_pylist() if row["action"].startswith("step")]
    assert [(row["action"], row["dataset"], row["dataset_id"], row["user"]) for row in rows] == [
        ("step_added", "raw", 1, "ann"),
        ("step_added", "clean", None, "ann"),
        ("step_removed", "raw", 1, "ann"),
    ]
    assert json.loads(rows[0]["details"])["run"] == "clean.py"


# A model --------------------------------------------------------------------------------------

Rows = tuple[int, ...]
NEW = itertools.count()


@dataclass
class Model:
    """What a step has to do and has made, told in a simple way."""

    rows: Literal["new", "all"]
    done: int = 0
    made: list[tuple[int, Rows]] = field(default_factory=list)  # What it replaces, and its rows.
    made_for: list[int] = field(default_factory=list)
    unrecorded: set[int] = field(default_factory=set)  # Results whose end nobody recorded.

    def run(self, world: StepMachine, *, fails: bool = False, dies: bool = False) -> None:
        """Do what `run_steps` does; a worker dies after its first commit."""
        while due := self.due(world):
            number = due[0]
            if number in self.unrecorded and not dies:
                self.done = number
                continue
            if number not in self.unrecorded:
                if fails:
                    return
                replaces, rows = self.result(world, number)
                if not rows and replaces:
                    return
                if rows:
                    self.made.append((replaces, rows))
                    self.made_for.append(number)
                    self.unrecorded.add(number)
            if dies:
                return
            self.done = number

    def due(self, world: StepMachine) -> list[int]:
        found = [n for n in world.shown() if n > self.done]
        return found if self.rows == "new" else found[-1:]

    def result(self, world: StepMachine, number: int) -> tuple[int, Rows]:
        if self.rows == "new":
            picked = [number]
            replaces = sum(made <= world.replacing[number] for made in self.made_for)
        else:
            shown = [n for n in world.shown() if n <= number]
            replaced = max((world.replacing[n] for n in shown), default=0)
            replaces, picked = len(self.made), [n for n in shown if n > replaced]
        return replaces, tuple(x for n in picked for x in world.commits[n] if x > 0)


class StepMachine(RuleBasedStateMachine):
    """Commits, hides, failures and deaths in any order; each commit has its result once."""

    def __init__(self) -> None:
        super().__init__()
        self.patch = pytest.MonkeyPatch()
        self.models = [Model("new"), Model("all")]
        self.hidden: set[int] = set()
        self.fails = False

    def shown(self) -> list[int]:
        return sorted(self.commits.keys() - self.hidden)

    @initialize(values=st.lists(st.integers(-2, 5), min_size=1, max_size=3))
    def begin(self, values: list[int]) -> None:
        self.datasets = Datasets(f"memory://steps-{next(NEW)}", runner=InlineRunner())
        self.datasets.create("in", "TABLE", numbers(*values))
        self.commits, self.replacing = {1: tuple(values)}, {1: 0}
        for model in self.models:
            self.datasets.on_commit("in", run="p.py", into=model.rows, rows=model.rows)

        def positive(_: Program, rows: pa.RecordBatchReader, __: Mapping[str, str]) -> Any:
            if self.fails:
                raise ProgramError("asked for")
            table = rows.read_all()
            return table.filter(pc.greater(table["x"], 0)).to_reader()

        self.patch.setattr(Program, "run", positive)

    @rule(values=st.lists(st.integers(-2, 5), min_size=1, max_size=3), replace=st.booleans())
    def commit(self, values: list[int], replace: bool) -> None:
        number = self.datasets.dataset("in").update(numbers(*values), replace=replace).commit_id
        self.commits[number] = tuple(values)
        self.replacing[number] = number - 1 if replace else 0

    @rule(data=st.data())
    def hide_or_show(self, data: st.DataObject) -> None:
        number = data.draw(st.sampled_from(sorted(self.commits)))
        ds = self.datasets.dataset("in")
        (ds.show if number in self.hidden else ds.hide)(number)
        self.hidden ^= {number}

    @rule(at=st.integers(0, 1), fails=st.booleans())
    def run(self, at: int, fails: bool) -> None:
        model, self.fails = self.models[at], fails
        self.datasets.run_steps(model.rows)
        self.fails = False
        model.run(self, fails=fails)

    @rule(at=st.integers(0, 1))
    def die_after_the_commit(self, at: int) -> None:
        """The worker dies before it can record the end, and its lease is over at once."""
        model, ledger = self.models[at], self.datasets._home.ledger
        record, claim = ledger.record, ledger.claim_step

        def dead(command: Any, *of: Any) -> Any:
            if isinstance(command, FinishStep) and command.error is None:
                raise KeyboardInterrupt
            return record(command, *of)

        with pytest.MonkeyPatch.context() as patch, suppress(KeyboardInterrupt):
            patch.setattr(ledger, "record", dead)
            patch.setattr(ledger, "claim_step", lambda *of: claim(*of, lease_ms=-100_000))
            patch.setattr(ledger, "renew_step", lambda held: held)
            self.datasets.run_steps(model.rows)
        model.run(self, dies=True)

    @invariant()
    def each_commit_has_its_result_once(self) -> None:
        for model in self.models if self.commits else []:
            told = {step.name: step for step in self.datasets.steps()}[model.rows]
            assert (told.done, [*told.waiting]) == (model.done, model.due(self))
            if not model.made:
                with pytest.raises(NotFoundError):
                    self.datasets.dataset(model.rows)
                continue
            ds = self.datasets.dataset(model.rows)
            rows = [
                tuple(ds.table().to_arrow(where=f"commit_id = {one.commit_id}")["x"].to_pylist())
                for one in ds.commits()
            ]
            assert [*zip([one.replaces for one in ds.commits()], rows, strict=True)] == model.made

    def teardown(self) -> None:
        self.patch.undo()


TestSteps = pytest.mark.spec("DST-71", "DST-72")(pytest.mark.slow(StepMachine.TestCase))
TestSteps.settings = settings(max_examples=examples(60), stateful_step_count=12)


# Leases ---------------------------------------------------------------------------------------

ADD = AddStep("s", "raw", 1, "clean", None, "TABLE", "clean.py", "new")


def after(*commands: Any, now_ms: int = 0) -> dict[int, StepState]:
    """Return the steps after some commands, all at one time."""
    steps: dict[int, StepState] = {}
    for command in commands:
        decided = decide_step(steps, command, now_ms)
        assert decided is not None
        steps = next_steps(steps, *decided, now_ms)
    return steps


@pytest.mark.spec("DST-67")
def test_who_is_limited_learns_no_names_of_steps() -> None:
    steps = after(ADD, AddStep("hidden", "clean", None, "last", None, "TABLE", "p.py", "new"))
    for asked, into, told in (("last", "raw", "clean"), ("other", "last", "hidden")):
        for user in (None, "eve"):
            command = AddStep("x", asked, None, into, None, "TABLE", "p.py", "new", user)
            with pytest.raises(TxlogError) as caught:
                decide_step(steps, command, 0)
            assert (told in str(caught.value)) == (user is None)


@pytest.mark.spec("DST-73")
def test_one_worker_runs_a_step_at_a_time() -> None:
    first = ClaimStep(1, 1, "w1", lease_ms=1_000)
    steps = after(ADD, first)
    assert decide_step(steps, ClaimStep(1, 1, "w2"), 60_000) is None
    taken = decide_step(steps, ClaimStep(1, 1, "w2"), 61_001)
    assert taken is not None
    assert taken[1]["attempt"] == 2
    steps = next_steps(steps, *taken, 61_001)
    late = StepClaim(1, 1, 1, "w1", 0)
    for command in (FinishStep(late), ClaimStep(1, 1, "w1", attempt=1)):
        with pytest.raises(CommitConflictError, match="not the current one"):
            decide_step(steps, command, 61_002)
    done = FinishStep(StepClaim(1, 1, 2, "w2", 0), 7)
    ended = next_steps(steps, *(decide_step(steps, done, 61_002) or ("", {})), 61_002)
    assert (ended[1].done, ended[1].into_id) == (1, 7)
    assert decide_step(ended, done, 61_003) is None  # The store lost the answer.
    assert decide_step(ended, ClaimStep(1, 1, "w3"), 61_003) is None  # It is done.


@pytest.mark.spec("DST-73")
def test_a_clock_that_is_far_ahead_binds_nobody() -> None:
    steps = after(ADD, ClaimStep(1, 1, "w1"), now_ms=10_000_000)
    assert decide_step(steps, ClaimStep(1, 1, "w2"), 0) is not None


@pytest.mark.spec("DST-70", "DST-73")
def test_a_removed_step_is_claimed_by_nobody() -> None:
    steps = after(ADD, ClaimStep(1, 1, "w1"), RemoveStep(1))
    assert decide_step(steps, RemoveStep(1), 0) is None
    for command in (ClaimStep(1, 2, "w2"), ClaimStep(1, 1, "w1", attempt=1)):
        with pytest.raises(NotFoundError, match="the step 's' was removed"):
            decide_step(steps, command, 0)
    failed = FinishStep(StepClaim(1, 1, 1, "w1", 0), error=Failure("program", "no"))
    assert decide_step(steps, failed, 0) is not None


def test_a_step_that_another_process_runs_is_left_to_it(datasets: Datasets, folder: Path) -> None:
    datasets.on_commit("raw", run="clean.py", into="clean")
    datasets._home.ledger.claim_step(1, 1)
    assert datasets.run_steps(folder=folder) == []
    assert [one.state for one in datasets.steps()] == ["RUNNING"]


def test_a_program_does_not_outlive_a_run_that_another_worker_took_over(
    datasets: Datasets, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (folder / "slow.py").write_text(
        "import os, time\nprint(os.getpid(), file=open('pid', 'w'), flush=True)\ntime.sleep(600)"
    )
    datasets.on_commit("raw", run=[sys.executable, "slow.py"], into="made")
    ledger = datasets._home.ledger
    claim = ledger.claim_step

    def lost(_: StepClaim) -> StepClaim:
        raise CommitConflictError(version=1, rule="DST-73", reason="taken over", remedy="none")

    monkeypatch.setattr(ledger, "claim_step", lambda *of: claim(*of, lease_ms=100))
    monkeypatch.setattr(ledger, "renew_step", lost)
    assert datasets.run_steps(folder=folder) == []
    (folder / "pid").touch()
    if pid := (folder / "pid").read_text():  # It may be killed before it can write it.
        with pytest.raises(ProcessLookupError):
            os.kill(int(pid), 0)
