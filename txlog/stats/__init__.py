"""File statistics, and which files a predicate cannot skip. Pure."""
