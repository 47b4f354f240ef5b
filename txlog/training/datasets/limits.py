"""Limits of data sets: input that exceeds a limit is refused before it is unpacked."""

from __future__ import annotations

import unicodedata
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, fields

from txlog.base.errors import InvalidInputError, InvalidTypeError, require_whole

_MiB = 1 << 20
_GiB = 1 << 30
_USER_LETTERS = 255  # The most characters of the name of a user.
_USERS = 1000  # The most users that one list names.


@dataclass(frozen=True)
class Limits:
    """The limits of a source. Each limit can be raised: `Limits(field_bytes=8 << 20)`."""

    files: int = 1_000_000  # Files of a folder, or members of a zip.
    file_bytes: int = 64 * _GiB  # The size of one file.
    total_bytes: int = 1024 * _GiB  # The size of all files of a source, unpacked.
    zip_ratio: int = 200  # Unpacked size / packed size of a zip member that is larger than 1 MiB.
    field_bytes: int = _MiB  # The size of one field of a CSV.
    fields: int = 1000  # The fields of one row of a CSV.
    image_bytes: int = 64 * _MiB  # The encoded size of one image.
    pixels: int = 1 << 26  # The pixels of one image.
    row_bytes: int = 8 * _MiB  # A larger content is stored in a separate file.
    name_bytes: int = 255  # The size of a label, or of one step of a file's path.
    path_bytes: int = 1024  # The size of a file's path.
    tags: int = 100  # The tags of one commit.
    tag_bytes: int = 1024  # The size of the value of a tag.
    message_bytes: int = 65_536  # The size of the message of a commit, or of a description.

    def __post_init__(self) -> None:
        for field in fields(self):
            require_whole(field.name, getattr(self, field.name), 1)

    def require_name(self, argument: str, name: object) -> str:
        """Return the name of a data set, label or file; raise if it is not valid.

        A name is a step of a path: it has no `/`, `\\` or control character, is not `.` or `..`,
        and neither begins nor ends with a space.

        Raises
        ------
        InvalidInputError
            The error says why the name is not valid.
        """
        if not isinstance(name, str):
            raise InvalidTypeError(
                argument=argument, reason=f"text was expected, not {type(name).__name__}"
            )
        wrong = fault_of_step(name, self.name_bytes)
        if wrong is None and name != name.strip():
            wrong = "begins or ends with a space"
        if wrong:
            raise InvalidInputError(argument=argument, reason=f"the name {name[:100]!r} {wrong}")
        return name

    def require_text(self, argument: str, text: object) -> str:
        """Return a message or description; raise if it is too long or not text."""
        if not isinstance(text, str):
            raise InvalidTypeError(
                argument=argument, reason=f"text was expected, not {type(text).__name__}"
            )
        size = _size(argument, text)
        if size > self.message_bytes:
            raise InvalidInputError(
                argument=argument, reason=f"it has {size} bytes, {self.message_bytes} are allowed"
            )
        return text

    def require_tags(self, tags: Mapping[str, str]) -> dict[str, str]:
        """Return tags; raise if there are too many, or a name or value is not valid.

        Raises
        ------
        InvalidInputError
            The error names the tag.
        """
        if not isinstance(tags, Mapping):
            raise InvalidTypeError(
                argument="tags",
                reason=f"names with values were expected, not {type(tags).__name__}",
                remedy='Write tags={"category": "test set"}',
            )
        if len(tags) > self.tags:
            raise InvalidInputError(
                argument="tags", reason=f"{len(tags)} tags were given, {self.tags} are allowed"
            )
        for name, value in tags.items():
            self.require_name("tags", name)
            if not isinstance(value, str):
                raise InvalidTypeError(
                    argument="tags",
                    field=name,
                    reason=f"text was expected, not {type(value).__name__}",
                )
            if _size("tags", value) > self.tag_bytes:
                raise InvalidInputError(
                    argument="tags",
                    field=name,
                    reason=f"the value has {_size('tags', value)} bytes, "
                    f"{self.tag_bytes} are allowed",
                )
        return dict(tags)


def require_user(user: object, argument: str = "user") -> str:
    """Return the name of a user: text such as `ann`, `ann@x.org`, `DOM\\ann` or `team/ann`.

    Raises
    ------
    InvalidTypeError
        It is not text.
    InvalidInputError
        It is blank, has characters that cannot be printed, or more than 255 characters.
    """
    if not isinstance(user, str):
        raise InvalidTypeError(
            argument=argument, reason=f"text was expected, not {type(user).__name__}"
        )
    wrong = None
    if not user.strip():
        wrong = "is blank"
    elif not user.isprintable():
        wrong = "has a character that cannot be printed"
    elif len(user) > _USER_LETTERS:
        wrong = f"has {len(user)} characters, {_USER_LETTERS} are allowed"
    if wrong is not None:
        raise InvalidInputError(argument=argument, reason=f"the name {user[:100]!r} {wrong}")
    return user


def require_users(argument: str, users: object) -> tuple[str, ...] | None:
    """Return the names of users, each once and in order; None for all users.

    Raises
    ------
    InvalidTypeError
        It is no list of texts.
    InvalidInputError
        One of them is no name, as for `require_user`, or there are more than 1,000.
    """
    if users is None:
        return None
    if isinstance(users, str | bytes) or not isinstance(users, Iterable):
        raise InvalidTypeError(
            argument=argument,
            reason=f"a list of names was expected, not {type(users).__name__}",
            remedy="Give a list of texts",
        )
    found = tuple(sorted({require_user(one, argument) for one in users}))
    if len(found) > _USERS:
        raise InvalidInputError(
            argument=argument, reason=f"{len(found)} names were given, {_USERS} are allowed"
        )
    return found


def require_no_number(argument: str, name: str) -> None:
    """Raise if a name looks like a number, because a number or a name may be expected."""
    if name.isdigit():
        raise InvalidInputError(
            argument=argument,
            reason=f"the name {name!r} has only digits, so it looks like a number",
            remedy="Add a letter",
        )


def fault_of_step(name: str, most_bytes: int) -> str | None:
    """Return why a step of a path is not valid, as the rest of a sentence; None if it is valid."""
    if not name:
        return "is empty"
    if name in (".", ".."):
        return "is the name of a folder"
    if "/" in name or "\\" in name:
        return "has a slash"
    if "\0" in name:
        return "has a NUL character"
    if any(unicodedata.category(letter) in ("Cc", "Cs") for letter in name):
        return "has a control character, or an incomplete character"
    size = len(name.encode())
    if size > most_bytes:
        return f"has {size} bytes, {most_bytes} are allowed"
    return None


def fault_of_path(path: str, limits: Limits) -> str | None:
    """Return why the relative path of a file is not valid; None if it is valid."""
    if path.startswith("/"):
        return "is absolute"
    if len(path) > limits.path_bytes or len(path.encode(errors="replace")) > limits.path_bytes:
        return f"has more than {limits.path_bytes} bytes"
    for step in path.split("/"):
        if step in (".", ".."):
            return "leads out of its folder"
        if len(step) == 2 and step[1] == ":":
            return "names a drive"
        if wrong := fault_of_step(step, limits.name_bytes):
            return wrong
    return None


def _size(argument: str, text: str) -> int:
    try:
        return len(text.encode())
    except UnicodeEncodeError as error:
        raise InvalidInputError(
            argument=argument, reason=f"it has characters that are not Unicode: {error.reason}"
        ) from error


DEFAULT_LIMITS = Limits()
