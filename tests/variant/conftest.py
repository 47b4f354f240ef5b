"""One Spark session for the tests that ask Spark."""

import os
import sys
import warnings
from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

SETTINGS = {
    "spark__master": "local[2]",
    "spark__ui__enabled": "false",
    "spark__ui__showConsoleProgress": "false",
    "spark__log__level": "OFF",
    "spark__sql__shuffle__partitions": "2",
    "spark__driver__bindAddress": "127.0.0.1",
    "spark__driver__host": "127.0.0.1",
    "spark__sql__session__timeZone": "UTC",
    "spark__driver__extraJavaOptions": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC",
}


@pytest.fixture(scope="session")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator["SparkSession"]:
    from txlog.spark_ext import session

    os.environ["TZ"] = "UTC"
    os.environ["PYSPARK_PYTHON"] = sys.executable
    warehouse = tmp_path_factory.mktemp("warehouse")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        made = session("txlog tests", spark__sql__warehouse__dir=str(warehouse), **SETTINGS)
    yield made
    made.stop()


@pytest.fixture(autouse=True)
def _quiet() -> Iterator[None]:
    """Spark's own warnings (pandas, sockets left to the collector) are not ours."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield
