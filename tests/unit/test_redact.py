"""Secrets do not reach people, whatever their kind, wherever they stand and however the output is cut; the rest does.

The secrets are made here, from parts, by a seeded generator: none is real, and no scanner finds one in this file.
"""

from __future__ import annotations

import base64
import functools
import hashlib
import itertools
import json
import random
import string
import subprocess
import sys
import uuid
from collections.abc import Callable

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from acode.redact import Redactor, looks_secret, redactor
from acode.redact.rules import _shortened, fallback_rules, rules
from tests.variants import first_of

ALNUM = string.ascii_letters + string.digits
HEX = "0123456789abcdef"
B64 = ALNUM + "+/"
URL64 = ALNUM + "-_"
UPPER = string.ascii_uppercase + string.digits
PLAIN = redactor([])


class Maker:
    """Random strings of an alphabet; the first seed that a reader needs to repeat a failure is in its name."""

    def __init__(self, seed: int) -> None:
        self._random = random.Random(seed)

    def __call__(self, alphabet: str, length: int) -> str:
        return "".join(self._random.choices(alphabet, k=length))

    def password(self, length: int = 12) -> str:
        """Letters, a digit and a sign, as people are made to choose them."""
        return self(string.ascii_letters, length - 2) + self(string.digits, 1) + self("!#%*^", 1)


Kind = Callable[[Maker], str]

# Kinds that are recognised by their shape alone, wherever they stand.
SHAPED: dict[str, Kind] = {
    "aws access key": lambda m: "AK" + "IA" + m(UPPER, 16),
    "aws temporary key": lambda m: "AS" + "IA" + m(UPPER, 16),
    "github classic": lambda m: "gh" + "p_" + m(ALNUM, 36),
    "github oauth": lambda m: "gh" + "o_" + m(ALNUM, 36),
    "github server": lambda m: "gh" + "s_" + m(ALNUM, 36),
    "github fine-grained": lambda m: "github" + "_pat_" + m(ALNUM, 22) + "_" + m(ALNUM, 59),
    "vendor word aws": lambda m: "aws" + "_" + m(ALNUM, 23) + "7",
    "vendor word stripe": lambda m: "stripe" + "_" + m(ALNUM, 23) + "7",
    "gitlab": lambda m: "gl" + "pat-" + m(URL64, 20),
    "gitlab runner": lambda m: "gl" + "rt-" + m(URL64, 20),
    "slack bot": lambda m: "xo" + "xb-" + m(string.digits, 12) + "-" + m(string.digits, 12) + "-" + m(ALNUM, 24),
    "slack app": lambda m: "xa" + "pp-1-" + m(UPPER, 11) + "-" + m(string.digits, 13) + "-" + m(HEX, 64),
    "slack webhook": lambda m: (
        "https://hooks.slack" + ".com/services/T" + m(UPPER, 8) + "/B" + m(UPPER, 8) + "/" + m(ALNUM, 24)
    ),
    "stripe live": lambda m: "sk" + "_live_" + m(ALNUM, 24),
    "stripe restricted": lambda m: "rk" + "_test_" + m(ALNUM, 24),
    "stripe webhook": lambda m: "wh" + "sec_" + m(ALNUM, 32),
    "openai project": lambda m: "sk" + "-proj-" + m(ALNUM, 48),
    "openai classic": lambda m: "sk" + "-" + m(ALNUM, 20) + "T3Blbk" + "FJ" + m(ALNUM, 20),
    "anthropic": lambda m: "sk" + "-ant-api03-" + m(URL64, 93) + "AA",
    "openrouter": lambda m: "sk" + "-or-v1-" + m(HEX, 64),
    "groq": lambda m: "gs" + "k_" + m(ALNUM, 52),
    "xai": lambda m: "xa" + "i-" + m(ALNUM, 80),
    "replicate": lambda m: "r" + "8_" + m(ALNUM, 37),
    "perplexity": lambda m: "pp" + "lx-" + m(ALNUM, 48),
    "hugging face": lambda m: "h" + "f_" + m(ALNUM, 34),
    "langsmith": lambda m: "ls" + "v2_pt_" + m(HEX, 32) + "_" + m(HEX, 10),
    "google api": lambda m: "AI" + "za" + m(URL64, 35),
    "google client secret": lambda m: "GOC" + "SPX-" + m(URL64, 28),
    "google access": lambda m: "ya" + "29." + m(URL64, 60),
    "npm": lambda m: "np" + "m_" + m(ALNUM, 36),
    "pypi": lambda m: "py" + "pi-AgEIcHlwaS5vcmc" + m(URL64, 80),
    "sendgrid": lambda m: "S" + "G." + m(URL64, 22) + "." + m(URL64, 43),
    "twilio": lambda m: "S" + "K" + m(HEX, 32),
    "jwt": lambda m: "ey" + "JhbGciOiJIUzI1NiJ9.ey" + m(URL64, 30) + "." + m(URL64, 43),
    "digitalocean": lambda m: "do" + "p_v1_" + m(HEX, 64),
    "databricks": lambda m: "da" + "pi" + m(HEX, 32),
    "shopify": lambda m: "shp" + "at_" + m(HEX, 32),
    "square": lambda m: "sq0" + "atp-" + m(URL64, 22),
    "mailgun": lambda m: "ke" + "y-" + m(HEX, 32),
    "mailchimp": lambda m: m(HEX, 32) + "-u" + "s12",
    "telegram": lambda m: m("123456789", 9) + ":A" + "A" + m(URL64, 33),
    "discord": lambda m: "M" + m(ALNUM, 23) + "." + m(URL64, 6) + "." + m(URL64, 27),
    "discord webhook": lambda m: "https://discord" + ".com/api/webhooks/" + m(string.digits, 18) + "/" + m(URL64, 68),
    "linear": lambda m: "lin" + "_api_" + m(ALNUM, 40),
    "notion": lambda m: "nt" + "n_" + m(ALNUM, 46),
    "postman": lambda m: "PM" + "AK-" + m(HEX, 24) + "-" + m(HEX, 34),
    "new relic": lambda m: "NR" + "AK-" + m(UPPER, 27),
    "grafana": lambda m: "gl" + "sa_" + m(ALNUM, 32) + "_" + m(HEX, 8),
    "sentry": lambda m: "sn" + "tryu_" + m(HEX, 64),
    "docker hub": lambda m: "dc" + "kr_pat_" + m(URL64, 27),
    "terraform": lambda m: m(ALNUM, 14) + ".atlas" + "v1." + m(URL64, 67),
    "vault": lambda m: "hv" + "s." + m(URL64, 90),
    "doppler": lambda m: "dp" + ".pt." + m(ALNUM, 43),
    "pulumi": lambda m: "pu" + "l-" + m(HEX, 40),
    "rubygems": lambda m: "ruby" + "gems_" + m(HEX, 48),
    "age": lambda m: "AGE-" + "SECRET-KEY-1" + m(UPPER, 58),
    "supabase": lambda m: "sb" + "p_" + m(HEX, 40),
    "planetscale": lambda m: "psc" + "ale_pw_" + m(URL64, 43),
    "atlassian": lambda m: "ATA" + "TT3xFfGF0" + m(URL64, 100),
    "figma": lambda m: "fi" + "gd_" + m(URL64, 40),
    "airtable": lambda m: "pa" + "t" + m(ALNUM, 14) + "." + m(HEX, 64),
    "alibaba": lambda m: "LT" + "AI" + m(ALNUM, 20),
    "tailscale": lambda m: "ts" + "key-auth-" + m(ALNUM, 12) + "-" + m(ALNUM, 32),
    "azure client": lambda m: m(ALNUM, 3) + "8Q" + "~" + m(ALNUM, 34),
}

# Kinds that are recognised by what stands around them; the secret is the value.
NAMED: dict[str, tuple[str, Kind]] = {
    "quoted password": ('password: "{}"', lambda m: m(ALNUM, 9)),
    "quoted api_key": ("api_key = '{}'", lambda m: m(ALNUM, 12)),
    "quoted token": ('token="{}"', lambda m: m(ALNUM, 20)),
    "quoted secret": ('secret := "{}"', lambda m: m(ALNUM, 9)),
    "annotated": ('password: str = "{}"', lambda m: m(ALNUM, 9)),
    "json": ('{{"user": "x", "dbPassword": "{}"}}', lambda m: m.password()),
    "json in json": ('"{{\\"password\\": \\"{}\\"}}"', lambda m: m(ALNUM, 14)),
    "ini": ("password={}", lambda m: m.password()),
    "yaml": ("db_password: {}", lambda m: m(ALNUM, 13) + "7"),
    "yaml word": ("password: {}", lambda m: m(string.ascii_lowercase, 12)),
    "shell": ("export API_TOKEN={}", lambda m: m(ALNUM, 18)),
    "shell word": ("MYSQL_PASSWORD={}", lambda m: m(string.ascii_lowercase, 8)),
    "odd signs": ("password={}", lambda m: m(ALNUM, 6) + "&(7" + m(ALNUM, 4) + ",>x"),
    "php": ("'password' => '{}',", lambda m: m.password()),
    "aws secret": ("aws_secret_access_key = {}", lambda m: m(B64, 39) + "7"),
    "aws session": ('"SessionToken": "{}"', lambda m: m(B64, 100)),
    "twilio token": ("TWILIO_AUTH_TOKEN={}", lambda m: m(HEX, 32)),
    "hex token": ("auth_token: {}", lambda m: m(HEX, 39) + "7"),
    "azure storage": (
        "DefaultEndpointsProtocol=https;AccountName=x;AccountKey={};Suffix=y",
        lambda m: m(B64, 86) + "==",
    ),
    "azure sas": ("https://x.blob.core.windows.net/c?sv=2022&sig={}", lambda m: m(ALNUM, 43) + "%3D"),
    "connection string": ("Server=db;User Id=sa;Password={};Encrypt=true", lambda m: m.password()),
    "database url": ("postgresql://app:{}@db.internal:5432/x", lambda m: m(ALNUM, 12)),
    "redis url": ("redis://:{}@cache:6379/0", lambda m: m(ALNUM, 12)),
    "mongodb url": ("mongodb+srv://root:{}@c0.example.net/?w=1", lambda m: m(ALNUM, 14)),
    "amqp url with @": ("amqp://u:{}@mq:5672", lambda m: m(ALNUM, 6) + "@" + m(ALNUM, 6)),
    "basic auth url": ("git clone https://ci:{}@git.example.org/a.git", lambda m: m(ALNUM, 12)),
    "token url": ("https://{}@git.example.org/a.git", lambda m: m(ALNUM, 19) + "7"),
    "bearer": ("Authorization: Bearer {}", lambda m: m(URL64, 32)),
    "bearer in json": ('{{"Authorization": "Bearer {}"}}', lambda m: m(URL64, 32)),
    "bearer alone": ("sent bearer {}", lambda m: m(URL64, 31) + "7"),
    "basic": ("authorization: basic {}", lambda m: base64.b64encode(b"user:" + m(ALNUM, 12).encode()).decode()),
    "header key": ("-H 'X-Api-Key: {}'", lambda m: m(ALNUM, 31) + "7"),
    "gitlab header": ("PRIVATE-TOKEN: {}", lambda m: m(ALNUM, 19) + "7"),
    "cookie": ("Cookie: {}", lambda m: "session=" + m(ALNUM, 32)),
    "curl user": ("curl -u admin:{} http://x", lambda m: m(ALNUM, 10)),
    "flag": ("deploy --password {} --now", lambda m: m.password()),
    "flag with equals": ("deploy --token={}", lambda m: m(ALNUM, 19) + "7"),
    "sshpass": ("sshpass -p {} ssh x", lambda m: m.password()),
    "mysql": ("mysql -u root -p{} db", lambda m: m(ALNUM, 12)),
    "netrc": ("machine x.org login me password {}", lambda m: m(ALNUM, 12)),
    "npmrc": ("//registry.example.org/:_authToken={}", lambda m: m(ALNUM, 35) + "7"),
    "npmrc basic": ("_auth={}", lambda m: base64.b64encode(m(ALNUM, 20).encode()).decode()),
    "docker config": (
        '{{"auths": {{"x": {{"auth": "{}"}}}}}}',
        lambda m: base64.b64encode(m(ALNUM, 20).encode()).decode(),
    ),
    "dockerfile": ("ENV API_TOKEN {}", lambda m: m(ALNUM, 20)),
    "xml": ("<password>{}</password>", lambda m: m.password()),
    "app setting": ('<add key="ApiKey" value="{}" />', lambda m: m(ALNUM, 20)),
    "kubernetes": ('{{"name": "API_TOKEN", "value": "{}"}}', lambda m: m(ALNUM, 20)),
    "kubeconfig": ("    client-key-data: {}", lambda m: m(B64, 80)),
    "django": ("SECRET_KEY = '{}'", lambda m: m(ALNUM + "!@#$%^&*(-_=+)", 50).replace("'", "x")),
    "rails": ("secret_key_base: {}", lambda m: m(HEX, 127) + "7"),
    "passphrase": ('passphrase: "{}"', lambda m: "correct horse battery " + m(string.ascii_lowercase, 8)),
    "pin": ("password: {}", lambda m: m(string.digits, 6)),
}
PLACES = (
    "{}",
    "2026-01-15 10:00:00 INFO got {} from server",
    '"{}"',
    "({}),",
    "x={};",
    "\x1b[31m{}\x1b[0m",
    "é {} ü",
    "\t{}\r",
    "a\\n{}\\nb",
    "?x%3D{}",
)


def pem(m: Maker, kind: str = "RSA ", *, join: str = "\n") -> tuple[str, list[str]]:
    body = [m(B64, 64) for _ in range(5)] + [m(B64, 22) + "=="]
    mark = "PRIVATE " + "KEY-----"
    return join.join([f"-----BEGIN {kind}{mark}", *body, f"-----END {kind}{mark}"]), body


@pytest.fixture(params=["re2", "re"])
def plain(request: pytest.FixtureRequest) -> Redactor:
    """Both engines are held to the same corpus."""
    return PLAIN if request.param == "re2" else Redactor((), strict=False, rules=fallback_rules())


def test_the_corpus_holds_at_least_forty_kinds() -> None:
    assert len(SHAPED) + len(NAMED) >= 100


@pytest.mark.req("THREAT-011c-09", "THREAT-011c-10")
@pytest.mark.parametrize("kind", SHAPED)
def test_a_token_is_masked_wherever_it_stands(kind: str, plain: Redactor) -> None:
    for seed in range(10):
        secret = SHAPED[kind](Maker(seed))
        for place in PLACES:
            text = place.format(secret)
            shown = plain.text(text)
            assert secret not in shown, (seed, place)
            assert secret[-12:-4] not in shown, (seed, place, shown)
            assert "***" in shown
            assert plain.matches(text)


@pytest.mark.req("THREAT-011c-09", "THREAT-011c-10")
@pytest.mark.parametrize("kind", NAMED)
def test_a_value_behind_a_telling_name_is_masked_and_the_rest_stays(kind: str, plain: Redactor) -> None:
    context, make = NAMED[kind]
    for seed in range(20):
        secret = make(Maker(seed))
        text = context.format(secret)
        shown = plain.text(text)
        mask = "***" + secret[-4:] if len(secret) >= 24 else "***"
        assert shown == context.format(mask), seed


@pytest.mark.req("THREAT-011c-10")
@pytest.mark.parametrize(("length", "mask"), [(1, "***"), (8, "***"), (23, "***"), (24, "***wxyz"), (80, "***wxyz")])
def test_the_last_four_characters_are_shown_of_long_values_only(length: int, mask: str) -> None:
    value = ("a1" * 40)[: max(0, length - 4)] + "wxyz"[-length:]
    assert len(value) == length
    assert PLAIN.text(f'password="{value}"') == f'password="{mask}"'


def test_the_last_four_are_characters_not_bytes() -> None:
    assert PLAIN.text('password="' + "x1" * 15 + 'äöüß"') == 'password="***äöüß"'


@pytest.mark.parametrize("kind", ["RSA ", "EC ", "OPENSSH ", "ENCRYPTED ", ""])
def test_a_private_key_over_several_lines_is_masked_line_by_line(kind: str, plain: Redactor) -> None:
    block, body = pem(Maker(1), kind)
    shown = plain.text(f"before\n{block}\nafter\n")
    assert not any(line in shown for line in body)
    assert shown.startswith(f"before\n-----BEGIN {kind}")
    assert shown.endswith("-----\nafter\n")


@pytest.mark.parametrize("prefix", ["    ", "+", "> ", "web_1  | ", "2026-01-15T10:00:00Z "])
def test_a_private_key_behind_a_prefix_is_masked(prefix: str) -> None:
    block, body = pem(Maker(2))
    shown = PLAIN.text("".join(f"{prefix}{line}\n" for line in block.split("\n")) + "after\n")
    assert not any(line in shown for line in body[:-1])
    assert shown.endswith("after\n")


@pytest.mark.parametrize("join", ["\\n", "\\\\n", " "])
def test_a_private_key_on_one_line_is_masked(join: str, plain: Redactor) -> None:
    block, body = pem(Maker(3), join=join)
    shown = plain.text(json.dumps({"type": "account", "k": "@"}).replace("@", block))
    assert not any(line in shown for line in body)
    assert shown.startswith('{"type": "account", "k": "-----BEGIN')


def test_a_begin_mark_without_a_key_swallows_nothing() -> None:
    mark = "-----BEGIN RSA PRIVATE " + "KEY-----"
    text = f"if '{mark}' in text:\n    return True\n{mark}\nThis is prose about keys, and goes on.\nAnd on.\n"
    assert PLAIN.text(text) == text


@functools.cache
def benign(seed: int) -> dict[str, str]:
    m = Maker(seed)
    digest = hashlib.sha256(m(ALNUM, 8).encode())
    return {
        "sha256": digest.hexdigest(),
        "hash field": json.dumps({"artifact_hash": digest.hexdigest(), "content_sha256": digest.hexdigest()}),
        "signature field": json.dumps({"mac": m(HEX, 64), "signature": m(HEX, 64)}),
        "base64 digest": "sha256-" + base64.b64encode(digest.digest()).decode(),
        "git": f"commit {m(HEX, 40)}\nindex {m(HEX, 7)}..{m(HEX, 7)} 100644",
        "uuid": str(uuid.UUID(int=random.Random(m(HEX, 4)).getrandbits(128))),
        "uuid hex": uuid.UUID(int=random.Random(m(HEX, 4)).getrandbits(128)).hex,
        "ulid": m("0123456789ABCDEFGHJKMNPQRSTVWXYZ", 26),
        "idempotency key": f"{m(HEX, 8)}-{m(HEX, 4)}:build.unit:2",
        "docker": f"sha256:{m(HEX, 64)} python@sha256:{m(HEX, 64)}",
        "number": m("123456789", 30),
        "camel": "ComputeSessionCheckpointIntegrityValidatorResult",
        "snake": "test_a_crash_between_write_and_completion_redoes_only_that_step",
        "path": f"/usr/lib/python3.11/site-packages/{m(string.ascii_lowercase, 12)}/tokens.py:120",
        "url": f"https://example.org:8443/a/{m(ALNUM, 30)}?page=2&email=a@b.org",
    }


@pytest.mark.parametrize("kind", benign(0))
def test_ids_and_hashes_survive(kind: str, plain: Redactor) -> None:
    for seed in range(50):
        for place in ("{}", "x {} y", '"{}"', "id={}"):
            text = place.format(benign(seed)[kind])
            assert plain.text(text) == text, seed
            assert not plain.matches(text)


CODE_AND_PROSE = """
password = getpass.getpass("Password: ")
def login(user: str, password: str, token: str | None = None) -> Token:
    self.password = password
    token = tokens[0] if tokens else None
    client = Client(api_key=os.environ["API_KEY"], token=args.token, secret=settings.secret_key)
    if token == "(" or token != other.token: pass
    return connect(password=password, secret=get_secret(name), token=self._token)
max_tokens=1024, "total_tokens": 5120, token_count: 77, tokenizer = AutoTokenizer
token_type: bearer
password: required
password: string
API_TOKEN=$OTHER_TOKEN
API_TOKEN=${OTHER_TOKEN}
password: {{ vault_password }}
password: <your password>
password="***" token="***abcd"
PWD=/usr/lib/python3
OLDPWD=/tmp/x1
The password: at least 8 characters, and no token of it may repeat.
Bearer authentication is described in RFC 6750; basic authentication elsewhere.
secret_env: [API_TOKEN]
docker run -u 1000:1000 image
ssh://git@github.com/a/b.git and git@github.com:a/b.git
"password": "Your password must be longer."
Tokens: 15 read, 3 skipped. Secrets: none.
const secretSanta = people.map(pick)
token: Tokenizer
"token_url": "https://auth.example.org/token",
AWS_SECRET_ACCESS_KEY is not set; set AWS_SECRET_ACCESS_KEY first
ENV_NAME = "AWS_SECRET_ACCESS_KEY"
cookie: a small file
next token: 15023
if token ==x1y2z3: pass
secret: [a1b2, c3d4]
password: {a1b2: c3}
"/etc/passwd": "it is absolute"
"""


@pytest.mark.parametrize("line", [line for line in CODE_AND_PROSE.split("\n") if line])
def test_code_prose_and_placeholders_survive(line: str, plain: Redactor) -> None:
    assert plain.text(line) == line


def test_masking_twice_is_masking_once(plain: Redactor) -> None:
    for seed in range(5):
        texts = [make(Maker(seed)) for make in SHAPED.values()]
        texts += [context.format(make(Maker(seed))) for context, make in NAMED.values()]
        for text in [*texts, pem(Maker(seed))[0]]:
            once = plain.text(text)
            assert plain.text(once) == once


# Known values.


def test_known_values_are_masked_as_printed_in_json_addresses_and_base64() -> None:
    value = 'pä"ss w\\ord/7'
    known = redactor([value])
    encoded = base64.b64encode(value.encode()).decode()
    for form in (value, json.dumps(value, ensure_ascii=False), "p%C3%A4%22ss%20w%5Cord%2F7", encoded):
        shown = known.text(f"x {form} y")
        assert "***" in shown
        assert form.strip('"') not in shown


def test_a_known_value_of_several_lines_is_masked_line_by_line() -> None:
    known = redactor(["first-line-of-it\nsecond-line-of-it\n"])
    assert known.text("a first-line-of-it\nb second-line-of-it c") == "a ***\nb *** c"


def test_the_longest_known_value_wins() -> None:
    assert redactor(["abcdef", "abcdefghij"]).text("abcdefghij abcdef") == "*** ***"


@pytest.mark.parametrize("value", ["", "  ", "abc", "true", "None", "default"])
def test_values_that_are_ordinary_text_mask_nothing(value: str) -> None:
    assert redactor([value]).text(f"abc true None default {value}") == f"abc true None default {value}"


def test_known_values_with_the_signs_of_patterns_are_taken_literally() -> None:
    assert redactor(["a.c(d|e)*"]).text("a.c(d|e)* abcde") == "*** abcde"


# Strict mode.


@pytest.mark.req("THREAT-011c-09")
def test_strict_mode_alone_masks_every_long_string() -> None:
    digest = hashlib.sha256(b"x").hexdigest()
    assert redactor([], strict=True).text(f"hash {digest} short-one") == f"hash ***{digest[-4:]} short-one"
    assert redactor([], strict=False).text(f"hash {digest}") == f"hash {digest}"
    assert redactor([], strict=True).text("a" * 19) == "a" * 19


# Streams.


def streamed(one: Redactor, chunks: list[bytes]) -> bytes:
    stream = one.stream()
    return b"".join([*(stream.feed(chunk) for chunk in chunks), stream.finish()])


def whole_corpus() -> str:
    m = Maker(7)
    lines = [make(m) for make in SHAPED.values()]
    lines += [context.format(make(m)) for context, make in NAMED.values()]
    lines += [pem(m)[0], "prose without any of it", CODE_AND_PROSE]
    return "\n".join(lines)


def test_however_the_output_is_cut_the_result_is_the_same() -> None:
    text = whole_corpus()
    data, expected = text.encode(), PLAIN.text(text).encode()
    for size in (1, 2, 3, 7, 16, 61, 256, 4096, len(data)):
        chunks = [data[at : at + size] for at in range(0, len(data), size)]
        assert streamed(PLAIN, chunks) == expected, size


@given(st.lists(st.integers(min_value=0, max_value=200), max_size=12), st.sampled_from(sorted(SHAPED)))
@settings(max_examples=60, deadline=None)
def test_a_secret_split_anywhere_does_not_get_through(cuts: list[int], kind: str) -> None:
    secret = SHAPED[kind](Maker(5))
    data = f"one\ntwo {secret} three\nfour".encode()
    edges = sorted({0, len(data), *(cut for cut in cuts if cut < len(data))})
    out = streamed(PLAIN, [data[a:b] for a, b in itertools.pairwise(edges)])
    assert secret.encode() not in out
    assert out == PLAIN.text(data.decode()).encode()


@given(st.binary(max_size=200), st.sampled_from(sorted(SHAPED)), st.binary(max_size=200))
@settings(max_examples=60, deadline=None)
def test_the_quick_look_sees_every_clue_that_the_search_finds(before: bytes, kind: str, after: bytes) -> None:
    secret = SHAPED[kind](Maker(5)).encode()
    for data in (before + after, before + b" " + secret + b" " + after, secret):
        assert bool(PLAIN._look(data)) == PLAIN._has_clue(data)


@given(st.text(st.characters(categories=["Nd", "No"]), min_size=4).filter(str.isdigit))
def test_no_rule_finds_anything_in_a_number(number: str) -> None:
    assert not rules().look(number.encode())
    assert redactor(()).text(number) == number


def test_a_number_that_is_a_secret_of_the_session_is_masked() -> None:
    assert redactor(("493817",)).text("493817") == "***"


@given(st.lists(st.binary(max_size=40), max_size=12))
def test_output_without_secrets_comes_out_as_it_went_in(chunks: list[bytes]) -> None:
    data = b"".join(chunks)
    out = streamed(PLAIN, chunks)
    assert out == streamed(PLAIN, [data])
    if b"***" not in out:
        assert out == data


@given(st.text())
def test_any_text_is_taken(text: str) -> None:
    shown = PLAIN.text(text)
    assert "***" in shown or shown == text


def test_lone_surrogates_and_invalid_bytes_pass_through() -> None:
    assert PLAIN.text("\ud800 token") == "\ud800 token"
    assert streamed(PLAIN, [b"\xff\xfe password=\xff1abcdef\n"]) == b"\xff\xfe password=***\n"


@pytest.mark.parametrize("offset", range(0, 400, 29))
def test_a_secret_in_a_line_without_end_is_masked_across_the_cut(offset: int) -> None:
    secret = SHAPED["github fine-grained"](Maker(4)).encode()
    for context in (b" ", b' "password": "', b" aws_secret_access_key="):
        # The stream lets go of a long line's beginning about here.
        before = b"ab " * ((64 * 1024 - 8 * 1024 - 200) // 3) + b"x" * offset
        data = before + context + secret + b'" ' + b" cd" * 30_000
        out = streamed(PLAIN, [data[at : at + 10_000] for at in range(0, len(data), 10_000)])
        assert secret[:20] not in out
        assert out == before + context + b"***" + secret[-4:] + b'" ' + b" cd" * 30_000


@pytest.mark.parametrize("context", [b" ", b' "password": "', b" aws_secret_access_key="])
def test_a_long_line_whose_chunk_ends_inside_a_secret_keeps_it_back(context: bytes) -> None:
    secret = SHAPED["openai project"](Maker(4)).encode()
    before = b"ab " * 25_000
    data = before + context + secret + b'" cd' * 5_000
    expected = before + context + b"***" + secret[-4:] + b'" cd' * 5_000
    for cut in range(len(before) - 5, len(before) + len(context) + len(secret) + 5):
        assert streamed(PLAIN, [data[:cut], data[cut:]]) == expected, cut


@pytest.mark.parametrize("at", first_of(8_150, 16_350, 24_540))
def test_without_re2_a_secret_at_the_edge_of_a_window_is_masked_too(at: int) -> None:
    secret = SHAPED["openai project"](Maker(4))
    one = Redactor((), strict=False, rules=fallback_rules())
    for offset in range(0, 80, 16):
        text = "a " * ((at + offset) // 2) + secret + " b" * 20_000
        assert one.text(text) == text.replace(secret, "***" + secret[-4:])


def test_a_line_without_end_is_held_in_bounded_memory() -> None:
    stream = PLAIN.stream()
    given_bytes = got_bytes = 0
    for _ in range(300):
        got_bytes += len(stream.feed(b"word " * 800))
        given_bytes += 4000
        assert given_bytes - got_bytes <= 64 * 1024 + 4000
    assert got_bytes + len(stream.finish()) == given_bytes


def test_a_secret_longer_than_may_be_held_is_dropped_to_its_end() -> None:
    secret = b"ghp" + b"_" + b"aB3" * 100_000
    data = b"start " + secret + b" end password=hunter2x\nnext\n"
    out = streamed(PLAIN, [data[at : at + 5_000] for at in range(0, len(data), 5_000)])
    assert out == b"start *** end password=***\nnext\n"


def test_carriage_returns_end_a_line_so_that_progress_is_seen() -> None:
    stream = PLAIN.stream()
    assert stream.feed(b"10 %\r20 %\r30") == b"10 %\r20 %\r"
    assert stream.finish() == b"30"


# Hostile and large input.


def test_the_module_imports_nothing_else_of_acode_and_nothing_heavy() -> None:
    code = (
        "import sys; import acode.redact; "
        "print(sorted(n for n in sys.modules if n.startswith('acode') and not n.startswith('acode.redact')), "
        "sorted({'msgspec', 'apsw', 'typing', 'os.path', 're2'} & set(sys.modules) - {'os.path'}))"
    )
    done = subprocess.run([sys.executable, "-S", "-c", code], check=True, capture_output=True, text=True)
    assert done.stdout.strip() == "['acode'] []"


# Names of variables.


SECRET_NAMES = """
    API_TOKEN PGPASSWORD GITHUB_TOKEN AWS_SECRET_ACCESS_KEY OPENAI_API_KEY DB_PASS MYSQL_PWD SENTRY_DSN npm_config__auth
    SECRET client_secret SIGNING_KEY GH_PAT APIKEY ACODE_CHECKPOINT_SECRET
"""
OTHER_NAMES = """
    PATH HOME PWD OLDPWD SSH_AUTH_SOCK TOKENIZERS_PARALLELISM AWS_ACCESS_KEY_ID KEYBOARD MONKEY SECRET_FILE TOKEN_URL
    GIT_ASKPASS XAUTHORITY PASSWORD_STORE_DIR LS_COLORS PUBLIC_KEY ___ ключ
"""


@pytest.mark.parametrize("name", SECRET_NAMES.split())
def test_variables_with_telling_names_look_secret(name: str) -> None:
    assert looks_secret(name)


@pytest.mark.parametrize("name", [*OTHER_NAMES.split(), ""])
def test_other_variables_do_not(name: str) -> None:
    assert not looks_secret(name)


@pytest.mark.parametrize(
    ("pattern", "shortened"),
    [
        ("[a-z]{3}x{0,16}", "[a-z]{3}x{0,16}"),
        ("a{1,80}b{100,}c{52}", "a{1,}b{16,}c{16,}"),
        (r"\\{0,3}[\"']", r"\\{0,3}[\"']"),
    ],
)
def test_a_clue_allows_more_repetitions_than_its_rule_and_never_fewer(pattern: str, shortened: str) -> None:
    assert _shortened(pattern) == shortened
