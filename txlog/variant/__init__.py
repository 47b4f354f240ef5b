"""Variants: values of different types in one column, encoded and shredded as in Parquet. Pure.

Rules: the Parquet format, "Variant Binary Encoding" and "Variant Shredding".
"""
