"""One module for each change of a table: a subclass of `Operation`."""
