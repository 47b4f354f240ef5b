"""A disk where any step may fail, or be the last one before a power cut."""

from collections.abc import Callable
from typing import Any

from txlog.store.local.disk import Disk

STEPS = ("create", "write", "sync", "close", "sync_folder", "link", "rename", "unlink",
         "make_folder", "reopen", "truncate", "sync_data")  # fmt: skip


class Crash(BaseException):
    """The power is cut."""


class BrokenDisk(Disk):
    """Fails at its n-th step; after a crash it does nothing any more."""

    def __init__(self, step: int, error: BaseException, *, after: bool = False) -> None:
        self.step, self.error, self.after = step, error, after
        self.steps: list[str] = []
        self.crashed = False

    def run(self, name: str, *args: Any) -> Any:
        if self.crashed:
            raise Crash
        self.steps.append(name)
        hit = len(self.steps) == self.step
        self.crashed = hit and isinstance(self.error, Crash)
        if hit and not self.after:
            if name == "write":  # A part gets through.
                super().write(args[0], args[1][:7])
            if name == "close":
                super().close(*args)
            raise self.error
        result = getattr(Disk, name)(self, *args)
        if hit:
            raise self.error
        return result


def _step(name: str) -> Callable[..., Any]:
    return lambda self, *args: self.run(name, *args)


for _name in STEPS:
    setattr(BrokenDisk, _name, _step(_name))
