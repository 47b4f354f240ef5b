"""Tables with many branches: the registry in several domains."""

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import txlog
from tests.examples import examples
from tests.verbs.test_branches import commits, left, made, opened, xs
from txlog.base.errors import AlreadyExistsError, LogCorruptError, UnsupportedFeatureError
from txlog.commit.operation import execute as execute_on
from txlog.extend import context_of, execute
from txlog.snapshot import branches
from txlog.snapshot.branches import PAGE_PREFIX, PAGES, REGISTRY
from txlog.verbs.branches import CreateBranch, DiscardBranch


@pytest.fixture
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(branches, "PAGE_BRANCHES", 2)


def names(table: txlog.Table) -> list[str]:
    listed = table.branches.list()
    found: list[str] = listed.filter(listed["status"].to_numpy(zero_copy_only=False) == "open")[
        "name"
    ].to_pylist()
    return found


def entries(table: txlog.Table, version: int) -> dict[str, int]:
    """Return how many branches each domain has that a commit wrote."""
    found = {}
    for action in commits(table, version):
        if "domainMetadata" in action:
            domain = action["domainMetadata"]
            found[domain["domain"]] = len(json.loads(domain["configuration"])["branches"])
    return found


ACTS = st.lists(
    st.tuples(st.sampled_from(["create", "create", "publish", "discard"]), st.integers(0, 9)),
    max_size=25,
)


@pytest.mark.spec("BRA-14")
@given(acts=ACTS)
@settings(max_examples=examples(30))
def test_a_registry_of_several_domains_equals_a_set_of_names(
    tmp_path_factory: pytest.TempPathFactory, acts: list[tuple[str, int]]
) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(branches, "PAGE_BRANCHES", 2)
        table = made(tmp_path_factory.mktemp("many") / "t")
        model: set[str] = set()
        for act, number in acts:
            name = f"b{number}"
            if (act == "create") == (name in model):
                continue
            if act == "create":
                table.branches.create(name)
                model.add(name)
            else:
                getattr(table.branches, act)(name)
                model.remove(name)
            again = txlog.Table(table.uri)
            assert names(again) == sorted(model)
            written = entries(table, again.version)
            assert REGISTRY in written
            assert len(written) <= 2
            assert max(written.values()) <= 2 + branches.CLOSED_KEPT
        table.maintenance.checkpoint()
        assert names(txlog.Table(table.uri)) == sorted(model)


@pytest.mark.spec("BRA-14")
def test_further_domains_have_a_feature_and_end_with_their_branches(
    tmp_path: Path, small: None
) -> None:
    table = made(tmp_path / "t")
    for number in range(5):
        assert PAGES not in (table.protocol.writer_features or []) or number > 2
        table.branches.create(f"b{number}")
    domains = [name for name in table.snapshot.controls.domains if name.startswith(PAGE_PREFIX)]
    assert sorted(domains) == ["txlog.branches.1", "txlog.branches.2"]
    with pytest.raises(AlreadyExistsError):
        table.branches.create("B4")
    opened(table, "b4").append(xs(10))
    with pytest.raises(UnsupportedFeatureError, match=r"these branches first: 'b2', 'b3', 'b4'$"):
        table.alter.drop_feature(PAGES)
    table.restore(1)
    assert names(table) == [f"b{number}" for number in range(5)]
    clone = table.clone(str(tmp_path / "clone"))
    assert not {PAGES, "tableBranching-dev"} & set(clone.protocol.writer_features or [])
    assert not [name for name in clone.snapshot.controls.domains if "ranch" in name]
    table.branches.publish("b4")
    for number in range(4):
        table.branches.discard(f"b{number}")
    assert left(table) == [1, 2, 3, 4, 5, 6, 10]
    domains = table.snapshot.controls.domains
    assert not [n for n, one in domains.items() if n.startswith(PAGE_PREFIX) and not one.removed]
    table.alter.drop_feature(PAGES)
    table.alter.drop_feature("tableBranching-dev")


@pytest.mark.spec("BRA-14", "BRA-17")
def test_changes_of_different_domains_follow_each_other(tmp_path: Path, small: None) -> None:
    table = made(tmp_path / "t")
    for number in range(5):
        table.branches.create(f"b{number}")
    stale = table.snapshot
    table.branches.discard("b0")
    execute(table, CreateBranch("c"))
    context = context_of(table)
    execute_on(DiscardBranch("b4"), context, stale)
    execute_on(CreateBranch("d"), context, stale)
    assert names(txlog.Table(table.uri)) == ["b1", "b2", "b3", "c", "d"]


@pytest.mark.spec("BRA-14")
@pytest.mark.parametrize("text", ["no JSON", '{"branches": [{}]}', "[]"])
def test_a_damaged_domain_stops_a_vacuum(tmp_path: Path, small: None, text: str) -> None:
    table = made(tmp_path / "t")
    for number in range(3):
        table.branches.create(f"b{number}")
    path = tmp_path / "t" / "_delta_log" / f"{table.version:020d}.json"
    lines = [json.loads(line) for line in path.read_text().splitlines()]
    for line in lines:
        if line.get("domainMetadata", {}).get("domain", "").startswith(PAGE_PREFIX):
            line["domainMetadata"]["configuration"] = text
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))
    for crc in path.parent.glob("*.crc"):
        crc.unlink()
    with pytest.raises(LogCorruptError, match="registry"):
        txlog.Table(table.uri).vacuum(0, dry_run=False, enforce_retention_duration=False)


@pytest.mark.slow
@pytest.mark.parametrize("count", [pytest.param(3000, marks=pytest.mark.exhaustive), 70])
@pytest.mark.spec("BRA-14", "BRA-40")
def test_many_branches_are_created_listed_published_and_discarded(
    tmp_path: Path, count: int
) -> None:
    table = made(tmp_path / "t")
    for number in range(count):
        table.branches.create(f"b{number:05}")
        assert max(entries(table, table.version).values()) <= branches.PAGE_BRANCHES
    assert len(names(table)) == count
    for number in range(0, count, count // 3):
        opened(table, f"b{number:05}").append(xs(100 + number))
    table.branches.publish("b00000")
    table.branches.discard(f"b{count // 3:05}")
    table.vacuum(0, dry_run=False, **FORCED)
    assert left(opened(table, f"b{2 * (count // 3):05}"))[-1] == 100 + 2 * (count // 3)
    assert left(table) == [1, 2, 3, 4, 5, 6, 100]
    for name in names(table)[-30:]:
        table.branches.discard(name)
    assert len(names(table)) == count - 32
    table.vacuum(0, dry_run=False, **FORCED)
    files = (tmp_path / "t" / "_delta_log" / "_branches").rglob("*.json")
    assert len({file.parent for file in files}) <= 1  # Of an open branch with commits.
    assert left(table) == [1, 2, 3, 4, 5, 6, 100]


FORCED: dict[str, Any] = {"enforce_retention_duration": False}
