"""The form that this example is about."""


def sign_up(name: str, mail: str) -> dict[str, str]:
    return {"name": name, "mail": mail}
