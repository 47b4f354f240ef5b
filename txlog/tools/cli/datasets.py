"""`txlog datasets …`: data sets for training. Each command calls a method of `Datasets`."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated, Any, cast

import typer

from txlog.base.effects import REAL
from txlog.base.errors import TxlogError
from txlog.base.texts import unique_names
from txlog.tools.cli.examine import Json, pairs
from txlog.tools.cli.output import (
    as_rows,
    clock,
    print_data,
    print_error,
    print_json,
    print_rows,
    print_text,
)

if TYPE_CHECKING:
    from collections.abc import Sequence

    from txlog.training import Commit, Dataset, Datasets, Run, Step, Summary, TrainingSet

datasets = typer.Typer(
    help="Data sets for training: commits, training sets, lineage.", no_args_is_help=True
)

Root = Annotated[str, typer.Argument(metavar="ROOT", help="The folder of the data sets, or a URI.")]
Name = Annotated[str, typer.Argument(metavar="NAME", help="A data set, by its name or number.")]
Source = Annotated[str, typer.Argument(help="The data: a file, a folder, or a table (TABLE@v3).")]
Tags = Annotated[list[str] | None, typer.Option("--tag", help="NAME=VALUE; may be repeated.")]
Inputs = Annotated[
    list[str] | None,
    typer.Option("--input", help="The data from which the rows were made; may be repeated."),
]
Program = Annotated[
    str | None, typer.Option("--code", help="The program that made the rows: NAME or NAME@VERSION.")
]
Txn = Annotated[
    str | None, typer.Option(help="APPLICATION:VERSION: a retry returns the first result.")
]
OnBranch = Annotated[str | None, typer.Option("--branch", help="An open branch.")]
BranchName = Annotated[str, typer.Argument(metavar="BRANCH", help="The name of a branch.")]
Wanted = Annotated[str, typer.Argument(metavar="COMMIT", help="A number or a name (tag).")]


@datasets.command()
def create(
    root: Root,
    name: Annotated[str, typer.Argument(metavar="NAME", help="A new name.")],
    source: Annotated[str | None, typer.Argument(help="The data of the first commit.")] = None,
    type: Annotated[
        str, typer.Option(help="Such as TEXT_INTENT, IMAGE_CLASS, AUDIO, VIDEO, GENERIC.")
    ] = "TABLE",
    tag: Tags = None,
    description: Annotated[str | None, typer.Option(help="A description.")] = None,
    message: Annotated[str, typer.Option(help="The message of the commit.")] = "Initial commit",
    input: Inputs = None,
    code: Program = None,
    txn: Txn = None,
    json: Json = False,
) -> None:
    """Create a data set, with a first commit if there is a source."""
    made = _datasets(root).create(
        name,
        type,
        source,
        tags=pairs(tag, "--tag"),
        description=description,
        message=message,
        inputs=input or (),
        code=_code(code),
        txn=_txn(txn),
    )
    _print_summary(made.summary(), json)


@datasets.command()
def update(
    root: Root,
    name: Name,
    source: Source,
    tag: Tags = None,
    message: Annotated[str, typer.Option(help="The message of the commit.")] = "",
    input: Inputs = None,
    code: Program = None,
    merge_schema: Annotated[bool, typer.Option("--merge-schema", help="Add new columns.")] = False,
    replace: Annotated[
        bool,
        typer.Option(
            "--replace", help="Training sets with it pick none of the commits that exist now."
        ),
    ] = False,
    branch: OnBranch = None,
    txn: Txn = None,
    json: Json = False,
) -> None:
    """Add a commit to a data set."""
    made = _dataset(root, name).update(
        source,
        message,
        pairs(tag, "--tag"),
        inputs=input or (),
        code=_code(code),
        schema_mode="merge" if merge_schema else None,
        replace=replace,
        branch=branch,
        txn=_txn(txn),
    )
    _print_commits(f"Commit of {name}", [made], json, one=True)


@datasets.command(name="list")
def list_(
    root: Root,
    type: Annotated[str | None, typer.Option(help="Only data sets of this type.")] = None,
    limit: Annotated[int, typer.Option(min=1, help="The largest number of data sets.")] = 100,
    after: Annotated[int | None, typer.Option(help="Only data sets after this number.")] = None,
    deleted: Annotated[bool, typer.Option("--deleted", help="Also deleted data sets.")] = False,
    json: Json = False,
) -> None:
    """List the data sets."""
    found = _datasets(root).list(limit, after, type, deleted=deleted)
    if json:
        print_json([_summary_json(one) for one in found])
        return
    rows = [
        {
            "id": one.dataset_id,
            "name": one.name,
            "type": one.type,
            "commits": len(one.commits),
            "rows": sum(commit.rows for commit in one.commits if not commit.purged),
            "updated (UTC)": clock(one.last_updated_ms),
            "description": one.description or "",
            **({"deleted": one.deleted} if deleted else {}),
        }
        for one in found
    ]
    print_rows(f"Data sets of {root}", rows, json=False)


@datasets.command()
def show(root: Root, name: Name, json: Json = False) -> None:
    """Show a data set with its commits and training sets."""
    found = _dataset(root, name)
    _print_summary(found.summary(), json, found.training_sets())


@datasets.command()
def prepare(
    root: Root,
    name: Name,
    commit: Annotated[str | None, typer.Option(help="The last commit to use.")] = None,
    tag: Tags = None,
    where: Annotated[str | None, typer.Option(help="Only examples for which this is true.")] = None,
    split: Annotated[
        list[str] | None,
        typer.Option(help="PART=SHARE, such as train=0.8; once for each part, together 1."),
    ] = None,
    part: Annotated[str | None, typer.Option(help="The part of --split to make.")] = None,
    key: Annotated[
        list[str] | None, typer.Option(help="A column by whose hash --split divides.")
    ] = None,
    branch: OnBranch = None,
    form: Annotated[str, typer.Option(help="parquet or csv.")] = "parquet",
    option: Annotated[
        list[str] | None, typer.Option(help="NAME=VALUE; an option of the type.")
    ] = None,
    json: Json = False,
) -> None:
    """Pick commits and make a training set from them, unless it exists already."""
    found = _dataset(root, name)
    options = pairs(option, "--option")
    asked = found.prepare(
        _number(commit),
        pairs(tag, "--tag"),
        form=form,
        options=options,
        where=where,
        split=_shares(split),
        part=part,
        key=key or None,
        branch=branch,
    )
    _print_training_set(asked, json)


@datasets.command()
def fetch(
    root: Root,
    name: Name,
    version_hash: Annotated[
        str, typer.Argument(metavar="HASH", help="The hash that prepare printed.")
    ],
    wait: Annotated[float, typer.Option(help="The longest time to wait for it, in seconds.")] = 0,
    to: Annotated[str | None, typer.Option(help="Copy its parts into this folder.")] = None,
    json: Json = False,
) -> None:
    """Show the state of a training set, and copy its parts."""
    found = _dataset(root, name).fetch(version_hash, wait)
    if to is not None:
        found.download(to)
    _print_training_set(found, json)


@datasets.command()
def export(
    root: Root,
    name: Name,
    version_hash: Annotated[
        str, typer.Argument(metavar="HASH", help="The hash that prepare printed.")
    ],
    to: Annotated[str, typer.Option(help="A folder or URI that has no files.")],
    form: Annotated[
        str, typer.Option(help="webdataset, huggingface, imagefolder or tfrecord.")
    ] = "webdataset",
    wait: Annotated[float, typer.Option(help="The longest time to wait for it, in seconds.")] = 0,
    json: Json = False,
) -> None:
    """Write the examples of a training set for other tools."""
    paths = _dataset(root, name).fetch(version_hash, wait).export(to, form)
    print_json(paths) if json else print_text(f"{len(paths)} files in {to}")


@datasets.command()
def diff(
    root: Root,
    name: Name,
    a: Annotated[str, typer.Argument(help="A commit, a hash or a name.")],
    b: Annotated[str, typer.Argument(help="Another commit, hash or name.")],
    key: Annotated[list[str] | None, typer.Option(help="Columns that identify rows.")] = None,
    rows: Annotated[bool, typer.Option("--rows", help="Print the different rows.")] = False,
    json: Json = False,
) -> None:
    """Show the differences between two commits or training sets."""
    found = _dataset(root, name).diff(_target(a), _target(b), key)
    if not rows:
        facts = found.to_json()
        print_json(facts) if json else print_rows(
            f"{a} → {b}", [{"what": what, "how": str(how)} for what, how in facts.items()], False
        )
        return
    kinds = {"removed": found.removed().read_all(), "added": found.added().read_all()}
    if key:
        kinds["changed"] = found.changed()
    names = kinds["added"].schema.names
    change = unique_names([*names, "change"])[-1]  # A column of the data set may have this name.
    listed = [{change: kind, **row} for kind, data in kinds.items() for row in as_rows(data)]
    print_rows(f"{a} → {b}", listed, json, names=[change, *names])


@datasets.command()
def lineage(
    root: Root,
    name: Name,
    commit: Annotated[
        str | None,
        typer.Argument(help="A commit, or the hash of a training set. Default: the last commit."),
    ] = None,
    down: Annotated[bool, typer.Option("--down", help="Show what was made from it.")] = False,
    depth: Annotated[int | None, typer.Option(min=0, help="The largest number of steps.")] = None,
    dot: Annotated[bool, typer.Option("--dot", help="Print it for Graphviz.")] = False,
    json: Json = False,
) -> None:
    """Show the inputs of a commit or training set."""
    wanted = _number(commit)
    graph = _dataset(root, name).lineage(wanted, "down" if down else "up", depth)
    if dot:
        print_data(graph.to_dot())
    elif json:
        print_json(graph.to_json())
    else:
        titles = {node.id: node.title for node in graph.nodes}
        rows = [
            {"from": titles[edge.source], "role": edge.role, "to": titles[edge.target]}
            for edge in graph.edges
        ]
        print_rows(f"Lineage of {name}", rows, json=False)


@datasets.command()
def audit(
    root: Root,
    dataset: Annotated[str | None, typer.Option(help="Only this data set, by its name.")] = None,
    json: Json = False,
) -> None:
    """Show who changed what, in the order of time."""
    found = _datasets(root).audit()
    rows = [one for one in as_rows(found) if dataset in (None, one["dataset"])]
    print_rows(f"Changes of {dataset or root}", rows, json, names=found.schema.names)


@datasets.command()
def share(
    root: Root,
    name: Name,
    reader: Annotated[
        list[str] | None, typer.Option(help="A token that may read it; may be repeated.")
    ] = None,
    writer: Annotated[
        list[str] | None, typer.Option(help="A token that may change it; may be repeated.")
    ] = None,
    no_reader: Annotated[
        bool, typer.Option("--no-reader", help="Nobody else may read it.")
    ] = False,
    no_writer: Annotated[
        bool, typer.Option("--no-writer", help="Nobody else may change it.")
    ] = False,
    everybody: Annotated[
        bool,
        typer.Option("--all", help="All tokens may use it; other options limit who changes it."),
    ] = False,
    owner: Annotated[str | None, typer.Option(help="The new owner.")] = None,
    json: Json = False,
) -> None:
    """Set which tokens may use a data set at a service. Without options, show them."""
    if everybody and (reader or no_reader):
        raise typer.BadParameter("give --all or readers, not both", param_hint="--all")
    given = {
        **_users("reader", reader, no_reader, everybody),
        **_users("writer", writer, no_writer, everybody),
        **({} if owner is None else {"owner": owner}),
    }
    found = _dataset(root, name)
    access = found.share(**given) if given else found.access
    if json:
        print_json(asdict(access))
        return
    rows = [
        {"who": who, "names": "all" if names is None else ", ".join(names)}
        for who, names in (
            ("owner", (access.owner or "",)),
            ("readers", access.readers),
            ("writers", access.writers),
        )
    ]
    print_rows(f"Access to {name}", rows, json=False)


@datasets.command()
def tag(
    root: Root,
    name: Name,
    label: Annotated[str, typer.Argument(help="The name to give.")],
    target: Annotated[
        str | None, typer.Argument(help="A commit or a hash. Default: remove the name.")
    ] = None,
) -> None:
    """Give a name to a commit or a training set."""
    _dataset(root, name).tag(label, _number(target))


@datasets.command()
def hide(root: Root, name: Name, commit: Wanted) -> None:
    """Exclude a commit from later training sets."""
    _dataset(root, name).hide(_target(commit))


@datasets.command()
def unhide(root: Root, name: Name, commit: Wanted) -> None:
    """Include a hidden commit in later training sets again."""
    _dataset(root, name).show(_target(commit))


@datasets.command()
def branch(root: Root, name: Name, branch: BranchName) -> None:
    """Make a branch: its commits are picked only on it until it is published."""
    _dataset(root, name).branch(branch)


@datasets.command()
def branches(root: Root, name: Name, json: Json = False) -> None:
    """List the branches that are neither published nor discarded."""
    rows = [{"branch": one} for one in _dataset(root, name).branches()]
    print_rows(f"Branches of {name}", rows, json)


@datasets.command()
def publish(root: Root, name: Name, branch: BranchName, json: Json = False) -> None:
    """Let all later training sets pick the commits of a branch."""
    _print_commits(f"Published commits of {name}", _dataset(root, name).publish(branch), json)


@datasets.command()
def discard(root: Root, name: Name, branch: BranchName) -> None:
    """End a branch without its commits, which stay hidden."""
    _dataset(root, name).discard(branch)


@datasets.command()
def delete(root: Root, name: Name) -> None:
    """Omit a data set from lists; undelete restores it."""
    _dataset(root, name).delete()


@datasets.command()
def undelete(
    root: Root,
    dataset_id: Annotated[int, typer.Argument(metavar="NUMBER", help="See list --deleted.")],
) -> None:
    """Restore a deleted data set."""
    _datasets(root).dataset(dataset_id).undelete()


@datasets.command()
def purge(
    root: Root,
    name: Name,
    confirm: Annotated[
        str, typer.Option(help="The name of the data set again, as a confirmation.")
    ],
    commit: Annotated[str | None, typer.Option(help="Only this commit.")] = None,
) -> None:
    """Remove the bytes of a data set, or of a commit, permanently."""
    _dataset(root, name, purged=True).purge(_number(commit), confirm=confirm)


@datasets.command()
def verify(
    root: Root,
    name: Name,
    commit: Annotated[str | None, typer.Argument(help="Default: all commits.")] = None,
    json: Json = False,
) -> None:
    """Compute digests again from the rows; exits with 1 if they differ."""
    found = _dataset(root, name).verify(_number(commit))
    _print_commits(f"Verified commits of {name}", found, json)


@datasets.command(name="on-commit")
def on_commit(
    root: Root,
    name: Name,
    run: Annotated[
        list[str],
        typer.Option(
            help="clean.py, clean.py:function or module:function; a command: once for each word."
        ),
    ],
    into: Annotated[str, typer.Option(help="The data set that it makes.")],
    rows: Annotated[
        str, typer.Option(help="new: those of each commit; all: those of all commits.")
    ] = "new",
    type: Annotated[str, typer.Option(help="The type of a data set that it creates.")] = "TABLE",
    step: Annotated[str | None, typer.Option(help="The name. Default: that of --into.")] = None,
    json: Json = False,
) -> None:
    """Add a step: a program that makes a commit of another data set from each commit."""
    is_python = len(run) == 1 and (run[0].endswith(".py") or ":" in run[0])
    program: str | list[str] = run[0] if is_python else run
    added = _datasets(root).on_commit(
        _target(name), run=program, into=into, rows=cast("Any", rows), type=type, name=step
    )
    _print_steps(f"Step of {name}", [added], json, one=True)


@datasets.command()
def steps(root: Root, json: Json = False) -> None:
    """List the steps, with what they have done and have to do."""
    _print_steps(f"Steps of {root}", _datasets(root).steps(), json)


@datasets.command(name="run-steps")
def run_steps(
    root: Root,
    step: Annotated[str | None, typer.Argument(help="Only this step. Default: all.")] = None,
    folder: Annotated[str, typer.Option(help="The folder of the programs.")] = ".",
    timeout: Annotated[
        float | None, typer.Option(help="Kill a program that runs longer, in seconds.")
    ] = None,
    every: Annotated[
        float | None, typer.Option(min=0.1, help="Do it again after so many seconds, until Ctrl-C.")
    ] = None,
    json: Json = False,
) -> None:
    """Run the steps that wait; exits with 1 if one fails. The next call tries it again."""
    found = _datasets(root)
    with _ended_like_by_ctrl_c():
        while every is not None:
            try:
                if runs := found.run_steps(step, folder=folder, timeout_s=timeout):
                    _print_runs(root, runs, json)
            except TxlogError as error:  # A store may be away for a moment.
                print_error(str(error))
            REAL.sleep_s(every)
        runs = found.run_steps(step, folder=folder, timeout_s=timeout)
    _print_runs(root, runs, json)
    stopped = [one for one in found.steps() if one.state == "STOPPED" and step in (None, one.name)]
    for one in stopped:
        print_error(f"The step {one.name} has stopped: {one.error.text if one.error else ''}")
    if stopped or any(run.state == "FAILED" for run in runs):
        raise typer.Exit(1)


@contextmanager
def _ended_like_by_ctrl_c() -> Iterator[None]:
    """Let SIGTERM, by which schedulers end a job, end the program of a step, too."""
    before = signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


@datasets.command(name="remove-step")
def remove_step(
    root: Root, step: Annotated[str, typer.Argument(metavar="STEP", help="The name of a step.")]
) -> None:
    """Remove a step; the data set that it made stays."""
    _datasets(root).remove_step(step)


@datasets.command()
def sweep(root: Root, json: Json = False) -> None:
    """Make the training sets whose workers died, finish purges, and delete leftover files."""
    count = _datasets(root).sweep()
    print_json({"taken_over": count}) if json else print_text(f"{count} training sets made")


@datasets.command()
def serve(
    root: Root,
    host: Annotated[
        str, typer.Option(help="Without tokens only a loopback address.")
    ] = "127.0.0.1",
    port: Annotated[int, typer.Option(help="The port of HTTP; 0: any free port.")] = 6000,
    grpc: Annotated[int | None, typer.Option(help="The port of gRPC. Default: no gRPC.")] = None,
    tokens: Annotated[str | None, typer.Option(help="A JSON file; see `token`.")] = None,
    source: Annotated[
        list[str] | None,
        typer.Option(help="NAME=PLACE of allowed sources. Default: all places."),
    ] = None,
    program: Annotated[
        list[str] | None,
        typer.Option(help="A program that steps of requests may run, such as clean.py."),
    ] = None,
) -> None:
    """Serve data sets over HTTP, and over gRPC, until Ctrl-C."""
    from txlog.training import Datasets
    from txlog.training import serve as run

    def ready(http: str, rpc: str | None) -> None:
        print_text(f"Data sets of {root} at {http}" + (f", gRPC at {rpc}" if rpc else ""))

    served = Datasets(root, sources=pairs(source, "--source") or None)
    run(
        served,
        host=host,
        port=port,
        grpc_port=grpc,
        tokens=tokens,
        programs=program or (),
        ready=ready,
    )


@datasets.command()
def token(
    name: Annotated[str, typer.Argument(metavar="NAME", help="The user of the token.")],
    right: Annotated[str, typer.Option(help="read, write or admin.")] = "read",
    dataset: Annotated[
        list[str] | None, typer.Option(help="Only these data sets; may be repeated.")
    ] = None,
    json: Json = False,
) -> None:
    """Make a token for the service, and print its entry for the file {"tokens": [ENTRY, …]}."""
    from txlog.training import new_token, token_entry

    made = new_token()
    entry = token_entry(name, made, right, dataset)
    print_json({"token": made, "entry": entry}) if json else print_text(made)
    if not json:
        print_json(entry)


# Arguments -----------------------------------------------------------------------------------


def _users(option: str, given: list[str] | None, nobody: bool, everybody: bool) -> dict[str, Any]:
    """Return an argument of `Dataset.share`, if the options name users; None: everybody."""
    if given and nobody:
        raise typer.BadParameter(
            f"give --{option} or --no-{option}, not both", param_hint=f"--{option}"
        )
    if given or nobody or everybody:
        return {f"{option}s": given or ([] if nobody else None)}
    return {}


def _datasets(root: str) -> Datasets:
    """Open the data sets; requested training sets are made before the command ends."""
    from txlog.training import Datasets, InlineRunner

    return Datasets(root, runner=InlineRunner())


def _dataset(root: str, name: str, *, purged: bool = False) -> Dataset:
    found = _datasets(root)
    names = {one.name for one in found.list(limit=1 << 30)} if name.isdecimal() else set()
    wanted = int(name) if name.isdecimal() and name not in names else name
    return found.dataset(wanted, purged=purged)


def _txn(text: str | None) -> tuple[str, int] | None:
    if text is None:
        return None
    app, _, version = text.rpartition(":")
    if not app or not version.isdecimal():
        raise typer.BadParameter(f"{text!r} is not APPLICATION:VERSION", param_hint="--txn")
    return app, int(version)


def _shares(given: list[str] | None) -> dict[str, float] | None:
    if not given:
        return None
    found = {}
    for name, text in pairs(given, "--split").items():
        try:
            found[name] = float(text)
        except ValueError:
            raise typer.BadParameter(f"{text!r} is no number", param_hint="--split") from None
    return found


def _code(text: str | None) -> Any:
    if text is None:
        return None
    from txlog.training import Code

    name, at, version = text.rpartition("@")
    return Code(name, version) if at else Code(text)


def _target(text: str) -> int | str:
    from txlog.base.texts import number_or_name

    return number_or_name(text)


def _number(text: str | None) -> int | str | None:
    return None if text is None else _target(text)


# Printing ------------------------------------------------------------------------------------


def _summary_json(summary: Summary) -> dict[str, Any]:
    return asdict(summary)


def _print_summary(summary: Summary, json: bool, sets: list[TrainingSet] | None = None) -> None:
    if json:
        facts = _summary_json(summary)
        if sets is not None:
            facts["training_sets"] = [_set_json(one) for one in sets]
        print_json(facts)
        return
    print_text(f"{summary.name} ({summary.dataset_id}), {summary.type}, {summary.uuid}")
    if summary.description:
        print_text(summary.description)
    _print_commits("Commits", summary.commits, json=False)
    if sets:
        rows = [
            {"hash": one.version_hash, "commits": ", ".join(map(str, one.picked)),
             "form": one.form, "state": one.state}
            for one in sets
        ]  # fmt: skip
        print_rows("Training sets", rows, json=False)
    if summary.names:
        names = [{"name": name, "of": str(to)} for name, to in summary.names.items()]
        print_rows("Names", names, json=False)


def _print_commits(title: str, commits: Any, json: bool, one: bool = False) -> None:
    found: list[Commit] = list(commits)
    if json:
        facts = [asdict(commit) for commit in found]
        print_json(facts[0] if one else facts)
        return
    rows = [
        {
            "commit": commit.commit_id,
            "made (UTC)": clock(commit.created_ms),
            "rows": commit.rows,
            "message": commit.message,
            "tags": ", ".join(f"{name}={value}" for name, value in commit.tags.items()),
            "": _mark(commit),
        }
        for commit in found
    ]
    print_rows(title, rows, json=False)


def _mark(commit: Commit) -> str:
    if commit.purged or commit.hidden:
        return "purged" if commit.purged else "hidden"
    return "" if commit.branch is None else f"on the branch {commit.branch}"


def _print_steps(title: str, steps: Sequence[Step], json: bool, one: bool = False) -> None:
    if json:
        facts = [asdict(step) for step in steps]
        print_json(facts[0] if one else facts)
        return
    rows = [
        {
            "step": step.name,
            "input": step.input,
            "into": step.into,
            "program": step.run if isinstance(step.run, str) else " ".join(step.run),
            "rows": step.rows,
            "state": step.state,
            "done": step.done,
            "waiting": ", ".join(map(str, step.waiting)),
            "branch": "" if step.branch is None else f"waits for {step.branch}",
            "error": "" if step.error is None else step.error.text,
        }
        for step in steps
    ]
    print_rows(title, rows, json=False)


def _print_runs(root: str, runs: Sequence[Run], json: bool) -> None:
    if json:
        print_json([asdict(run) for run in runs])
        return
    rows = [
        {
            "step": run.step,
            "commit": run.commit_id,
            "state": run.state,
            "made": "" if run.made is None else run.made.commit_id,
            "rows": 0 if run.made is None else run.made.rows,
            "error": "" if run.error is None else run.error.text,
        }
        for run in runs
    ]
    print_rows(f"Runs of {root}", rows, json=False)


def _set_json(found: TrainingSet) -> dict[str, Any]:
    facts = {name: value for name, value in vars(found).items() if name != "storage_options"}
    facts["commits"] = list(found.picked)
    facts["parts"] = [asdict(part) for part in found.parts]
    facts["error"] = None if found.error is None else asdict(found.error)
    return facts


def _print_training_set(found: TrainingSet, json: bool) -> None:
    if json:
        print_json(_set_json(found))
    else:
        print_text(f"{found.version_hash} {found.state}")
        if found.error is not None:
            print_text(found.error.text)
        parts = [{"part": p.name, "rows": p.rows, "bytes": p.bytes} for p in found.parts]
        print_rows("Parts", parts, json=False)
    if found.state == "FAILED":
        raise typer.Exit(1)
