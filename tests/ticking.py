"""Repeatable effects: the same steps have the same ids and file names."""

from dataclasses import dataclass, field

from txlog.base.effects import Effects


@dataclass(frozen=True)
class Ticking(Effects):
    """Ids count up for each actor, chance is always the same, and a look at the clock takes 1 ms.

    So a slow machine takes no other way, as operations do that have taken ten seconds.
    """

    actor: int = 0
    ids: list[int] = field(default_factory=lambda: [0])
    passed_s: list[float] = field(default_factory=lambda: [0.0])

    def monotonic_s(self) -> float:
        self.passed_s[0] += 0.001
        return self.passed_s[0]

    def sleep_s(self, seconds: float) -> None:
        self.passed_s[0] += seconds
        super().sleep_s(seconds)

    def uuid(self) -> str:
        self.ids[0] += 1
        return f"00000000-0000-4000-{mark(self.actor)}-{self.ids[0]:012x}"

    def jitter(self) -> float:
        return 0.5


def mark(actor: int) -> str:
    """Return the text that all ids of an actor contain, and no id of another actor."""
    return f"{8000 + actor:04d}"
