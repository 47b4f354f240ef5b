"""Catalogs of tables: names, managed tables, and transactions over several tables."""
