"""The table of secret patterns, and the engine that it is compiled for.

Patterns are written for RE2: no look-around, linear time on any input. Where RE2, an extra, is not installed, `re`
compiles the same table, and sees long lines only in windows. The few patterns that look ahead are bounded and always
`re`'s.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import cache, cached_property

TYPE_CHECKING = False
if TYPE_CHECKING:  # `typing` alone would double the time that a keeper takes to start
    from typing import Any

FALLBACK_WINDOW_BYTES = 16 * 1024

# No letter or digit stands before a token, unless it ends a color sequence, an escaped line break or a percent code.
_ESCAPED = r"\\[nrt]|\\u00[0-9A-Fa-f]{2}|%[0-9A-Fa-f]{2}"
BEFORE = rf"(?:^|[^A-Za-z0-9]|\x1b\[[0-9;]*m|{_ESCAPED})"
# The same before a word: in a JSON string a header stands behind `\r\n`, whose last letter would be a part of its name.
_WORD = rf"(?:\b|{_ESCAPED})"

# Shapes: what is secret wherever it stands. A beginning that is cheap to look for, and what must follow it.
_W = r"[A-Za-z0-9_-]"
_A = r"[A-Za-z0-9]"
_H = r"[0-9a-f]"
SHAPES: tuple[tuple[str, str], ...] = (
    (r"(?:AKIA|ASIA|ABIA|ACCA|A3T[A-Z0-9])", r"[A-Z0-9]{16}\b"),  # AWS
    (r"ABSK", r"[A-Za-z0-9+/]{100,}={0,2}"),  # Bedrock
    (r"bedrock-api-key-", r"[A-Za-z0-9+/=_-]{30,}"),
    (r"gh[pousr]_", _A + r"{36,}"),  # GitHub
    (r"github_pat_", r"[A-Za-z0-9_]{36,}"),
    (r"(?i:aws|github|stripe)_", _A + r"{20,}"),
    (r"gl(?:pat|dt|rt|rtr|cbt|ptt|ft|imt|agent|oas|soat|ffct|wt)-", _W + r"{20,}(?:\.[0-9a-z.]{2,30})?"),  # GitLab
    (r"GR1348941", _W + r"{20,}"),
    (r"xox[abeoprs]-", r"[A-Za-z0-9.-]{10,}"),  # Slack
    (r"xapp-", r"\d-[A-Za-z0-9-]{20,}"),
    (r"hooks\.slack\.com/(?:services|workflows|triggers)/", r"[A-Za-z0-9+/]{20,}"),
    (r"[sr]k_(?:live|test|prod)_", _A + r"{10,}"),  # Stripe
    (r"whsec_", r"[A-Za-z0-9+/]{24,}=*"),
    (r"sk-(?:ant|proj|svcacct|admin|or|lf|None)-", _W + r"{20,}"),  # Anthropic, OpenAI, OpenRouter, Langfuse
    (r"sk-", _A + r"{32,}"),
    (r"(?:gsk|r8|hf|api_org|npm|nfp|fo1)_", _W + r"{30,}"),  # Groq, Replicate, Hugging Face, npm, Netlify, Fly
    (r"(?:xai|pplx|tvly)-", _W + r"{24,}"),
    (r"lsv2_(?:pt|sk)_", r"[0-9a-f_]{32,}"),  # LangSmith
    (r"AIza", _W + r"{35}"),  # Google
    (r"GOCSPX-", _W + r"{20,}"),
    (r"ya29\.", _W + r"{20,}"),
    (r"1//0", _W + r"{30,}"),
    (r"pypi-AgE", _W + r"{16,}"),
    (r"SG\.", _W + r"{16,}\." + _W + r"{16,}"),  # SendGrid
    (r"SK", r"[0-9a-fA-F]{32}\b"),  # Twilio
    (r"eyJ", _W + r"{8,}\." + _W + r"{4,}(?:\." + _W + r"*){1,3}"),  # JWT, JWE
    (r"do[opr]_v1_", _H + r"{40,}"),  # DigitalOcean
    (r"dapi", _H + r"{32}(?:-\d)?\b"),  # Databricks
    (r"shp(?:at|ca|pa|ss|tka)_", r"[0-9a-fA-F]{32,}"),  # Shopify
    (r"sq0(?:atp|csp|idp)-", _W + r"{22,}"),  # Square
    (r"key-", _H + r"{32}\b"),  # Mailgun
    (r"\d{8,10}:AA", _W + r"{32,}"),  # Telegram
    (r"[MNO][A-Za-z\d_-]{23,27}\.", _W + r"{6}\." + _W + r"{27,}"),  # Discord
    (r"discord(?:app)?\.com/api/webhooks/", r"\d{10,}/" + _W + r"{20,}"),
    (r"HRKU-", _W + r"{36,}"),  # Heroku
    (r"lin_(?:api|oauth)_", _A + r"{32,}"),  # Linear
    (r"(?:secret|ntn)_", _A + r"{40,}"),  # Notion
    (r"PMAK-", _H + r"{24}-" + _H + r"{30,}"),  # Postman
    (r"NR(?:AK|II|JS|RA)-", r"[A-Za-z0-9-]{19,}"),  # New Relic
    (r"gl(?:sa|c)_", r"[A-Za-z0-9+/_]{32,}=*"),  # Grafana
    (r"sntry[su]_", r"[A-Za-z0-9+/=_-]{40,}"),  # Sentry
    (r"dckr_(?:pat|oat)_", _W + r"{24,}"),  # Docker
    (_A + r"{14}\.atlasv1\.", _W + r"{60,}"),  # Terraform
    (r"hv[sbr]\.", _W + r"{20,}"),  # Vault
    (r"dp\.(?:pt|st|ct|sa|scim|audit)\.", r"[A-Za-z0-9_.-]{40,}"),  # Doppler
    (r"pul-", _H + r"{40}\b"),  # Pulumi
    (r"rubygems_", _H + r"{48}\b"),
    (r"cio", _A + r"{32}\b"),  # crates.io
    (r"AGE-SECRET-KEY-1", r"[A-Z0-9]{50,}"),
    (r"sbp_", _H + r"{40,}"),  # Supabase
    (r"pscale_(?:tkn|pw|oauth)_", r"[A-Za-z0-9_.=-]{32,}"),  # PlanetScale
    (r"AT(?:ATT|CTT|BB)", r"[A-Za-z0-9_=-]{24,}"),  # Atlassian
    (r"figd_", _W + r"{36,}"),
    (r"pat" + _A + r"{14}\.", _H + r"{64}\b"),  # Airtable
    (r"LTAI", _A + r"{16,26}\b"),  # Alibaba
    (r"v1\.0-", _H + r"{24}-" + _H + r"{100,}"),  # Cloudflare
    (r"tskey-", r"[a-z]{2,12}-" + _W + r"{16,}"),  # Tailscale
    (r"CFPAT-", _W + r"{40,}"),  # Contentful
    (r"FLWSECK(?:_TEST)?-", r"[0-9a-zA-Z]{12,}(?:-X)?"),  # Flutterwave
    (r"EZ[AT]K", _A + r"{54}\b"),  # EasyPost
    (r"ops_eyJ", _W + r"{40,}"),  # 1Password
    (_W + r"{3}[78]Q~", r"[A-Za-z0-9_.~-]{31,}"),  # Azure client secret
    (_H + r"{32}-us", r"\d{1,2}\b"),  # Mailchimp
    (r"A3-[A-Z0-9]{6}-", r"[A-Z0-9]{6}-?[A-Z0-9]{5}(?:-[A-Z0-9]{5}){3}\b"),  # 1Password
    (r"p8e-", _A + r"{32}\b"),  # Adobe
    (r"AKCp", _A + r"{69}\b"),  # Artifactory
    (r"cmVmd", _A + r"{59}\b"),
    (r"(?:sc|ext|scauth|authress)_" + _A + r"{5,30}\.", _A + r"{4,6}\.acc[_-][a-z0-9-]{10,32}\.[A-Za-z0-9+/_=-]{30,}"),
    (r"4b1d", _A + r"{38}\b"),  # ClickHouse
    (r"(?i:clojars)_", _A + r"{60}\b"),
    (r"dnkey-", r"[A-Za-z0-9=_-]{26}-[A-Za-z0-9=_-]{52}"),  # Defined Networking
    (r"duffel_(?:test|live)_", r"[A-Za-z0-9_=-]{40,}"),
    (r"dt0[a-z]\d{2}\.", _A + r"{24}\." + _A + r"{64}\b"),  # Dynatrace
    (r"EAA[A-Z]", _W + r"{90,}"),  # Facebook
    (r"EAAA", _W + r"{22,60}\b"),  # Square
    (r"\d{15,16}\|", _W + r"{27,40}\b"),  # Facebook: application and secret
    (r"fm(?:1[ar]|2)_", r"[A-Za-z0-9+/]{60,}={0,3}"),  # Fly
    (r"fio-u-", r"[A-Za-z0-9_=-]{60,}"),  # Frame.io
    (r"eyJrIjoi", r"[A-Za-z0-9+/]{60,}={0,3}"),  # Grafana
    (r"ZXlK", r"[A-Za-z0-9+/=_-]{60,}"),  # a JWT in base64
    (r"[ps]at\." + _W + r"{22}\.", _A + r"{24}\." + _A + r"{20}\b"),  # Harness
    (r"ico-", _A + r"{32}\b"),  # Infracost
    (r"s-s4t2(?:ud|af)-", _H + r"{64}\b"),  # 42
    (_A + r"{6}_" + _A + r"{29}_mmk", r"\b"),  # MaxMind
    (r"webhook\.office\.com/webhookb2/", r"[A-Za-z0-9@/-]{40,}"),  # Teams
    (r"[ps]k\.eyJ", _W + r"{40,}\." + _W + r"{20,}"),  # Mapbox
    (r"API-", r"[A-Z0-9]{26}\b"),  # Octopus
    (r"sha256~", _W + r"{43}\b"),  # OpenShift
    (r"access-(?:sandbox|development|production)-", _H + r"{8}(?:-" + _H + r"{4}){3}-" + _H + r"{12}\b"),  # Plaid
    (r"(?:pnu|rnd|pcsk|phx)_", _W + r"{32,}"),  # Prefect, Render, Pinecone, PostHog
    (r"nvapi-", _W + r"{40,}"),  # NVIDIA
    (r"aio_", _A + r"{28}\b"),  # Adafruit
    (r"rdme_", _A + r"{70}\b"),  # ReadMe
    (r"tk-us-", _W + r"{40,}"),  # Scalingo
    (r"xkeysib-", _H + r"{64}-" + _A + r"{16}\b"),  # Brevo
    (r"sm_(?:aat|pat|sat)_", _A + r"{16}\b"),  # SettleMint
    (r"shippo_(?:live|test)_", r"[0-9a-fA-F]{40}\b"),
    (r"sgp_(?:(?:[0-9a-fA-F]{16}|local)_)?", r"[0-9a-fA-F]{40}\b"),  # Sourcegraph
    (r"sq[apu]_", r"[0-9a-f]{40}\b"),  # SonarQube
    (r"sl\.", r"[A-Za-z0-9_=-]{120,}"),  # Dropbox
    (r"tfp_", r"[A-Za-z0-9_.=-]{50,}"),  # Typeform
    (r"t1\.", r"[A-Za-z0-9_-]{20,}={0,2}\.[A-Za-z0-9_-]{80,}={0,2}"),  # Yandex
    (r"AQVN", _W + r"{35,38}\b"),
    (r"oy2", r"[a-z0-9]{43}\b"),  # NuGet
)

# Names that make what follows them secret, and how it follows them. The weak ones do so only where the whole name is
# that of a secret variable: `DB_PASS`, not `bypass`.
WEAK_NAMES = ("passcode", "pass", "cookie", "auth", "creds", "jwt", "_key", "_pat")
NAMES = (
    r"pass(?:word|wd|phrase)|pwd|secret|token|api[_-]?key|access[_-]?key|private[_-]?key|account[_-]?key"
    r"|signing[_-]?key|encryption[_-]?key|master[_-]?key|shared[_-]?key|subscription[_-]?key|auth[_-]?key"
    r"|client[_-]?key[_-]?data|credential|x-(?:amz|goog|oss)-signature"
    rf"|{'|'.join(WEAK_NAMES)}"
)
_ANNOTATION = r":[ \t]?(?:str|bytes|string|SecretStr|Optional\[\w{1,20}\]|\w{1,20} \| None)[ \t]?="
_SEPARATOR = r"(?:\\{0,3}[\"'`])?\]?[ \t]{0,20}(?:" + _ANNOTATION + r"|:=|=>|[:=])[ \t]{0,20}"
CONTEXT = rf"(?i)({NAMES})([\w.-]{{0,40}}?)({_SEPARATOR})(?:[a-z]?(\\{{0,3}}[\"'`]))?"

# Spots: headers, flags, addresses, markup. The group is the secret. First the ones that need no second look.
_Q = r"[\"'\\]{0,4}"
SPOTS = (
    (
        rf"(?i){_WORD}authorization{_Q}[ \t]{{0,4}}[:=,][ \t]{{0,4}}{_Q}"
        r"(?:bearer|basic|token|apikey|api-key|key|bot|oauth|hawk|negotiate|ssws)[ \t]{1,4}([A-Za-z0-9._~+/=:-]{6,})"
    ),
    rf"(?i){_WORD}(?:set-)?cookie[\"']?:[ \t]{{0,4}}[\"']?([\w.-]{{1,64}}=(?:[^\r\n\"'\\]|\\[^nr\"']){{8,}})",
    r"(?i)\b[a-z][a-z0-9+.-]{1,30}://[^\s:/@\"'<>]*:([^\s/\"'<>]+)@[A-Za-z0-9\[]",
    r"(?:(?m:^)|[ \t])(?:-u|--user|--proxy-user)[ =][\"']?[^\s:\"'0-9/-][^\s:\"'/]*:([^\s\"':]+)",
    r"(?i)\b(?:login|account)[ \t]{1,8}[^\s\"']+[ \t]{1,8}password[ \t]{1,8}([^\s\"']+)",
    (
        r"(?i)(?m:^)[ \t]{0,8}(?:ENV|ARG|setenv)[ \t]{1,4}\w{0,60}(?:PASSWORD|TOKEN|SECRET|API_?KEY)\w{0,20}"
        r"[ \t]{1,4}([^\s=]{4,})"
    ),
    r"(?i)<[\w:.-]{0,60}(?:password|passwd|secret|token|api-?key)>([^<\s]+)</",
    (
        r"(?i)(?:name|key)[\"']?[ \t]?[=:][ \t]?[\"'][\w.-]{0,60}(?:password|token|secret|api_?key)[\"'][ \t,]{1,4}"
        r"[\"']?value[\"']?[ \t]?[=:][ \t]?[\"']([^\"'\r\n]{4,})"
    ),
    (
        r"(?i)(?:[?&;]|\\u0026|%26|%3F)(?:sig|signature|hmac|x-(?:amz|goog|oss|tos|obs|ms)-(?:signature|credential))"
        r"(?:=|%3D)([A-Za-z0-9%+/=_.~-]{16,})"
    ),
    r"(?:(?m:^)|[ \t:])_auth[ \t]{0,2}=[ \t]{0,2}[\"']?([A-Za-z0-9+/=]{8,})",
    r"(?i)\"auth\"[ \t]?:[ \t]?\"([A-Za-z0-9+/=]{12,})\"",
    # Headers by name: what else ends in `-Key` (of a cache, of a repeated request, of a socket) is an id.
    (
        rf"(?i){_WORD}(?:(?:fastly|x-functions|aeg-sas|dd-application)-key|x-jfrog-art-api){_Q}[ \t]{{0,4}}[:=,]"
        rf"[ \t]{{0,4}}{_Q}([A-Za-z0-9._~+/=-]{{16,}})"
    ),
    # Bundler's settings for a host, whose dots are doubled underscores: user and password.
    (
        rf"{_WORD}BUNDLE_[A-Z0-9_]{{1,80}}__[A-Z0-9_]{{1,40}}{_Q}[ \t]{{0,4}}[:=][ \t]{{0,4}}{_Q}"
        r"([^\s:\"'\\/-][^\s:\"'\\/]{0,200}:[^\s:\"'\\/][^\s\"'\\]*)"
    ),
)
# Then the ones whose secret must also look like one, since prose and code stand in the same places.
DOUBTFUL_SPOTS = (
    rf"(?i){_WORD}authorization{_Q}[ \t]{{0,4}}:[ \t]{{0,4}}{_Q}([A-Za-z0-9._~+/=:-]{{8,}})",
    rf"(?i){_WORD}bearer[ \t]{{1,4}}([A-Za-z0-9._~+/-]{{8,}}=*)",
    r"(?i)\bhttps?://([A-Za-z0-9._~-]{20,})@[A-Za-z0-9\[]",
    (
        r"(?i)(?:(?m:^)|[ \t\"',])--?[a-z0-9-]{0,30}(?:password|passwd|passphrase|token|secret|api-?key|access-key)"
        r"[ \t]{1,4}[\"']?([^\s\"'<>-][^\s\"'<>]{3,})"
    ),
    r"(?i)[?&](?:auth|code|sas|ticket)=([A-Za-z0-9%+/=_.~-]{16,})",
)
# Commands: behind the program, what the flag introduces is secret, whatever it looks like. The group is its quote.
_QUOTE = r"(\\{0,3}[\"'])?"
_REGISTRIES = "docker|podman|nerdctl|buildah|skopeo|oras|crane|regctl|registry|acr|az"
_MONGO = r"mongo(?:sh|dump|restore|export|import)?"
_AWS_SECRET = r"[\w.]{0,80}(?:secret_access_key|session_token)"
_USER = _QUOTE + r"[^\s:\"'\\]{0,200}:"
COMMANDS: tuple[tuple[str, str], ...] = (
    (r"\bcurl\b", r"[ \t](?:-[a-zA-Z]{0,8}[uU]|--(?:proxy-)?user)[ \t=]{0,4}" + _USER),
    (r"\b(?:https?|xh)[ \t]", r"[ \t](?:-a|--auth)[ \t=]{1,4}" + _USER),
    (
        rf"\b(?:{_REGISTRIES})(?:[ \t]{{1,4}}-[^\s]{{1,80}}){{0,3}}[ \t]{{1,4}}login\b",
        r"[ \t](?:-p[ \t=]{0,4}|--password[ \t=]{1,4})" + _QUOTE,
    ),
    (r"\bredis-cli\b", r"[ \t](?:-a|--pass)[ \t=]{1,4}" + _QUOTE),
    (r"\b(?:mysql|mariadb)(?:dump|admin|import|check|show|sh)?\b", r"[ \t]-p" + _QUOTE),
    (
        r"\b(?:mongo(?:sh|dump|restore|export|import)?|cqlsh|rabbitmqadmin)\b",
        r"[ \t](?:-p|--password)[ \t=]{1,4}" + _QUOTE,
    ),
    (r"\b(?:sqlcmd|bcp|mosquitto_(?:pub|sub)|ipmitool|zip|unzip)\b", r"[ \t]-P[ \t]{0,4}" + _QUOTE),
    (r"\bldap(?:search|add|modify|delete|whoami|passwd)\b", r"[ \t]-w[ \t]{0,4}" + _QUOTE),
    (r"\bsmbclient\b", r"[ \t](?:-U|--user)[ \t=]{0,4}" + _QUOTE + r"[^\s%\"'\\]{1,200}%"),
    (r"\bopenssl\b", r"[ \t]-(?:pass|passin|passout)[ \t]{1,4}" + _QUOTE + r"pass:"),
    (r"\bkeytool\b", r"[ \t]-(?:store|key|srcstore|deststore)pass[ \t]{1,4}" + _QUOTE),
    (r"\bgpg2?\b", r"[ \t]--passphrase[ \t=]{1,4}" + _QUOTE),
    (r"\bsshpass\b", r"[ \t]-p[ \t]{0,4}" + _QUOTE),
    (
        r"\baws[ \t]{1,4}configure[ \t]{1,4}set\b",
        rf"[ \t]{_AWS_SECRET}[ \t]{{1,4}}" + _QUOTE,
    ),
    (r"AWS4-HMAC-SHA256\b", r"\bSignature=" + _QUOTE),
)
STRICT = r"[A-Za-z0-9+/_=-]{20,}"

# An unquoted value ends at white space or a quote, or where a comma, semicolon or ampersand begins something new. The
# end is searched for, since the nested repetition that would match the value itself goes wrong in Python 3.11.2. It
# begins with one class of characters, which `re` skips to in no time.
_UNQUOTED_END = rb"[\s\"'`\\,;&](?:(?<=[\s\"'`])|(?<=\\)[\"'nrt]|(?<=[,;&])(?:[\w.-]{1,64}[=:]|\s|$|[\"'`]))"
_SCHEME = rb"(?:(?i:bearer|basic|token|digest|apikey|negotiate|ssws)\s+)?"
_PEM = rb"(?:[A-Z0-9]{2,12} ){0,3}PRIVATE KEY(?: BLOCK)?-----"
_KEY_BODY = rb"[A-Za-z0-9+/=]{1,80}(?:\\n)?[\"',+\\ ]{0,4}|[A-Za-z-]{4,24}: [^\r\n]{0,80}"
_TEMPLATE = (
    rb"\$[A-Za-z_]\w*|\$\{.*|\$\(.*|\{\{.*|\{[\w.!:]*\}|\#\{.*|<[^>]*>|<[A-Za-z_-]*|%\(\w+\)s|%[sdr]|%\{.*|%[A-Z_]+%"
    rb"|\*{3}.{0,4}|[xX]{3,}|\.{3,}"
)

REPETITIONS_MAX = 16
Look = Callable[[bytes], object]  # says something true where there is a clue


class Rules:
    """The table, each rule compiled when it is first needed: most text has no clue, and needs only the look for one."""

    def __init__(
        self, compiler: Callable[[bytes], Any], looker: Callable[[bytes], Look], window_bytes: int | None
    ) -> None:
        self._shapes = "|".join(begin + rest for begin, rest in SHAPES)
        self._programs = "|".join(_scoped(program) for program, _ in COMMANDS)
        # RE2 looks for the program and its flag at once; `re` would take the square of a line's length for that.
        commands = (
            self._programs if window_bytes else "|".join(rf"{program}[^\r\n]*{flag}" for program, flag in COMMANDS)
        )
        precise = (
            CONTEXT,
            *SPOTS,
            *DOUBTFUL_SPOTS,
            commands,
            "PRIVATE KEY",
            "PuTTY-User-Key",
            rf"{BEFORE}(?:{self._shapes})",
        )
        self._compiler = compiler
        self._looker = looker
        self.window_bytes = window_bytes
        clue = "|".join(_scoped(pattern) for pattern in precise)
        # `re` would try every end of a repetition without one.
        self._clue = (clue if window_bytes else _shortened(clue)).encode()

    @cached_property
    def shapes(self) -> Any:
        return self._compiler(rf"{BEFORE}({self._shapes})".encode())

    @cached_property
    def context(self) -> Any:
        return self._compiler(CONTEXT.encode())

    @cached_property
    def spots(self) -> tuple[Any, ...]:
        return tuple(self._compiler(spot.encode()) for spot in SPOTS)

    @cached_property
    def doubtful_spots(self) -> tuple[Any, ...]:
        return tuple(self._compiler(spot.encode()) for spot in DOUBTFUL_SPOTS)

    @cached_property
    def programs(self) -> Any:
        return self._compiler(self._programs.encode())

    @cached_property
    def commands(self) -> tuple[tuple[Any, Any], ...]:
        return tuple((self._compiler(program.encode()), self._compiler(flag.encode())) for program, flag in COMMANDS)

    @cached_property
    def strict(self) -> Any:
        return self._compiler(STRICT.encode())

    @cached_property
    def unquoted_end(self) -> re.Pattern[bytes]:
        return re.compile(_UNQUOTED_END)

    @cached_property
    def scheme(self) -> re.Pattern[bytes]:
        return re.compile(_SCHEME)

    @cached_property
    def key_begin(self) -> re.Pattern[bytes]:
        return re.compile(rb"-----BEGIN " + _PEM + rb"|^PuTTY-User-Key-File-\d: \S+")

    @cached_property
    def key_end(self) -> re.Pattern[bytes]:
        return re.compile(rb"-----END " + _PEM + rb"|^Private-MAC: ?")

    @cached_property
    def key_rest(self) -> re.Pattern[bytes]:
        return re.compile(rb"(?:[A-Za-z0-9+/=\s,:-]|\\+[nr]){0,65536}")

    @cached_property
    def key_line(self) -> re.Pattern[bytes]:
        return re.compile(rb"[\s>+|#*\"'-]{0,16}(?:" + _KEY_BODY + rb")?\s*")

    @cached_property
    def key_tail(self) -> re.Pattern[bytes]:
        return re.compile(rb"[A-Za-z0-9+/]{16,}={0,2}\s*$")

    @cached_property
    def key_opening(self) -> re.Pattern[bytes]:
        return re.compile(rb"(?:[A-Za-z0-9+/=\s\"'+|,-]|\\+[nr])*")

    @cached_property
    def template(self) -> re.Pattern[bytes]:
        return re.compile(_TEMPLATE, re.DOTALL)

    def needles(self, values: tuple[bytes, ...]) -> Any:
        return self._compiler(b"|".join(map(re.escape, values)))

    @cached_property
    def clue(self) -> Any:
        """One search for everything: most lines have not even a clue in them."""
        return self._compiler(self._clue)

    @cached_property
    def look(self) -> Look:
        """Whether there is a clue at all, without saying where: a step's short texts are looked at by the thousand."""
        return self._looker(self._clue)


def _shortened(pattern: str) -> str:
    """A pattern that finds all that this one finds, and more. RE2 writes a repetition out as often as it may occur: the
    clue is compiled in a third of the time where none is longer than this."""

    def loose(repetition: re.Match[str]) -> str:
        least, most = int(repetition[1]), repetition[3] or (None if repetition[2] else repetition[1])
        if most is not None and int(most) <= REPETITIONS_MAX:
            return repetition[0]
        return f"{{{min(least, REPETITIONS_MAX)},}}"

    return re.sub(r"\{(\d+)(,?)(\d*)\}", loose, pattern)


def _scoped(pattern: str) -> str:
    """Without groups to remember, and with its flag for itself: one alternative among others."""
    folded = pattern.startswith("(?i)")
    return f"(?i:{pattern[4:]})" if folded else f"(?:{pattern})"


@cache
def rules() -> Rules:
    try:
        import re2
    except ImportError:
        return fallback_rules()
    options = re2.Options()
    options.encoding = re2.Options.Encoding.LATIN1
    options.log_errors = False
    options.max_mem = 64 * 1024 * 1024

    def looker(pattern: bytes) -> Look:
        one = re2.Set.SearchSet(options)  # a set of one: it only says yes or no, and says it at once
        one.Add(pattern)
        one.Compile()
        found: Look = one.Match
        return found

    return Rules(lambda pattern: re2.compile(pattern, options), looker, None)


def engine() -> str:
    """The name of the engine that searches for secrets: `re2`, or `re` where that is not installed."""
    return "re2" if rules().window_bytes is None else "re"


@cache
def fallback_rules() -> Rules:
    return Rules(re.compile, lambda pattern: re.compile(pattern).search, FALLBACK_WINDOW_BYTES)
