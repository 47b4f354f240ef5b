"""Z85: four bytes as five printable characters. Source: ZeroMQ RFC 32."""

from __future__ import annotations

ALPHABET = "0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ.-:+=^!/*?&<>()[]{}@%$#"
_VALUES = {character: value for value, character in enumerate(ALPHABET)}


def encode(data: bytes) -> str:
    """Return Z85 text of bytes, padded with zero bytes to a multiple of four."""
    data = data + bytes(-len(data) % 4)
    text = []
    for start in range(0, len(data), 4):
        number = int.from_bytes(data[start : start + 4], "big")
        group = ""
        for _ in range(5):
            number, digit = divmod(number, 85)
            group = ALPHABET[digit] + group
        text.append(group)
    return "".join(text)


def decode(text: str) -> bytes:
    """Return the bytes of Z85 text, padding included.

    Raises `ValueError` if the length is no multiple of five, a character is not of the alphabet,
    or a group stands for more than 32 bits.
    """
    if len(text) % 5:
        raise ValueError(f"{len(text)} characters are no multiple of five")
    data = bytearray()
    for start in range(0, len(text), 5):
        number = 0
        for character in text[start : start + 5]:
            if character not in _VALUES:
                raise ValueError(f"{character!r} is not a character of Z85")
            number = number * 85 + _VALUES[character]
        if number >= 1 << 32:
            raise ValueError(f"{text[start : start + 5]!r} stands for more than 32 bits")
        data += number.to_bytes(4, "big")
    return bytes(data)
