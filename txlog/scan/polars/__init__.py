"""Reading into polars frames, by polars itself where it reads the same rows."""
