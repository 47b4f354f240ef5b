"""Pages of tables for a browser, served on this machine alone: `txlog ui`."""
