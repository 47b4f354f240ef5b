"""Lance-style fragments made from `add` actions, and deletion vectors. Pure."""
