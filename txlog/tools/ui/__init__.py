"""Pages about tables for a browser on this machine: `txlog ui`."""
