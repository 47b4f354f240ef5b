"""Intent, conflict verdicts (pure), and the commit loop.

Rules: spec/commit.md, CON-0 to CON-17.
"""
