"""Which paths are on network disks."""

import os
from pathlib import Path

import pytest

from txlog.store import mounts
from txlog.store.mounts import network_disk, network_type

MOUNTS = """\
overlay / overlay rw 0 0
proc /proc proc rw 0 0
server:/lake /lake nfs4 rw,vers=4.2 0 0
/dev/sdb /lake/local ext4 rw 0 0
//server/share /my\\040share cifs rw 0 0
me@host: /home/me/far fuse.sshfs rw 0 0
server:/x /twice nfs rw 0 0
/dev/sdc /twice xfs rw 0 0
damaged
"""


@pytest.mark.parametrize(
    ("path", "kind"),
    [
        ("/lake.db", None),
        ("/lake", "nfs4"),
        ("/lake/a/b.db", "nfs4"),
        ("/lakes/b.db", None),
        ("/lake/local/b.db", None),
        ("/my share/b.db", "cifs"),
        ("/home/me/far/b.db", "fuse.sshfs"),
        ("/home/me/b.db", None),
        ("/twice/b.db", None),
    ],
)
def test_the_last_mount_of_the_longest_folder_counts(path: str, kind: str | None) -> None:
    assert network_type(path, MOUNTS) == kind


@pytest.mark.parametrize(
    "kind",
    ["9p", "lustre", "ceph", "fuse.ceph", "gpfs", "glusterfs", "fuse.glusterfs", "beegfs", "afs",
     "vboxsf", "drvfs", "fuse.mount-s3", "fuse.juicefs", "smb3", "nfs4"],
)  # fmt: skip
def test_kinds_of_network_disks(kind: str) -> None:
    assert network_type("/far/lake.db", f"x / ext4 rw 0 0\nx /far {kind} rw 0 0\n") == kind
    assert network_type("/far/lake.db", f"x / {kind} rw 0 0\nx /far fuse rw 0 0\n") is None


def test_links_are_followed_and_other_systems_do_not_tell(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    far = tmp_path / "far"
    far.mkdir()
    (tmp_path / "link").symlink_to(far)
    table = tmp_path / "mounts"
    table.write_text(f"/dev/sda / ext4 rw 0 0\nserver:/x {os.path.realpath(far)} nfs rw 0 0\n")
    monkeypatch.setattr(mounts, "_MOUNTS", table)
    assert network_disk(str(tmp_path / "link" / "lake.db")) == "nfs"
    assert network_disk(str(tmp_path / "lake.db")) is None
    monkeypatch.setattr(mounts, "_MOUNTS", tmp_path / "none")
    assert network_disk(str(far / "lake.db")) is None
