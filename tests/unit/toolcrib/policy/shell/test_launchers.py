"""Options and operands by which a program starts another: every spelling of each is seen, and ordinary use is not."""

from __future__ import annotations

import itertools
import shlex
from collections.abc import Iterator

import pytest

from toolcrib.core.tool import Tool
from toolcrib.policy.rules import Rules, parse_rules
from toolcrib.policy.shell.launchers import Launcher, launchers

SHELL = Tool(name="run_command", local_name="run_command", source="own", category="shell")
NO_RM = Rules(parse_rules({"allow": ["Bash"], "deny": ["Bash(rm:*)"]}))
STARTS = {
    "awk": 'BEGIN{system("r" "m")}',
    "dc": "!r''m",
    "debugger": "shell r''m",
    "ed": "!r''m",
    "lua": "os.execute('r'..'m')",
    "make": "x:=$(shell r''m)",
    "mysql": "system r''m",
    "node": "require('child_process').execSync('r'+'m')",
    "pager": "!r''m",
    "perl": "system('r'.'m')",
    "php": "system('r'.'m');",
    "psql": r"\! r''m",
    "python": "import os; os.system('r'+'m')",
    "ruby": "system('r'+'m')",
    "sed": "e r''m x",
    "sqlite": ".shell r''m",
    "vim": ":!r''m",
}
"""Code that starts `rm` without its name in it."""


def effect(text: str) -> str:
    decision = NO_RM.decide(SHELL, {"command": text})
    assert decision is not None
    return decision.effect


def spellings(launcher: Launcher) -> Iterator[tuple[list[str], bool]]:
    """Spellings of each option that starts a program, and whether each names the program itself."""
    code = STARTS.get(launcher.language, "x")
    for letter in launcher.loads:
        yield [f"-{letter}{code}"], False
        yield [f"-{launcher.flags[0]}{letter}{code}"], False
    for module in launcher.modules:
        yield ["-m", module], False
        yield [f"-m{module}", code], False
        yield [f"-{launcher.flags[0]}m", module], False
    if launcher.assigns:
        yield [f"a={code}"], False
    if launcher.input:
        yield ["-f-"], False
        yield ["/dev/stdin"], False
    for options, value, names in (
        (launcher.runs, "rm x", True),
        (launcher.code, code, False),
        (launcher.opaque, "file", False),
    ):
        for option in options:
            spelled = _of_letter if len(option) == 1 else _of_name
            yield from ((words, names) for words in spelled(launcher, option, value))
            if len(option) == 1 and not launcher.one_dash:
                yield [f"-\N{DEGREE SIGN}{option}{value}"], False
    yield from ((words, False) for words in _of_setting(launcher))


def _of_setting(launcher: Launcher) -> Iterator[list[str]]:
    for option, key in itertools.product(launcher.settings, launcher.keys):
        dashed, sign = (f"-{option}", "") if len(option) == 1 else (f"--{option}", "=")
        for setting in (f"{key}=rm x", f"{key.upper()}= rm x"):
            yield [dashed, setting]
        for setting in (f"{key} rm x", f'{key}="rm x"'):
            yield [f"{dashed}{sign}{setting}"]


def _of_letter(launcher: Launcher, option: str, value: str) -> Iterator[list[str]]:
    yield [f"-{option}", value]
    yield [f"-{option}{value}"]
    for place, letter in enumerate(launcher.flags):
        yield [f"-{letter}{option}", value] if place % 2 else [f"-{letter}{letter}{option}{value}"]


def _of_name(launcher: Launcher, option: str, value: str) -> Iterator[list[str]]:
    for dashes in ("--", "-") if launcher.one_dash else ("--",):
        yield [f"{dashes}{option}", value]
        yield [f"{dashes}{option}={value}"]
    for end in range(2, len(option)):
        if option[:end] not in launcher.whole:
            yield [f"--{option[:end]}={value}"] if end % 2 else [f"--{option[:end]}", value]


def test_a_letter_of_a_program_stands_in_one_list() -> None:
    repeated: dict[str, list[str]] = {}
    for name, launcher in launchers().items():
        options = (*launcher.runs, *launcher.code, *launcher.opaque, *launcher.settings)
        letters = [*launcher.flags, *launcher.valued, *launcher.glued, *(one for one in options if len(one) == 1)]
        if twice := [letter for letter in letters if letters.count(letter) > 1]:
            repeated[name] = twice

    assert repeated == {}


@pytest.mark.slow
@pytest.mark.parametrize("initial", sorted({name[0] for name in launchers()}))
def test_every_spelling_of_an_option_that_starts_a_program_is_seen(initial: str) -> None:
    missed: list[str] = []
    for name, launcher in launchers().items():
        for words, names in spellings(launcher) if name[0] == initial else ():
            text = f"{name} {shlex.join(words)} a b"
            if effect(text) not in (("deny",) if names else ("deny", "ask")):
                missed.append(text)

    assert missed == []


ORDINARY = r"""
cargo build --release
cat a.txt > b.txt
cp -r /usr/share/doc/x y
cp bin/tool bin/other
git config --get remote.origin.url
git config user.email a@b.c
go vet ./...
ls -l /bin/rm
make CFLAGS='-O2 -Wall' all
make install DESTDIR=$PWD/out
make -f Makefile.ci test
node -e 'console.log(process.argv[1], [1, 2].map(x => x * 2))'
parallel gzip ::: a b
perl -F: -lane 'print $F[0]' f
perl -MList::Util=sum -e 'print sum(1, 2)'
python3 -c 'from mine import config, test; print(config.x)'
python3 -c 'import sys; print(sys.version_info[:2])'
python3 -m cProfile -s time x.py
python3 -m pip install -e .
sqlite3 db <<< 'select 1;'
sort -u /etc/hosts
systemd-run --user --unit=x ls
awk '/a|b/ {n++} END {print n}' f
awk -F: '{print $1}' /etc/passwd
awk -v n=3 'NR==n' f
apt-get install -y x
crontab -l
gcc -O2 -Wall -o a a.c
git checkout $B
git clone https://x/y
git fetch -u
git grep -n foo
git init
git push --force-with-lease
git push -u origin main
git rebase -i HEAD~2
git submodule update --init
go test ./...
less +G f
make -j4 test
make CC=gcc all
man 3 printf
mysql -e 'select 1'
nc -z h 80
node -e 'console.log(require("./package.json").version)'
perl -i -pe 's/e/x/' f
perl -lane 'print $F[0]' f
php -v
psql -c 'select 1' db
python3 --version
python3 -c 'import json,sys; print(json.load(sys.stdin)["a"])'
python3 -c 'print(1)'
python3 -m pytest -q
python3 -m venv .venv
python3 script.py -c -e x
rsync -avz a/ h:b/
rsync -avze ssh a/ h:b/
ruby -e 'puts 1'
scp -r a h:b
sed ':a;N;$!ba;s/\n/ /g' f
sed '$!N;s/\n/ /;P;D' f
sed '1,5{s/a\/e/b/;p}' f
sed '1~2d;2,+3p;0,/x/s//y/' f
sed '\,a,d;1!G;h;$!d' f
sed 'a hello' f
sed 's/a/b/we' f
sed 's/form/x/;s/e/x/g;/e/d' f
sed 'y/abc/def/' f
sed --quiet 1p f
sed -E 's/([a-z]+) (.*)/\2 \1/gI' f
sed -i 's,e,x,' f
sed -n '/start/,/end/p' f
sort -t, -k2 f
split -l 100 f p
sqlite3 db '.tables'
ssh -o StrictHostKeyChecking=no h ls
ssh -p 22 -i key u@h ls -la
strace -o log ls
tar --extract --file a.tar
tar -tf a.tar
tar -xzf a.tgz -C d
tar cf - . | gzip > x
tar czf a.tgz -C d .
tar xzf form.tgz
vim +12 f
wget -q https://x
""".strip().splitlines()


@pytest.mark.parametrize("text", ORDINARY)
def test_an_ordinary_command_of_such_a_program_is_not_taken_for_one_that_starts_another(text: str) -> None:
    assert effect(text) == "allow"
