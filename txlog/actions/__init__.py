"""The records of the log: Pydantic models, columns, NDJSON. Pure."""
