"""Intent, conflict verdicts (pure), and the commit loop.

Rules: spec/commit.md, CON-1 to CON-10.
"""

from txlog.commit.intent import Intent, Reads
from txlog.commit.judge import Verdict, judge
from txlog.commit.loop import Committed, Redo, commit, run

__all__ = ["Committed", "Intent", "Reads", "Redo", "Verdict", "commit", "judge", "run"]
