"""Sources: an allow-list without ways out of it, and files of all stores."""

import os
import threading
from hashlib import sha256
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from servers import redirecting, s3_options

import txlog
from tests.examples import examples
from txlog.base.errors import (
    DataFileError,
    InvalidInputError,
    InvalidTypeError,
    NotFoundError,
    StoreError,
    UnsupportedFeatureError,
)
from txlog.store.open import open_store
from txlog.training.datasets.ingest import StoredObjects, ingest
from txlog.training.datasets.limits import Limits
from txlog.training.datasets.sources import Source, Sources
from txlog.training.datasets.types import type_of


@pytest.fixture
def place(tmp_path: Path) -> Path:
    """A folder that is allowed, beside one that is not."""
    place = tmp_path / "in"
    (place / "sub").mkdir(parents=True)
    (place / "a.csv").write_text("a,x\n")
    (place / "sub" / "b.csv").write_text("b,y\n")
    (tmp_path / "secret").mkdir()
    (tmp_path / "secret" / "s.csv").write_text("s,z\n")
    return place


def names(source: Source) -> list[str]:
    return [file.name for file in source.files]


def test_a_source_is_below_a_place_of_the_list(place: Path) -> None:
    sources = Sources({"in": place, "other": "memory://elsewhere"})
    for text in ("in/a.csv", str(place / "a.csv"), f"file://{place}/a.csv"):
        opened = sources.open(text, Limits())
        assert (opened.uri, names(opened), opened.is_folder) == ("in/a.csv", ["a.csv"], False)
        assert opened.files[0].content() == b"a,x\n"
        assert opened.inputs()[0].digest == sha256(b"a,x\n").hexdigest()
    assert names(sources.open("in/sub/", Limits())) == ["b.csv"]


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("secret/s.csv", "not in an allowed place"),
        ("in/../secret/s.csv", "leads out"),
        ("in/./a.csv", "leads out"),
        ("in/sub/../../secret/s.csv", "leads out"),
        ("in//a.csv", "is absolute"),
        ("in/sub//b.csv", "is empty"),
        ("in/a\0.csv", "NUL"),
        ("in", "is a whole place"),
        ("in/", "is a whole place"),
        ("", "does not name a file"),
        ("/", "does not name a file"),
        ("../in/a.csv", "not in an allowed place"),
        ("~/a.csv", "not in an allowed place"),
        ("/etc/passwd", "not in an allowed place"),
        ("file:///etc/passwd", "not in an allowed place"),
        ("s3://bucket/a.csv", "not in an allowed place"),
        ("http://127.0.0.1:1/a.csv", "is a web address"),
        ("https://example.org/in/a.csv", "is a web address"),
        ("HTTP://user:secret@example.org/a.csv", "is a web address"),
    ],
)
@pytest.mark.spec("DST-54")
def test_nothing_outside_of_the_list_is_touched(text: str, words: str, place: Path) -> None:
    with pytest.raises(InvalidInputError) as caught:
        Sources({"in": place}).open(text, Limits())
    assert words in str(caught.value)
    assert "secret@" not in str(caught.value)
    assert caught.value.argument == "source"


@pytest.mark.spec("DST-54")
@pytest.mark.parametrize("listed", [True, False])
@pytest.mark.parametrize("kind", ["TEXT_INTENT", "GENERIC", "TABLE"])
def test_a_web_address_that_may_redirect_is_not_even_asked(
    kind: str, listed: bool, place: Path, tmp_path: Path
) -> None:
    sources = Sources({"in": place} if listed else None)
    with redirecting(b"a,x\n") as (url, asked):
        for text in (f"{url}/a.csv", f"{url}/t@v1", url.upper()):
            with pytest.raises(InvalidInputError, match="is a web address"):
                ingest(
                    type_of(kind),
                    text,
                    sources=sources,
                    limits=Limits(),
                    store=open_store(tmp_path / "root"),
                )
    assert asked == []


@pytest.mark.spec("DST-54")
def test_where_a_store_redirects_no_credentials_are_sent(place: Path) -> None:
    """A store of the list is trusted with what it answers, and its answer may be elsewhere."""
    pytest.importorskip("obstore")
    with redirecting(b"a,x\n") as (url, asked):
        source = Sources({"in": "s3://bucket/in"}, s3_options(url)).open("in/a.csv", Limits())
        assert source.files[0].content() == b"a,x\n"
    assert asked
    assert {credentials for _, credentials in asked} == {None}


STEP = st.sampled_from(
    ["in", "in2", "sub", "..", ".", "", "a.csv", "b.csv", "secret", "s.csv", "~", "%2e%2e", "\\.."]
)


@pytest.mark.spec("DST-54")
@given(
    steps=st.lists(STEP, min_size=1, max_size=6),
    start=st.sampled_from(["", "/", "{}/", "file://{}/", "file:{}/", "memory://"]),
)
@settings(max_examples=examples(300), suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_no_spelling_leads_out(steps: list[str], start: str, place: Path) -> None:
    text = start.format(place.parent) + "/".join(steps)
    try:
        opened = Sources({"in": place}).open(text, Limits())
    except (InvalidInputError, NotFoundError, StoreError):
        return
    for file in opened.files:
        assert file.content() in (b"a,x\n", b"b,y\n")  # Never what is in `secret`.


def test_a_place_whose_name_begins_alike_is_another(place: Path) -> None:
    (place.parent / "in2").mkdir()
    (place.parent / "in2" / "a.csv").write_text("no,x\n")
    with pytest.raises(InvalidInputError, match="not in an allowed place"):
        Sources({"in": place}).open(f"{place}2/a.csv", Limits())


@pytest.mark.parametrize("listed", [True, False])
def test_no_link_is_followed(listed: bool, place: Path) -> None:
    (place / "link.csv").symlink_to(place.parent / "secret" / "s.csv")
    (place / "sub" / "up").symlink_to(place.parent / "secret")
    sources = Sources({"in": place} if listed else None)
    prefix = "in" if listed else str(place)
    for below in ("sub", "."[:0]):
        text = f"{prefix}/{below}".rstrip("/")
        if listed and not below:
            continue
        with pytest.raises(InvalidInputError, match="is a symbolic link"):
            sources.open(text, Limits())
    if not listed:  # A path that the caller wrote means what it leads to.
        assert sources.open(place / "link.csv", Limits()).files[0].content() == b"s,z\n"
        return
    for text in ("in/link.csv", "in/sub/up/s.csv", "in/sub/up"):
        with pytest.raises(InvalidInputError, match="symbolic links are not followed"):
            sources.open(text, Limits())


@pytest.mark.spec("DST-54")
def test_a_link_that_is_put_there_meanwhile_is_not_followed(place: Path) -> None:
    opened = Sources({"in": place}).open("in/sub", Limits())
    (place / "sub").rename(place / "old")
    (place / "sub").symlink_to(place.parent / "secret")
    (place.parent / "secret" / "b.csv").write_text("stolen,z\n")
    with pytest.raises(InvalidInputError, match="symbolic links are not followed"):
        opened.files[0].content()


@pytest.mark.parametrize("content", ["a,x\nb,y\n", "a", ""])
def test_a_file_that_changes_meanwhile_is_refused(content: str, place: Path) -> None:
    opened = Sources({"in": place}).open("in/a.csv", Limits())
    (place / "a.csv").write_text(content)
    with pytest.raises(InvalidInputError, match=r"a\.csv was changed while it was read"):
        opened.files[0].content()


def test_a_place_has_a_plain_name(place: Path) -> None:
    for name in ("a/b", "..", ""):
        with pytest.raises(InvalidInputError, match="of a place"):
            Sources({name: place})


def test_what_is_no_file_does_not_hang(place: Path) -> None:
    os.mkfifo(place / "sub" / "pipe")
    for text in ("in/sub/pipe", "in/sub"):
        with pytest.raises(InvalidInputError, match="neither a file nor a folder"):
            Sources({"in": place}).open(text, Limits())


def test_missing_sources_are_named(place: Path) -> None:
    sources = Sources({"in": place})
    (place / "empty").mkdir()
    for text in ("in/no.csv", "in/empty", "in/a.csv/b"):
        with pytest.raises((NotFoundError, StoreError)) as caught:
            sources.open(text, Limits())
        assert text.partition("/")[2].split("/")[0] in str(caught.value)
    assert "none" not in str(caught.value)
    with pytest.raises(InvalidInputError, match="there is none"):
        Sources({}).open("in/a.csv", Limits())


def test_limits_of_a_folder(place: Path) -> None:
    (place / "sub" / "c.csv").write_text("cc,y\n")
    sources = Sources({"in": place})
    for limits, words in (
        (Limits(files=1), "more than 1 files"),
        (Limits(file_bytes=4), r"c.csv has 5 bytes, 4 are allowed"),
        (Limits(total_bytes=8), "has 9 bytes, 8 are allowed"),
        (Limits(name_bytes=4), "has 5 bytes, 4 are allowed"),
    ):
        with pytest.raises(InvalidInputError, match=words):
            sources.open("in/sub", limits)


def test_a_prefix_of_an_object_store() -> None:
    store = open_store("memory://bucket/in")
    for name in ("set/cat/a.bin", "set/b.bin", "single"):
        store.write_new(name, name.encode())
    sources = Sources({"in": "memory://bucket/in"})
    found = sources.open("in/set", Limits())
    assert names(found) == ["b.bin", "cat/a.bin"]
    assert [file.content() for file in found.files] == [b"set/b.bin", b"set/cat/a.bin"]
    lines = "".join(f"{sha256(f'set/{n}'.encode()).hexdigest()}  {n}\n" for n in names(found))
    assert found.inputs()[0].digest == sha256(lines.encode()).hexdigest()
    assert names(Sources().open("memory://bucket/in/single", Limits())) == ["single"]
    with pytest.raises(NotFoundError, match="in/nothing"):
        sources.open("in/nothing", Limits())
    store.write_new("bad/../../up", b"")
    with pytest.raises(InvalidInputError, match="leads out"):
        sources.open("in/bad", Limits())


@pytest.mark.spec("DST-54")
def test_a_table_of_an_allowed_place_names_no_file_elsewhere(place: Path, tmp_path: Path) -> None:
    secret = txlog.write(tmp_path / "secret" / "t", pa.table({"x": [1]}))
    secret.clone(place / "t", shallow=True)
    sources = Sources({"in": place})
    store = open_store(tmp_path / "root")

    def rows(sources: Sources, text: str) -> Any:
        read = ingest(type_of("TABLE"), text, sources=sources, limits=Limits(), store=store)
        return read.reader.read_all().to_pylist()

    for text in ("in/t", "in/t@v0"):
        with pytest.raises(UnsupportedFeatureError, match="leads out of the table's folder"):
            rows(sources, text)
    assert rows(Sources(), str(place / "t")) == [{"x": 1}]
    (place / "link").symlink_to(tmp_path / "secret" / "t")
    for text in ("in/link", "in/link@v1"):
        with pytest.raises(InvalidInputError, match="link"):
            rows(sources, text)


# Names and numbers -----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("a/b", "has a slash"),
        ("a\\b", "has a slash"),
        ("..", "is the name of a folder"),
        ("", "is empty"),
        ("a\0b", "has a NUL"),
        ("a\nb", "control character"),
        ("\ud800", "an incomplete character"),
        (" a", "begins or ends with a space"),
        ("é" * 128, "has 256 bytes, 255 are allowed"),
    ],
)
def test_names_that_cannot_be_one(name: str, words: str) -> None:
    with pytest.raises(InvalidInputError, match=words):
        Limits().require_name("name", name)
    with pytest.raises(InvalidInputError, match=words):
        Limits().require_tags({name: "x"})


def test_tags_are_few_and_short() -> None:
    limits = Limits()
    assert limits.require_tags({"category": "test set"}) == {"category": "test set"}
    with pytest.raises(InvalidInputError, match="10000 tags were given, 100 are allowed"):
        limits.require_tags({f"tag {n}": "x" for n in range(10_000)})
    with pytest.raises(InvalidInputError, match="the value has 1025 bytes"):
        limits.require_tags({"a": "x" * 1025})
    for wrong in (["a"], {"a": 1}, {1: "a"}):
        with pytest.raises(InvalidTypeError):
            limits.require_tags(wrong)  # type: ignore[arg-type]
    with pytest.raises(InvalidInputError, match="65537 bytes"):
        limits.require_text("message", "x" * 65_537)
    with pytest.raises(InvalidInputError, match="not Unicode"):
        limits.require_text("message", "\ud800")
    with pytest.raises(InvalidInputError, match="files"):
        Limits(files=0)


# Large contents --------------------------------------------------------------------------------


@pytest.mark.spec("DST-53")
def test_one_content_is_one_file_whoever_writes_it(tmp_path: Path) -> None:
    store = open_store(tmp_path / "root")
    content = bytes(3 << 20)
    digest = sha256(content).hexdigest()
    found: list[str] = []

    def write() -> None:
        chunks = iter([content[: 1 << 20], content[1 << 20 :]])
        found.append(StoredObjects(store).put_chunks(chunks, lambda: digest))

    threads = [threading.Thread(target=write) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert found == [f"files/{digest[:2]}/{digest}"] * 4
    assert StoredObjects(store).put(content) == found[0]
    assert (tmp_path / "root" / found[0]).read_bytes() == content
    assert [file.name for file in store.list_tree("files")] == [found[0].removeprefix("files/")]


def test_a_content_that_breaks_off_leaves_nothing(tmp_path: Path) -> None:
    store = open_store(tmp_path / "root")

    def dies() -> Any:
        yield b"half"
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        StoredObjects(store).put_chunks(dies(), str)
    assert [*store.list_tree("files")] == []


def test_a_content_whose_staged_file_is_deleted_is_refused(tmp_path: Path) -> None:
    """A sweep with a clock that jumped takes it for an old one."""
    store = open_store(tmp_path / "root")

    def swept() -> str:
        store.delete([f"files/{file.name}" for file in store.list_tree("files")])
        return "a" * 64

    with pytest.raises(DataFileError, match="deleted before it was complete"):
        StoredObjects(store).put_chunks(iter([b"content"]), swept)
    assert [*store.list_tree("files")] == []
