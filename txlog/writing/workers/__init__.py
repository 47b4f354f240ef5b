"""Fragments that workers write or change, and one driver commits."""

from txlog.writing.workers.commit import commit_fragments
from txlog.writing.workers.fragments import (
    delete_from_fragment,
    fragment_metadata,
    merge_into_fragment,
    write_new_fragments,
)
from txlog.writing.workers.operations import Operation

__all__ = [
    "Operation",
    "commit_fragments",
    "delete_from_fragment",
    "fragment_metadata",
    "merge_into_fragment",
    "write_new_fragments",
]
