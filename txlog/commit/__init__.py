"""Intent, conflict verdicts (pure), and the commit loop."""
