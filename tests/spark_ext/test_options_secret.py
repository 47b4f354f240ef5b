"""Storage options are never shown: in no log, plan, file or answer of Spark."""

import json
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from own_driver import run_driver
from secret_ways import WAYS, make_tables, shown_in

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.spark, pytest.mark.exhaustive]

PATIENCE_S = 60.0


def text_below(folder: Path) -> dict[str, str]:
    """Return what the files of a folder say, by their paths in it."""
    found = [path for path in folder.rglob("*") if path.is_file()]
    return {
        str(path.relative_to(folder)): path.read_bytes().decode(errors="replace") for path in found
    }


def places_that_show(texts: Mapping[str, str]) -> dict[str, set[str]]:
    """Return which ways show their secrets, by the place where they do."""
    found = {place: shown_in(text) for place, text in texts.items()}
    return {place: ways for place, ways in found.items() if ways}


def require_all_said(said: Mapping[str, str], ways: list[str]) -> None:
    for way in ways:
        assert WAYS[way] in said[f"registered.{way}"], way


def require_kept(places: Mapping[str, str], *folders: str) -> None:
    for folder in folders:
        assert any(place.startswith(f"{folder}/") for place in places), folder


@pytest.mark.spec("STR-48")
def test_a_classic_session_shows_no_storage_options(tmp_path: Path) -> None:
    done = run_driver("secret_ways.py", tmp_path)
    logged = done.stdout + done.stderr
    assert "INFO" in logged
    kept = text_below(tmp_path)
    said = json.loads(kept.pop("said.json"))
    require_all_said(said, list(WAYS))
    require_kept(kept, "lists", "checkpoint-registered.stream", "checkpoint-unregistered.stream")
    found = places_that_show({**said, "log": logged, **kept})
    # Had others been shown, the log of events would have them, as it has those that nothing hides.
    (events,) = (place for place in kept if place.startswith("events/") and "/events_" in place)
    assert found == {events: {"in_clear.write", "in_clear.sql_view"}}


@pytest.mark.spec("STR-48")
def test_register_hides_storage_options_of_a_remote_session(
    remote: Callable[..., Any], tmp_path: Path
) -> None:
    def work(spark: "SparkSession", folder: Path, ways: list[str]) -> dict[str, str]:
        from secret_ways import PATTERNS, Ways

        import txlog.spark_ext

        txlog.spark_ext.register(spark)
        said = Ways(spark, folder, "storageOptions", "registered").go(ways)
        said |= Ways(spark, folder, "secretStorageOptions", "secretly").go(
            ("read", "stream", "write")
        )
        for pattern in PATTERNS:
            spark.conf.unset(pattern)
        said |= Ways(spark, folder, "storageOptions", "in_clear").go(("write",))
        txlog.spark_ext.register(spark)
        return said

    make_tables(tmp_path)
    ways = [way for way in WAYS if way != "sql_view"]  # Statements are shown as they are.
    said = remote(work, tmp_path, ways)
    require_all_said(said, ways)
    kept = text_below(tmp_path)
    require_kept(kept, "lists", "checkpoint-registered.stream", "checkpoint-secretly.stream")
    log = remote.log.read_text(errors="replace")
    assert "INFO" in log
    texts = {**said, **kept, "log": log, "events": events_until(remote, "in_clear.write")}
    # Requests are among the events, so that this is shown where nothing hides it.
    assert places_that_show(texts) == {"events": {"in_clear.write"}}


def events_until(remote: Any, last: str) -> str:
    """Return the server's log of events, once it has told of a way."""
    until = time.monotonic() + PATIENCE_S
    while True:
        text = "".join(text_below(remote.log.parent / "events").values())
        if last in shown_in(text) or time.monotonic() > until:
            return text
        time.sleep(0.1)
