"""Names of log files, and which of them make a version. Pure."""
