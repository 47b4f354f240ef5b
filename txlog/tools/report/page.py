"""A report as one HTML page that loads nothing from the network."""

from __future__ import annotations

import html
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass, replace
from importlib.resources import files
from typing import TYPE_CHECKING, Any

import orjson

from txlog.base.errors import OutOfMemoryError, not_installed, os_errors
from txlog.base.moments import moment_text
from txlog.extend import TableFacts, table_facts
from txlog.tools.report.charts import charts_of, size_text

if TYPE_CHECKING:
    import os

    import jinja2

    from txlog import Table


@dataclass(frozen=True)
class Report:
    """A picture of a table at one version: `save` it, or show it in a notebook.

    `html` is the page, with its charts, its data and the library; it loads nothing from the
    network.
    """

    facts: TableFacts
    html: str

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the page to a local file; an existing file is replaced.

        Raises
        ------
        StoreError
            The file cannot be written.
        """
        with os_errors("replace", str(path)), open(path, "w", encoding="utf-8") as file:  # noqa: PTH123
            file.write(self.html)

    def __repr__(self) -> str:
        return f"Report({self.facts.uri!r}, version={self.facts.version})"

    def _repr_html_(self) -> str:
        page = html.escape(self.html)
        return f'<iframe srcdoc="{page}" title="Report" width="100%" height="900"></iframe>'


def report(table: Table, sample: int | None = 8) -> Report:
    """Return a report on a table's version: one page of HTML, which notebooks show directly.

    It shows the history and its authors, the structure of the table, how well scans skip files,
    the cost of the log, and the findings of `doctor`. `report(table).save("report.html")` writes
    the page, which loads nothing from elsewhere. The log is read, and the table's folder is listed.

    Parameters
    ----------
    sample
        How many data files are opened to check their statistics; None means all.

    Raises
    ------
    UnsupportedFeatureError
        The extra `report` is not installed.
    OutOfMemoryError
        The address space of this process is limited to less than the charts need.
    """
    return report_in_words(table, sample, lambda remedy: remedy)


def report_in_words(table: Table, sample: int | None, words: Callable[[str], str]) -> Report:
    """Return a `report` whose findings have the remedies that `words` makes of those of Python.

    Errors are those of `report`.
    """
    library = chart_library()
    facts = table_facts(table, sample)
    findings = [replace(one, remedy=words(one.remedy)) for one in facts.findings]
    facts = replace(facts, findings=findings)
    return Report(facts, layout(facts, library))


def chart_library() -> str:
    """Return the JavaScript for the charts: Vega-Lite and its dependencies.

    Raises
    ------
    UnsupportedFeatureError
        The extra `report` is not installed.
    OutOfMemoryError
        The address space of this process is limited to less than V8 reserves.
    """
    try:
        import jinja2  # noqa: F401
        import vl_convert
    except ImportError as error:
        reason = f"a report needs the package {error.name}"
        raise not_installed("report", "report", reason) from error
    limit = address_limit()
    if limit is None:
        return str(vl_convert.javascript_bundle())  # type: ignore[call-arg]
    # V8 reserves much address space when it starts, and ends its process if it gets none.
    code = (
        "import sys, vl_convert; sys.stdout.buffer.write(vl_convert.javascript_bundle().encode())"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, check=False)
    if done.returncode:
        raise OutOfMemoryError(
            reason="the charts of a report need more address space than the limit of "
            f"{limit} bytes",
            remedy="Make the report in a process whose address space has no limit (ulimit -v); a "
            "container limits memory too",
        )
    return done.stdout.decode()


def address_limit() -> int | None:
    """Return the limit of this process's address space in bytes; None if there is none."""
    try:
        import resource
    except ImportError:  # Windows has no such limit.
        return None
    soft, _ = resource.getrlimit(resource.RLIMIT_AS)
    return None if soft == resource.RLIM_INFINITY else soft


def layout(facts: TableFacts, library: str) -> str:
    """Return the page."""
    from markupsafe import Markup

    return (
        templates()
        .get_template("report/page.html")
        .render(
            **content(facts),
            style=Markup(file_text("report/page.css")),
            library=Markup(library.replace("</script", "<\\/script")),
            drawing=Markup(file_text("report/charts.js")),
        )
    )


def content(facts: TableFacts) -> dict[str, Any]:
    """Return the values for `body.html` of a table."""
    from markupsafe import Markup

    charts = charts_of(facts)

    def chart(name: str, label: str) -> Markup:
        if name not in charts:
            return Markup('<p class="soft">There is nothing to show.</p>')
        label = html.escape(label)
        return Markup(f'<div class="chart" id="{name}" role="img" aria-label="{label}"></div>')

    return {
        "facts": facts,
        "figures": figures(facts),
        "made": time_text(facts.made_ms),
        "charts": Markup(script_text(charts)),
        "chart": chart,
    }


def templates() -> jinja2.Environment:
    """Return the templates of txlog's rooms, such as `report/page.html`."""
    import jinja2

    made = jinja2.Environment(
        loader=jinja2.FunctionLoader(file_text),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    made.globals |= {"time": time_text, "number": number_text, "size": size_text}
    return made


def file_text(path: str) -> str:
    """Return a text file of a room of tools, such as `report/page.css`."""
    return files("txlog.tools").joinpath(path).read_text("utf-8")


def figures(facts: TableFacts) -> list[tuple[str, str]]:
    """Return the numbers at the top of the page."""
    rows = facts.live_rows
    share = f"{100 * facts.deleted / facts.rows:.1f} %" if facts.rows else "0 %"
    return [
        ("rows", number_text(rows) or "unknown"),
        ("data files", number_text(facts.files)),
        ("bytes", size_text(facts.bytes)),
        ("bytes a file", size_text(facts.bytes // facts.files) if facts.files else "0 B"),
        ("small files", number_text(facts.small)),
        ("deleted rows", f"{number_text(facts.deleted)} ({share})"),
        ("commits since the checkpoint", number_text(facts.log["commits"])),
    ]


def number_text(value: int | None) -> str:
    """Return a number with commas; empty for None."""
    return "" if value is None else f"{value:,}"


def time_text(milliseconds: int | None) -> str:
    """Return a time in UTC; empty for None, and the number if no calendar date fits."""
    return "" if milliseconds is None else moment_text(milliseconds, zone=" UTC")


def script_text(value: Any) -> str:
    """Return JSON that is safe within a script: it ends no element and starts no comment."""
    text = orjson.dumps(value).decode()
    for character in "<>&\u2028\u2029":
        text = text.replace(character, f"\\u{ord(character):04x}")
    return text
