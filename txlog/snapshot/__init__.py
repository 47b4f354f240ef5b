"""Load a version; time travel; history."""
