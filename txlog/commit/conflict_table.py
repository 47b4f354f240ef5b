"""The table of answers: one cell for each kind of intent and each effect of a winner.

Rules: spec/commit.md, CON-11, where the reasons are, and CON-13 for the conditions.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum
from typing import Literal, TypeAlias

from txlog.commit.intent import Kind
from txlog.commit.winner import Effect

Answer = Literal["ok", "rebase", "redo", "fail"]
"""The answers, from the mildest to the hardest.

`ok`: commit on top of the winner. `rebase`: if both delete different rows, do the same, and delete
the winner's rows, too. `redo`: run the operation again from the new version. `fail`: raise.
"""


class When(StrEnum):
    """A condition on the files or columns of a winner's effect."""

    ALWAYS = "always"
    TOUCHED = "touched"  # A path that the intent removes or adds.
    WHOLE = "whole"  # A path whose file the intent removes completely or adds.
    BY_ROWS = "by rows"  # A path of which the intent only deletes rows.
    READ = "read"  # Rows, or columns of rows, that the intent may have read.
    # A fragment from which the intent removes a file or to which it adds columns.
    FRAGMENT = "fragment"
    FRAGMENT_GONE = "fragment gone"  # A fragment that the intent removes.
    GIVEN = "given"  # A fragment to which the intent gives columns.
    # A fragment of FRAGMENT, if the intent records the changes of rows as they were before it.
    RECORDED = "recorded"
    SAME_COLUMN = "same column"  # A column to which the intent writes values.
    TIGHTENS = "tightens"  # The intent may forbid what was permitted.


Cell: TypeAlias = Mapping[When, Answer]
"""The answer for each condition. The hardest answer of all true conditions counts; else ok."""

_OK: Cell = {}
_REDO: Cell = {When.ALWAYS: "redo"}
_FAIL: Cell = {When.ALWAYS: "fail"}
_TOUCHED: Cell = {When.TOUCHED: "redo"}
_HIT: Cell = {When.TOUCHED: "redo", When.READ: "redo"}
_TIGHTENS: Cell = {When.TOUCHED: "redo", When.TIGHTENS: "redo"}
_FRAGMENT: Cell = {When.TOUCHED: "redo", When.FRAGMENT: "redo"}

TABLE: dict[Kind, dict[Effect, Cell]] = {
    "append": {
        Effect.ROWS_BLIND: _HIT,
        Effect.ROWS: _HIT,
        Effect.VECTORS: _HIT,
        Effect.REMOVED: _HIT,
        Effect.MOVED: _TOUCHED,
        Effect.COLUMNS: _HIT,
        Effect.ADDITIONS: _REDO,
        Effect.METADATA: _REDO,
        Effect.PROTOCOL: _REDO,
        Effect.DOMAIN: _OK,
        Effect.NOTE: _OK,
    },
    "delete": {
        Effect.ROWS_BLIND: _HIT,
        Effect.ROWS: _HIT,
        Effect.VECTORS: {When.WHOLE: "redo", When.BY_ROWS: "rebase", When.READ: "rebase"},
        Effect.REMOVED: _TOUCHED,
        Effect.MOVED: _TOUCHED,
        Effect.COLUMNS: {
            When.TOUCHED: "redo",
            When.FRAGMENT_GONE: "redo",
            When.RECORDED: "redo",
            When.READ: "redo",
        },
        Effect.ADDITIONS: _OK,
        Effect.METADATA: _REDO,
        Effect.PROTOCOL: _REDO,
        Effect.DOMAIN: _OK,
        Effect.NOTE: _OK,
    },
    "replace": {
        Effect.ROWS_BLIND: _HIT,
        Effect.ROWS: _HIT,
        Effect.VECTORS: {
            When.WHOLE: "redo",
            When.GIVEN: "redo",
            When.BY_ROWS: "rebase",
            When.READ: "redo",
        },
        Effect.REMOVED: {When.TOUCHED: "redo", When.GIVEN: "redo", When.READ: "redo"},
        Effect.MOVED: {When.TOUCHED: "redo", When.GIVEN: "redo"},
        Effect.COLUMNS: {When.TOUCHED: "redo", When.FRAGMENT: "redo", When.READ: "redo"},
        Effect.ADDITIONS: _REDO,
        Effect.METADATA: _REDO,
        Effect.PROTOCOL: _REDO,
        Effect.DOMAIN: _OK,
        Effect.NOTE: _OK,
    },
    "overwrite": dict.fromkeys(Effect, _REDO),
    "compact": {
        Effect.ROWS_BLIND: _TOUCHED,
        Effect.ROWS: _TOUCHED,
        Effect.VECTORS: _TOUCHED,
        Effect.REMOVED: _TOUCHED,
        Effect.MOVED: _TOUCHED,
        Effect.COLUMNS: _FRAGMENT,
        Effect.ADDITIONS: _REDO,
        Effect.METADATA: _REDO,
        Effect.PROTOCOL: _REDO,
        Effect.DOMAIN: _REDO,
        Effect.NOTE: _OK,
    },
    "add columns": {
        Effect.ROWS_BLIND: _REDO,
        Effect.ROWS: _REDO,
        Effect.VECTORS: _TOUCHED,
        Effect.REMOVED: _REDO,
        Effect.MOVED: _REDO,
        Effect.COLUMNS: {When.TOUCHED: "redo", When.READ: "redo", When.SAME_COLUMN: "fail"},
        Effect.ADDITIONS: {When.ALWAYS: "redo", When.SAME_COLUMN: "fail"},
        Effect.METADATA: _FAIL,
        Effect.PROTOCOL: _FAIL,
        Effect.DOMAIN: _OK,
        Effect.NOTE: _OK,
    },
    "replace columns": {
        Effect.ROWS_BLIND: _HIT,
        Effect.ROWS: _REDO,
        Effect.VECTORS: {When.TOUCHED: "redo", When.RECORDED: "redo"},
        Effect.REMOVED: _FRAGMENT,
        Effect.MOVED: _FRAGMENT,
        Effect.COLUMNS: {When.TOUCHED: "redo", When.READ: "redo", When.SAME_COLUMN: "redo"},
        Effect.ADDITIONS: _REDO,
        Effect.METADATA: _REDO,
        Effect.PROTOCOL: _REDO,
        Effect.DOMAIN: _OK,
        Effect.NOTE: _OK,
    },
    "metadata": {
        Effect.ROWS_BLIND: _TIGHTENS,
        Effect.ROWS: _TIGHTENS,
        Effect.VECTORS: _TIGHTENS,
        Effect.REMOVED: _TOUCHED,
        Effect.MOVED: _TIGHTENS,
        Effect.COLUMNS: _TIGHTENS,
        Effect.ADDITIONS: _FAIL,
        Effect.METADATA: _FAIL,
        Effect.PROTOCOL: _REDO,
        Effect.DOMAIN: _REDO,
        Effect.NOTE: _OK,
    },
    "restore": dict.fromkeys(Effect, _REDO),
    "protocol": {
        Effect.ROWS_BLIND: _TIGHTENS,
        Effect.ROWS: _TIGHTENS,
        Effect.VECTORS: _TIGHTENS,
        Effect.REMOVED: _TOUCHED,
        Effect.MOVED: _TIGHTENS,
        Effect.COLUMNS: _TIGHTENS,
        Effect.ADDITIONS: _REDO,
        Effect.METADATA: _REDO,
        Effect.PROTOCOL: _FAIL,
        Effect.DOMAIN: _REDO,
        Effect.NOTE: _OK,
    },
}
