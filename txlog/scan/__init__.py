"""Plan (pure) and read: a snapshot to Arrow batches."""
