"""A client of Spark Connect in a separate process: it runs the functions that it gets.

A process has either a classic session or remote ones. Argument: the server's URI. Each request and
each answer is a length (8 bytes) and a pickle, by the standard input and output.
"""

import os
import struct
import sys
import warnings
from typing import Any, BinaryIO

from pyspark import cloudpickle
from pyspark.sql import SparkSession

_LENGTH = struct.Struct("<Q")


def send(pipe: BinaryIO, value: Any) -> None:
    data = cloudpickle.dumps(value)
    pipe.write(_LENGTH.pack(len(data)) + data)
    pipe.flush()


def receive(pipe: BinaryIO) -> Any:
    """Return the next value, or None when the other side has gone."""
    head = pipe.read(_LENGTH.size)
    if len(head) < _LENGTH.size:
        return None
    return cloudpickle.loads(pipe.read(*_LENGTH.unpack(head)))


def main(uri: str) -> None:
    answers = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)  # What others print must not come between.
    spark = SparkSession.builder.remote(uri).getOrCreate()
    while (request := receive(sys.stdin.buffer)) is not None:
        function, arguments = request
        try:
            answer = (function(spark, *arguments), None)
        except Exception as error:
            answer = (None, error)
        send(answers, answer)
    spark.stop()


if __name__ == "__main__":
    warnings.simplefilter("ignore")
    main(sys.argv[1])
