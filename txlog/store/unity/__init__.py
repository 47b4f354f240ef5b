"""Unity Catalog: its tables, credentials and commits, by its published HTTP interface."""
