"""Makes Spark know the format `txlog`: Spark imports every `pyspark_*` module and registers it."""
