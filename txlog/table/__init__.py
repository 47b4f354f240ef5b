"""`Table`: a table at one version, with a method for each verb."""
