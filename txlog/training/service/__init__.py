"""A service for the data sets of a folder: an HTTP server and client, and a gRPC server.

The gRPC methods are the ones of MiniAutoML's data management. Rules: spec/datasets.md, DST-60 to
DST-66.
"""
