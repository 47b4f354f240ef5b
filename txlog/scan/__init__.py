"""Plan scans (pure), and read a snapshot as Arrow batches."""
