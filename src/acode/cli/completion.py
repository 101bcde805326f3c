"""acode completion: the script that teaches a shell acode's commands, its installation, and the answer to a Tab.

A script asks acode itself (`_ACODE_COMPLETE`), so that it never has to be renewed. An answer that fails says nothing:
an error would stand in the middle of the line that a person is typing.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from pathlib import Path

import click
from click.shell_completion import BashComplete, CompletionItem, FishComplete, ShellComplete, ZshComplete
from click.shell_completion import PowerShellComplete as ClickPowerShell

from acode.cli.candidates import PATH
from acode.cli.flags import Command, Flags, Group
from acode.cli.screen import Screen
from acode.disk.replace_file import replace_file
from acode.errors import NotWritable, Usage

VARIABLE = "_ACODE_COMPLETE"
MARK = "# acode completion"

# bash 3.2, which macOS has, knows neither compopt nor nosort: it completes without them.
BASH = """\
%(complete_func)s() {
    local IFS=$'\\n' type value
    COMPREPLY=()
    while IFS=, read -r type value; do
        case $type in
            plain) COMPREPLY+=("$value") ;;
            path) COMPREPLY+=("${value%%/}"); compopt -o filenames 2>/dev/null ;;
            dir) compopt -o dirnames 2>/dev/null ;;
            file) compopt -o default 2>/dev/null ;;
        esac
    done < <(env COMP_WORDS="${COMP_WORDS[*]}" COMP_CWORD="$COMP_CWORD" %(complete_var)s=bash_complete "$1" 2>/dev/null)
}
complete -o nosort -F %(complete_func)s %(prog_name)s 2>/dev/null || complete -F %(complete_func)s %(prog_name)s
"""
ZSH = """\
#compdef %(prog_name)s
%(complete_func)s() {
    local -a answers plain described files directories
    local type value about
    answers=("${(@f)$(env COMP_WORDS="${words[*]}" COMP_CWORD=$((CURRENT-1)) \\
%(complete_var)s=zsh_complete $words[1] 2>/dev/null)}")
    for type value about in "${answers[@]}"; do
        case $type in
            plain) [[ $about == _ ]] && plain+=("$value") || described+=("$value:$about") ;;
            path) [[ $value == */ ]] && directories+=("$value") || files+=("$value") ;;
            dir) _path_files -/ ;;
            file) _path_files -f ;;
        esac
    done
    (( $#described )) && _describe -V values described -U
    (( $#plain )) && compadd -U -V values -a plain
    (( $#files )) && compadd -U -f -a files
    (( $#directories )) && compadd -U -f -S '' -a directories
    return 0
}
if [[ $zsh_eval_context[-1] == loadautofunc ]]; then
    %(complete_func)s "$@"
else
    (( $+functions[compdef] )) || { autoload -Uz compinit && compinit -i; }
    compdef %(complete_func)s %(prog_name)s
fi
"""
FISH = """\
function %(complete_func)s
    set -l words (commandline -opc)
    set -l answers (env COMP_WORDS=(commandline -cp | string collect) COMP_CWORD=(commandline -ct | string collect) \\
%(complete_var)s=fish_complete $words[1] 2>/dev/null)
    for answer in $answers
        set -l parts (string split -m 1 , -- $answer)
        switch $parts[1]
            case dir
                __fish_complete_directories (commandline -ct)
            case file
                __fish_complete_path (commandline -ct)
            case plain path
                echo $parts[2]
        end
    end
end
complete --no-files --keep-order --command %(prog_name)s --arguments "(%(complete_func)s)"
"""


class Bash(BashComplete):
    source_template = BASH

    def source(self) -> str:
        return self.source_template % self.source_vars()  # click's own starts bash to ask for its version


class Zsh(ZshComplete):
    source_template = ZSH


class Fish(FishComplete):
    source_template = FISH


class PowerShell(ClickPowerShell):
    def format_completion(self, item: CompletionItem[str]) -> str:
        return super().format_completion(CompletionItem(item.value, help=item.help) if item.type == PATH else item)


SHELLS: dict[str, type[ShellComplete]] = {"bash": Bash, "zsh": Zsh, "fish": Fish, "powershell": PowerShell}
HOW = {
    "bash": 'eval "$(acode completion bash)"   # in ~/.bashrc',
    "zsh": 'eval "$(acode completion zsh)"   # in ~/.zshrc',
    "fish": "acode completion fish > ~/.config/fish/completions/acode.fish",
    "powershell": "acode completion powershell | Out-String | Invoke-Expression   # in $PROFILE",
}


# A Tab.


def answer(root: Group, instruction: str) -> int:
    """The completions that a script asked for. Nothing where anything fails; the exit status does not matter to a
    shell.
    """
    shell, _, wanted = instruction.partition("_")
    if shell in SHELLS:
        asked = SHELLS[shell](root, {"obj": Flags()}, "acode", VARIABLE)
        text = asked.source() if wanted == "source" else asked.complete()
        sys.stdout.buffer.write(f"{text}\n".encode(errors="surrogateescape"))
        sys.stdout.buffer.flush()
    return 0


# The command.


@click.command(cls=Command, name="completion")
@click.argument("shell", type=click.Choice([*SHELLS]), required=False)
@click.option("--install", is_flag=True, help="Set it up for your account; without SHELL for the one you log in with.")
@click.pass_obj
def command(flags: Flags, *, shell: str | None, install: bool) -> int:
    """Print the completion script of a shell, or set it up for your account."""
    screen = Screen(flags, os.environ)
    if install:
        return install_script(screen, shell or _own_shell(os.environ), os.environ)
    if shell is None:
        raise Usage(f"a shell is missing; choose from: {', '.join(SHELLS)}", hint="See: acode completion --help")
    screen.data(script(shell))
    screen.detail(f"To use it: {HOW[shell]}; or: acode completion {shell} --install")
    return 0


def script(shell: str) -> str:
    root = click.get_current_context().find_root().command
    return SHELLS[shell](root, {}, "acode", VARIABLE).source()


def _own_shell(env: Mapping[str, str]) -> str:
    name = os.path.basename(env.get("SHELL", ""))
    if name in SHELLS:
        return name
    told = f"your shell ({name}) is none of: " if name else "SHELL is not set, so name yours: "
    raise Usage(f"{told}{', '.join(SHELLS)}", hint="Name it: acode completion bash --install")


def install_script(screen: Screen, shell: str, env: Mapping[str, str]) -> int:
    """The script is written whole or not at all, then one line is added to the shell's start-up file, once.

    Killed in between it has changed nothing that a shell reads; a second time finds what is there, and adds the rest.
    """
    place, startup = _places(shell, env)
    try:
        place.parent.mkdir(parents=True, exist_ok=True)
        replace_file(place, f"{script(shell)}\n".encode())
        added = startup is not None and _add_line(startup, f'[ -r "{place}" ] && . "{place}"  {MARK}')
    except OSError as error:
        raise NotWritable(f"{error.filename or place} cannot be written: {error.strerror}") from error
    if screen.flags.json:
        screen.document(
            {"shell": shell, "script": str(place), "startup_file": str(startup) if startup else None, "added": added}
        )
        return 0
    screen.data(f"Written: {place}")
    if startup is not None:
        screen.data(f"{'Added to' if added else 'Already in'}: {startup}")
    screen.line(f"It is used by every {shell} that is started from now on.")
    return 0


def _places(shell: str, env: Mapping[str, str]) -> tuple[Path, Path | None]:
    """Where the script is kept, and the file that must name it; fish finds it by itself."""
    home = Path(env.get("HOME") or os.path.expanduser("~"))
    if shell == "fish":
        return Path(env.get("XDG_CONFIG_HOME") or home / ".config") / "fish" / "completions" / "acode.fish", None
    if shell == "powershell":
        raise Usage("it cannot be set up for powershell", hint=f"Put this into $PROFILE: {HOW[shell].split('   ')[0]}")
    data = Path(env.get("XDG_DATA_HOME") or home / ".local" / "share") / "acode"
    startup = home / ".bashrc" if shell == "bash" else Path(env.get("ZDOTDIR") or home) / ".zshrc"
    return data / f"completion.{shell}", startup


def _add_line(path: Path, line: str) -> bool:
    """False if it is there already. One write to the end: nothing of the file can be lost, even if another process
    writes it.
    """
    before = path.read_bytes() if path.exists() else b""
    if line.encode() in before.splitlines():
        return False
    lead = b"" if before.endswith(b"\n") or not before else b"\n"
    with path.open("ab", buffering=0) as file:
        file.write(lead + line.encode() + b"\n")
        os.fsync(file.fileno())
    return True
