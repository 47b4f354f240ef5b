"""What the metadata of a build says of the project's address: its links, and those of the README.

The address is set in one place, the environment variable `TXLOG_ADDRESS`, such as
`https://github.com/OWNER/NAME`; `.ci/release` sets it. PyPI shows the README where its relative
links lead nowhere. So they become links into the tagged version at the address, and without an
address they become plain text.
"""

from __future__ import annotations

import os
import re
from email.parser import HeaderParser
from pathlib import Path
from typing import Any

from hatchling.metadata.plugin.interface import MetadataHookInterface

ADDRESS = "TXLOG_ADDRESS"
# Code is matched first, so that nothing in it is taken for a link.
_LINK = re.compile(r"(```.*?```|`[^`\n]+`)|\[([^\]\n]+)\]\((?!\w+:|#)([^)\s]+)\)", re.DOTALL)


def project_urls(address: str, version: str) -> dict[str, str]:
    """Return the links that PyPI shows beside a project."""
    if not address:
        return {}
    return {
        "Documentation": f"{address}/blob/v{version}/docs/tutorial.md",
        "Source": address,
        "Issues": f"{address}/issues",
        "Changelog": f"{address}/blob/v{version}/CHANGELOG.md",
    }


def description(readme: str, address: str, version: str, root: Path) -> str:
    """Return a README that can be read elsewhere: no link in it is relative."""

    def link(found: re.Match[str]) -> str:
        code, text, target = found.groups()
        if code:
            return str(code)
        path = target.partition("#")[0]
        if address:
            kind = "tree" if (root / path).is_dir() else "blob"
            return f"[{text}]({address}/{kind}/v{version}/{target})"
        return str(text) if text == path else f"{text} ({path})"

    return _LINK.sub(link, readme)


class CustomMetadataHook(MetadataHookInterface):
    """Fills in the fields `readme` and `urls`."""

    def update(self, metadata: dict[str, Any]) -> None:
        """Set both fields from the README and the address."""
        root = Path(self.root)
        address = os.environ.get(ADDRESS, "").rstrip("/")
        built = root / "PKG-INFO"  # In a source archive: what it was built with.
        if built.exists():
            told = HeaderParser().parsestr(built.read_text(encoding="utf-8"))
            metadata["urls"] = dict(
                line.split(", ", 1) for line in told.get_all("Project-URL", failobj=[])
            )
            text = told.get_payload()
        else:
            version = metadata["version"]
            metadata["urls"] = project_urls(address, version)
            readme = (root / "README.md").read_text(encoding="utf-8")
            text = description(readme, address, version, root)
        metadata["readme"] = {"content-type": "text/markdown", "text": text}
