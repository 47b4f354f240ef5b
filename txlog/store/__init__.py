"""Bytes: local disk, memory and fsspec, with put-if-absent."""
