"""The error tree."""

import inspect
import pickle

from txlog.base.errors import InvalidTypeError, NotFoundError


def test_errors_are_errors_of_python_too() -> None:
    for error in (NotFoundError(path="a"), InvalidTypeError(reason="b")):
        assert isinstance(error, FileNotFoundError | TypeError)
        assert str(pickle.loads(pickle.dumps(error))) == str(error)


def test_help_says_the_fields() -> None:
    assert list(inspect.signature(NotFoundError).parameters)[-2:] == ["path", "version"]
