"""One HTML page of data sets, commits and training sets, without scripts or other files. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from html import escape

from txlog.base.moments import moment_text
from txlog.training.datasets.training_set import TrainingSet
from txlog.training.datasets.values import Commit, Summary

_STYLE = """
:root { color-scheme: light dark; }
body { font: 1rem/1.5 system-ui, sans-serif; max-width: 70rem; margin: 2rem auto; padding: 0 1rem; }
table { border-collapse: collapse; width: 100%; margin: .5rem 0 1.5rem; }
th, td { text-align: left; padding: .25rem .75rem .25rem 0; vertical-align: top;
         border-bottom: 1px solid #8886; }
td.number { font-variant-numeric: tabular-nums; }
code { overflow-wrap: anywhere; }
.scroll { overflow-x: auto; }
"""


def page_of(datasets: Sequence[Summary], sets: Mapping[str, Sequence[TrainingSet]]) -> str:
    """Return the page; `sets` has the training sets of all but damaged data sets, by uuid."""
    body = "".join(_dataset(one, sets.get(one.uuid)) for one in datasets)
    return (
        '<!doctype html><html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        f"<title>Data sets</title><style>{_STYLE}</style></head><body><main><h1>Data sets</h1>"
        f"{body or '<p>There is no data set yet.</p>'}</main></body></html>"
    )


def _dataset(one: Summary, sets: Sequence[TrainingSet] | None) -> str:
    about = f"<p>{escape(one.description)}</p>" if one.description else ""
    if sets is None:
        about += "<p><strong>The data set is damaged: its commits cannot be read.</strong></p>"
    commits = _table(
        f"Commits of {one.name}",
        ("Commit", "Made", "Message", "Tags", "Rows", "Statistics"),
        [_commit(commit) for commit in one.commits],
    )
    made = _table(
        f"Training sets of {one.name}",
        ("Version hash", "State", "Commits", "Form", "Statistics"),
        [
            (
                f"<code>{escape(made.version_hash)}</code>",
                escape(made.state + (f": {made.error.text}" if made.error else "")),
                escape(", ".join(map(str, made.picked))),
                escape(made.form),
                _pairs(made.statistics),
            )
            for made in sets or ()
        ],
    )
    return (
        f"<section><h2>{one.dataset_id}. {escape(one.name)} "
        f"<small>{escape(one.type)}</small></h2>{about}{commits}{made}</section>"
    )


def _commit(commit: Commit) -> tuple[str, ...]:
    known = [mark for mark in ("hidden", "purged") if getattr(commit, mark)]
    if commit.branch is not None:
        known.append(f"on the branch {commit.branch}")
    marks = escape("".join(f" ({mark})" for mark in known))
    moment = f"{moment_text(commit.created_ms)}+00:00"
    return (
        f"{commit.commit_id}{marks}",
        escape(moment),
        escape(commit.message),
        _pairs(commit.tags),
        f"{commit.rows:,}",
        _pairs(commit.statistics),
    )


def _pairs(pairs: Mapping[str, object]) -> str:
    return "<br>".join(f"{escape(name)}: {escape(str(value))}" for name, value in pairs.items())


def _table(caption: str, heads: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    if not rows:
        return ""
    head = "".join(f'<th scope="col">{escape(one)}</th>' for one in heads)
    body = "".join("<tr>" + "".join(f"<td>{cell}</td>" for cell in row) + "</tr>" for row in rows)
    return (
        f'<div class="scroll" tabindex="0" role="region" aria-label="{escape(caption)}"><table>'
        f"<caption>{escape(caption)}</caption><thead><tr>{head}</tr></thead>"
        f"<tbody>{body}</tbody></table></div>"
    )
