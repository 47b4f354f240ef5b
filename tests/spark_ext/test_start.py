"""What `register` hides. No JVM is started; the settings are those that Spark is given."""

import re
from types import SimpleNamespace
from typing import Any

import pytest

from txlog.spark_ext import register

HIDDEN = "spark.sql.redaction.string.regex"
HIDDEN_OF_ALL = "spark.redaction.string.regex"


def registered(**settings: str) -> dict[str, str]:
    """Return a session's settings after `register` was called, twice."""
    held = {name.replace("__", "."): value for name, value in settings.items()}

    def get(name: str, default: str | None = None) -> str | None:
        return held.get(name, default)

    session: Any = SimpleNamespace(
        conf=SimpleNamespace(get=get, set=held.__setitem__),
        dataSource=SimpleNamespace(register=[].append),
    )
    register(session)
    once = dict(held)
    register(session)
    assert held == once
    return held


def request(name: str) -> str:
    """Return how a server of Spark Connect prints a request that has an option."""
    return f"""read {{
  data_source {{
    format: "txlog"
    options {{
      key: "{name}"
      value: "{{\\"key\\": \\"hush\\", \\"other\\": \\"\\\\\\\\hush\\"}}"
    }}
    options {{
      key: "where"
      value: "a = \\"shown\\""
    }}
  }}
}}"""


@pytest.mark.spec("STR-48")
@pytest.mark.parametrize("name", ["storageOptions", "storageoptions", "secretStorageOptions"])
def test_options_of_a_request_are_hidden(name: str) -> None:
    shown = re.sub(registered()[HIDDEN], "*", request(name))
    assert "hush" in request(name)
    assert "hush" not in shown
    assert "shown" in shown


@pytest.mark.spec("STR-48")
@pytest.mark.parametrize(
    "before",
    [
        {"spark__sql__redaction__string__regex": "mine"},
        {"spark__redaction__string__regex": "mine"},
    ],
    ids=["session", "all"],
)
def test_what_is_hidden_already_stays_hidden(before: dict[str, str]) -> None:
    pattern = registered(**before)[HIDDEN]
    assert pattern.startswith("mine|")
    # As in Java, a flag within a pattern holds from there on.
    ours = pattern.removeprefix("mine|")
    assert "hush" not in re.sub(ours, "*", request("storageOptions"))
