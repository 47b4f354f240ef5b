"""A picture of a table: one page that tells at a glance what it is made of."""
