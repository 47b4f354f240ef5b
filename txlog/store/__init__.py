"""Bytes: local disk, memory and fsspec, with put-if-absent."""

from txlog.store.base import ObjectInfo, Put, Store
from txlog.store.disk import Disk
from txlog.store.local import LocalStore
from txlog.store.memory import MemoryStore
from txlog.store.open import ALLOWED_SCHEMES, locate, open_store
from txlog.store.remote import FsspecStore

__all__ = [
    "ALLOWED_SCHEMES",
    "Disk",
    "FsspecStore",
    "LocalStore",
    "MemoryStore",
    "ObjectInfo",
    "Put",
    "Store",
    "locate",
    "open_store",
]
