"""The URLs of the pages, with FastAPI. The server renders the pages from templates.

The only script of the pages draws the charts of a report. All pages work without it.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import fields
from functools import partial
from http import HTTPStatus
from typing import Annotated, Any
from urllib.parse import parse_qs

from fastapi import Depends, FastAPI, Path, Query, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import HTMLResponse, RedirectResponse, Response
from starlette.exceptions import HTTPException

from txlog import Table
from txlog.base.errors import InvalidInputError, NotFoundError, TxlogError, UnsupportedFeatureError
from txlog.base.texts import version_of, without_secrets
from txlog.base.threads import Threads
from txlog.base.thresholds import Threshold
from txlog.tools.report.page import Report, chart_library, file_text, report_in_words, templates
from txlog.tools.ui import datasets, pages
from txlog.tools.ui.cells import Cell, Head, grid, link
from txlog.tools.ui.guard import App, Guard, form_secret, is_form_secret
from txlog.tools.ui.pages import Visit
from txlog.tools.ui.places import Place, Places

MOST_FORM_BYTES = 64 << 10
_TABLES_AT_ONCE: Threshold = 50
_OPENING = Threads(16)  # They mostly wait for remote stores.

# The pages of a table, by the last part of their URLs.
NAMES = {
    "": "Overview",
    "rows": "Rows",
    "schema": "Schema",
    "history": "History",
    "diff": "Compare",
    "files": "Files",
    "pins": "Pins",
    "report": "Report",
}
_STATIC: dict[str, Callable[[], str]] = {
    "page.css": partial(file_text, "report/page.css"),
    "ui.css": partial(file_text, "ui/static/ui.css"),
    "charts.js": partial(file_text, "report/charts.js"),
    "vega.js": chart_library,
}

Key = Annotated[str, Path(max_length=120)]
Text = Annotated[str | None, Query(max_length=20_000)]
Short = Annotated[str | None, Query(max_length=200)]
Number = Annotated[int, Path(ge=1, le=2**53)]
Count = Annotated[int | None, Query(ge=0, le=2**53)]
Offset = Annotated[int, Query(ge=0, le=2**53)]


async def form_fields(request: Request) -> dict[str, str]:
    """Return the fields of a form.

    Raises
    ------
    InvalidInputError
        It has more than `MOST_FORM_BYTES` bytes.
    """
    body = b""
    async for part in request.stream():
        body += part
        if len(body) > MOST_FORM_BYTES:
            raise InvalidInputError(
                argument="form", reason=f"the form has more than {MOST_FORM_BYTES} bytes"
            )
    return {name: values[-1] for name, values in parse_qs(body.decode("utf-8", "replace")).items()}


Fields = Annotated[dict[str, str], Depends(form_fields)]


class Site:
    """The values that all pages share: tables, templates, and whether forms may write."""

    def __init__(self, places: Places, token: str, writes: bool) -> None:
        self.places = places
        self.writes = writes
        self._token = token
        self._templates = templates()
        self._templates.globals |= {"address": pages.address}

    def page(self, template: str, status: int = 200, **values: Any) -> Response:
        """Return a page. Characters that cannot be encoded are replaced."""
        shared = {"writes": self.writes, "place": None, "version": None}
        shared |= {"current": None, "problem": None, "name": None, "links": None}
        text = self._templates.get_template(f"ui/templates/{template}.html").render(
            **(shared | values)
        )
        data = text.encode("utf-8", "replace")
        return HTMLResponse(data, status, media_type="text/html; charset=utf-8")

    def refusal(self, status: int, title: str, text: str) -> Response:
        """Return the page of an error."""
        problem = {"reason": text.rstrip("."), "remedy": "", "code": "", "facts": []}
        return self.page("error", status, title=title, problem=problem)

    def visit(self, key: str, version: str | None) -> Visit:
        """Return a table at a version; errors as `Places.find` and `Table`."""
        place = self.places.find(key)
        table = self.places.open(place, version_of(version or None))
        return Visit(place, table, version or None, self.places)

    def of_table(
        self,
        name: str,
        key: str,
        version: str | None,
        show: Callable[..., dict[str, Any]],
        **asked: Any,
    ) -> Response:
        """Return a page of a table: its template, filled with `show(visit)` and the parameters."""
        visit = self.visit(key, version)
        current = "rows" if name == "explain" else name
        damage = self.places.damages.get(visit.place.key)
        status = 200
        try:
            shown = show(visit, **asked)
        except TxlogError as error:  # The page shows its form again for a correction.
            status, shown = status_of(error), {"problem": problem_of(error)}
        return self.page(
            name or "overview",
            status,
            place=visit.place,
            version=visit.asked,
            at=visit.table.version,
            damage=None if damage is None else problem_of(damage) | {"path": damage.path},
            uri=without_secrets(visit.place.uri),
            current=current,
            title=NAMES[current],
            home=pages.address(visit.place, version=visit.asked),
            links=[
                (visit.address(step), label, step)
                for step, label in NAMES.items()
                if step != "pins" or visit.place.branch is None  # A branch has no pins.
            ],
            secret=form_secret(self._token),
            **(asked | shown),
        )

    def of_dataset(
        self, step: str, key: str, number: int, show: Callable[..., dict[str, Any]], **asked: Any
    ) -> Response:
        """Return a page of a data set, as `of_table` does."""
        place, folder = self.places.find_folder(key)
        visit = datasets.Visit(self.places, place, folder, folder.dataset(number))
        status = 200
        try:
            shown = show(visit, **asked)
        except TxlogError as error:
            status, shown = status_of(error), {"problem": problem_of(error)}
        steps = datasets.NAMES.items()
        return self.page(
            "dataset",
            status,
            place=place,
            home=f"/datasets/{place.key}",
            name=visit.dataset.name,
            links=[(visit.address(at), label, at) for at, label in steps],
            current=step,
            title=datasets.NAMES[step],
            uri=without_secrets(place.uri),
            **(asked | shown),
        )

    def report(self, visit: Visit) -> Report:
        """Return the report of a version; the last few are cached."""

        def made_for(one: Visit) -> Report:
            return report_in_words(
                one.table, pages.SAMPLE, lambda remedy: pages.told(remedy, one.place.uri)
            )

        key = (visit.place.key, visit.table.version)
        return self.places.reports.get(key, lambda: made_for(visit))

    def table_row(self, place: Place) -> list[Cell]:
        """Return the row of a table for the list; if it cannot be opened, with the reason."""
        try:
            return pages.table_row(place, self.places.open(place))
        except TxlogError as error:
            return pages.broken_row(place, error)

    def require_form(self, fields: dict[str, str]) -> None:
        """Raise unless a form comes from these pages and the server may write."""
        if not is_form_secret(self._token, fields.get("secret", "")):
            raise HTTPException(403, "The form does not come from a page of this server.")
        if not self.writes:
            raise HTTPException(403, "The pages are read-only. Start them with: txlog ui --write")


def status_of(error: TxlogError) -> int:
    """Return the HTTP status for an error."""
    if isinstance(error, NotFoundError):
        return 404
    return 400 if isinstance(error, InvalidInputError | UnsupportedFeatureError) else 500


def problem_of(error: TxlogError) -> dict[str, Any]:
    """Return the facts of an error for a page."""
    facts = [(one.name, getattr(error, one.name)) for one in fields(error)]
    return {
        "reason": (error.reason or error.summary).rstrip("."),
        "remedy": pages.told(error.remedy, error.table),
        "code": error.code,
        "facts": [
            (name, str(value))
            for name, value in facts
            if name not in ("reason", "remedy") and value not in (None, ())
        ],
    }


def make_app(places: Places, token: str, port: int, *, writes: bool = False) -> App:
    """Return the ASGI application of the pages, behind the guard."""
    site = Site(places, token, writes)
    app = FastAPI(docs_url=None, redoc_url=None, openapi_url=None)
    _add_errors(app, site)
    _add_tables(app, site)
    _add_datasets(app, site)
    _add_pages(app, site)
    _add_pins(app, site)
    return Guard(app, token, port, site.refusal)


def _add_errors(app: FastAPI, site: Site) -> None:
    def of_ours(_: Request, error: Exception) -> Response:
        assert isinstance(error, TxlogError)
        status = status_of(error)
        title = "Not found" if status == 404 else "This page cannot be shown"
        return site.page("error", status, title=title, problem=problem_of(error))

    def of_parameters(_: Request, error: Exception) -> Response:
        assert isinstance(error, RequestValidationError)
        reasons = [f"{one['loc'][-1]}: {one['msg']}" for one in error.errors()]
        return site.refusal(400, "A part of the URL is not valid", "; ".join(reasons))

    def of_http(_: Request, error: Exception) -> Response:
        assert isinstance(error, HTTPException)
        title = HTTPStatus(error.status_code).phrase
        text = "There is no such page." if error.status_code == 404 else str(error.detail)
        return site.refusal(error.status_code, title, text)

    def of_others(_: Request, error: Exception) -> Response:
        text = f"{type(error).__name__}: {error}"
        return site.refusal(500, "This page failed because of an error in txlog", text)

    app.add_exception_handler(TxlogError, of_ours)
    app.add_exception_handler(RequestValidationError, of_parameters)
    app.add_exception_handler(HTTPException, of_http)
    app.add_exception_handler(Exception, of_others)


def _add_tables(app: FastAPI, site: Site) -> None:
    @app.get("/")
    def tables(q: Short = None, namespace: Short = None, offset: Offset = 0) -> Response:
        found = site.places.find_all()
        chosen = [place for place in found if (q or "").lower() in place.name.lower()]
        if namespace:
            chosen = [place for place in chosen if pages.is_in(place, namespace)]
        some = chosen[offset : offset + _TABLES_AT_ONCE]
        folders = [
            [Cell(one.name, "", f"/datasets/{one.key}")]
            for one in sorted(site.places.folders.values(), key=lambda one: one.name)
        ]
        namespaces = [
            [
                Cell(one, "", link("/", namespace=one)),
                Cell(str(sum(pages.is_in(place, one) for place in found)), "n"),
            ]
            for one in site.places.namespaces()
        ]
        asked = {"q": q, "namespace": namespace}
        after, before = offset + _TABLES_AT_ONCE, max(0, offset - _TABLES_AT_ONCE)
        return site.page(
            "tables",
            title="Tables",
            q=q,
            namespace=namespace,
            total=len(found),
            grid=grid("Tables", pages.TABLE_HEADS, list(_OPENING.map(site.table_row, some))),
            namespaces=grid("Namespaces", ["Namespace", Head("Tables", style="n")], namespaces),
            folders=grid("Folders of data sets", ["Folder"], folders),
            is_complete=site.places.is_complete,
            first=offset + 1 if some else 0,
            last=offset + len(some),
            before=link("/", **asked, offset=before) if offset else None,
            after=link("/", **asked, offset=after) if after < len(chosen) else None,
        )

    @app.get("/static/{name}")
    def static(name: str) -> Response:
        if name not in _STATIC:
            raise HTTPException(404)
        kind = "css" if name.endswith(".css") else "javascript"
        return Response(_STATIC[name](), media_type=f"text/{kind}; charset=utf-8")


def _add_datasets(app: FastAPI, site: Site) -> None:
    @app.get("/datasets/{key}")
    def listed(key: Key, after: Count = None) -> Response:
        place, found = site.places.find_folder(key)
        uri, home = without_secrets(place.uri), f"/datasets/{place.key}"
        shown = datasets.listed(place, found, after=after)
        return site.page("datasets", place=place, title="Data sets", uri=uri, home=home, **shown)

    @app.get("/datasets/{key}/{number}")
    def commits(key: Key, number: Number, offset: Offset = 0) -> Response:
        return site.of_dataset("", key, number, datasets.commits, offset=offset)

    @app.get("/datasets/{key}/{number}/sets")
    def sets(key: Key, number: Number, offset: Offset = 0) -> Response:
        return site.of_dataset("sets", key, number, datasets.training_sets, offset=offset)

    @app.get("/datasets/{key}/{number}/lineage")
    def lineage(key: Key, number: Number, of: Short = None, direction: Short = None) -> Response:
        asked = {"of": of or None, "direction": direction}
        return site.of_dataset("lineage", key, number, datasets.lineage, **asked)


def _add_pages(app: FastAPI, site: Site) -> None:
    @app.get("/tables/{key}")
    def overview(key: Key, version: Short = None) -> Response:
        return site.of_table("", key, version, pages.overview)

    @app.get("/tables/{key}/rows")
    def rows(
        key: Key,
        version: Short = None,
        columns: Text = None,
        where: Text = None,
        offset: Offset = 0,
    ) -> Response:
        asked = {"columns": columns or None, "where": where or None, "offset": offset}
        return site.of_table("rows", key, version, pages.rows, **asked)

    @app.get("/tables/{key}/explain")
    def explain(
        key: Key, version: Short = None, columns: Text = None, where: Text = None
    ) -> Response:
        asked = {"columns": columns or None, "where": where or None}
        return site.of_table("explain", key, version, pages.explain, **asked)

    @app.get("/tables/{key}/schema")
    def schema(key: Key, version: Short = None) -> Response:
        return site.of_table("schema", key, version, pages.schema)

    @app.get("/tables/{key}/history")
    def history(key: Key, version: Short = None, offset: Offset = 0) -> Response:
        return site.of_table("history", key, version, pages.history, offset=offset)

    @app.get("/tables/{key}/diff")
    def diff(
        key: Key,
        version: Short = None,
        start: Short = None,
        end: Short = None,
        on: Text = None,
        where: Text = None,
        offset: Offset = 0,
    ) -> Response:
        asked = {"start": version_of(start or None), "end": version_of(end or None)}
        more = {"on": on or None, "where": where or None, "offset": offset}
        return site.of_table("diff", key, version, pages.diff, **asked, **more)

    @app.get("/tables/{key}/files")
    def files(key: Key, version: Short = None, offset: Offset = 0) -> Response:
        return site.of_table("files", key, version, pages.files, offset=offset)

    @app.get("/tables/{key}/report")
    def report(key: Key, version: Short = None) -> Response:
        return site.of_table(
            "report", key, version, lambda one: pages.report(one, site.report(one))
        )

    @app.get("/tables/{key}/report.html")
    def report_page(key: Key, version: Short = None) -> Response:
        visit = site.visit(key, version)
        disposition = f'attachment; filename="{visit.place.key}-{visit.table.version}.html"'
        return HTMLResponse(
            site.report(visit).html.encode("utf-8", "replace"),
            headers={"content-disposition": disposition},
        )


def _add_pins(app: FastAPI, site: Site) -> None:
    @app.get("/tables/{key}/pins")
    def pins(key: Key, version: Short = None) -> Response:
        return site.of_table("pins", key, version, pages.pins)

    @app.post("/tables/{key}/pins")
    def create_pin(key: Key, fields: Fields) -> Response:
        site.require_form(fields)
        place = site.places.find(key)
        version = version_of(fields.get("version") or None)
        if isinstance(version, str):
            raise InvalidInputError(
                argument="version", reason=f"{version!r} is not a version number"
            )
        table = Table(place.uri, storage_options=site.places.options(place))
        table.pins.create(fields.get("name", ""), version, fields.get("reason") or None)
        return RedirectResponse(pages.address(place, "pins"), 303)

    @app.post("/tables/{key}/pins/delete")
    def delete_pin(key: Key, fields: Fields) -> Response:
        site.require_form(fields)
        place = site.places.find(key)
        table = Table(place.uri, storage_options=site.places.options(place))
        table.pins.delete(fields.get("name", ""))
        return RedirectResponse(pages.address(place, "pins"), 303)
