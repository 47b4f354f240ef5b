"""SQL statements: their text, definitions, and how they are carried out."""
