"""Spark: data source, streaming sink, a JDK from pip."""
