"""Tables on a local disk."""
