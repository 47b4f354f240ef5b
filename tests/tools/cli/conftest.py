"""What the tests of all commands share."""

from collections.abc import Iterator

import pytest

from txlog.base.errors import InvalidInputError, TxlogError
from txlog.base.remedies import Asked
from txlog.tools.cli import app

OF_THE_ENVIRONMENT = {"time_zone"}


@pytest.fixture(autouse=True)
def _errors_name_options(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Whatever error a command prints, its argument is one that the command has."""
    foreign: list[str] = []
    text_of = app.error_text

    def told(error: TxlogError, asked: Asked) -> str:
        named = error.argument if isinstance(error, InvalidInputError) else None
        if named not in {None, *OF_THE_ENVIRONMENT} and asked.option(str(named)) is None:
            foreign.append(f"{[*asked.options]}: {error}")
        return text_of(error, asked)

    monkeypatch.setattr(app, "error_text", told)
    yield
    assert foreign == []
