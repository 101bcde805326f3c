"""Redaction over a corpus made after a public scanner's rules: how much is found, and the same by every Python here."""

from __future__ import annotations

import hashlib
import json
import os
import re
import shutil
import subprocess
import sys
import uuid
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

from acode.redact import Redactor, looks_secret, redactor
from acode.redact.rules import COMMANDS, Rules, fallback_rules
from tests.secret_corpus import IN_PLACE, TOKENS, examples

SEEDS = range(2)
RECALL_MIN = 1.0
TOUCHED_MAX = 0.001
SOURCE = Path(__file__).parents[2] / "src"
PYTHONS_SUPPORTED = ("3.11", "3.12", "3.13")
ENGINES = {"re2": redactor([]), "re": Redactor((), strict=False, rules=fallback_rules())}

# What a redaction of the wrong bytes would lose: a value's end, what follows it, and text that is no secret.
KEPT = (
    "password=foo1,bar; next",
    "token=a1b2c3, then more; and=more",
    "password=7x,user=me&b=2;c=3",
    "API_TOKEN=abc1,def2 and the rest of the line stays",
    "BYPASS=12345 GIT_ASKPASS=/usr/bin/askpass",
    "pass: 0.53s",
    "first_pass: 12/20",
    "author: Jane4x",
    "docker run -p 8080:80 -u 1000:1000 image",
    "docker login --password-stdin -u me",
    "curl -u $USER:$PASS https://x",
    "CACHE_KEY=9f8e7d6c5b4a ACODE_IDEMPOTENCY_KEY=0199-aa:b:1",
    "Surrogate-Key: 9f8e7d6c5b4a9f8e7d6c5b4a Idempotency-Key: 8e03978e-40d5-43e8-bc93-6894a57f9324",
    "BUNDLE_BUILD__NOKOGIRI=--use-system-libraries BUNDLE_LOCAL__RACK=/src/rack BUNDLE_PATH: vendor/bundle",
    "BUNDLE_MIRROR__HTTPS__RUBYGEMS__ORG: https://mirror.example.org/",
)  # fmt: skip


def lost(text: str, secret: str, shown: str) -> bool:
    """Whether nothing that would help anybody is left of the secret: at most its last four characters."""
    return secret not in shown and (len(secret) < 12 or secret[-12:-4] not in shown) and "***" in shown


@pytest.mark.req("THREAT-011c-09")
@pytest.mark.parametrize("engine", ENGINES)
def test_secrets_of_a_public_corpus_of_rules_are_found(engine: str) -> None:
    rows = [row for seed in SEEDS for row in examples(seed)]
    missed = sorted({rule for rule, text, secret in rows if not lost(text, secret, ENGINES[engine].text(text))})
    count = len(TOKENS) + len(IN_PLACE)
    recall = 1 - len(missed) / count
    print(f"{engine}: {count - len(missed)} of {count} rules, recall {recall:.3f}; missed: {missed}")
    assert count >= 200
    assert recall >= RECALL_MIN, missed


def test_hashes_and_ids_are_not_touched() -> None:
    digests = [hashlib.sha256(str(n).encode()) for n in range(1000)]
    forms = (
        lambda d: d.hexdigest(),
        lambda d: d.hexdigest()[:40],
        lambda d: d.hexdigest()[:32],
        lambda d: str(uuid.UUID(d.hexdigest()[:32])),
        lambda d: f"sha256:{d.hexdigest()}",
        lambda d: json.dumps({"key_id": d.hexdigest()[:12], "digest": d.hexdigest(), "cache_key": d.hexdigest()}),
        lambda d: f"commit {d.hexdigest()[:40]} by build-{d.hexdigest()[:8]}",
    )
    texts = [form(digest) for digest in digests for form in forms]
    touched = [text for text in texts if ENGINES["re2"].matches(text)]
    assert len(touched) <= TOUCHED_MAX * len(texts), touched[:5]


@pytest.mark.parametrize(
    "name", ["DB_PASS", "MYSQLPASS", "dbPass", "SESSION_COOKIE", "XDG_SESSION_COOKIE", "NEXUS_CREDS", "APP_JWT"]
)
def test_variables_ending_in_pass_and_cookie_look_secret(name: str) -> None:
    assert looks_secret(name)


@pytest.mark.parametrize(
    "name", ["BYPASS", "GIT_ASKPASS", "COMPASS", "PASSES", "PASSENGER", "COOKIE_NAME", "ACODE_IDEMPOTENCY_KEY"]
)
def test_variables_that_only_contain_such_a_word_do_not(name: str) -> None:
    assert not looks_secret(name)


# Every Python that is present.


@cache
def pythons() -> dict[str, str]:
    """Version → program, of every Python here that acode supports and that is not the one of this process."""
    roots = [Path("/usr/bin"), *map(Path, os.environ.get("PATH", "").split(os.pathsep))]
    roots += sorted(Path(os.environ.get("PYENV_ROOT", Path.home() / ".pyenv")).glob("versions/*/bin"))
    found: dict[str, str] = {}
    for name in ("python3", *(f"python{version}" for version in PYTHONS_SUPPORTED)):
        for program in filter(None, (shutil.which(name, path=str(root)) for root in roots if "shims" not in str(root))):
            asked = subprocess.run([program, "-V"], capture_output=True, text=True, check=False)
            version = asked.stdout.strip().removeprefix("Python ")
            if version.startswith(PYTHONS_SUPPORTED):
                found.setdefault(version, program)
    return found


OTHER_PYTHON = """
import json, sys
from acode.redact import Redactor
from acode.redact.rules import fallback_rules
one = Redactor((), strict=False, rules=fallback_rules())
print(json.dumps([one.text(text) for text in json.load(sys.stdin)]))
"""


def test_every_python_that_is_present_masks_the_same() -> None:
    """Python 3.11.2, which Debian 12 has, once lost text that is no secret: nested repetitions go wrong in its `re`."""
    texts = [*KEPT, *(text for _, text, _ in examples(0))]
    expected = [ENGINES["re"].text(text) for text in texts]
    assert expected == [ENGINES["re2"].text(text) for text in texts]
    for version, program in pythons().items():
        done = subprocess.run(
            [program, "-S", "-c", OTHER_PYTHON],
            input=json.dumps(texts),
            env={**os.environ, "PYTHONPATH": str(SOURCE), "PYTHONDONTWRITEBYTECODE": "1"},
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == 0, (version, done.stderr)
        different = [pair for pair in zip(expected, json.loads(done.stdout), strict=True) if pair[0] != pair[1]]
        assert not different, version
    missing = [v for v in PYTHONS_SUPPORTED if not any(one.startswith(v) for one in (*pythons(), sys.version))]
    print(f"redaction tested with {', '.join(sorted(pythons()))}; missing: {', '.join(missing) or 'none'}")


@pytest.mark.parametrize("text", KEPT[4:])
@pytest.mark.parametrize("engine", ENGINES)
def test_what_only_resembles_a_secret_stays(engine: str, text: str) -> None:
    assert ENGINES[engine].text(text) == text


def test_a_line_full_of_programs_is_searched_once_for_the_flags_of_each() -> None:
    """Not once for each time that a program is named: the time would grow with the square of the line."""
    searches: dict[bytes, int] = {}

    class Watched:
        def __init__(self, pattern: bytes) -> None:
            self._pattern, self._compiled = pattern, re.compile(pattern)
            self.search = self._compiled.search

        def finditer(self, data: bytes, position: int = 0) -> Iterator[re.Match[bytes]]:
            searches[self._pattern] = searches.get(self._pattern, 0) + 1
            return self._compiled.finditer(data, position)

    one = Redactor((), strict=False, rules=Rules(Watched, lambda pattern: re.compile(pattern).search, 16 * 1024))
    line = "curl x docker login x redis-cli x mysql x " * 300 + "-u user:hunter2 -p letmein"
    assert one.mask_line(line.encode()).endswith(b"-u user:*** -p ***")
    flags = [searches[flag.encode()] for _, flag in COMMANDS if flag.encode() in searches]
    assert len(flags) == 4
    assert set(flags) == {1}
