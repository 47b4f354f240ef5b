"""Write frames, and change rows of tables, on executors."""
