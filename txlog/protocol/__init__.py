"""Table features, properties, and who may read or write. Pure."""
