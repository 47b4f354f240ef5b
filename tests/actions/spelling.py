"""JSON in unusual spellings: any spaces, any order of keys, any escapes."""

import json
import random
from collections.abc import Callable
from typing import Any

BLANKS = ("", "", "", " ", "  ", "\t")
STYLES: list[Callable[[Any], str]] = [
    lambda value: json.dumps(value, separators=(",", ":"), ensure_ascii=False),
    json.dumps,
    lambda value: json.dumps(value, separators=(", ", ":")),
    lambda value: json.dumps(value, separators=(",", ": "), sort_keys=True),
]
"""How writers spell all of their JSON."""


def spelled(value: Any, chance: random.Random, blanks: tuple[str, ...] = BLANKS) -> str:
    """Return JSON that means a value, by chance in any spelling."""

    def gap() -> str:
        return chance.choice(blanks)

    if isinstance(value, dict):
        items = list(value.items())
        chance.shuffle(items)
        parts = [
            f"{gap()}{_text(name, chance)}{gap()}:{gap()}{spelled(item, chance, blanks)}{gap()}"
            for name, item in items
        ]
        return "{" + (",".join(parts) or gap()) + "}"
    if isinstance(value, list):
        parts = [f"{gap()}{spelled(item, chance, blanks)}{gap()}" for item in value]
        return "[" + (",".join(parts) or gap()) + "]"
    return _text(value, chance) if isinstance(value, str) else json.dumps(value)


def _text(value: str, chance: random.Random) -> str:
    if chance.random() < 0.5:  # As most writers do.
        return json.dumps(value, ensure_ascii=chance.random() < 0.5)
    letters = []
    for letter in value:
        plain = json.dumps(letter, ensure_ascii=False)[1:-1]
        if letter == "/" and chance.random() < 0.5:
            plain = "\\/"
        elif ord(letter) < 0x10000 and chance.random() < 0.3:
            plain = f"\\u{ord(letter):04{chance.choice('xX')}}"
        letters.append(plain)
    return '"' + "".join(letters) + '"'
