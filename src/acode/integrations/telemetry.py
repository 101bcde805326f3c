"""OpenTelemetry: one trace for each session, however many processes and machines resume it, and metrics of resumes.

The ids are derived from the log: the trace is the session, the span of an attempt is its idempotency key. So a process
that resumes a session writes into the trace of the one that was killed. A span is sent once the event that ends it is
durable; an attempt that a kill cut off is sent by the process that settles it. The exporters are those that OTEL_* of
the environment names; nothing is loaded or sent where none is set. A collector that does not answer never stops a run.
"""

from __future__ import annotations

import contextlib
import os
import sys
from collections import deque
from collections.abc import Callable, Mapping
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any

import msgspec

from acode.engine import notices
from acode.engine.notices import Notice
from acode.errors import AcodeError
from acode.events.keys import make_key, span_id_of, trace_id_of
from acode.redact import Redactor
from acode.state import Session

if TYPE_CHECKING:
    from opentelemetry.sdk.trace import ReadableSpan

SEND_S_MAX = 3.0
SCOPE = "acode"
Export = Callable[["Span"], None]
Attributes = dict[str, str | int | float | bool]


def is_wanted(env: Mapping[str, str]) -> bool:
    """Somebody has configured OpenTelemetry, and has not switched it off."""
    return any(name.startswith("OTEL_") for name in env) and env.get("OTEL_SDK_DISABLED", "").lower() != "true"


# Spans.


class SpanEvent(msgspec.Struct, frozen=True, kw_only=True):
    name: str
    at: datetime
    attributes: Attributes = {}


class Span(msgspec.Struct, kw_only=True):
    """One piece of a session's time. `name_for_id` gives the span its id in every process."""

    session_id: str
    name_for_id: str
    parent: str | None
    name: str
    start: datetime
    end: datetime | None = None
    attributes: Attributes = {}
    events: list[SpanEvent] = []
    failed: str | None = None
    seq: int | None = None  # sent once this event is durable


class Traces:
    """Makes spans of notices; `export` sends one that is whole and durable."""

    def __init__(self, export: Export, redactor: Redactor) -> None:
        self._export = export
        self._text = redactor.text
        self._run: Span | None = None
        self._open: dict[str, Span] = {}
        self._tokens: dict[str, tuple[int, int]] = {}
        self._waiting: deque[Span] = deque()
        self._durable = 0

    def emit(self, notice: Notice) -> None:
        body = notice.body
        match body:
            case notices.SessionStart() | notices.SessionReopened():
                self._begin_run(notice, "resume" if body.resumed else "run")
            case notices.ResumeDecision():
                verdict: Attributes = {"acode.eligible": body.eligible, "acode.reason_code": body.reason_code}
                self._note(notice, "resume_decision", {**verdict, "acode.attempt": body.attempt})
            case notices.ResumeStarted(started=started):
                self._note(notice, "resume_started", {"acode.scenario": started.scenario})
            case notices.Escalated():
                self._note(notice, "escalated", {"acode.reason_code": body.reason_code})
            case notices.ApprovalRequest():
                self._note(notice, "approval_request", {"acode.question": self._text(body.question)})
            case notices.TaskCompleted():
                self._task(notice, body.duration_ms)
            case notices.StepStarted():
                self._begin_step(notice, body)
            case notices.StepSettled():
                self._settle(notice, body)
            case notices.StepCompleted():
                self._end_step(notice, None)
            case notices.StepFailed():
                self._end_step(notice, self._text(body.message))

    def durable(self, seq: int) -> None:
        self._durable = max(self._durable, seq)
        while self._waiting and (self._waiting[0].seq or 0) <= self._durable:
            self._export(self._waiting.popleft())

    def ended(self, session: Session | None, error: AcodeError | None) -> None:
        """This run has ended; the session's own span is sent by the run that ends the session."""
        if session is None or self._run is None:
            return
        self._run.end = max(session.updated_at, self._run.start)
        self._run.failed = error.code if error is not None else None
        self._run.attributes["acode.state"] = str(session.state)
        self._export(self._run)
        if session.terminal:
            self._export(
                Span(
                    session_id=session.session_id,
                    name_for_id=session.session_id,
                    parent=None,
                    name=self._text(session.title) or "session",
                    start=session.created_at,
                    end=session.updated_at,
                    attributes={"acode.state": str(session.state), "acode.resumes": session.resumes},
                    failed=None if str(session.state) == "COMPLETED" else str(session.state),
                )
            )

    # Parts.

    def _begin_run(self, notice: Notice, name: str) -> None:
        seq = notice.session.seq if notice.session is not None else 0
        self._durable = max(self._durable, notice.seq or seq)  # a resume begins with what the log holds already
        self._run = Span(
            session_id=notice.session_id,
            name_for_id=f"{notice.session_id}:run:{seq}",
            parent=notice.session_id,
            name=name,
            start=notice.at,
            attributes={"acode.session_id": notice.session_id, "process.pid": os.getpid()},
        )

    def _note(self, notice: Notice, name: str, attributes: Attributes) -> None:
        if self._run is not None:
            self._run.events.append(SpanEvent(name=name, at=notice.at, attributes=attributes))

    def _task(self, notice: Notice, duration_ms: int) -> None:
        task = notice.task or ""
        span = Span(
            session_id=notice.session_id,
            name_for_id=task_name(notice.session_id, task),
            parent=notice.session_id,
            name=f"task {task}",
            start=notice.at - timedelta(milliseconds=duration_ms),
            end=notice.at,
            attributes={"acode.task": task},
        )
        self._send_when_durable(span, notice)

    def _begin_step(self, notice: Notice, body: notices.StepStarted) -> None:
        step = notice.step or ""
        self._open[step] = self._attempt(notice, step, body.key, body.kind, notice.at)
        self._open[step].attributes["acode.title"] = self._text(body.title)
        session = notice.session
        if body.kind == "model" and session is not None:
            talk = session.conversation
            self._tokens[step] = (talk.input_tokens, talk.output_tokens) if talk is not None else (0, 0)

    def _attempt(self, notice: Notice, step: str, key: str, kind: str, start: datetime) -> Span:
        task = notice.task
        return Span(
            session_id=notice.session_id,
            name_for_id=key,
            parent=task_name(notice.session_id, task) if task else notice.session_id,
            name=f"chat {step}" if kind == "model" else f"{kind} {step}",
            start=start,
            attributes={"acode.step": step, "acode.kind": kind, "acode.idempotency_key": key},
        )

    def _settle(self, notice: Notice, body: notices.StepSettled) -> None:
        """An attempt that another process began: it ends here, unless nobody knows how it ended."""
        step = notice.step or ""
        if step not in self._open and notice.session is not None and step in notice.session.in_flight:
            flight = notice.session.in_flight[step]
            self._open[step] = self._attempt(notice, step, flight.started.key, flight.started.kind, flight.at)
        span = self._open.get(step)
        if span is None:
            return
        evidence: Attributes = {"acode.outcome": body.outcome, "acode.evidence": self._text(body.evidence)}
        span.events.append(SpanEvent(name="step_settled", at=notice.at, attributes=evidence))
        if body.action not in ("skip", "ask", "wait"):
            span.attributes["acode.outcome"] = body.outcome
            self._end_step(notice, None)

    def _end_step(self, notice: Notice, failed: str | None) -> None:
        step = notice.step or ""
        span = self._open.pop(step, None)
        if span is None:
            return
        span.end, span.failed = max(notice.at, span.start), failed
        if span.attributes["acode.kind"] == "model":
            span.attributes.update(self._usage(notice, step))
        self._send_when_durable(span, notice)

    def _usage(self, notice: Notice, step: str) -> Attributes:
        """A request to a model in the words of the semantic conventions."""
        before, session = self._tokens.pop(step, (0, 0)), notice.session
        talk = session.conversation if session is not None else None
        model = session.created.model if session is not None and session.created is not None else None
        usage: Attributes = {"gen_ai.operation.name": "chat"}
        if model and "name" in model:
            usage["gen_ai.request.model"] = str(model["name"])
        if talk is not None:
            usage["gen_ai.usage.input_tokens"] = talk.input_tokens - before[0]
            usage["gen_ai.usage.output_tokens"] = talk.output_tokens - before[1]
        return usage

    def _send_when_durable(self, span: Span, notice: Notice) -> None:
        after = notice.session.seq if notice.session is not None else 0
        span.seq = notice.seq if notice.seq is not None else after
        self._waiting.append(span)
        self.durable(self._durable)


def task_name(session_id: str, task: str) -> str:
    """A task is named like an attempt that no step can have: attempts are counted from 1."""
    return make_key(session_id, task, 0)


# Sending.


class Telemetry:
    """The listener of one run: traces and metrics as OTEL_* of the environment says."""

    def __init__(self, env: Mapping[str, str], redactor: Redactor, monotonic: Callable[[], float]) -> None:
        self._processor = span_processor(env)
        self._meters = meter_provider(env)
        self._meters_are_ours = is_own(self._meters)
        resource = resource_of(env)
        processor = self._processor

        def export(span: Span) -> None:
            if processor is not None:
                processor.on_end(as_readable(span, resource))

        self.traces: Traces = Traces(export, redactor)
        self._resumes = Resumes(self._meters, monotonic)

    def emit(self, notice: Notice) -> None:
        self.traces.emit(notice)
        self._resumes.emit(notice)

    def durable(self, seq: int) -> None:
        self.traces.durable(seq)

    def close(self) -> None:
        """A short process ends before any interval: everything is sent now, within a few seconds or not at all."""
        milliseconds = int(SEND_S_MAX * 1000)
        for provider in (self._processor, self._meters):
            with contextlib.suppress(Exception):
                if provider is not None:
                    provider.force_flush(milliseconds)
        if self._processor is not None:
            self._processor.shutdown()
        if self._meters_are_ours:
            self._meters.shutdown(timeout_millis=milliseconds)


class Resumes:
    """How often sessions are resumed, and how long it takes until the work continues."""

    def __init__(self, provider: Any, monotonic: Callable[[], float]) -> None:
        source = provider.get_meter(SCOPE)
        self._count = source.create_counter(
            "acode.resume_point.count", unit="{resume}", description="Sessions that were resumed"
        )
        self._duration = source.create_histogram(
            "acode.resume_point.duration", unit="s", description="Time from the start of a resume to its first work"
        )
        self._monotonic = monotonic
        self._began: float | None = None

    def emit(self, notice: Notice) -> None:
        match notice.body:
            case notices.SessionReopened():
                self._began = self._monotonic()
            case notices.ResumeStarted(started=started) if self._began is not None:
                scenario = {"acode.scenario": started.scenario}
                self._count.add(1, scenario)
                self._duration.record(self._monotonic() - self._began, scenario)


def telemetry(env: Mapping[str, str], redactor: Redactor, monotonic: Callable[[], float]) -> Telemetry | None:
    """None where nobody asked for it, or where the extra `otel` is not installed."""
    if not is_wanted(env) and "opentelemetry.metrics" not in sys.modules:
        return None
    try:
        return Telemetry(env, redactor, monotonic)
    except ImportError:
        return None


def span_processor(env: Mapping[str, str]) -> Any:
    """Sends spans in batches from a thread of its own; None where no exporter is named or installed."""
    wanted = env.get("OTEL_TRACES_EXPORTER", "otlp").lower()
    if not is_wanted(env) or wanted == "none":
        return None
    from opentelemetry.sdk.trace.export import BatchSpanProcessor, ConsoleSpanExporter

    if wanted == "console":
        return BatchSpanProcessor(ConsoleSpanExporter(out=sys.stderr))
    from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter

    return BatchSpanProcessor(OTLPSpanExporter(timeout=SEND_S_MAX))


def meter_provider(env: Mapping[str, str]) -> Any:
    """The provider that the program around acode has set up; else one of our own, as the environment says."""
    from opentelemetry import metrics

    known = metrics.get_meter_provider()
    wanted = env.get("OTEL_METRICS_EXPORTER", "otlp").lower()
    if not is_wanted(env) or wanted == "none" or type(known).__module__.startswith("opentelemetry.sdk"):
        return known
    from opentelemetry.sdk.metrics import MeterProvider
    from opentelemetry.sdk.metrics.export import ConsoleMetricExporter, MetricExporter, PeriodicExportingMetricReader

    exporter: MetricExporter
    if wanted == "console":
        exporter = ConsoleMetricExporter(out=sys.stderr)
    else:
        from opentelemetry.exporter.otlp.proto.http.metric_exporter import OTLPMetricExporter

        exporter = OTLPMetricExporter(timeout=SEND_S_MAX)
    return MeterProvider([PeriodicExportingMetricReader(exporter)], resource=resource_of(env), shutdown_on_exit=False)


def is_own(provider: Any) -> bool:
    """Whether acode made the provider; one that the program around acode has set up stays open."""
    from opentelemetry import metrics

    return provider is not metrics.get_meter_provider()


def resource_of(env: Mapping[str, str]) -> Any:
    from opentelemetry.sdk.resources import Resource

    from acode import __version__

    named = {} if "OTEL_SERVICE_NAME" in env else {"service.name": SCOPE}
    return Resource.create({**named, "service.version": __version__})


def as_readable(span: Span, resource: Any) -> ReadableSpan:
    from opentelemetry.sdk.trace import Event, ReadableSpan
    from opentelemetry.sdk.util.instrumentation import InstrumentationScope
    from opentelemetry.trace import SpanContext, SpanKind, Status, StatusCode, TraceFlags

    def context(name: str) -> SpanContext:
        trace_id, span_id = int(trace_id_of(span.session_id), 16), int(span_id_of(name), 16)
        return SpanContext(trace_id, span_id, is_remote=False, trace_flags=TraceFlags(TraceFlags.SAMPLED))

    assert span.end is not None
    return ReadableSpan(
        name=span.name,
        context=context(span.name_for_id),
        parent=context(span.parent) if span.parent is not None else None,
        resource=resource,
        attributes=span.attributes,
        events=[Event(one.name, dict(one.attributes), nanoseconds(one.at)) for one in span.events],
        kind=SpanKind.INTERNAL,
        status=Status(StatusCode.ERROR, span.failed) if span.failed is not None else Status(StatusCode.OK),
        start_time=nanoseconds(span.start),
        end_time=nanoseconds(span.end),
        instrumentation_scope=InstrumentationScope(SCOPE),
    )


def nanoseconds(moment: datetime) -> int:
    return int(moment.timestamp() * 1_000_000) * 1_000
