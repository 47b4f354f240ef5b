"""The files of a local disk are the same listed by one thread and by several."""

from __future__ import annotations

import os
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.examples import examples
from tests.moved import moved
from txlog.base.errors import StoreError
from txlog.store.local.disk import list_below, pages_below
from txlog.store.local.local import LocalStore

paths = st.lists(st.text("ab", min_size=1, max_size=2), min_size=1, max_size=4).map("/".join)


def walked(root: str) -> list[tuple[str, int]]:
    """The oracle: the files that `os.walk` finds, without links."""
    found = [Path(folder, name) for folder, _, names in os.walk(root) for name in names]
    files = [one for one in found if not one.is_symlink()]
    return sorted((str(one.relative_to(root)), one.stat().st_size) for one in files)


@settings(max_examples=examples(200), deadline=None)
@given(
    files=st.dictionaries(paths, st.integers(0, 3), max_size=12),
    links=st.dictionaries(paths, paths, max_size=3),
    folders=st.integers(1, 4),
    group=st.integers(1, 3),
    page=st.integers(1, 3),
)
def test_several_threads_list_what_a_walk_finds(
    files: dict[str, int], links: dict[str, str], folders: int, group: int, page: int
) -> None:
    with TemporaryDirectory() as root:
        for name, size in files.items():
            path = Path(root, name)
            if not path.exists() and all(not one.is_file() for one in path.parents):
                path.parent.mkdir(parents=True, exist_ok=True)
                path.write_bytes(bytes(size))
        for name, target in links.items():
            link = Path(root, f"link {name.replace('/', ' ')}")
            link.symlink_to(Path(root, target))
        moves = {"_FOLDERS": folders, "_GROUP": group, "_PAGE": page}
        with moved({f"txlog.store.local.disk:{name}": value for name, value in moves.items()}):
            pages = list(pages_below(root))
            ascending = list_below(root)
        assert max(map(len, pages)) <= page
        found = sorted((info.name, info.size) for part in pages for info in part)
        assert found == walked(root)
        assert [(info.name, info.size) for info in ascending] == walked(root)


def test_an_error_of_a_thread_is_that_of_the_listing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for number in range(20):
        (tmp_path / str(number)).mkdir()
    scan = os.scandir

    def refused(path: Any) -> Any:
        if Path(path).name == "13":
            raise PermissionError(13, "it may not be read", path)
        return scan(path)

    monkeypatch.setattr(os, "scandir", refused)
    moves = {"txlog.store.local.disk:_FOLDERS": 2, "txlog.store.local.disk:_GROUP": 1}
    with moved(moves), pytest.raises(StoreError, match="it may not be read"):
        list(LocalStore(str(tmp_path)).list_pages("", None))
