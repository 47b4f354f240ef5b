"""Build the site: `python docs/site/build.py [FOLDER]`, with the extra `docs`.

The pages are the repository's own Markdown files, in the same folders, so that a link means the
same in the repository and on the site. The reference is made from the docstrings. A warning of the
builder, a dead link and a page that the navigation leaves out are errors.
"""

import re
import shutil
import subprocess
import sys
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urlsplit

import txlog
from txlog import spark_ext

HERE = Path(__file__).parent
ROOT = HERE.parents[1]
FOLDERS = ("docs", "spec", "benchmarks")
SINGLE = {
    "README.md": "index.md",
    "CHANGELOG.md": "CHANGELOG.md",
    "CONTRIBUTING.md": "CONTRIBUTING.md",
}
LINK = re.compile(r"(?<!!)\[((?:[^\[\]`]|`[^`]*`)*)\]\(([^)\s#]*)(#[^)\s]*)?\)")
NEEDS = re.compile(r"\A(```\w+) .*")  # Which engines the tests need for a block.
FENCE = re.compile(r"(^```.*?^```$)", re.MULTILINE | re.DOTALL)

# Objects that are reached by an attribute of a table.
GROUPS = {
    "Table": ["Table"],
    "Verbs in groups": [
        "txlog.table.alter.TableAlter",
        "txlog.table.optimize.TableOptimize",
        "txlog.table.maintenance.TableMaintenance",
        "txlog.table.maintenance.TablePins",
        "txlog.table.indexes.TableIndexes",
        "txlog.table.merge.TableMerger",
        "txlog.table.transaction.TableTransaction",
        "txlog.table.follow.TableChange",
        "txlog.table.audit.TableAudit",
    ],
    "Catalog": [
        "Catalog",
        "txlog.catalog.catalog.CatalogSnapshot",
        "txlog.catalog.branches.CatalogBranches",
        "txlog.catalog.follow.CatalogChange",
        "txlog.catalog.transaction.CatalogTransaction",
        "txlog.catalog.transaction.TransactionTable",
    ],
    "Scan": ["Scan", "sql", "Explanation", "Changes", "Expression", "col", "lit", "progress"],
    "Write": ["write", "write_fragments", "convert_to_delta", "Outcome", "WriteOptions",
              "WriterProperties", "ColumnProperties", "Identity", "Capability", "CatalogCommits",
              "ChecksumReport", "unique"],
    "Large values": ["blob", "Blob"],
    "Fragments": ["TableFragment", "Fragment", "FragmentMetadata", "DataFile", "DeletionFile",
                  "FragmentOperation"],
    "Training": ["txlog.training.loader.loader.Loader", "txlog.training.loader.order.Shuffle"],
    "Data sets": [
        "txlog.training.datasets.folder.Datasets",
        "txlog.training.datasets.dataset.Dataset",
        "txlog.training.datasets.training_set.TrainingSet",
        "txlog.training.datasets.diff.Diff",
        "txlog.training.datasets.lineage.Graph",
        "txlog.training.datasets.values.Summary",
        "txlog.training.datasets.values.Commit",
        "txlog.training.datasets.values.Input",
        "txlog.training.datasets.values.Code",
        "txlog.training.datasets.values.Part",
        "txlog.training.datasets.sources.Sources",
        "txlog.training.datasets.limits.Limits",
        "txlog.training.datasets.types.base.DatasetType",
    ],
    "Variants": ["variant_type", "variant_from_json", "variant_from_python", "variant_to_json",
                 "variant_to_python"],
}  # fmt: skip


def dotted(name: str) -> str:
    """Return the module's path of a public name of `txlog`."""
    return name if "." in name else f"{getattr(txlog, name).__module__}.{name}"


def reference() -> dict[str, str]:
    """Return the pages of the reference: a file's name, and its Markdown."""
    errors = {name for name in txlog.__all__ if name.endswith(("Error", "Warning"))}
    told = {name for names in GROUPS.values() for name in names} | errors | {"__version__"}
    if missing := set(txlog.__all__) - told:
        sys.exit(f"docs/site/build.py: no group has {sorted(missing)}")
    groups = {**GROUPS, "Error classes": sorted(errors)}
    spark = [
        f"{getattr(spark_ext, name).__module__}.{name}"
        for name in sorted(spark_ext.__all__)
        if name != "TxlogDataSource"
    ]
    pages = {**{title: [*map(dotted, names)] for title, names in groups.items()}, "Spark": spark}
    return {
        title: f"# {title}\n\n" + "\n".join(f"::: {name}\n{chapter_of(name)}" for name in names)
        for title, names in pages.items()
    }


def chapter_of(name: str) -> str:
    """Return a link to what docs/errors.md says of an error; empty for other names."""
    kind = getattr(txlog.base.errors, name.rpartition(".")[2], None)
    code = getattr(kind, "code", None)
    if code in (None, "txlog"):
        return ""
    return f"\n[Cause and remedy of `{code}`](../docs/errors.md#{code})\n"


def commands() -> str:
    """Return the page of the command line: what `--help` of each command says."""
    from typer.main import get_command

    from txlog.tools.cli.app import app

    found, parts = [("txlog", get_command(app))], ["# Command line\n"]
    while found:
        name, command = found.pop(0)
        context = command.make_context(name, [], resilient_parsing=True)
        children = getattr(command, "commands", {})
        found = [(f"{name} {key}", child) for key, child in children.items()] + found
        if children:
            continue
        usage = " ".join([name, *command.collect_usage_pieces(context)])
        parts.append(f"## {name}\n\n{(command.help or '').strip()}\n\n```text\n{usage}\n```\n")
        rows = [record for one in command.params if (record := one.get_help_record(context))]
        if rows:
            lines = [f"| `{left}` | {right} |" for left, right in rows]
            parts.append("\n".join(["| argument | meaning |", "|---|---|", *lines, ""]))
    return "\n".join(parts)


def file_name(title: str) -> str:
    return f"reference/{title.lower().replace(' ', '-')}.md"


def gathered(pages: Path) -> set[str]:
    """Copy the Markdown files and what they show; return their names."""
    sources = {name: ROOT / name for name in SINGLE}
    for folder in FOLDERS:
        for path in (ROOT / folder).rglob("*"):
            if path.suffix in {".md", ".svg", ".png"} and HERE not in path.parents:
                sources[str(path.relative_to(ROOT))] = path
    for name, path in sources.items():
        target = pages / SINGLE.get(name, name)
        target.parent.mkdir(parents=True, exist_ok=True)
        if path.suffix != ".md":
            shutil.copy(path, target)
            continue
        target.write_text(linked(path.read_text("utf-8"), path, sources), encoding="utf-8")
    return {SINGLE.get(name, name) for name in sources if name.endswith(".md")}


def linked(text: str, path: Path, sources: dict[str, Path]) -> str:
    """Return a page whose links to files that the site does not show are plain text."""

    def one(match: re.Match[str]) -> str:
        label, target, anchor = match.groups()
        if urlsplit(target).scheme or not target:
            return match.group()
        found = (path.parent / target).resolve()
        name = str(found.relative_to(ROOT)) if found.is_relative_to(ROOT) else ""
        if not found.exists():
            sys.exit(f"{path.relative_to(ROOT)}: there is no {target}")
        if found.is_dir() and f"{name}/README.md" in sources:
            target = f"{target.rstrip('/')}/README.md"
        elif name in SINGLE:
            target = str(Path(target).with_name(SINGLE[name]))
        elif name not in sources:
            return label
        return f"[{label}]({target}{anchor or ''})"

    parts = FENCE.split(text)  # What is in fences is code.
    return "".join(
        NEEDS.sub(r"\1", part) if n % 2 else LINK.sub(one, part) for n, part in enumerate(parts)
    )


class Page(HTMLParser):
    """The anchors and the links of a page."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.anchors: set[str] = set()
        self.links: set[str] = set()
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        values = dict(attrs)
        if values.get("id"):
            self.anchors.add(str(values["id"]))
        for name in ("href", "src"):
            if values.get(name):
                self.links.add(str(values[name]))


def dead_links(html: Path) -> list[str]:
    """Return the links between pages that lead nowhere."""
    pages = {path: Page(path.read_text("utf-8")) for path in html.rglob("*.html")}
    found = []
    for path, page in pages.items():
        for link in page.links if path.name != "404.html" else ():
            parts = urlsplit(link)
            if parts.scheme or parts.netloc:
                continue
            target = (path.parent / unquote(parts.path)).resolve() if parts.path else path
            target = target / "index.html" if target.is_dir() else target
            anchors = pages[target].anchors if target in pages else set()
            if not target.exists() or (
                parts.fragment and target in pages and unquote(parts.fragment) not in anchors
            ):
                found.append(f"{path.relative_to(html)}: {link}")
    return sorted(found)


def main(folder: Path) -> None:
    shutil.rmtree(folder, ignore_errors=True)
    names = gathered(folder / "pages")
    made = {**reference(), "Command line": commands()}
    for title, text in made.items():
        target = folder / "pages" / file_name(title)
        target.parent.mkdir(exist_ok=True)
        target.write_text(text, encoding="utf-8")
    specs = sorted(name for name in names if name.startswith("spec/"))
    config = (HERE / "mkdocs.yml").read_text("utf-8")
    config = config.replace("ROOT", str(ROOT))
    config = config.replace(
        "REFERENCE\n", "".join(f"      - {title}: {file_name(title)}\n" for title in made)
    )
    config = config.replace(
        "SPEC\n", "  - Format:\n" + "".join(f"      - {name}\n" for name in specs)
    )
    if left := [name for name in names if name not in config and name.startswith("docs/")]:
        sys.exit(f"docs/site/mkdocs.yml: the navigation leaves out {left}")
    (folder / "mkdocs.yml").write_text(config, encoding="utf-8")
    command = [Path(sys.executable).with_name("zensical"), "build", "--strict", "--clean"]
    built = subprocess.run(
        [*command, "-f", "mkdocs.yml"],
        cwd=folder, text=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
    )  # fmt: skip
    print(built.stdout)
    if built.returncode or "griffe: " in built.stdout:  # Which `--strict` lets pass.
        sys.exit("the site has warnings")
    if dead := dead_links(folder / "html"):
        sys.exit("dead links:\n" + "\n".join(dead))
    print(f"{len(names) + len(made)} pages: {folder / 'html' / 'index.html'}")


if __name__ == "__main__":
    main(Path(sys.argv[1] if len(sys.argv) > 1 else ROOT / "build" / "site").resolve())
