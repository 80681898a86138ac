#!/usr/bin/env python3
"""check.py FILE...: runs questions.sql over OTLP JSON lines, in ClickHouse's own engine (`pip install chdb`), and fails if a question
has no answer. `schedspan replay RECORDING --output json` makes such lines."""

import json
import pathlib
import sys

from chdb import session

# As the Collector's exporter makes it, without codecs and indices:
# https://github.com/open-telemetry/opentelemetry-collector-contrib/blob/v0.140.0/exporter/clickhouseexporter/internal/sqltemplates/traces_table.sql
TABLE = """
CREATE TABLE otel_traces (
    Timestamp DateTime64(9), TraceId String, SpanId String, ParentSpanId String, SpanName LowCardinality(String),
    ServiceName LowCardinality(String), ResourceAttributes Map(LowCardinality(String), String),
    SpanAttributes Map(LowCardinality(String), String), Duration UInt64, StatusCode LowCardinality(String), StatusMessage String
) ENGINE = MergeTree ORDER BY (ServiceName, SpanName, Timestamp)
"""


def text(value):
    """A value of an attribute as the exporter writes it: text, and lists as JSON."""
    ((kind, inner),) = value.items()
    if kind == "arrayValue":
        return json.dumps([next(iter(item.values())) for item in inner.get("values", [])])
    return str(inner).lower() if isinstance(inner, bool) else str(inner)


def attributes(list_):
    return {item["key"]: text(item["value"]) for item in list_ or []}


def rows(lines):
    for line in lines:
        for of_resource in json.loads(line)["resourceSpans"]:
            resource = attributes(of_resource["resource"]["attributes"])
            for scope in of_resource["scopeSpans"]:
                for span in scope["spans"]:
                    start, end = int(span["startTimeUnixNano"]), int(span["endTimeUnixNano"])
                    status = span.get("status", {})
                    yield {
                        "Timestamp": f"{start // 10**9}.{start % 10**9:09}",
                        "TraceId": span["traceId"],
                        "SpanId": span["spanId"],
                        "ParentSpanId": span.get("parentSpanId", ""),
                        "SpanName": span["name"],
                        "ServiceName": resource.get("service.name", ""),
                        "ResourceAttributes": resource,
                        "SpanAttributes": attributes(span.get("attributes")),
                        "Duration": end - start,
                        "StatusCode": str(status.get("code", 0)),
                        "StatusMessage": status.get("message", ""),
                    }


def main():
    database = session.Session()
    database.query("CREATE DATABASE traces")
    database.query("USE traces")
    database.query(TABLE)
    lines = [line for name in sys.argv[1:] for line in pathlib.Path(name).read_text().splitlines()]
    data = "\n".join(json.dumps(row) for row in rows(lines))
    database.query("INSERT INTO otel_traces FORMAT JSONEachRow " + data)
    questions = (pathlib.Path(__file__).parent / "questions.sql").read_text()
    asked = [question for question in questions.split(";") if "SELECT" in question]
    for question in asked:
        answer = str(database.query(question, "PrettyCompactMonoBlock"))
        print(answer)
        if not answer.strip():
            sys.exit(f"no answer to: {question}")
    print(f"{len(asked)} questions answered over {data.count(chr(10)) + 1} spans")


main()
