"""The parts of Parquet files that no library exposes: the locations of pages. Pure."""
