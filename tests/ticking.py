"""Repeatable effects: the same steps have the same ids and file names."""

from dataclasses import dataclass, field

from txlog.effects import Effects


@dataclass(frozen=True)
class Ticking(Effects):
    """Ids count up for each actor, and chance is always the same."""

    actor: int = 0
    ids: list[int] = field(default_factory=lambda: [0])

    def uuid(self) -> str:
        self.ids[0] += 1
        return f"00000000-0000-4000-{8000 + self.actor:04d}-{self.ids[0]:012x}"

    def jitter(self) -> float:
        return 0.5
