"""The bytes of Parquet files that no library tells: where their pages are. Pure."""
