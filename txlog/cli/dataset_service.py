"""`txlog datasets serve` and `token`: data sets as a service."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from txlog.cli.datasets import Json, Root, pairs_of
from txlog.cli.output import print_json, print_text


def serve(
    root: Root,
    host: Annotated[str, typer.Option(help="Without tokens, an address of the loopback.")] = (
        "127.0.0.1"
    ),
    port: Annotated[int, typer.Option(help="Of HTTP; 0 takes any free one.")] = 6000,
    grpc: Annotated[
        int | None, typer.Option(help="The port of gRPC, such as 51001. Default: no gRPC.")
    ] = None,
    tokens: Annotated[
        str | None, typer.Option(help="A JSON file of tokens, as `token` makes its entries.")
    ] = None,
    source: Annotated[
        list[str] | None,
        typer.Option("--source", help="NAME=PLACE: where sources may be. Default: anywhere."),
    ] = None,
) -> None:
    """Serve a catalog over HTTP, and over gRPC, until Ctrl-C.

    Example: txlog datasets serve sets --source mini-automl=/data/in --grpc 51001
    """
    from txlog.datasets.catalog import Catalog
    from txlog.serve.run import serve as run

    def ready(http: str, rpc: str | None) -> None:
        print_text(f"Data sets of {root} at {http}" + (f", gRPC at {rpc}" if rpc else ""))

    catalog = Catalog(root, sources=pairs_of(source, "--source") or None)
    run(catalog, host=host, port=port, grpc_port=grpc, tokens=tokens, ready=ready)


def token(
    name: Annotated[str, typer.Argument(metavar="NAME", help="Whose it is.")],
    right: Annotated[str, typer.Option(help="read, write or admin.")] = "read",
    dataset: Annotated[
        list[str] | None, typer.Option("--dataset", help="A data set; may be repeated.")
    ] = None,
    json: Json = False,
) -> None:
    """Make a token of the service, and its entry for the file of tokens.

    The token is shown once; the file holds its digest alone.

    Example: txlog datasets token julia --right write --dataset intents
    """
    from txlog.serve.auth import RIGHTS, digest_of, new_token

    if right not in RIGHTS:
        raise typer.BadParameter(f"{right!r} is not read, write or admin", param_hint="--right")
    made = new_token()
    entry: dict[str, Any] = {"name": name, "sha256": digest_of(made), "right": right}
    if dataset:
        entry["datasets"] = dataset
    if json:
        print_json({"token": made, "entry": entry})
    else:
        print_text(made)
        print_json(entry)
