"""Variants: values of any shape in one column, as the Parquet format encodes and shreds them. Pure.

Rules: the Parquet format, "Variant Binary Encoding" and "Variant Shredding".
"""

from txlog.variant.arrays import decode_variant, variant_to_json, variant_to_python
from txlog.variant.builder import encode_variant
from txlog.variant.shredding import unshred

__all__ = [
    "decode_variant",
    "encode_variant",
    "unshred",
    "variant_to_json",
    "variant_to_python",
]
