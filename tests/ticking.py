"""Repeatable effects: the same steps have the same ids and file names."""

from dataclasses import dataclass, field

from txlog.base.effects import Effects


@dataclass(frozen=True)
class Ticking(Effects):
    """Ids count up for each actor, and chance is always the same."""

    actor: int = 0
    ids: list[int] = field(default_factory=lambda: [0])

    def uuid(self) -> str:
        self.ids[0] += 1
        return f"00000000-0000-4000-{mark(self.actor)}-{self.ids[0]:012x}"

    def jitter(self) -> float:
        return 0.5


def mark(actor: int) -> str:
    """Return the text that all ids of an actor contain, and no id of another actor."""
    return f"{8000 + actor:04d}"
