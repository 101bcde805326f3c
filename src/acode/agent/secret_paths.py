"""Files that hold secrets by their name: keys, credentials, environments. The model is not shown one without asking."""

from __future__ import annotations

import re

_NAMES = re.compile(
    r"\.env(?:rc|\..+)?|.+\.env|\.netrc|_netrc|\.pgpass|\.npmrc|\.pypirc|\.htpasswd|\.git-credentials|\.my\.cnf"
    r"|id_(?:rsa|dsa|ecdsa|ed25519)(?:_sk)?|.+\.(?:pem|key|p8|p12|pfx|jks|keystore|kdbx|ppk|asc|gpg|age|ovpn)"
    r"|(?:.+[._-])?(?:credentials?|secrets?)(?:\.(?:json|ya?ml|toml|ini|txt|xml|properties|cfg|conf))?"
    r"|service[_-]?account.*\.json|.+\.tfvars|.+\.tfstate(?:\.backup)?|shadow|kubeconfig|\.vault-token|\.dockercfg"
)
_DIRECTORIES = (".ssh", ".gnupg", ".aws", ".kube", ".docker", ".azure")
_EXAMPLES = re.compile(r".*\.(?:example|sample|template|dist|pub|md|py|ts|js|go|rs)(?:\..+)?")


def looks_like_a_secret(path: str) -> bool:
    *directories, name = [part for part in re.split(r"[/\\]+", path.casefold()) if part] or [""]
    if _EXAMPLES.fullmatch(name):
        return False
    return bool(_NAMES.fullmatch(name)) or any(part in _DIRECTORIES for part in directories)
