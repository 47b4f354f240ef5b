"""Who changed what: in commits, in the ledger, in the tables' history, and in one table of all."""

import json
import pickle
from pathlib import Path

import pyarrow as pa
import pytest

from tests.training.datasets.homes import rows_of
from tests.training.service.servers import within
from txlog.base.errors import InvalidInputError
from txlog.base.version import __version__
from txlog.training import Datasets, InlineRunner, TokenFile, create_app
from txlog.training.datasets.home import os_user
from txlog.training.service.auth import digest_of


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
    for wrong in ("", "a/b", "\0"):
        with pytest.raises(InvalidInputError):
            Datasets(tmp_path, user=wrong)


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
