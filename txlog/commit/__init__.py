"""Intent, conflict verdicts (pure), and the commit loop.

Rules: spec/commit.md, CON-0 to CON-17.
"""

from txlog.commit.intent import Intent, Kind, Reads
from txlog.commit.judge import Verdict, judge
from txlog.commit.loop import Committed, Redo, commit, run

__all__ = ["Committed", "Intent", "Kind", "Reads", "Redo", "Verdict", "commit", "judge", "run"]
