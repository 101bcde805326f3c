"""OpenTelemetry with a real receiver: one trace for each session, and nothing where nobody asked."""

from __future__ import annotations

import gzip
import json
import subprocess
import sys
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("opentelemetry.exporter.otlp.proto.http", reason="needs the extra: otel")

from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import ExportMetricsServiceRequest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

from acode.events.keys import span_id_of, trace_id_of, traceparent
from tests.agent.town import Town, plan_turn, served, task_turns
from tests.cli.plans import save
from tests.driver import Acode
from tests.machines import Machine, url_of

STEPS = """
title: Traced
tasks:
  - id: work
    steps:
      - {run: "echo $TRACEPARENT > ../traceparent", id: first}
      - {run: "echo begun; until test -e ../go; do sleep 0.05; done", id: second, title: Wait}
      - approve: Continue?
      - {run: "echo behind; until test -e ../go; do sleep 0.05; done", id: last}
"""


class Receiver:
    """What a collector would get."""

    def __init__(self) -> None:
        self.spans: list[Any] = []
        self.metrics: list[str] = []
        received = self

        class Endpoint(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers["Content-Length"]))
                if self.headers.get("Content-Encoding") == "gzip":
                    body = gzip.decompress(body)
                received.take(self.path, body)
                self.send_response(200)
                self.end_headers()

            def log_message(self, *_: object) -> None:
                """Quietly."""

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Endpoint)
        self.thread = threading.Thread(target=self.server.serve_forever, daemon=True)
        self.thread.start()

    @property
    def env(self) -> dict[str, str]:
        return {"OTEL_EXPORTER_OTLP_ENDPOINT": f"http://127.0.0.1:{self.server.server_port}"}

    def take(self, path: str, body: bytes) -> None:
        if path == "/v1/traces":
            traces = ExportTraceServiceRequest.FromString(body)
            self.spans += [s for r in traces.resource_spans for scope in r.scope_spans for s in scope.spans]
        elif path == "/v1/metrics":
            found = ExportMetricsServiceRequest.FromString(body)
            self.metrics += [m.name for r in found.resource_metrics for scope in r.scope_metrics for m in scope.metrics]

    def named(self, name: str) -> list[Any]:
        return [one for one in self.spans if one.name == name]


@pytest.fixture
def receiver() -> Iterator[Receiver]:
    made = Receiver()
    yield made
    made.server.shutdown()
    made.server.server_close()


def attributes(span: Any) -> dict[str, Any]:
    return {one.key: one.value.string_value or one.value.int_value for one in span.attributes}


def test_a_session_killed_and_resumed_twice_on_two_machines_is_one_trace(
    tmp_path: Path, database: str, receiver: Receiver
) -> None:
    one, two = (Machine(tmp_path / name, url_of(database)) for name in ("one", "two"))
    for machine in (one, two):
        machine.env.update(receiver.env)
    running = one.process("run", one.plan(STEPS), "--json")
    session_id = json.loads(running.wait_for_line("session_start"))["session_id"]
    running.wait_for_line("step_output")
    running.kill()
    (one.place / "go").touch()
    assert one("resume", session_id, "--yes").exit_code == 10
    assert two("resume", session_id, "--remote", "--yes").exit_code == 10
    two("session", "approve", session_id)
    running = two.process("resume", session_id, "--json")
    running.wait_for_line("behind")
    running.kill()
    (two.place / "go").touch()
    assert two("resume", session_id, "--yes").exit_code == 0
    assert {span.trace_id.hex() for span in receiver.spans} == {trace_id_of(session_id)}
    ids = [span.span_id for span in receiver.spans]
    assert len(ids) == len(set(ids))
    (cut_off,) = receiver.named("run work.second")
    assert cut_off.span_id.hex() == span_id_of(f"{session_id}:work.second:1")
    assert [event.name for event in cut_off.events] == ["step_settled"]
    (root,) = receiver.named("Traced")
    assert root.parent_span_id == b""
    (task,) = receiver.named("task work")
    assert (task.parent_span_id, cut_off.parent_span_id) == (root.span_id, task.span_id)
    decisions = [event.name for span in receiver.named("resume") for event in span.events]
    assert decisions.count("resume_decision") == 3, "the one that was killed could not tell of its own"


def test_a_request_to_a_model_is_a_span_with_its_model_and_tokens(
    acode: Acode, tmp_path: Path, receiver: Receiver
) -> None:
    script = [plan_turn({"id": "work"}), task_turns("Work", {"text": "Nothing is left to do."})]
    with served(script, tmp_path / "model") as (url, ledger):
        assert Town(acode, url, ledger).run("--approve-plan", env=receiver.env).exit_code == 0
    (talk,) = [acode("session", "show", "--json").json["conversation"]]
    asked = [attributes(one) for one in receiver.spans if "gen_ai.operation.name" in attributes(one)]
    assert len(asked) == talk["requests"]
    assert {(one["gen_ai.operation.name"], one["gen_ai.request.model"]) for one in asked} == {("chat", "scripted")}
    for name in ("input_tokens", "output_tokens"):
        assert sum(one[f"gen_ai.usage.{name}"] for one in asked) == talk[name] > 0


def test_a_command_gets_the_context_of_its_attempt(acode: Acode, workspace: Path, receiver: Receiver) -> None:
    (workspace.parent / "go").touch()
    acode("run", save(workspace, STEPS), env=receiver.env)
    (session,) = acode("session", "list", "--json").json
    seen = (workspace.parent / "traceparent").read_text().strip()
    assert seen == traceparent(session["session_id"], f"{session['session_id']}:work.first:1")


def test_resumes_are_counted_and_the_log_file_names_the_trace(
    acode: Acode, workspace: Path, receiver: Receiver
) -> None:
    (workspace.parent / "go").touch()
    acode("run", save(workspace, STEPS), env=receiver.env)
    acode("resume", "--last", "--yes", env=receiver.env)
    assert "acode.resume_point.count" in receiver.metrics
    assert "acode.resume_point.duration" in receiver.metrics
    lines = [json.loads(line) for line in (workspace / ".agent" / "logs" / "acode.jsonl").read_text().splitlines()]
    started = next(line for line in lines if line["event"] == "step_started")
    assert started["trace_id"] == trace_id_of(started["session_id"])
    assert started["span_id"] == span_id_of(started["key"])


def test_a_collector_that_is_away_stops_nothing(acode: Acode, workspace: Path) -> None:
    (workspace.parent / "go").touch()
    env = {"OTEL_EXPORTER_OTLP_ENDPOINT": "http://127.0.0.1:9"}
    assert acode.process("run", save(workspace, STEPS), env=env).finish().exit_code == 10


def test_without_otel_in_the_environment_nothing_of_it_is_loaded(acode: Acode, workspace: Path) -> None:
    plan = save(workspace, "title: Plain\ntasks: [{title: t, steps: [{run: 'test -z \"$TRACEPARENT\"'}]}]")
    script = (
        "import sys; from acode.cli import main; status = main(sys.argv[1:]);"
        " assert not any(name.startswith('opentelemetry') for name in sys.modules); sys.exit(status)"
    )
    assert subprocess.run([sys.executable, "-c", script, "run", str(plan)], cwd=workspace, check=False).returncode == 0
