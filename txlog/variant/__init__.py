"""Variants: values of any shape in one column, as the Parquet format encodes and shreds them. Pure.

Rules: the Parquet format, "Variant Binary Encoding" and "Variant Shredding".
"""
