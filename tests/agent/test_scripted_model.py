"""The scripted model server: what it says depends on the request and on nothing else."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import urllib.error
import urllib.request
from pathlib import Path
from typing import Any

import pytest

from tests.agent.scripted import ROOT, Serve

PROGRAM = ROOT / "examples" / "agent" / "scripted_model.py"
SCRIPT = [
    {"says": "task one", "turns": [{"text": "first of one"}, {"text": "second of one"}]},
    {"says": ["task two", "careful"], "text": "of two"},
    {"answers": 0, "text": "of any other"},
]


def ask(base_url: str, *messages: tuple[str, str], key: str | None = None, **more: Any) -> dict[str, Any]:
    said = [{"role": role, "content": text} for role, text in messages]
    body = json.dumps({"model": "scripted", "messages": said, **more}).encode()
    headers = {"Authorization": f"Bearer {key}"} if key else {}
    request = urllib.request.Request(f"{base_url}/chat/completions", data=body, headers=headers)
    with urllib.request.urlopen(request, timeout=30) as response:
        answer: dict[str, Any] = json.load(response)
    return answer


def said(answer: dict[str, Any]) -> str:
    return str(answer["choices"][0]["message"]["content"])


def test_the_turn_follows_from_the_request_and_not_from_how_many_came_before(serve: Serve) -> None:
    server = serve(SCRIPT)
    one = (("system", "task one"), ("user", "go"))
    for _ in range(2):  # a client that was killed asks again
        assert said(ask(server.base_url, *one)) == "first of one"
        assert said(ask(server.base_url, *one, ("assistant", "x"), ("user", "y"))) == "second of one"
    assert said(ask(server.base_url, ("user", "task two, careful"))) == "of two"
    assert said(ask(server.base_url, ("user", "task two"))) == "of any other"
    assert said(ask(server.base_url, ("user", "hm"), ("tool", "task one"))) == "of any other"  # a tool gives no task


def test_every_request_stands_in_the_ledger_and_a_repeated_one_is_recognised(serve: Serve, tmp_path: Path) -> None:
    ledger = tmp_path / "ledger.jsonl"
    server = serve(SCRIPT, ledger=ledger)
    for text in ("task one", "task one", "other"):
        ask(server.base_url, ("user", text))
    lines = [json.loads(line) for line in ledger.read_text(encoding="utf-8").splitlines()]
    assert lines == server.requests
    assert [line["turn"] for line in lines] == [0, 0, 3]
    assert lines[0]["digest"] == lines[1]["digest"] != lines[2]["digest"]
    assert all(line["prompt_tokens"] > 0 and line["completion_tokens"] > 0 for line in lines)


def test_a_fault_for_the_first_requests_is_over_also_for_the_next_server(serve: Serve, tmp_path: Path) -> None:
    script = [{"text": "well", "fault": {"status": 503, "times": 1}}]
    first = serve(script, ledger=tmp_path / "ledger")
    with pytest.raises(urllib.error.HTTPError, match="503"):
        ask(first.base_url, ("user", "x"))
    assert said(ask(first.base_url, ("user", "x"))) == "well"
    second = serve(script, ledger=tmp_path / "ledger")
    assert said(ask(second.base_url, ("user", "x"))) == "well"


def test_a_request_that_the_script_does_not_know_is_an_error_and_not_an_answer(serve: Serve) -> None:
    with pytest.raises(urllib.error.HTTPError, match="500"):
        ask(serve(SCRIPT[:1]).base_url, ("user", "something else"))


def test_ids_of_calls_are_unique_in_a_conversation_and_the_same_when_asked_again(serve: Serve) -> None:
    server = serve([{"calls": [{"tool": "a"}, {"tool": "b"}]}])
    messages: list[tuple[str, str]] = [("user", "x")]
    ids = []
    for _ in range(2):
        answers = [ask(server.base_url, *messages) for _ in range(2)]
        calls = [[call["id"] for call in answer["choices"][0]["message"]["tool_calls"]] for answer in answers]
        assert calls[0] == calls[1]
        ids += calls[0]
        messages.append(("assistant", ""))
    assert len(set(ids)) == 4


def test_it_runs_as_a_program_and_keeps_out_whoever_has_no_key(tmp_path: Path) -> None:
    (tmp_path / "script.json").write_text(json.dumps(SCRIPT), encoding="utf-8")
    command = [sys.executable, str(PROGRAM), str(tmp_path / "script.json"), "--api-key-env", "THE_KEY"]
    environment = {**os.environ, "THE_KEY": "k1"}
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=environment) as server:
        assert server.stdout is not None
        base_url = server.stdout.readline().strip()
        try:
            assert said(ask(base_url, ("user", "task one"), key="k1")) == "first of one"
            with pytest.raises(urllib.error.HTTPError, match="401"):
                ask(base_url, ("user", "task one"))
        finally:
            server.terminate()
    assert server.returncode == 0
