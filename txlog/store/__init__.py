"""Bytes: local disk, memory and fsspec, with put-if-absent."""

from txlog.store.attempts import PutIfAbsent, attempts
from txlog.store.base import ObjectInfo, Put, Store
from txlog.store.disk import Disk
from txlog.store.local import LocalStore
from txlog.store.many import is_far, list_briefly, map_many, read_many, reads_at_once
from txlog.store.memory import MemoryStore
from txlog.store.open import ALLOWED_SCHEMES, locate, open_store, require_allowed, uri_of
from txlog.store.paths import file_path, is_file_uri, scheme_of, without_secrets
from txlog.store.ranged import TAIL_BYTES, open_ranged
from txlog.store.remote import FsspecStore

__all__ = [
    "ALLOWED_SCHEMES",
    "TAIL_BYTES",
    "Disk",
    "FsspecStore",
    "LocalStore",
    "MemoryStore",
    "ObjectInfo",
    "Put",
    "PutIfAbsent",
    "Store",
    "attempts",
    "file_path",
    "is_far",
    "is_file_uri",
    "list_briefly",
    "locate",
    "map_many",
    "open_ranged",
    "open_store",
    "read_many",
    "reads_at_once",
    "require_allowed",
    "scheme_of",
    "uri_of",
    "without_secrets",
]
