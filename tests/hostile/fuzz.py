"""A coverage-guided fuzzer for each parser. Needs the extra `fuzz` (atheris)::

    python tests/hostile/fuzz.py                 # every parser, for 20 seconds each
    python tests/hostile/fuzz.py variants 300    # one, for 300 seconds

What it finds is written to `fuzz-PARSER-…`, and a run of that file shows it again::

    python tests/hostile/fuzz.py variants fuzz-variants-crash-…
"""

import subprocess
import sys
import tempfile
import warnings
from collections.abc import Callable
from pathlib import Path

import atheris

sys.path.insert(0, str(Path(__file__).parent))

with atheris.instrument_imports(include=["txlog"]):
    import families as f

Parser = Callable[[bytes], object]


def _halves(data: bytes) -> tuple[bytes, bytes]:
    at = int.from_bytes(data[:2], "little")
    return data[2 : 2 + at], data[2 + at :]


def _footer(data: bytes) -> None:
    footer, file = _halves(data)
    f.read_footer(footer, file)


def _variant(data: bytes) -> None:
    f.read_variant(*_halves(data))


def _statistics(data: bytes) -> None:
    text = data.decode("utf-8", "replace")
    if f.quick_document(text):
        f.read_statistics([text])


PARSERS: dict[str, Parser] = {
    "commits": f.read_commit,
    "schemas": lambda data: f.read_schema(data.decode("utf-8", "surrogateescape")),
    "hints": f.decode_hint,
    "checksums": lambda data: f._try(lambda: f.decode_checksum(data, path="f")),
    "vectors": lambda data: f.read_vector(data, 3),
    "bitmaps": lambda data: f.read_deletions(data, "bin", 3),
    "arrow_deletions": lambda data: f.read_deletions(data, "arrow", 3),
    "footers": _footer,
    "variants": _variant,
    "predicates": lambda data: f.read_predicate(data.decode("utf-8", "replace")),
    "statistics": _statistics,
    "paths": lambda data: f.read_path(data.decode("utf-8", "replace")),
}


def _joined(first: bytes, rest: bytes) -> bytes:
    return len(first).to_bytes(2, "little") + first + rest


def seeds(parser: str) -> list[bytes]:
    """Return good inputs to begin with."""
    positions = f.BitMap64([1, 5, 9])
    parquet = f._parquet()
    size = int.from_bytes(parquet[-8:-4], "little")
    plain = f._table("plain", True)
    return {
        "commits": [data for path, data in plain.items() if f._is_commit(path)],
        "schemas": [f.SCHEMA.encode()],
        "hints": [b'{"version":3,"size":9,"parts":2,"checksum":"x"}'],
        "checksums": [data for path, data in plain.items() if path.endswith(".crc")],
        "vectors": [f.encode_vector(positions)],
        "bitmaps": [f.encode_deletions(positions, kind="bin")],
        "arrow_deletions": [f.encode_deletions(positions, kind="arrow")],
        "footers": [_joined(parquet[-8 - size : -8], parquet)],
        "variants": [_joined(one["metadata"], one["value"]) for one in f.VARIANTS],
        "predicates": [text.encode() for text in f.PREDICATES],
        "statistics": [f.STATS.encode()],
        "paths": [b"a/b%20c.parquet", b"file:///x/../y", b"s3://b/k"],
    }[parser]


def fuzz(parser: str, *arguments: str) -> None:
    """Run one parser until its time is over, or something is found."""
    warnings.simplefilter("ignore")
    atheris.Setup(
        [sys.argv[0], f"-artifact_prefix=fuzz-{parser}-", "-timeout=5", "-rss_limit_mb=2048",
         *arguments],
        PARSERS[parser],
    )  # fmt: skip
    atheris.Fuzz()


def run(parser: str, seconds: int) -> int:
    """Fuzz one parser in a process of its own; return its exit code."""
    with tempfile.TemporaryDirectory() as folder:
        for number, data in enumerate(seeds(parser)):
            (Path(folder) / str(number)).write_bytes(data)
        command = [sys.executable, __file__, "--", parser, f"-max_total_time={seconds}", folder]
        done = subprocess.run(command, check=False, stderr=subprocess.PIPE, text=True)
    lines = [line for line in done.stderr.splitlines() if line.strip()]
    print(f"{parser}: exit {done.returncode}; {lines[-1] if lines else ''}", flush=True)
    if done.returncode:
        print("\n".join(lines[-40:]), flush=True)
    return done.returncode


if __name__ == "__main__":
    match sys.argv[1:]:
        case ["--", parser, *arguments]:
            fuzz(parser, *arguments)
        case [parser, place] if not place.isdigit():
            PARSERS[parser](Path(place).read_bytes())
        case [parser, seconds]:
            sys.exit(run(parser, int(seconds)))
        case _:
            sys.exit(max([run(parser, 20) for parser in PARSERS]))
