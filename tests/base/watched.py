"""Run the Prometheus example of the documentation and some verbs; print what was observed.

A process of its own: the providers of OpenTelemetry can be set once.
"""

import json
import re
import sys
import urllib.request
from contextlib import suppress
from pathlib import Path
from threading import Thread

import pyarrow as pa
from opentelemetry import trace
from opentelemetry.sdk.metrics.export import InMemoryMetricReader
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

import txlog
from txlog.base.observe import _current

folder, page = sys.argv[1:]
spans = InMemorySpanExporter()
provider = TracerProvider()
provider.add_span_processor(SimpleSpanProcessor(spans))
trace.set_tracer_provider(provider)
in_memory = InMemoryMetricReader()

(code,) = re.findall(r"^```py\n((?:.*\n)*?)```$", Path(page).read_text("utf-8"), re.MULTILINE)
code = code.replace("[PrometheusMetricReader()]", "[PrometheusMetricReader(), in_memory]")
assert "in_memory" in code
code = code.replace("start_http_server(9464,", "server, _ = start_http_server(0,")
assert "127.0.0.1" in code
names = {"in_memory": in_memory}
exec(code, names)

table = txlog.write(f"{folder}/flights", pa.table({"id": [1, 2, 3]}))
other = txlog.Table(table.uri)
with trace.get_tracer("caller").start_as_current_span("nightly"):
    table.append(pa.table({"id": [4]}), txn=("loader", 1))
table.append(pa.table({"id": [4]}), txn=("loader", 1))
with other.transaction() as tx:  # It read version 0, and loses.
    tx.delete("id = 2")
    table.delete("id = 3")
table.to_arrow()
next(iter(table.to_batches(batch_size=1)))
with suppress(txlog.InvalidInputError):
    table.delete("unknown = 'very secret'")
table.maintenance.checkpoint()
thread = Thread(target=lambda: table.count("id > 1"))
thread.start()
thread.join()
assert _current.get() is None

port = names["server"].server_address[1]
text = urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics").read().decode()
names["server"].shutdown()
names["server"].server_close()
data = in_memory.get_metrics_data()
points = [
    [metric.name, metric.unit, dict(point.attributes), getattr(point, "value", None) or point.sum]
    for resource in data.resource_metrics
    for scope in resource.scope_metrics
    if scope.scope.name == "txlog"
    for metric in scope.metrics
    for point in metric.data.data_points
]
told = [json.loads(span.to_json()) for span in spans.get_finished_spans()]
print(json.dumps({"spans": told, "points": points, "scraped": text}))
