"""Who changed what: in commits, in the ledger, in the tables' history, and in one table of all."""

import json
import pickle
import re
from pathlib import Path

import pyarrow as pa
import pytest

from tests.training.datasets.homes import rows_of
from tests.training.service.servers import within
from txlog.base.errors import InvalidInputError, TxlogWarning
from txlog.base.threads import Threads
from txlog.base.version import __version__
from txlog.training import Datasets, InlineRunner, TokenFile, create_app
from txlog.training.datasets.commands import Mark
from txlog.training.datasets.home import os_user
from txlog.training.datasets.values import Who
from txlog.training.service.auth import digest_of, token_entry


@pytest.mark.spec("DST-2", "DST-22")
def test_each_change_has_its_author(tmp_path: Path) -> None:
    ann = Datasets(tmp_path, runner=InlineRunner(), user="ann")
    bob = ann.acting_as("bob", "nightly")
    made = ann.create("d", "TABLE", rows_of("a"), message="first")
    bob.dataset("d").update(rows_of("b"), "second")
    bob.dataset("d").hide(1)
    made.tag("best", 2)
    asked = bob.dataset("d").prepare()
    bob.dataset("d").purge(1, confirm="d")
    made.delete()
    client = f"txlog/{__version__}"
    found = ann.audit()
    names = ("user", "client", "action", "commit")
    rows = sorted(zip(*(found[name].to_pylist() for name in names), strict=True), key=str)
    assert rows == sorted(
        [
            ("ann", client, "created", None),
            ("ann", client, "committed", 1),
            ("bob", "nightly", "committed", 2),
            ("bob", "nightly", "hidden", 1),
            ("ann", client, "tagged", 2),
            ("bob", "nightly", "asked", None),
            ("bob", "nightly", "purged", 1),
            ("ann", client, "deleted", None),
        ],
        key=str,
    )
    assert found.schema.field("time").type == pa.timestamp("us", "UTC")
    assert found["time"].to_pylist() == sorted(found["time"].to_pylist())
    assert set(found["dataset"].to_pylist()) == {"d"}
    assert asked.version_hash in found["training_set"].to_pylist()
    assert [(one.user, one.client) for one in made.commits()] == [
        ("ann", client),
        ("bob", "nightly"),
    ]
    told = {entry.get("userMetadata"): entry.get("userName") for entry in made.table().history()}
    assert told["first"] == "ann"
    assert told["second"] == told["purge commit 1"] == "bob"


def test_the_user_is_that_of_the_system_unless_given(tmp_path: Path) -> None:
    plain = Datasets(tmp_path)
    plain.create("d", "TABLE", rows_of("a"))
    assert plain.dataset("d").commit(1).user == os_user()
    again = pickle.loads(pickle.dumps(Datasets(tmp_path, user="ann").dataset("d")))
    assert again.update(rows_of("b")).user == "ann"


@pytest.mark.parametrize("wrong", ["", "  ", "\0", "a\nb", "x\x1b[31m", "\ud800", "u" * 256])
def test_a_user_that_is_no_name_is_refused_wherever_it_is_given(tmp_path: Path, wrong: str) -> None:
    with pytest.raises(InvalidInputError, match="user"):
        Datasets(tmp_path, user=wrong)
    with pytest.raises(InvalidInputError, match="user"):
        Datasets(tmp_path).acting_as(wrong)
    with pytest.raises(InvalidInputError, match="argument='name'"):
        token_entry(wrong, "secret", "read")


@pytest.mark.parametrize("user", ["ann@x.org", "DOM\\ann", "Ann Müller", "a/b", "u" * 255])
def test_a_user_is_recorded_as_given(tmp_path: Path, user: str) -> None:
    one, other = Datasets(tmp_path, user=user), Datasets(tmp_path).acting_as(user)
    assert one.create("d", "TABLE", rows_of("a")).commit(1).user == user
    assert other.dataset("d").update(rows_of("b")).user == user


def test_another_user_has_the_same_runner_engine_and_ledger(tmp_path: Path) -> None:
    home = Datasets(tmp_path, engine=Threads(1), runner=InlineRunner(), by="p1")._home
    other = home.acting(Who("ann", ""))
    assert (other.who.user, other.who.client) == ("ann", "")
    assert type(other) is type(home)
    assert vars(other).keys() == vars(home).keys()
    for name, value in vars(home).items():
        assert name == "who" or vars(other)[name] is value


def test_an_author_that_is_not_text_ends_no_audit(tmp_path: Path) -> None:
    catalog = Datasets(tmp_path, user="ann")
    for name in ("good", "bad"):
        catalog.create(name, "TABLE", rows_of("a"))
    table = tmp_path / "data" / catalog.dataset("bad").uuid
    for checksum in table.rglob("*.crc"):
        checksum.unlink()
    for log in table.rglob("*.json"):
        text = re.sub(r',"txlogCrc32":"\w+"', "", log.read_text())
        log.write_text(text.replace(r"\"user\":\"ann\"", r"\"user\":7"))
    catalog._home.ledger.record(Mark("hidden", 1, 1), Who(7))  # type: ignore[arg-type]
    with pytest.warns(TxlogWarning) as told:
        found = Datasets(tmp_path).audit()
    text = "user is not text, but 7"
    assert [text in str(one.message) for one in told] == [True, True]
    assert {str(one.message).split()[0] for one in told} == {"event", "the"}
    shown = sorted(zip(*(found[name].to_pylist() for name in ("action", "user")), strict=True))
    assert shown == [("committed", "ann"), ("created", "ann"), ("created", "ann"), ("hidden", None)]


def test_a_service_records_the_name_of_the_token(tmp_path: Path) -> None:
    (tmp_path / "in").mkdir()
    (tmp_path / "in" / "a.csv").write_text("hello,greeting\n")
    token = {"name": "julia", "sha256": digest_of("secret"), "right": "admin"}
    (tmp_path / "tokens.json").write_text(json.dumps({"tokens": [token]}))
    catalog = Datasets(
        tmp_path / "root", sources={"in": tmp_path / "in"}, runner=InlineRunner(), user="server"
    )
    headers = {"Authorization": "Bearer secret", "User-Agent": "curl/8"}
    client = within(create_app(catalog, TokenFile(tmp_path / "tokens.json")))
    body = {"name": "d", "type": "TEXT_INTENT", "source": "in/a.csv"}
    assert client.post("/v1/datasets", json=body, headers=headers).status_code == 201
    made = client.post("/v1/datasets/1/commits", json={"source": "in/a.csv"}, headers=headers)
    assert (made.json()["user"], made.json()["client"]) == ("julia", "HTTP, curl/8")
    assert client.delete("/v1/datasets/1", headers=headers).status_code == 204
    assert set(catalog.audit()["user"].to_pylist()) == {"julia"}
    alone = within(create_app(catalog))
    alone.post("/v1/datasets/1:undelete", headers={"User-Agent": "curl/8"})
    last = catalog.audit().slice(4).to_pylist()[0]
    assert (last["user"], last["client"], last["action"]) == ("server", "HTTP, curl/8", "undeleted")
