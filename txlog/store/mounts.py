"""Network disks, by the table of mounts that Linux shows."""

from __future__ import annotations

import os
import re
from contextlib import suppress
from pathlib import Path

_MOUNTS = Path("/proc/self/mounts")
_NETWORK = re.compile(
    r"nfs\d?|cifs|smb\w*|9p|lustre|gpfs|beegfs|afs|vboxsf|drvfs|"
    r"(fuse\.)?(ceph|glusterfs|sshfs|s3fs|gcsfuse|goofys|rclone|blobfuse2?|davfs2?|juicefs|"
    r"(mount|mountpoint)-s3)"
)
_OCTAL = re.compile(r"\\([0-7]{3})")


def network_disk(path: str) -> str | None:
    """Return the type of the network disk on which a path is, such as `nfs4`; None: on none.

    Systems other than Linux do not tell.
    """
    with suppress(OSError):
        text = _MOUNTS.read_text(encoding="utf-8", errors="surrogateescape")
        return network_type(os.path.realpath(path), text)
    return None


def network_type(path: str, mounts: str) -> str | None:
    """Return the type of a network disk on which a path is, from a table of mounts, or None. Pure.

    Each line has a device, a folder and a type. Of several mounts on a folder the last one counts.
    """
    longest, found = -1, ""
    for line in mounts.splitlines():
        fields = line.split(" ")
        if len(fields) < 3:
            continue
        folder = _OCTAL.sub(lambda one: chr(int(one[1], 8)), fields[1])
        below = folder if folder.endswith("/") else f"{folder}/"
        if f"{path}/".startswith(below) and len(below) >= longest:
            longest, found = len(below), fields[2]
    return found if _NETWORK.fullmatch(found) else None
