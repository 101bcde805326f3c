"""Does a variable of this name hold a secret?"""

from __future__ import annotations

import re

_SECRET_WORDS = frozenset({"AUTH", "PAT", "CREDENTIAL", "CREDENTIALS", "CREDS", "SECRETS", "TOKENS", "DSN", "JWT"})
_SECRET_ENDINGS = (
    *("PASSWORD", "PASSWORDS", "PASSWD", "PASSPHRASE", "PASSCODE", "PASS"),
    *("SECRET", "TOKEN", "APIKEY", "COOKIE", "COOKIES", "BEARER"),
)
_OTHER_PASSES = ("ASKPASS", "BYPASS", "COMPASS", "TRESPASS", "SURPASS")
_HARMLESS_ENDINGS = frozenset(
    b"FILE PATH DIR URL URI ID NAME TTL SOCK SOCKET TYPE COUNT LIMIT ENABLED MODE HOST PORT USER USERNAME METHOD"
    b" EXPIRES EXPIRY REGION VERSION LENGTH SIZE PARALLELISM PROVIDER POLICY HELPER COMMAND CMD INFO".split()
)
_OTHER_KEYS = frozenset(
    b"PUBLIC PUB HOST SORT PRIMARY FOREIGN UNIQUE CACHE PARTITION ROUTING IDEMPOTENCY OBJECT S3 INDEX REGISTRY".split()
)


def looks_secret(name: str) -> bool:
    """Whether an environment variable of this name is likely to hold a secret, by the words that it is made of."""
    words = [word.upper() for word in re.findall(r"[A-Za-z0-9]+", name)]
    if not words or words[-1].encode() in _HARMLESS_ENDINGS:
        return False
    if any(word in _SECRET_WORDS or _ends_like_a_secret(word) for word in words):
        return True
    return len(words) > 1 and words[-1] in {"KEY", "PWD"} and words[-2].encode() not in _OTHER_KEYS


def _ends_like_a_secret(word: str) -> bool:
    return word.endswith(_SECRET_ENDINGS) and not word.endswith(_OTHER_PASSES)
