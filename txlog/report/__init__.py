"""Reports on a table: one page that gives an overview."""
