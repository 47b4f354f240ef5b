"""Replay: the whole state of a version from the rows of any log files."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import pyarrow as pa

from txlog.actions.base import Action
from txlog.actions.columns import empty_rows
from txlog.arrow import pc
from txlog.reconcile.files import FileState, reconcile_files
from txlog.reconcile.table import Controls, controls_of


@dataclass(frozen=True)
class ActionBatch:
    """What one or more log files hold: file actions as `FILE_ROWS`, the others with versions."""

    files: pa.Table
    controls: tuple[tuple[int, Action], ...] = ()


@dataclass(frozen=True)
class TableState:
    """What a version is: controls, live files, tombstones."""

    version: int
    controls: Controls
    files: FileState


def replay(batches: Iterable[ActionBatch], *, version: int) -> TableState:
    """Return the state of `version`.

    Pure. The order of batches and of their rows has no meaning, and neither has it whether a
    state came as commits or as a checkpoint: the version beside each row decides. Rows of later
    versions are passed over.
    """
    held = list(batches)
    files = pa.concat_tables(
        [empty_rows(), *(batch.files for batch in held)], promote_options="default"
    )
    if files.num_rows:
        files = files.filter(pc.less_equal(files["version"], version))
    controls = controls_of(
        (at, action) for batch in held for at, action in batch.controls if at <= version
    )
    return TableState(version, controls, reconcile_files(files))
