"""What callers note in commits, beside what every verb itself states."""

import uuid
from dataclasses import replace
from typing import Any

import pyarrow as pa
import pytest

import txlog
from tests.reliability.cases import CASES, clear, context_of, opened
from txlog.commit import loop
from txlog.commit.intent import COMMIT_INFO_NAMES, WRITE_PARAMETERS, Encoded, Intent
from txlog.extend import Operation, Snapshot, execute
from txlog.store.memory import MemoryStore

ROWS = pa.table({"x": [1]})


@pytest.mark.slow(cases=30)
@pytest.mark.parametrize("name", CASES)
def test_the_facts_of_a_commit_win_over_what_its_caller_notes(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each commit of a verb is encoded with and without notes that contradict it."""
    encode, seen = loop.encode_commit, 0

    def twice(intent: Intent, **arguments: Any) -> Encoded:
        nonlocal seen
        seen += 1
        named = {*WRITE_PARAMETERS, *intent.parameters}
        claims = {form: "claimed" for one in named for form in (one, one.upper())}
        notes = {"job": 7, "operationParameters": {**claims, "a note": "kept"}}
        plain = encode(replace(intent, user_metadata=None), **arguments).rows[0]["commitInfo"]
        noted = encode(replace(intent, user_metadata=notes), **arguments).rows[0]["commitInfo"]
        assert noted.pop("job") == 7
        assert noted["operationParameters"].pop("a note") == "kept"
        del plain["txlogCrc32"], noted["txlogCrc32"]
        assert noted == {"operationParameters": {}, **plain}
        return encode(intent, **arguments)

    case = CASES[name]
    store = MemoryStore(f"memory://{uuid.uuid4()}")
    try:
        case.make(context_of(store))
        monkeypatch.setattr(loop, "encode_commit", twice)
        context = context_of(store, case.hours)
        case.run(context, None if case.new else opened(store, case.hours))
    finally:
        clear(store)
    assert seen >= case.commits


def test_the_first_commit_states_what_it_wrote() -> None:
    claims = {"mode": "Overwrite", "predicate": '["x = 1"]', "partitionBy": '["x"]', "mine": "1"}
    table = txlog.write(
        f"memory://{uuid.uuid4()}", ROWS, user_metadata={"operationParameters": claims}
    )
    (entry,) = table.history()
    assert entry["operation"] == "CREATE TABLE AS SELECT"
    stated = entry["operationParameters"]
    assert (stated["partitionBy"], stated["mine"]) == ("[]", "1")
    assert not {"mode", "predicate"} & stated.keys()


@pytest.mark.parametrize("change", [str, str.upper, str.lower], ids=["same", "upper", "lower"])
def test_fields_that_commits_fill_in_have_no_second_one(change: Any) -> None:
    table = txlog.write(f"memory://{uuid.uuid4()}", ROWS)
    for name in sorted(COMMIT_INFO_NAMES):
        with pytest.raises(txlog.InvalidInputError, match="txlog itself sets") as caught:
            table.append(ROWS, user_metadata={change(name): "x"})
        assert caught.value.field == change(name)
    with pytest.raises(txlog.InvalidInputError, match="the field userName only in case"):
        table.append(ROWS, user_metadata={"username": "x"})
    assert table.refresh().version == 0


class _Notes(Operation):
    name = "NOTE"

    def intent(self, base: Snapshot) -> Intent:
        notes = {"timestamp": 7}
        return Intent(self.name, kind="metadata", read_version=base.version, user_metadata=notes)


def test_notes_of_a_verb_of_another_package_are_checked_too() -> None:
    table = txlog.write(f"memory://{uuid.uuid4()}", ROWS)
    with pytest.raises(txlog.InvalidInputError, match="txlog itself sets the field timestamp"):
        execute(table, _Notes())
    assert table.refresh().version == 0
