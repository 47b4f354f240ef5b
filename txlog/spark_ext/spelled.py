"""Errors of txlog's functions, in the words of who called them by options."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager

from txlog.errors import InvalidInputError, TxlogError

_OPTIONS = {
    "partition_by": "partitionBy",
    "partition_mode": "partitionOverwriteMode",
    "properties": "tableProperties",
    "txn": "txnAppId",
    **{
        f"{end}_{what}": f"{end}{what.capitalize()}"
        for end in ("starting", "ending")
        for what in ("version", "timestamp")
    },
}
_PHRASES = {
    'schema_mode="merge"': "mergeSchema=true",
    'partition_mode="static"': "partitionOverwriteMode=static",
    'mode="overwrite"': 'mode("overwrite")',
    **{name: option for name, option in _OPTIONS.items() if "_" in name},
}
_PHRASE = re.compile("|".join(rf"\b{re.escape(phrase)}" for phrase in _PHRASES))


@contextmanager
def spelled(**more: str) -> Iterator[None]:
    """Let errors name options of Spark where they name arguments of Python.

    Parameters
    ----------
    more
        Options that arguments stand for here, and only here.
    """
    try:
        yield
    except TxlogError as error:
        if isinstance(error, InvalidInputError) and error.argument is not None:
            names = _OPTIONS | more
            error.argument = names.get(error.argument, error.argument)
        error.reason, error.remedy = map(_said, (error.reason, error.remedy))
        raise


def _said(text: str) -> str:
    return _PHRASE.sub(lambda found: _PHRASES[found.group()], text)
