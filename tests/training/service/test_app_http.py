"""The HTTP service without the client: problems, keys, rights, ranges, the page."""

import json
import threading
from collections.abc import Callable, Iterator
from hashlib import sha256
from pathlib import Path
from typing import Any, cast

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from servers import SECRET, localbucket, missing, redirecting

from tests.examples import examples
from tests.moved import moved
from tests.training.service.servers import grpc_stub, http_client, within, write_intents
from txlog.base.errors import (
    DataFileError,
    InvalidInputError,
    NotFoundError,
    StoreError,
    TxlogWarning,
)
from txlog.training import (
    Access,
    AccessError,
    Datasets,
    InlineRunner,
    Limits,
    Sources,
    TokenFile,
    connect,
    create_app,
    create_server,
    serve,
)
from txlog.training.datasets.access import inherited
from txlog.training.datasets.home import os_user
from txlog.training.datasets.program import Program
from txlog.training.service.auth import Principal, digest_of, parse_tokens
from txlog.training.service.parts import range_of


@pytest.fixture
def catalog(tmp_path: Path) -> Datasets:
    write_intents(tmp_path / "in/1.csv", 20, 4)
    made = Datasets(tmp_path / "root", sources={"in": tmp_path / "in"}, runner=InlineRunner())
    made.create("intents", "TEXT_INTENT", "in/1.csv", tags={"<b>": "<script>"})
    return made


def tokens(tmp_path: Path, **rights: Any) -> TokenFile:
    path = tmp_path / "tokens.json"
    path.write_text(
        json.dumps(
            {
                "tokens": [
                    {"name": name, "sha256": digest_of(f"token of {name}"), "right": right}
                    | ({} if datasets is None else {"datasets": datasets})
                    for name, (right, datasets) in rights.items()
                ]
            }
        )
    )
    return TokenFile(path)


def bearer(name: str) -> dict[str, str]:
    return {"Authorization": f"Bearer token of {name}"}


@pytest.mark.spec("DST-60")
def test_problems(catalog: Datasets) -> None:
    client = within(create_app(catalog))
    for method, path, body, status, code in (
        ("GET", "/v1/datasets/no", None, 404, "not-found"),
        ("GET", "/v1/nothing", None, 404, "not-found"),
        ("GET", "/v1/datasets/" + "1" * 5000, None, 404, "not-found"),
        ("PUT", "/v1/datasets", {}, 405, "method-not-allowed"),
        ("POST", "/v1/datasets", {"name": "x"}, 422, "invalid-input"),
        ("POST", "/v1/datasets", {"name": "x", "type": "TABLE", "more": 1}, 422, "invalid-input"),
        ("POST", "/v1/datasets", {"name": 1, "type": "TABLE"}, 422, "invalid-input"),
        *(
            ("POST", "/v1/datasets", {"name": "x", "type": "TABLE", **odd}, 422, "invalid-input")
            for odd in (
                {"inputs": [{"uri": "a", "version": "3"}]},
                {"inputs": [{"uri": "a", "more": 1}]},
                {"inputs": [{}]},
                {"code": {"name": 1}},
                {"code": {"name": "a", "more": 1}},
            )
        ),
        ("POST", "/v1/datasets", {"name": "intents", "type": "TABLE"}, 409, "already-exists"),
        ("GET", "/v1/datasets?limit=0", None, 422, "invalid-input"),
        ("GET", "/v1/datasets/intents/training-sets/x?wait=1e9", None, 422, "invalid-input"),
    ):
        answer = client.request(method, path, json=body)
        assert answer.status_code == status, (path, answer.text)
        assert answer.headers["content-type"] == "application/problem+json"
        problem = answer.json()
        assert (problem["status"], problem["code"]) == (status, code)
        assert problem["detail"]
        assert problem["title"]


def test_problems_name_what_the_request_has(catalog: Datasets) -> None:
    client = within(create_app(catalog))
    for method, path, body, argument in (
        ("GET", "intents/commits/0", None, "commit"),
        ("GET", "intents/diff?from=0&to=1", None, "from"),
        ("GET", "intents/diff?from=1&to=0", None, "to"),
        ("GET", "intents/diff?to=1", None, "from"),
        ("POST", "intents/commits", {"source": "x.csv", "tags": {"": "v"}}, "tags"),
        ("POST", "intents/commits", {"source": "x.csv", "replace": -1}, "replace"),
        ("POST", "intents/training-sets", {"form": "nothing"}, "form"),
        ("POST", "intents/training-sets", {"where": "nothing ="}, "where"),
        ("PUT", "intents/access", {"owner": " "}, "owner"),
        ("PUT", "intents/access", {"readers": [" "]}, "readers"),
    ):
        answer = client.request(method, f"/v1/datasets/{path}", json=body)
        assert answer.status_code == 422, (path, answer.text)
        assert answer.json()["fields"].get("argument") == argument, answer.text


@pytest.mark.spec("DST-65")
def test_bodies_are_json_and_small(catalog: Datasets) -> None:
    client = within(create_app(catalog))
    form = client.post("/v1/datasets", content="name=x", headers={"Content-Type": "text/plain"})
    assert form.status_code == 415
    kind = {"Content-Type": "application/json"}
    assert client.post("/v1/datasets", content=b"{", headers=kind).status_code == 422
    assert client.post("/v1/datasets", content=b" " * (2 << 20), headers=kind).status_code == 413
    assert [one.name for one in catalog.list()] == ["intents"]


def test_faults_tell_nothing(catalog: Datasets, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*_: object, **__: object) -> None:
        raise RuntimeError("the password is 1234")

    monkeypatch.setattr(Datasets, "list", broken)
    answer = within(create_app(catalog)).get("/v1/datasets")
    assert answer.status_code == 500
    assert "1234" not in answer.text


@pytest.mark.spec("DST-61")
def test_a_key_makes_a_retry_one_effect(catalog: Datasets, tmp_path: Path) -> None:
    client = within(create_app(catalog))
    key = {"Idempotency-Key": "a"}
    body = {"source": "in/1.csv", "message": "again"}
    first, second = (
        client.post("/v1/datasets/1/commits", json=body, headers=key) for _ in range(2)
    )
    assert first.status_code == second.status_code == 201
    assert first.json() == second.json()
    write_intents(tmp_path / "in/2.csv", 3, 3)
    for change in ({"message": "b"}, {"source": "in/2.csv"}, {"code": {"name": "x"}}):
        other = client.post("/v1/datasets/1/commits", json=body | change, headers=key)
        assert other.status_code == 422, change
    made = {"name": "new", "type": "TEXT_INTENT", "source": "in/1.csv"}
    answers = [client.post("/v1/datasets", json=made, headers=key) for _ in range(2)]
    assert [one.json()["dataset_id"] for one in answers] == [2, 2]
    for change in ({"name": "newer"}, {"type": "GENERIC"}, {"source": None}):
        other = client.post("/v1/datasets", json=made | change, headers=key)
        assert other.status_code == 422, change
    empty = {"name": "empty", "type": "TEXT_INTENT"}
    key = {"Idempotency-Key": "b"}
    first = client.post("/v1/datasets", json=empty, headers=key)
    catalog.dataset("empty").update("in/1.csv", "by another")
    again = client.post("/v1/datasets", json=empty, headers=key)
    assert (first.status_code, again.status_code) == (201, 201)
    assert len(catalog.dataset(1).commits()) == 2
    bad = client.post("/v1/datasets", json=made, headers={"Idempotency-Key": "x" * 300})
    assert bad.status_code == 422


@pytest.mark.spec("DST-61")
@pytest.mark.parametrize("versions", [(1, 2), (2, 1)], ids=["older first", "newer first"])
def test_two_requests_of_one_key_at_once_have_one_effect(
    versions: tuple[int, int], tmp_path: Path
) -> None:
    catalog = Datasets(tmp_path / "root", runner=InlineRunner())
    rows = pa.record_batch({"n": [1]})

    def while_read(other: Callable[[], object]) -> pa.RecordBatchReader:
        """Return rows; while they are read, the other request comes and is done."""

        def batches() -> Iterator[pa.RecordBatch]:
            other()
            yield rows

        return pa.RecordBatchReader.from_batches(rows.schema, batches())

    own, other = (("txlog.serve:key", version) for version in versions)
    with pytest.raises(InvalidInputError, match="belongs to another request"):
        catalog.create(
            "a", "TABLE", while_read(lambda: catalog.create("b", "TABLE", rows, txn=other)), txn=own
        )
    assert [one.name for one in catalog.list()] == ["b"]
    made = catalog.dataset("b")
    with pytest.raises(InvalidInputError, match="belongs to another request"):
        made.update(while_read(lambda: made.update(rows, "other", txn=other)), "own", txn=own)
    assert [one.message for one in made.commits()][1:] == ["other"]


def test_a_damaged_data_set_leaves_the_page_of_the_others(
    catalog: Datasets, tmp_path: Path
) -> None:
    catalog.create("whole", "TEXT_INTENT", "in/1.csv")
    uuid = catalog.dataset("intents").uuid
    for name in (tmp_path / "root" / "data" / uuid / "_delta_log").iterdir():
        name.unlink()
    with pytest.warns(TxlogWarning, match="is damaged"):
        page = within(create_app(Datasets(tmp_path / "root"))).get("/")
    assert page.status_code == 200
    assert page.text.count("is damaged") == 1
    assert "Commits of whole" in page.text


@pytest.mark.spec("DST-62")
def test_rights(catalog: Datasets, tmp_path: Path) -> None:
    catalog.create("secret", "TEXT_INTENT", "in/1.csv")
    known = tokens(
        tmp_path,
        reader=("read", None),
        writer=("write", ["intents"]),
        admin=("admin", None),
    )
    client = within(create_app(catalog, known))

    def status(method: str, path: str, who: str | None, body: Any = None) -> int:
        headers = {} if who is None else bearer(who)
        return client.request(method, path, json=body, headers=headers).status_code

    assert status("GET", "/v1/datasets", None) == 401
    answer = client.get("/v1/datasets", headers={"Authorization": "Bearer wrong"})
    assert (answer.status_code, answer.headers["www-authenticate"]) == (401, "Bearer")
    assert client.get("/v1/datasets", headers={"Authorization": "Basic x"}).status_code == 401
    assert status("GET", "/v1/health", None) == 200
    assert status("GET", "/", None) == 401
    assert status("GET", "/v1/datasets/secret", "reader") == 200
    assert status("POST", "/v1/datasets/1/training-sets", "reader", {}) == 403
    assert status("POST", "/v1/datasets/1/training-sets", "writer", {}) == 202
    for path in ("secret", "2", "no-such"):
        answer = client.get(f"/v1/datasets/{path}", headers=bearer("writer"))
        assert answer.status_code == 404
        assert (
            answer.json()["detail"]
            == f"there is no data set {path!r}, or the token does not allow it"
        )
    assert status("GET", "/v1/datasets/1/commits/1/lineage", "writer") == 403
    assert status("DELETE", "/v1/datasets/1", "writer") == 403
    made = {"name": "other", "type": "TEXT_INTENT"}
    assert status("POST", "/v1/datasets", "writer", made) == 403
    page = client.get("/v1/datasets?limit=1", headers=bearer("writer")).json()
    assert ([one["name"] for one in page["datasets"]], page["next"]) == (["intents"], None)
    assert "secret" not in client.get("/", headers=bearer("writer")).text
    assert status("DELETE", "/v1/datasets/1", "admin") == 204

    with http_client(catalog, "token of reader", authenticator=known) as remote:
        assert [one.name for one in remote.list()] == ["secret"]
        with pytest.raises(AccessError, match="needs 'admin'"):
            remote.dataset("secret").delete()
    with grpc_stub(catalog, known, "token of reader") as call:
        assert [one.name for one in call("ListDatasets")] == ["secret"]
        with pytest.raises(Exception, match="PERMISSION_DENIED"):
            call("DeleteDataset", dataset_id="2")
    with grpc_stub(catalog, known) as call, pytest.raises(Exception, match="UNAUTHENTICATED"):
        call("ListDatasets")


NAMES = ("ann", "bob", "eve")
LISTS = st.none() | st.lists(st.sampled_from(NAMES), unique=True, max_size=3)


@pytest.mark.slow
@pytest.mark.spec("DST-67", "DST-22")
@settings(max_examples=examples(40), deadline=None)
@given(readers=LISTS, writers=LISTS, owner=st.sampled_from(NAMES))
def test_owners_decide_who_reads_and_who_writes(
    shared: tuple[Datasets, Any], readers: Any, writers: Any, owner: str
) -> None:
    catalog, client = shared
    mine = {"readers": readers, "writers": writers, "owner": owner}
    before = catalog.dataset("intents").access.owner
    for who in NAMES:  # All users but the owner are refused.
        answer = client.put("/v1/datasets/intents/access", json=mine, headers=bearer(who))
        assert answer.status_code == (200 if who == before else 403), answer.text
        if who == before:
            break
    for who in NAMES:
        named = {owner, *(writers or ()), *(readers or ())}
        reads = readers is None or who in named
        writes = who == owner or (reads if writers is None else who in writers)
        read = client.get("/v1/datasets/intents", headers=bearer(who))
        assert read.status_code == (200 if reads else 403)
        hidden = client.post("/v1/datasets/1/commits/1:hide", headers=bearer(who))
        assert hidden.status_code == (204 if writes else 403)
        listed = client.get("/v1/datasets", headers=bearer(who)).json()["datasets"]
        page = client.get("/", headers=bearer(who)).text
        audit = client.get("/v1/audit", headers=bearer(who)).json()["changes"]
        assert [one["name"] for one in listed] == (["intents"] if reads else [])
        assert ("Commits of intents" in page) == bool(audit) == reads
        lineage = client.get("/v1/datasets/1/commits/1/lineage", headers=bearer(who))
        assert lineage.status_code == (200 if reads else 403)
        if not writes:
            refused = (hidden if reads else read).json()["detail"]
            assert f"{who!r} may not {'change' if reads else 'read'}" in refused
            assert f"belongs to {owner!r}" in refused
    for answer in (
        client.get("/v1/datasets/intents", headers=bearer("root")),
        client.post("/v1/datasets/1/commits/1:show", headers=bearer("root")),
    ):
        assert answer.is_success


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> tuple[Datasets, Any]:
    place: Path = tmp_path_factory.mktemp("shared")
    write_intents(place / "in/1.csv", 20, 4)
    known = tokens(place, root=("admin", None), **dict.fromkeys(NAMES, ("write", None)))
    catalog = Datasets(place / "root", sources={"in": place / "in"}, runner=InlineRunner())
    client = within(create_app(catalog, known))
    made = {"name": "intents", "type": "TEXT_INTENT", "source": "in/1.csv"}
    assert client.post("/v1/datasets", json=made, headers=bearer("ann")).status_code == 201
    return catalog, client


@pytest.mark.spec("DST-67")
def test_a_data_set_of_somebody_else_is_refused_at_each_door(
    catalog: Datasets, tmp_path: Path
) -> None:
    known = tokens(tmp_path, ann=("write", None), bob=("read", None), eve=("write", ["other"]))
    ann = catalog.acting_as("ann").create("hers", "TEXT_INTENT", "in/1.csv")
    assert ann.access.owner == "ann"
    ann.share(readers=[])
    with (
        http_client(catalog, "token of ann", authenticator=known) as hers,
        http_client(catalog, "token of bob", authenticator=known) as his,
        http_client(catalog, "token of eve", authenticator=known) as another,
    ):
        with pytest.raises(AccessError, match=r"'bob' may not read .* belongs to 'ann'"):
            his.dataset("hers")
        with pytest.raises(NotFoundError, match="the token does not allow it"):
            another.dataset("hers")  # A token for other data sets does not learn of it.
        found = hers.dataset("hers")
        assert found.share(readers=["bob"], writers=[]) == found.access
        assert his.dataset("hers").commits() == found.commits()
        with pytest.raises(AccessError, match="has the right 'read'"):
            his.dataset("hers").share()
        for door in (hers, his):
            mine = door.audit()
            assert mine.schema == catalog.audit().schema
            assert mine.equals(catalog.audit())
        assert another.audit().num_rows == 0
        assert [one.access.owner for one in his.list()] == [os_user(), "ann"]
        found.share(readers=[])
    with grpc_stub(catalog, known, "token of bob") as call:
        assert [one.name for one in call("ListDatasets")] == ["intents"]
        with pytest.raises(Exception, match="PERMISSION_DENIED"):
            call("GetDatasetSummary", dataset_id="2")
    plain = within(create_app(catalog))  # Without tokens nobody is refused.
    assert plain.get("/v1/datasets/hers").status_code == 200
    assert plain.put("/v1/datasets/hers/access", json={"reader": None}).status_code == 422


@pytest.mark.spec("DST-67")
def test_what_share_does_not_name_stays(catalog: Datasets, tmp_path: Path) -> None:
    rights: dict[str, Any] = dict.fromkeys(("ann", "bob"), ("write", None))
    known = tokens(tmp_path, root=("admin", None), **rights)
    local = catalog.acting_as("ann").create("hers", "TEXT_INTENT", "in/1.csv")
    with http_client(catalog, "token of root", authenticator=known) as root:
        remote = root.dataset("hers")
        for one in (local, remote):
            one.share(readers=["tom"], writers=[])
            assert one.share(owner="eve") == Access("eve", ("tom",), ())
            assert one.share() == one.access == Access("eve", ("tom",), ())
            assert one.share(writers=["bob"]) == Access("eve", ("tom",), ("bob",))
            assert one.share(readers=None, writers=None, owner="ann") == Access("ann")
    # The rule is asked of the state that the event changes: an owner who was replaced meanwhile
    # takes nothing back.
    hers = catalog.acting_as("ann", limited=True).dataset("hers")
    record = hers._home.record

    def late(command: Any) -> Any:
        local.share(readers=[], owner="bob")
        return record(command)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(hers._home, "record", late)
        with pytest.raises(AccessError, match=r"'ann' may not say who .* belongs to 'bob'"):
            hers.share(readers=None)
    assert local.access == Access("bob", ())


@pytest.mark.spec("DST-67")
def test_names_of_data_sets_of_others_stay_untold(catalog: Datasets, tmp_path: Path) -> None:
    known = tokens(
        tmp_path, ann=("write", None), eve=("write", None), root=("admin", None), tom=("read", None)
    )
    (tmp_path / "copy.py").write_text("def run(rows):\n    return rows\n")
    client = within(create_app(catalog, known, programs=["copy.py"]))

    def ask(who: str, method: str, path: str, **options: Any) -> Any:
        headers = bearer(who) | options.pop("headers", {})
        return client.request(method, f"/v1/{path}", headers=headers, **options)

    made = {"name": "lent", "type": "TEXT_INTENT", "source": "in/1.csv"}
    key = {"Idempotency-Key": "1"}
    assert ask("eve", "POST", "datasets", json=made, headers=key).status_code == 201
    private = {"owner": "ann", "readers": [], "writers": []}
    assert ask("root", "PUT", "datasets/lent/access", json=private).status_code == 200
    step = {"input": "intents", "run": "copy.py", "into": "lent", "name": "x"}
    assert ask("ann", "POST", "steps", json=step).status_code == 201
    chained = {"input": "later", "run": "copy.py", "into": "last"}
    first = {"input": "intents", "run": "copy.py", "into": "later"}
    assert ask("ann", "POST", "steps", json=first).status_code == 201
    assert ask("ann", "POST", "steps", json=chained).status_code == 201
    assert ask("ann", "DELETE", "steps/x").status_code == 204
    # A retried request is refused, as any other one.
    assert ask("eve", "POST", "datasets", json=made, headers=key).status_code == 403
    for wanted, status in (("none", 404), ("99", 404), ("2", 403)):
        for who in ("eve", "tom"):
            answer = ask(who, "GET", f"datasets/{wanted}")
            assert answer.status_code == status
            assert "lent" not in answer.text
    assert "lent (2)" in ask("root", "GET", "datasets/none").text
    with grpc_stub(catalog, known, "token of eve") as call:
        with pytest.raises(Exception, match="NOT_FOUND") as caught:
            call("GetDatasetSummary", dataset_id="99")
        assert "lent" not in str(caught.value)
    for who, sees in (("eve", False), ("tom", False), ("ann", True), ("root", True)):
        assert ("lent" in ask(who, "GET", "audit").text) == sees
        steps = [one["name"] for one in ask(who, "GET", "steps").json()["steps"]]
        assert steps == (["later", "last"] if sees else ["later"])
        added = [
            one["dataset"]
            for one in ask(who, "GET", "audit").json()["changes"]
            if one["action"] == "step_added"
        ]
        assert added == (["intents", "intents", "later"] if sees else ["intents"])
    # A private data set closes lineage, until nothing of it is left.
    lineage = "datasets/intents/commits/1/lineage"
    assert ask("eve", "GET", lineage).status_code == 403
    catalog.dataset("lent").delete()
    assert ask("eve", "GET", lineage).status_code == 403
    catalog.dataset(2).purge(confirm="lent")
    assert ask("eve", "GET", lineage).status_code == 200


@pytest.mark.slow
@pytest.mark.spec("DST-68")
def test_steps_over_http_run_only_programs_that_the_server_names(
    catalog: Datasets, tmp_path: Path
) -> None:
    (tmp_path / "copy.py").write_text("def run(rows):\n    return rows\n")
    command = ["sh", "run.sh"]
    known = tokens(
        tmp_path,
        ann=("write", None),
        bob=("read", None),
        eve=("write", ["intents"]),
        tom=("write", None),
    )
    options = {"authenticator": known, "programs": ["copy.py", command]}
    with (
        http_client(catalog, "token of ann", **options) as hers,
        http_client(catalog, "token of bob", **options) as his,
        http_client(catalog, "token of eve", **options) as another,
        http_client(catalog, "token of tom", **options) as tom,
    ):
        with pytest.raises(AccessError, match=r"allows no step to run 'rm\.py'"):
            hers.on_commit("intents", run="rm.py", into="copied")
        with pytest.raises(AccessError, match="has the right 'read'"):
            his.on_commit("intents", run="copy.py", into="copied")
        with pytest.raises(AccessError, match="may not use the data set 'copied'"):
            another.on_commit("intents", run="copy.py", into="copied")
        added = hers.on_commit("intents", run="copy.py", into="copied", type="TEXT_INTENT")
        assert hers.steps() == his.steps() == catalog.steps() == [added]
        assert another.steps() == []
        (run,) = catalog.run_steps(folder=tmp_path)
        assert run.made is not None, run
        (done,) = his.steps()
        assert (done.state, done.done, done.waiting) == ("IDLE", 1, ())
        catalog.dataset("copied").share(readers=["bob"], owner="ann")
        assert [len(door.steps()) for door in (hers, his, tom)] == [1, 1, 0]
        for door, error in ((his, AccessError), (another, NotFoundError), (tom, NotFoundError)):
            with pytest.raises(error):
                door.remove_step("copied")
        with pytest.raises(AccessError, match="'tom' may not read"):
            tom.on_commit("intents", run="copy.py", into="copied", name="mine")
        hers.remove_step("copied")
        assert hers.steps() == []
        other = hers.on_commit(1, run=command, into="others", rows="all", name="other")
        assert (other.run, other.rows) == (("sh", "run.sh"), "all")
    refused = within(create_app(catalog)).post(
        "/v1/steps", json={"input": "intents", "run": "copy.py", "into": "x"}
    )
    assert refused.status_code == 403  # Without a list of programs, there are none.


@pytest.fixture
def pipeline(catalog: Datasets, tmp_path: Path) -> Callable[..., Any]:
    (tmp_path / "copy.py").write_text("def run(rows):\n    return rows\n")
    rights: dict[str, Any] = dict.fromkeys(("ann", "bob", "eve"), ("write", None))
    known = tokens(tmp_path, root=("admin", None), tom=("read", None), **rights)
    client = within(create_app(catalog, known, programs=["copy.py"]))

    def ask(who: str, method: str, path: str, **body: Any) -> Any:
        json = body or None
        return client.request(method, f"/v1/{path}", headers=bearer(who), json=json)

    return ask


def make(ask: Callable[..., Any], who: str, name: str, **access: Any) -> Any:
    made = ask(who, "POST", "datasets", name=name, type="TEXT_INTENT", source="in/1.csv")
    assert made.status_code == 201, made.text
    if access:
        assert ask(who, "PUT", f"datasets/{name}/access", **access).status_code == 200
    return made.json()


def add(ask: Callable[..., Any], who: str, given: str, into: str, **more: Any) -> int:
    options = {"run": "copy.py", "type": "TEXT_INTENT", **more}
    status: int = ask(who, "POST", "steps", input=given, into=into, **options).status_code
    return status


PRIVATE: dict[str, Any] = {"readers": [], "writers": []}


@pytest.mark.slow
@pytest.mark.spec("DST-68", "DST-69")
def test_steps_use_only_what_their_user_may_use(
    catalog: Datasets, pipeline: Callable[..., Any], tmp_path: Path
) -> None:
    ask = pipeline
    secret = make(ask, "bob", "secret", **PRIVATE)
    for wanted in ("secret", secret["uuid"], str(secret["dataset_id"])):
        assert add(ask, "eve", wanted, "loot") == 403
    hers = catalog.acting_as("eve", limited=True)
    with pytest.raises(AccessError, match="'eve' may not read"):  # Also if nothing asked before.
        hers.on_commit("secret", run="copy.py", into="loot")
    # Who may no longer read the input, or change the result, gets no more rows.
    make(ask, "bob", "lent")
    assert add(ask, "ann", "lent", "copy") == 201
    assert add(ask, "eve", "lent", "payroll", rows="all") == 201
    ask("bob", "PUT", "datasets/lent/access", readers=["eve"])
    make(ask, "bob", "payroll", **PRIVATE)
    # Nor does a step add to a data set that something else made under the name of its result.
    assert add(ask, "bob", "secret", "out") == 201
    make(ask, "eve", "out")
    assert catalog.run_steps(folder=tmp_path) == []
    told = {one.name: one for one in catalog.steps()}
    assert {one.state for one in told.values()} == {"STOPPED"}
    assert {name: one.error.code for name, one in told.items() if one.error} == {
        "copy": "access-denied", "payroll": "already-exists", "out": "already-exists",
    }  # fmt: skip
    assert [one.commit_id for one in catalog.dataset("payroll").commits()] == [1]
    ask("bob", "PUT", "datasets/lent/access", readers=None)
    assert [run.step for run in catalog.run_steps(folder=tmp_path)] == ["copy"]
    # The user may lose the right to change what the step made, or lose it during a run.
    copy = catalog.dataset("copy")
    copy.share(owner="bob", writers=[])
    catalog.dataset("lent").update("in/1.csv")
    assert catalog.run_steps(folder=tmp_path) == []
    copy.share(owner="ann")
    before = Program.run

    def late(*of: Any) -> Any:
        catalog.dataset("lent").share(readers=[])
        return before(*of)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Program, "run", late)
        (run,) = catalog.run_steps(folder=tmp_path)
    assert (run.state, run.error and run.error.code) == ("FAILED", "access-denied")
    assert len(copy.commits()) == 1


@pytest.mark.slow
@pytest.mark.spec("DST-68", "DST-69")
def test_what_a_step_makes_and_tells_is_for_those_who_read_its_input(
    catalog: Datasets, pipeline: Callable[..., Any], tmp_path: Path
) -> None:
    ask = pipeline
    make(ask, "bob", "raw", readers=["tom"], writers=["ann"])
    assert add(ask, "ann", "raw", "clean") == 201
    (run,) = catalog.run_steps(folder=tmp_path)
    assert run.state == "DONE"
    clean = catalog.dataset("clean")
    assert clean.access == Access("ann", ("bob", "tom"), ())
    assert ask("eve", "GET", "datasets/clean").status_code == 403
    assert ask("ann", "PUT", "datasets/clean/access", readers=["tom"]).status_code == 200
    (tmp_path / "copy.py").write_text("def run(rows):\n    raise ValueError('row 7 of x')\n")
    catalog.dataset("raw").update("in/1.csv")
    catalog.run_steps(folder=tmp_path)
    for who, is_told in (("ann", True), ("root", True), ("tom", False)):
        (step,) = ask(who, "GET", "steps").json()["steps"]
        assert step["state"] == "FAILED"
        assert ("row 7 of x" in step["error"]["text"]) == is_told
    catalog.dataset("raw").share(writers=[])  # She added it, but the rows are no longer for her.
    assert ask("ann", "GET", "steps").json()["steps"][0]["state"] == "STOPPED"
    assert "row 7" not in ask("ann", "GET", "steps").text
    for who in ("eve", "bob"):
        assert ask(who, "GET", "steps").json()["steps"] == []
        assert ask(who, "DELETE", "steps/clean").status_code == 404
    assert ask("tom", "DELETE", "steps/clean").status_code == 403
    clean.delete()  # Her step can still be removed, and its name used again.
    assert ask("ann", "DELETE", "steps/clean").status_code == 204
    clean.purge(confirm="clean")
    catalog.dataset("raw").share(writers=["ann"])
    assert add(ask, "ann", "raw", "clean") == 201


@pytest.mark.spec("DST-69")
@given(readers=LISTS, writers=LISTS, of=st.sampled_from(NAMES), adder=st.sampled_from(NAMES))
def test_nobody_reads_a_result_who_may_not_read_the_input(
    readers: Any, writers: Any, of: str, adder: str
) -> None:
    lists = (None if names is None else tuple(names) for names in (readers, writers))
    given_ = Access(of, *lists)
    made = inherited(adder, given_)
    for who in NAMES:
        assert made.may_read(who) == (given_.may_read(who) or who == adder)
        assert made.may_write(who) == (who == adder or given_ == Access(of))


CHUNKS = "txlog.training.datasets.formats.streamed:_CHUNK_BYTES"


@pytest.mark.spec("DST-58")
def test_a_stream_is_the_file_of_an_export(catalog: Datasets, tmp_path: Path) -> None:
    made = catalog.dataset("intents").prepare()
    with moved({CHUNKS: 1000}), http_client(catalog) as client:
        remote = client.dataset("intents").fetch(made.version_hash)
        for form in ("webdataset", "tfrecord"):
            (path,) = made.export(tmp_path / form, form)
            whole = Path(path).read_bytes()
            assert b"".join(made.stream(form)) == b"".join(remote.stream(form)) == whole
            parts = made.stream(form)
            next(parts)
            cast(Any, parts).close()  # Its thread ends.
        with pytest.raises(InvalidInputError, match="one of tfrecord, webdataset"):
            next(remote.stream("huggingface"))
        again = client.dataset("intents").prepare(form="csv")
        other = client.dataset("intents").fetch(again.version_hash).stream("webdataset")
        with pytest.raises(InvalidInputError, match="which is not a table"):
            next(other)
        (tmp_path / "in/all.tar").write_bytes(b"".join(remote.stream("webdataset")))
        same = client.create("same", "TEXT_INTENT", "in/all.tar")
        assert same.commit(1).digest == catalog.dataset("intents").commit(1).digest
    assert not [one for one in threading.enumerate() if one.name == "txlog-export"]


def test_a_page_goes_on_after_a_data_set_that_is_purged_meanwhile(
    catalog: Datasets, monkeypatch: pytest.MonkeyPatch
) -> None:
    for number in range(4):
        catalog.create(f"more {number}", "TEXT_INTENT")
    whole = [one.name for one in catalog.list()]
    listed = Datasets.list

    def without_one(datasets: Datasets, limit: int, after: int | None = None) -> Any:
        page = listed(datasets, limit, after)
        return page if after else page[1:]

    monkeypatch.setattr(Datasets, "list", without_one)
    found, following = Principal("all", "admin").page(catalog, 2)
    assert ([one.name for one in found], following) == (whole[1:3], found[-1].dataset_id)


def test_a_list_of_users_that_is_none(catalog: Datasets) -> None:
    made = catalog.dataset("intents")
    for wrong in ("ann", [""], ["a\nb"], [1], 3, [f"u{n}" for n in range(1001)]):
        with pytest.raises(InvalidInputError):
            made.share(readers=cast(Any, wrong))
        with pytest.raises(InvalidInputError):
            made.share(writers=cast(Any, wrong))
    with pytest.raises(InvalidInputError):
        made.share(owner=" ")
    assert made.access == Access(os_user())


def test_a_token_file_is_read_again_when_it_changes(tmp_path: Path) -> None:
    known = tokens(tmp_path, a=("read", None))
    assert known.authenticate("token of a").right == "read"
    tokens(tmp_path, a=("write", None), b=("admin", ["x"]))
    assert known.authenticate("token of a").right == "write"
    assert known.authenticate("token of b").may_see("x")
    assert not known.authenticate("token of b").may_see("y")
    (tmp_path / "tokens.json").write_text("[]")
    assert known.authenticate("token of a").right == "write"


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("", "JSON"),
        ("[]", "JSON"),
        ('{"tokens": {}}', "list"),
        ('{"tokens": []}', "no token"),
        ('{"tokens": [1]}', "token 1"),
        ('{"tokens": [{"name": "a", "sha256": "x", "right": "read"}]}', "64"),
        ('{"tokens": [{"name": "a", "sha256": "%s", "right": "all"}]}', "right"),
        ('{"tokens": [{"name": "", "sha256": "%s", "right": "read"}]}', "name"),
        ('{"tokens": [{"name": "a", "sha256": "%s", "right": "read", "datasets": "x"}]}', "names"),
        ('{"tokens": [{"name": "a", "sha256": "%s", "right": "read", "token": "x"}]}', "only"),
    ],
)
def test_token_files_that_are_none(text: str, told: str) -> None:
    with pytest.raises(InvalidInputError, match=told):
        parse_tokens(text.replace("%s", "0" * 64).encode(), "tokens.json")


@pytest.mark.spec("DST-63")
def test_without_tokens_only_this_machine(catalog: Datasets) -> None:
    for host in ("0.0.0.0", "example.org", "::"):
        with pytest.raises(InvalidInputError, match="only this machine"):
            serve(catalog, host=host)
    client = within(create_app(catalog))
    answer = client.get("/v1/datasets", headers={"Host": "evil.example"})
    assert (answer.status_code, answer.json()["code"]) == (400, "http-400")
    for headers in ({"Origin": "http://evil.example"}, {"Sec-Fetch-Site": "cross-site"}):
        assert client.post("/v1/datasets/1/commits/1:hide", headers=headers).status_code == 403
    own = {"Origin": "http://localhost", "Sec-Fetch-Site": "same-origin"}
    assert client.post("/v1/datasets/1/commits/1:hide", headers=own).status_code == 204
    with pytest.raises(InvalidInputError, match="only this machine"):
        create_server(catalog, address="0.0.0.0:0")


def test_tokens_need_a_list_of_sources(catalog: Datasets, tmp_path: Path) -> None:
    known = tokens(tmp_path, a=("write", None))
    for make in (
        lambda: create_app(Datasets(catalog.root), known),
        lambda: create_server(Datasets(catalog.root), known, address="127.0.0.1:0"),
        lambda: serve(Datasets(catalog.root), tokens=known),
    ):
        with pytest.raises(InvalidInputError, match="list of the places"):
            make()


@pytest.mark.spec("DST-64")
def test_parts_by_ranges(catalog: Datasets) -> None:
    made = catalog.dataset(1).prepare(form="csv")
    client = within(create_app(catalog))
    answer = client.get(f"/v1/datasets/1/training-sets/{made.version_hash}?wait=5").json()
    assert answer["state"] == "READY"
    url = answer["parts"][0]["url"]
    whole = client.get(url)
    assert whole.status_code == 200
    assert len(whole.content) == answer["parts"][0]["bytes"]
    some = client.get(url, headers={"Range": "bytes=5-14"})
    assert (some.status_code, some.content) == (206, whole.content[5:15])
    assert some.headers["content-range"] == f"bytes 5-14/{len(whole.content)}"
    assert client.get(url, headers={"Range": f"bytes={'9' * 5000}-"}).status_code == 200
    assert client.get(url, headers={"Range": "bytes=-7"}).content == whole.content[-7:]
    assert client.get(url, headers={"Range": "bytes=999999-"}).status_code == 416
    assert client.get(url, headers={"If-None-Match": whole.headers["etag"]}).status_code == 304
    assert client.get(url.replace("examples.csv", "..%2f..%2fx")).status_code == 404


@pytest.mark.skipif(bool(missing("localbucket")), reason="no server can be run")
def test_parts_in_a_bucket_have_signed_addresses(tmp_path: Path) -> None:
    write_intents(tmp_path / "in/1.csv", 20, 4)
    with localbucket() as server:
        made = Datasets(
            server.root(),
            server.options,
            sources=Sources({"in": tmp_path / "in"}),
            runner=InlineRunner(),
        )
        made.create("intents", "TEXT_INTENT", "in/1.csv")
        ready = made.dataset(1).prepare(form="csv")
        url = f"/v1/datasets/1/training-sets/{ready.version_hash}/parts/examples.csv"
        answer = within(create_app(made)).get(url, follow_redirects=False)
        assert answer.status_code == 307
        assert answer.headers["location"].startswith(server.url)
        assert "Signature" in answer.headers["location"]
        assert SECRET not in answer.headers["location"]
        with http_client(made) as client:
            remote = client.dataset("intents")
            paths = remote.fetch(ready.version_hash).download(tmp_path / "out")
        assert len(Path(paths[0]).read_text().splitlines()) == 20


def test_a_client_tells_its_token_to_no_other_server() -> None:
    with redirecting(b"a part") as (url, asked), connect(url, "token of reader") as client:
        with client._connection.opened("/v1/parts/x") as body:
            assert body.read() == b"a part"
        with pytest.raises(StoreError, match="answered 307"):
            client.list()
    assert asked == [("/elsewhere", None)]


@pytest.mark.spec("DST-64")
def test_files_come_back_in_both_forms(tmp_path: Path) -> None:
    """Also those that lie beside the rows; contents of other data sets do not come."""
    files = {"a.bin": b"\0\1", "sub/b.bin": b"more than four", "sub/c d.bin": b"and one more"}
    for name, content in files.items():
        (tmp_path / "in/raw" / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / "in/raw" / name).write_bytes(content)
    catalog = Datasets(
        tmp_path / "root",
        sources={"in": tmp_path / "in"},
        runner=InlineRunner(),
        limits=Limits(row_bytes=4),
    )
    catalog.create("raw", "GENERIC", "in/raw")
    other = {"name": ["x"], "content": [b"of another data set"]}
    catalog.create("other", "GENERIC", pa.table(other))
    with http_client(catalog) as client:
        raw = client.dataset("raw")
        for form in ("csv", "parquet"):
            made = raw.fetch(raw.prepare(form=form).version_hash, wait_s=60)
            paths = made.download(tmp_path / form)
            assert paths == [str(tmp_path / form / name) for name in files]
            assert {name: (tmp_path / form / name).read_bytes() for name in files} == files
        base = f"/v1/datasets/raw/training-sets/{made.version_hash}/contents"
        get = client._connection.client.get
        known = sha256(files["sub/b.bin"]).hexdigest()
        some = get(f"{base}/{known}", headers={"Range": "bytes=5-8"})
        assert (some.status_code, some.content) == (206, b"than")
        assert some.headers["etag"] == f'"{known}"'
        for digest in (sha256(b"of another data set").hexdigest(), "x", "..%2f..%2fledger"):
            assert get(f"{base}/{digest}").status_code == 404
        # Nor by rows of a user's own that name one.
        mine = catalog.create("mine", "TABLE", pa.table({"uri": [f"files/{known[:2]}/{known}"]}))
        taken = f"/v1/datasets/mine/training-sets/{mine.prepare().version_hash}/contents/{known}"
        assert get(taken).status_code == 404
        path = tmp_path / "root" / "files" / known[:2] / known
        path.write_bytes(b"More than four")
        with pytest.raises(DataFileError, match="other bytes"):
            made.download(tmp_path / "damaged")
        assert not (tmp_path / "damaged" / "sub" / "b.bin").exists()


@given(st.binary(max_size=9), st.integers(0, 12), st.integers(0, 12))
def test_ranges_are_slices(data: bytes, first: int, last: int) -> None:
    span = range_of(f"bytes={first}-{last}", len(data))
    if last < first:
        assert span is None
    else:
        start, end = span or (0, 0)
        assert data[start:end] == data[first : last + 1]
    start, end = range_of(f"bytes=-{last}", len(data)) or (0, 0)
    assert data[start:end] == (data[-last:] if last else b"")
    assert range_of("lines=1-2", 9) is None
    assert range_of("bytes=1-2,4-5", 9) is None


def test_the_page(catalog: Datasets) -> None:
    catalog.dataset(1).prepare()
    answer = within(create_app(catalog)).get("/")
    assert answer.status_code == 200
    assert "<script" not in answer.text
    assert "&lt;script&gt;" in answer.text
    assert "default-src 'none'" in answer.headers["content-security-policy"]
    assert "READY" in answer.text
    assert "intents" in answer.text


def test_the_description(catalog: Datasets) -> None:
    found = within(create_app(catalog)).get("/openapi.json").json()
    assert len(found["paths"]) == 26
    for path, methods in found["paths"].items():
        for method, about in methods.items():
            assert about.get("description"), (method, path)
