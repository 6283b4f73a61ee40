"""Commands that run other commands: which ones, seen from the words alone.

For a deny rather too much is found than too little: where the options of a program are not known here, every rest of
its words counts as something that it runs.

Three degrees of knowledge, from exact to loose:

    _WRAPPERS          the options are known, so that the inner command is: `sudo -u me ls`
    _SPECIAL_READERS   a syntax of its own: find, git, env, eval, trap, alias
    _ANY_WORD_RUNNERS  every rest of the words may be the command: `docker run image rm x`

Only `harmless` wrappers (`timeout`, `nice`, `nohup`, `stdbuf`, `time`) make a command the same as the inner one, for an
allow; a rule for `ls` does not allow `sudo ls`.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import pairwise
from typing import Final

from msgspec import Struct
from msgspec.structs import replace

from ...core.patterns import regex
from ...core.sandbox import guides_programs
from .launchers import is_launcher, started_by
from .script import HOLE, Word

_MAX_TAILS: Final = 24
"""Rests of the words of one command that are looked at."""

_ANY_WORD_RUNNERS: Final = frozenset(
    "ash-run at batch bwrap catchsegv choom chroot chpst coproc daemonize dbus-run-session debconf docker doit"
    " dpkg-architecture entr eatmydata faketime fd ld.so logsave prove ssh-agent uclampset"
    " fdfind firejail flock gdb hyperfine kubectl ltrace machinectl nerdctl npm npx nsenter numactl"
    " perf pnpm podman prlimit proot rlwrap run-parts runuser runcon schroot script setarch setpriv sg softlimit ssh"
    " sshpass start-stop-daemon strace su systemd-inhibit systemd-run torsocks torify tsocks unbuffer unshare uvx"
    " valgrind watch wsl x11vnc xvfb-run yarn bunx expect linux32 linux64 i386 x86_64 nsjail capsh tmux screen"
    " uv rdo ts notty lldb cgexec aa-exec s6-setuidgid gosu su-exec tini dumb-init xterm uxterm rxvt urxvt konsole"
    " gnome-terminal x-terminal-emulator alacritty kitty foot heaptrack rr wine fakechroot dbus-launch ip just bpftrace"
    " { case elif for function if select until while".split()
)
"""Programs that run some of their words, and words at which the grammar sees a command: `! {`."""

_TEMPLATES: Final = frozenset("env_parallel parallel sem".split())
_FOREIGN_SHELLS: Final = frozenset("csh elvish fish nu pwsh rc sash scsh tcsh xonsh zsh".split())
_SHELLS: Final = _FOREIGN_SHELLS | frozenset(
    "ash bash bosh dash hush ksh lksh mksh oksh osh pdksh posh rbash rksh sh yash ysh".split()
)
_SHELL_NAME_SUFFIX: Final = regex(r"(?:-static|[-.\d]+)$")
"""End of a shell's name: `bash-static`, `ksh93`."""
_STARTERS: Final[Mapping[str, int]] = {
    **dict.fromkeys("capsh fakechroot fakeroot firejail i386 linux32 linux64 nsenter proot unshare".split(), 0),
    **dict.fromkeys("chroot gosu login newgrp runuser schroot script setarch sg su su-exec".split(), 1),
}
"""Program → words behind which, without more, it starts a shell, which runs the program's input."""
_SHELL_OPTION: Final = regex(r"-[a-zA-Z]*[is][a-zA-Z]*|--login|--shell")
"""Options of sudo and doas that start a shell where no command follows."""
_OPAQUE_BUILTINS: Final = frozenset("source . bind compgen complete enable fc hash mapfile readarray shopt".split())
"""Shell words that run or rename commands outside the text."""
_ARITHMETIC_BUILTINS: Final = frozenset(
    "declare export getopts let local printf read readonly test typeset unset wait [".split()
)
"""Words of the shell that take names of variables, with an index that is run as arithmetic."""
_NAME_OPERATORS: Final = frozenset(("-v", "-R"))
_ARITHMETIC_OPERATORS: Final = _NAME_OPERATORS | frozenset("-eq -ne -lt -le -gt -ge".split())
"""Operators with an operand that is run as arithmetic: in `[[`; in `[` and `test` those that take a name."""
_SHELL_OPTION_WITH_VALUE: Final = regex(r"[-+][a-zA-Z]*[oO]|--?(?:rcfile|init-file)")
"""Options of a shell with a value; what stands behind its first operand is for the script."""
_LONG_SHELL_OPTION: Final = regex(r"-(?:norc|protected|rcfile|restricted)|--.*", re.DOTALL)
"""Long options of a shell, which bash takes with one dash as well: no `-c` is in them."""
_ENV_SPLIT_OPTION: Final = regex(r"-[a-zA-Z0]*S|--s(?:p(?:l(?:i(?:t[a-z-]*)?)?)?)?(?:=|$)")
_GIT_PROGRAMS: Final = regex(
    r"(?:alias|pager|filter|include|includeif|credential|diff|difftool|merge|mergetool|guitool|gpg|protocol)\..*"
    r"|core\.(?:fsmonitor|gitproxy|hookspath|attributesfile|worktree)|receive\.procreceiverefs|submodule\..*\.update"
    r"|(?:url|sendemail|interactive|instaweb|web|browser|man|imap|svn-remote|hook|trailer|tar)\..*"
    r"|remote\..*\.(?:uploadpack|receivepack|vcs|proxy)"
    r"|.*(?:hook|cmd|command|program|editor|driver|helper|pager|textconv|askpass)",
    re.IGNORECASE,
)
"""Settings of git that name programs."""
_CONFIG_OPTION: Final = regex(r"^(?:-[a-zA-Z]*c|--c(?:o(?:n(?:f(?:i(?:g(?:-env)?)?)?)?)?)?=)")


class InnerCommands(Struct, frozen=True, kw_only=True):
    """Commands that one command runs in turn."""

    commands: tuple[tuple[Word, ...], ...] = ()
    texts: tuple[str, ...] = ()
    """Shell texts."""
    doubts: tuple[str, ...] = ()
    same_as: tuple[Word, ...] | None = None
    """The command that it is but for a harmless wrapper."""


class _Wrapper(Struct, frozen=True):
    """Syntax of a wrapper command: its options, and its own words before the inner command.

    A letter that is in neither list makes the command loose (`_command_index` returns None).
    """

    flags: str = ""
    """Letters of options without a value."""
    valued: str = ""
    """Letters of options whose value may be the next word."""
    long_flags: tuple[str, ...] = ()
    operands: int = 0
    assigns: bool = False
    """Whether `X=1` may come before the command."""
    harmless: bool = False
    """The command is the same with it as without."""


_WRAPPERS: Final[Mapping[str, _Wrapper]] = {
    "!": _Wrapper(),
    "builtin": _Wrapper(),
    "busybox": _Wrapper(),
    "toybox": _Wrapper(),
    "chronic": _Wrapper(flags="ev"),
    "chrt": _Wrapper(flags="abfimorv", valued="TPD", operands=1),
    "command": _Wrapper(flags="p"),
    "doas": _Wrapper(flags="nsL", valued="uC"),
    "do": _Wrapper(),
    "else": _Wrapper(),
    "env": _Wrapper(flags="iv0", valued="uCS", long_flags=("--ignore-environment", "--debug"), assigns=True),
    "exec": _Wrapper(flags="cl", valued="a"),
    "fakeroot": _Wrapper(),
    "ionice": _Wrapper(flags="t", valued="cn"),
    "nice": _Wrapper(valued="n", harmless=True),
    "nocache": _Wrapper(),
    "nohup": _Wrapper(harmless=True),
    "pkexec": _Wrapper(long_flags=("--disable-internal-agent",)),
    "setsid": _Wrapper(flags="cfw", long_flags=("--fork", "--wait", "--ctty")),
    "stdbuf": _Wrapper(valued="ioe", harmless=True),
    "sudo": _Wrapper(flags="AbBEeHiklnPsSKN", valued="ugUCDhprtTR", assigns=True),
    "taskset": _Wrapper(flags="ac", operands=1),
    "then": _Wrapper(),
    "time": _Wrapper(flags="p", assigns=True, harmless=True),
    "timeout": _Wrapper(
        flags="v", valued="ks", long_flags=("--preserve-status", "--foreground", "--verbose"), operands=1, harmless=True
    ),
    "xargs": _Wrapper(
        flags="0rtpxo",
        valued="adEIiLnPs",
        long_flags=("--null", "--no-run-if-empty", "--verbose", "--interactive", "--exit", "--open-tty"),
    ),
}
"""Programs and words whose options are known."""


def describes(name: str) -> bool:
    """Whether it is known here what this program starts."""
    groups = (
        _SHELLS,
        _STARTERS,
        _SPECIAL_READERS,
        _WRAPPERS,
        _TEMPLATES,
        _ANY_WORD_RUNNERS,
        _OPAQUE_BUILTINS,
        _ARITHMETIC_BUILTINS,
    )
    return any(name in group for group in groups) or is_launcher(name)


def inner_commands_of(words: Sequence[Word], stdin: str) -> InnerCommands:
    """Return the commands that these words run; `stdin` is their here-document.

    Words of a command whose own name only the shell knows carry nothing; that itself is a doubt.
    """
    if not words or not words[0].known:
        return InnerCommands()
    name, rest = words[0].text.rpartition("/")[2], tuple(words[1:])
    found, started = _inner_commands(name, rest, stdin), started_by(name, rest, stdin)
    texts = dict.fromkeys((*found.texts, *filter(None, started.texts)))
    doubts = dict.fromkeys((*found.doubts, *started.doubts))
    operands = sum(not word.text.startswith("-") for word in rest)
    if not texts and operands <= _STARTERS.get(name, -1):
        doubts[f"what a shell of {name} reads"] = None
    return replace(found, texts=tuple(texts), doubts=tuple(doubts))


def _inner_commands(name: str, rest: tuple[Word, ...], stdin: str) -> InnerCommands:
    if (shell := _SHELL_NAME_SUFFIX.sub("", name)) in _SHELLS:
        return _shell(shell, rest, stdin)
    if name in _SPECIAL_READERS:
        return _SPECIAL_READERS[name](rest)
    if name in _WRAPPERS:
        return _read_wrapper(name, rest)
    if name in _TEMPLATES:
        return _template(name, rest)
    if name in _ANY_WORD_RUNNERS or name.startswith(("ld-linux", "qemu-")):
        return _read_any_word(rest)
    if name in _OPAQUE_BUILTINS:
        return InnerCommands(doubts=(f"{name}, which may run commands outside the text",))
    if name in _ARITHMETIC_BUILTINS and any("`" in word.text or "$(" in word.text for word in rest):
        return InnerCommands(doubts=(f"{name} with a command in a name",))
    if name == "let":
        return InnerCommands(doubts=("arithmetic with variables",))
    calculated = _NAME_OPERATORS if name in ("test", "[") else _ARITHMETIC_OPERATORS if name == "[[" else ()
    if any(word.text in calculated for word in rest):
        return InnerCommands(doubts=("arithmetic with variables",))
    return InnerCommands()


def _shell(name: str, rest: Sequence[Word], stdin: str) -> InnerCommands:
    operands = [word for word in rest if not word.text.startswith(("-", "+"))]
    pairs = zip(("", *(word.text for word in rest)), rest, strict=False)
    script = (
        place
        for place, (before, word) in enumerate(pairs)
        if word in operands and not _SHELL_OPTION_WITH_VALUE.fullmatch(before)
    )
    options = [word for word in rest[: next(script, len(rest))] if word.text.startswith("-")]
    if any(not word.known for word in options):
        return InnerCommands(doubts=(f"{name} with options that only the shell will know",))
    if any("c" in word.text and not _LONG_SHELL_OPTION.fullmatch(word.text) for word in options):
        doubts = () if all(word.known for word in operands) else (f"a text for {name} that only the shell will know",)
        if name in _FOREIGN_SHELLS:
            doubts = (*doubts, f"a text for {name}")
        return InnerCommands(texts=tuple(_as_shell_word(word) for word in operands), doubts=doubts)
    if rest and all(word.text in ("--version", "--help") for word in rest):
        return InnerCommands()
    return InnerCommands(texts=(stdin,) if stdin else (), doubts=(f"what {name} reads",))


def _eval(rest: Sequence[Word]) -> InnerCommands:
    if rest and rest[0].text == "--":
        rest = rest[1:]
    doubts = () if all(word.known for word in rest) else ("a text for eval that only the shell will know",)
    return InnerCommands(texts=(" ".join(_as_shell_word(word) for word in rest),), doubts=doubts)


def _trap(rest: Sequence[Word]) -> InnerCommands:
    texts = [word for word in rest if not word.text.startswith("-")][:1]
    doubts = () if all(word.known for word in texts) else ("a text for trap that only the shell will know",)
    return InnerCommands(texts=tuple(_as_shell_word(word) for word in texts), doubts=doubts)


def _alias(rest: Sequence[Word]) -> InnerCommands:
    texts = tuple(_as_shell_word(word).partition("=")[2] for word in rest if "=" in word.text)
    return InnerCommands(texts=texts, doubts=("an alias",) if texts else ())


def _find(rest: Sequence[Word]) -> InnerCommands:
    starts = [place for place, word in enumerate(rest) if word.text in ("-exec", "-execdir", "-ok", "-okdir")]
    found: list[tuple[Word, ...]] = []
    for place, following in pairwise((*starts, len(rest))):
        behind = rest[place + 1 : following]
        end = next((at for at, word in enumerate(behind) if word.text == ";"), len(behind))
        found.append(_with_hole(behind[:end], "{}"))
    hidden = any(HOLE in word.text for word in rest)
    return InnerCommands(
        commands=tuple(found), doubts=("options of find that only the shell will know",) if hidden else ()
    )


def _git(rest: Sequence[Word]) -> InnerCommands:
    """Configuration that names programs, `bisect run`, `submodule foreach`, and transports that are commands."""
    texts, commands, configured = list[str](), list[tuple[Word, ...]](), False
    for place, word in enumerate(rest):
        if _configures(word):
            configured = True
            texts.append(word.text.partition("=")[2].lstrip("!"))
        elif _GIT_PROGRAMS.fullmatch(word.text) and "config" in (before.text for before in rest[:place]):
            configured = True
            texts += [_as_shell_word(inner).lstrip("!") for inner in rest[place + 1 :]]
        elif word.text.startswith(("--exec-path=", "--template")):
            configured = True
        elif "ext::" in word.text:
            texts.append(_as_shell_word(word).partition("ext::")[2])
        elif word.text == "remote-ext":
            texts += [_as_shell_word(inner) for inner in rest[place + 1 :]]
        elif word.text in ("run", "foreach"):
            behind = rest[place + 1 :]
            commands += _tails(behind)
            texts.append(" ".join(_as_shell_word(inner) for inner in behind))
        elif word.text == "filter-branch":
            texts += [_as_shell_word(inner) for inner in rest[place + 1 :] if inner.splits()]
    doubts = ("a configuration of git's that may run something",) if configured else ()
    doubts += _doubt_of_many_words(rest) if commands else ()
    return InnerCommands(commands=tuple(commands), texts=tuple(text for text in texts if text), doubts=doubts)


def _configures(word: Word) -> bool:
    """Whether the word is git's `section.key=value`."""
    key, equals, _ = _CONFIG_OPTION.sub("", word.text).partition("=")
    return bool(equals) and "." in key and "/" not in key and not key.startswith("-")


def _env(rest: Sequence[Word]) -> InnerCommands:
    """`env -S` takes a text apart as a shell would, and options of `env` may stand in it."""
    split = [place for place, word in enumerate(rest) if _ENV_SPLIT_OPTION.match(word.text)]
    if not split:
        return _read_wrapper("env", rest)
    behind = (
        "env",
        _ENV_SPLIT_OPTION.sub("", _as_shell_word(rest[split[0]])),
        *(_as_shell_word(word) for word in rest[split[0] + 1 :]),
    )
    return InnerCommands(
        commands=tuple(_tails(rest)), texts=(" ".join(behind).strip(),), doubts=_doubt_of_many_words(rest)
    )


def _read_wrapper(name: str, rest: Sequence[Word]) -> InnerCommands:
    """Return what a program of `_WRAPPERS` runs: the same command only if its own words have no assignment or hole."""
    wrapper = _WRAPPERS[name]
    if name == "command" and any(word.text in ("-v", "-V") for word in rest[:1]):
        return InnerCommands()
    place = _command_index(wrapper, rest)
    if place is None:
        return _read_any_word((*rest, Word(HOLE, HOLE)) if name == "xargs" else rest)
    inner = tuple(rest[place:])
    if name == "xargs":
        inner = _with_input(rest[:place], inner)
    guided = wrapper.assigns and any(_sets_guiding_variable(word) for word in rest[:place])
    doubts = ("a variable that decides what programs execute",) if guided else ()
    if not inner:
        is_shell = name in ("doas", "sudo") and any(_SHELL_OPTION.fullmatch(word.text) for word in rest)
        return InnerCommands(doubts=(*doubts, f"what a shell of {name} reads") if is_shell else doubts)
    harmless = wrapper.harmless and not any("=" in word.text or not word.known for word in rest[:place])
    return InnerCommands(commands=() if harmless else (inner,), doubts=doubts, same_as=inner if harmless else None)


def _sets_guiding_variable(word: Word) -> bool:
    """Whether the word sets a variable that decides what programs execute: `BASH_ENV=x`, `BASH_FUNC_ls%%=…`."""
    name, equals, _ = word.text.partition("=")
    return bool(equals) and guides_programs(name.rstrip("%"))


def _command_index(wrapper: _Wrapper, rest: Sequence[Word]) -> int | None:
    """Return the index of the command's first word; None if an option is unknown.

    None also where a word that only the shell knows may be an option.
    """
    place, operands = 0, wrapper.operands
    while place < len(rest):
        word = rest[place]
        if not word.known:
            return place if not operands and not word.text.startswith(("-", HOLE)) else None
        text = word.text
        if text == "--":
            place += 1
            break
        if text.startswith("--"):
            if "=" not in text and text not in wrapper.long_flags:
                return None
        elif text.startswith("-"):
            taken = _words_taken_by(wrapper, text[1:])
            if taken is None:
                return None
            place += taken
        elif wrapper.assigns and "=" in text:
            pass
        elif operands:
            operands -= 1
        else:
            break
        place += 1
    return min(place, len(rest)) if not operands else len(rest)


def _words_taken_by(wrapper: _Wrapper, letters: str) -> int | None:
    """Return the number of further words that a cluster of short options takes; None if a letter is unknown."""
    for place, letter in enumerate(letters):
        if letter in wrapper.valued:
            return 0 if letters[place + 1 :] else 1
        if letter not in wrapper.flags:
            return 0 if letters.isdigit() else None
    return 0


def _with_input(options: Sequence[Word], inner: tuple[Word, ...]) -> tuple[Word, ...]:
    """Return the command of xargs with its input: at the end, or at each placeholder."""
    mark = ""
    for place, word in enumerate(options):
        text = word.text
        if text in ("-I", "--replace"):
            mark = options[place + 1].text if text == "-I" and place + 1 < len(options) else "{}"
        elif text.startswith(("-I", "-i", "--replace=")):
            mark = text.removeprefix("--replace=").removeprefix("-I").removeprefix("-i") or "{}"
    if mark:
        return _with_hole(inner, mark)
    return (*inner, Word(HOLE, HOLE)) if inner else ()


def _with_hole(words: Sequence[Word], mark: str) -> tuple[Word, ...]:
    return tuple(Word(word.text.replace(mark, HOLE), word.loose.replace(mark, HOLE)) for word in words)


def _read_any_word(rest: Sequence[Word]) -> InnerCommands:
    """Every rest of the words may be a command, every word with blanks a text; together they may be one as well."""
    texts = tuple(_as_shell_word(word) for word in rest if word.splits())
    values = tuple(value for word in rest[:_MAX_TAILS] for value in _values(_as_shell_word(word)))
    joined = (" ".join(_as_shell_word(word) for word in rest),) if texts else ()
    return InnerCommands(
        commands=tuple(_tails(rest)), texts=(*texts, *joined, *values), doubts=_doubt_of_many_words(rest)
    )


def _values(text: str) -> Iterator[str]:
    """Yield what stands behind the first signs of equality: `--property=ExecStartPre=COMMAND`."""
    for _ in range(2):
        text = text.partition("=")[2]
        if text:
            yield text


def _template(name: str, rest: Sequence[Word]) -> InnerCommands:
    """GNU parallel puts its input into a command; without one, its input is the commands."""
    found = _read_any_word(rest)
    begins = next((word.text for word in rest if not word.text.startswith("-")), ":::")
    if "{" in begins or begins.startswith(":::") or any(word.text.startswith(("-a", "--arg-")) for word in rest):
        return replace(found, doubts=(*found.doubts, f"what {name} makes of its input"))
    return found


def _doubt_of_many_words(words: Sequence[Word]) -> tuple[str, ...]:
    """Return the doubt about words of which not every rest is looked at."""
    return ("very many words, of which some may be a command",) if len(words) > _MAX_TAILS else ()


def _tails(words: Sequence[Word]) -> Iterator[tuple[Word, ...]]:
    """Yield every rest that can be a command: it begins with a word that is not an option.

    `docker run -it image rm x` yields `run …`, `image rm x`, `rm x` and `x`.
    """
    for place, word in enumerate(words[:_MAX_TAILS]):
        if not word.text.startswith("-"):
            yield tuple(words[place:])


def _as_shell_word(word: Word) -> str:
    """Return the word as part of a shell text: an unknown part is a variable there, too.

    `${_}` keeps the hole visible to the reader of the text, which finds an expansion there.
    """
    return word.text.replace(HOLE, "${_}")


_SPECIAL_READERS: Final[Mapping[str, Callable[[Sequence[Word]], InnerCommands]]] = {
    "alias": _alias,
    "env": _env,
    "eval": _eval,
    "find": _find,
    "git": _git,
    "trap": _trap,
}
"""Programs and words of the shell with a way of their own."""
