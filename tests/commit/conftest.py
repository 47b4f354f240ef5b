"""Effects for tests: time passes only in `sleep`, and random values repeat."""

from dataclasses import dataclass, field

import pytest

from txlog.base.effects import Effects


@dataclass(frozen=True)
class FakeEffects(Effects):
    """Ids count up, sleep moves the clock, nothing waits."""

    clock: list[float] = field(default_factory=lambda: [1_700_000_000.0])
    ids: list[int] = field(default_factory=lambda: [0])
    slept: list[float] = field(default_factory=list)

    def now_ms(self) -> int:
        return int(self.clock[0] * 1000)

    def monotonic_s(self) -> float:
        return self.clock[0]

    def uuid(self) -> str:
        self.ids[0] += 1
        return f"00000000-0000-4000-8000-{self.ids[0]:012x}"

    def jitter(self) -> float:
        return 0.5

    def sleep_s(self, seconds: float) -> None:
        self.slept.append(seconds)
        self.clock[0] += seconds


@pytest.fixture
def effects() -> FakeEffects:
    return FakeEffects()
