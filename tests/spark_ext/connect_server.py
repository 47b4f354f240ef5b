"""A Spark Connect server on loopback, a separate process that runs until its input ends.

Arguments: the port, and a folder for Spark's warehouse, settings and log of events.
"""

import sys
import warnings
from pathlib import Path

from pyspark.sql import SparkSession

from txlog.spark_ext import ensure_java

SETTINGS = {
    "spark.plugins": "org.apache.spark.sql.connect.SparkConnectPlugin",
    "spark.connect.grpc.binding.address": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.driver.host": "127.0.0.1",
    "spark.driver.memory": "1g",
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.sql.shuffle.partitions": "2",
    "spark.sql.session.timeZone": "UTC",
    # What it logs is looked through for secrets; the requests are among the events.
    "spark.eventLog.enabled": "true",
    "spark.eventLog.compress": "false",
}
LOGGING = """
rootLogger.level = info
logger.gateway.name = org.apache.spark.api.python.PythonGatewayServer
logger.gateway.level = info
rootLogger.appenderRef.stderr.ref = stderr
appender.console.type = Console
appender.console.name = stderr
appender.console.target = SYSTEM_ERR
appender.console.layout.type = PatternLayout
appender.console.layout.pattern = %p %c{1}: %m%n%ex
"""


def main(port: str, home: str) -> None:
    ensure_java()
    builder = SparkSession.builder.master("local[2]").appName("txlog connect tests")
    builder = builder.config("spark.connect.grpc.binding.port", port)
    builder = builder.config("spark.sql.warehouse.dir", f"{home}/warehouse")
    events = Path(home) / "events"
    events.mkdir()
    builder = builder.config("spark.eventLog.dir", events.as_uri())
    logging = Path(home) / "log4j2.properties"
    logging.write_text(LOGGING)
    builder = builder.config(
        "spark.driver.extraJavaOptions",
        f"-XX:TieredStopAtLevel=1 -XX:+UseSerialGC -Dlog4j2.configurationFile={logging.as_uri()}",
    )
    for name, value in SETTINGS.items():
        builder = builder.config(name, value)
    spark = builder.getOrCreate()
    print("ready", flush=True)
    sys.stdin.read()
    spark.stop()


if __name__ == "__main__":
    warnings.simplefilter("ignore")
    main(sys.argv[1], sys.argv[2])
