"""`Table`: a table at a version, and one call for each verb."""
