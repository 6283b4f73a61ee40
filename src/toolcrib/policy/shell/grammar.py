"""The grammar of bash (tree-sitter) applied to one text. Unknown or unparsable parts are a doubt.

The tree is walked once, every node of it: a command is found wherever the grammar has one, in any surroundings. A text
that does not parse is read word by word: for a deny, and for what cannot be undone, a guess is enough.

Limits are of size, count, depth and CPU time, because the text is a model's: one beyond a
limit is a doubt as a whole, and never taken for a text without commands.
"""

from __future__ import annotations

import re
import shlex
import time
from collections.abc import Iterable, Iterator, Sequence
from functools import lru_cache
from typing import Final

import tree_sitter_bash
from msgspec import Struct
from tree_sitter import Language, Node, Parser, Tree

from ...core.patterns import regex
from ...core.sandbox import guides_programs
from . import grammar_nodes
from .script import HOLE, Piece, Script, ShellCommand, TooManyWords, Word, ansi_c, expand, unescaped
from .wrapper_commands import InnerCommands, inner_commands_of

_SEPARATORS: Final = regex(r"(?:&&|\|\|?|;|&(?!>)|\n|\$\(|\(|\)|`|\{(?=\s)|(?<=\s)\}|<\()")
_PUNCTUATION: Final = frozenset(";&|()\n`")
_SKIPPED_WORDS: Final = frozenset("{ } $ ! if then elif else fi while until do done for case esac in select".split())
_SETTERS: Final = frozenset(
    "coproc declare export getopts local mapfile printf read readarray readonly typeset unset wait".split()
)
"""Words of the shell that set the variables that they name."""
_REFERENCE_SETTERS: Final = ("declare", "local", "typeset")
_OPTIONS_WITH_VALUE: Final = frozenset("CNOcdinpstu")
"""Options of `read` and `mapfile` with a value that is not a variable."""
_VALUE_GIVER: Final = regex(r"\b(?:for|getopts|mapfile|printf|read|readarray|select)\b")
"""Words of the shell that give a variable a value which does not stand behind its name."""
_ASSIGNMENT: Final = regex(r"[A-Za-z_]\w*\+?=.*", re.DOTALL)

MAX_TEXT_LENGTH: Final = 32_000
"""Characters of one text that are read; a longer one is a doubt as a whole."""
_MAX_NODES: Final = 4_000
"""Nodes of one tree that are walked, some 5 µs each."""
_MAX_SECONDS: Final = 0.03
"""CPU time of this thread that one parse may take: ten times the need of a tree of that size."""
_MAX_BROKEN_LENGTH: Final = 4_000
"""Characters of a text that does not parse in which commands are looked for all the same."""
_MAX_TEXTS: Final = 24
"""Texts that one command is seen to run."""
_MAX_BARS: Final = 500
"""`|` and `=(` in one text: the grammar's time grows with their square (500 take it 12 ms)."""
_MAX_DEPTH: Final = 5
"""Texts inside texts: `sh -c "sh -c '…'"`."""
_MAX_COMMANDS: Final = 500
_MAX_NESTED_COMMANDS: Final = 2_000
"""Commands and texts that the commands of one text are seen to run, some 50 µs each."""
_LANGUAGE: Final = Language(tree_sitter_bash.language())
_BARS: Final = regex(r"\||=\(")
_AMBIGUOUS_CHARACTER: Final = regex(
    "[\x00-\x08\x0b-\x1f\x7f-\xa0\u1680\u2000-\u200f\u2028-\u202f\u205f-\u206f\u3000\ufeff\ud800-\udfff]"
)
"""Characters that the shell and its grammar may take differently, or that are invisible."""
_CONTINUED_WORD: Final = regex(r"(?<=[^\s\\])\\\n(?=\S)")
"""A line that is continued in the middle of a word."""
_ESCAPED_BLANK: Final = regex(r"(?<![^\s;&|()<>`])\\[ \t]")
"""A blank with a backslash that begins a word, which the grammar leaves out."""


def commands_of_broken(text: str) -> Iterator[tuple[Word, ...]]:
    """Yield the probable commands in a text that does not parse; closed quotes are removed.

    For texts that bash would reject as well, or that this grammar cannot read; the doubt about the text stays.
    """
    for words in _split_broken(text.replace("\\\n", " ")):
        rest = [word for word in words if word not in _SKIPPED_WORDS]
        while rest and _ASSIGNMENT.fullmatch(rest[0]):
            del rest[0]
        found = tuple(inner for word in rest for inner in _word(word))
        if found:
            yield found


def _split_broken(text: str) -> Iterator[list[str]]:
    """Split a text into the words of its commands; where its quotes do not close, at separators."""
    try:
        lexer = shlex.shlex(text, posix=True, punctuation_chars=";&|()\n`")
        lexer.whitespace, lexer.whitespace_split, lexer.commenters = " \t\r", True, ""
        words = list(lexer)
    except ValueError:
        for part in _SEPARATORS.split(text):
            yield part.replace('"', " ").replace("'", " ").split()
        return
    command: list[str] = []
    for word in words:
        if word and set(word) <= _PUNCTUATION:
            yield command
            command = []
        else:
            command.append(word)
    yield command


def _word(text: str) -> Iterator[Word]:
    loose = HOLE.join(re.split(r"\$\w+|\$\{[^}]*\}|\$", text))
    try:
        yield from expand([(loose, False)])
    except TooManyWords:
        yield Word(HOLE, HOLE)


class _Limit(Struct):
    """How many more commands and texts are read inside one text.

    Shared by a text and all texts inside it, so that nesting cannot multiply the work.
    """

    left: int = _MAX_NESTED_COMMANDS


@lru_cache(maxsize=512)
def read_script(text: str) -> Script:
    """Return the commands that bash would run for `text`. Never raises: an unreadable part is a doubt.

    The last 512 texts are kept: rules and checks read the text of one call several times.
    """
    return _read(text, 0, _Limit())


def read_argv(words: tuple[str, ...]) -> Script:
    """Return the one command that a program given these words is, without a shell in between."""
    given = tuple(Word(word, word) for word in words)
    if any(HOLE in word for word in words):
        # A hole in a word that came as it is would pass for a part that the shell fills in.
        return Script(doubts=("an argument with a NUL character",))
    return Script(commands=(_command(given, 0, _Limit(), set()),)) if given else Script(doubts=("an empty command",))


def _read(text: str, depth: int, limit: _Limit) -> Script:
    if len(text) > MAX_TEXT_LENGTH:
        return Script(doubts=(f"a command of {len(text):,} characters",))
    if depth > _MAX_DEPTH:
        return Script(doubts=("commands inside commands inside commands",))
    if len(_BARS.findall(text)) > _MAX_BARS:
        return Script(doubts=("a command of very many parts",))
    text, doubts = _normalize_text(text)
    tree = _parse_tree(text.encode())
    if tree is None or tree.root_node.descendant_count > _MAX_NODES:
        return Script(doubts=(*doubts, "a command of very many parts"))
    walk = _Walk(tree.root_node, depth, limit)
    if tree.root_node.has_error:
        walk.doubts.append("it cannot be parsed as bash")
        if len(text) <= _MAX_BROKEN_LENGTH:
            walk.commands += [_command(words, depth, limit, set()) for words in commands_of_broken(text)]
        else:
            walk.doubts.append("a long text that cannot be parsed")
    if len(walk.commands) > _MAX_COMMANDS:
        return Script(doubts=(*doubts, "a command of very many parts"))
    return Script(
        commands=tuple(walk.commands),
        doubts=tuple(dict.fromkeys((*doubts, *walk.doubts))),
        effects=tuple(dict.fromkeys(walk.effects)),
        files=tuple(walk.files),
        inputs=tuple(walk.inputs),
        values=tuple(walk.values),
        given=tuple(walk.given),
    )


def _normalize_text(text: str) -> tuple[str, list[str]]:
    """Return the text as the grammar reads it rightly, and doubts about what the shell may read in another way."""
    doubts: list[str] = []
    if odd := _AMBIGUOUS_CHARACTER.search(text):
        doubts.append(f"the character U+{ord(odd[0]):04X}")
        text = _AMBIGUOUS_CHARACTER.sub("\ufffd", text)
    if _CONTINUED_WORD.search(text):
        text = _CONTINUED_WORD.sub("", text)
        doubts.append("a line that goes on in the middle of a word")
    if _ESCAPED_BLANK.search(text):
        doubts.append("a word that begins with a blank")
    return text, doubts


def _parse_tree(source: bytes) -> Tree | None:
    """Return the tree; None when finding it takes too long: on some garbage the grammar tries very many ways.

    `progress_callback` is the only way to end a parse; the time is that of this thread, so that a loaded machine makes
    no doubts.
    """
    started = time.thread_time()

    def is_late(offset: int, has_error: bool) -> bool:
        return time.thread_time() - started > _MAX_SECONDS

    try:
        return Parser(_LANGUAGE).parse(lambda offset, point: source[offset:], progress_callback=is_late)
    except ValueError:
        return None


def _command(
    words: tuple[Word, ...], depth: int, limit: _Limit, seen: set[object], *, source: str = "", stdin: str = ""
) -> ShellCommand:
    """Return the command of these words, with everything that it runs and that is not in `seen`, which gets it.

    In doubt every rest of a command's words is one that it runs, and has rests in turn: without `seen`, two dozen words
    would become a million commands. It is of one command: the same words mean others in another folder, or read others.

    `same_as` is among `runs`, too, so that a deny meets it; an allow goes through `same_as` alone.
    """
    carried = (
        inner_commands_of(words, stdin) if depth <= _MAX_DEPTH else InnerCommands(doubts=("commands inside commands",))
    )
    doubts, files, given = [*carried.doubts, *_doubts_of_setter(words)], list[Word](), list[Word]()
    commands = [inner for inner in dict.fromkeys(carried.commands) if inner and inner not in seen]
    texts = [text for text in carried.texts[:_MAX_TEXTS] if text not in seen]
    seen.update(commands, texts)
    limit.left -= len(commands) + len(texts)
    if limit.left < 0:
        doubts.append("very many commands inside commands")
        commands, texts = [], []
    runs = [_command(inner, depth + 1, limit, seen, stdin=stdin) for inner in commands]
    same_as = _command(carried.same_as, depth + 1, limit, seen, stdin=stdin) if carried.same_as else None
    if not words or not words[0].known:
        doubts.append("a command whose name only the shell will know")
    if len(carried.texts) > _MAX_TEXTS:
        doubts.append("a command of very many texts")
    for text in texts:
        script = _read(text, depth + 1, limit)
        runs += script.commands
        doubts += script.doubts
        files += script.files
        given += script.given
    if same_as is not None:
        runs.append(same_as)
    return ShellCommand(
        words=words,
        source=source,
        stdin=stdin,
        runs=tuple(runs),
        doubts=tuple(dict.fromkeys(doubts)),
        files=tuple(files),
        given=tuple(given),
        same_as=same_as,
    )


def _doubts_of_setter(words: Sequence[Word]) -> Iterator[str]:
    """Yield doubts about the variables that a word of the shell sets: they stand behind it, or are glued to an option.

    Without a `PATH` the shell looks for programs in its folder; without another variable it executes none.
    """
    first, before = words[0].text if words else "", ""
    valued = {"printf": "-v", "wait": "-p"}.get(first)
    for word in words[1:] if first in _SETTERS else ():
        name = word.text.partition("=")[0]
        starts = range(1, len(name)) if name.startswith("-") else (0,)
        yield from _doubts_of_variables(name[start:] for start in starts if first != "unset" or name[start:] == "PATH")
        if first in _REFERENCE_SETTERS and name.startswith("-") and "n" in name:
            yield "another name for a variable"
        is_value = before.startswith("-") and before[-1:] in _OPTIONS_WITH_VALUE
        if HOLE in name and (valued in (before, name[:2]) if valued else not is_value):
            yield "a variable whose name only the shell will know"
        before = word.text


def _doubts_of_variables(names: Iterable[str]) -> Iterator[str]:
    for name in names:
        name = name.partition("[")[0]  # an element of an array, or of what is none
        if guides_programs(name):
            yield f"the variable {name}, which decides what programs execute"


class _Walk:
    """Walk through one syntax tree; used once.

    Visits every node, those of branches that never run included: a deny holds for a command wherever it stands.
    """

    def __init__(self, root: Node, depth: int, limit: _Limit) -> None:
        self.commands: list[ShellCommand] = []
        self.doubts: list[str] = []
        self.effects: list[str] = []
        self.files: list[Word] = []
        self.inputs: list[Word] = []
        self.values: list[str] = []
        self.given: list[Word] = []
        self.exported: set[str] = set()
        self.assigned: set[str] = set()
        self._depth = depth
        self._limit = limit
        waiting = [root]
        while waiting:
            node = waiting.pop()
            self._visit(node)
            waiting += reversed(node.children)
        if self.exported - self.assigned and _VALUE_GIVER.search(grammar_nodes.text(root)):
            self.doubts.append("a variable for programs whose value only the shell will know")

    def _visit(self, node: Node) -> None:
        kind = node.type
        if (doubt := grammar_nodes.doubt(node)) is not None:
            self.doubts.append(doubt)
        if kind in grammar_nodes.VALUE_GIVERS:
            self._collect_values(grammar_nodes.given(node))
        if kind in grammar_nodes.COMMANDS:
            self._take_command(node)
        elif kind == "command_substitution":
            self._read_backquoted(grammar_nodes.backquoted(node))
        elif kind == "variable_assignment":
            self._take_assignment(node)
        elif kind == "function_definition":
            self.effects.append("defines a function")
        elif kind == "file_redirect":
            self._take_redirect(node)
        elif kind == "for_statement":
            self.doubts += _doubts_of_variables(
                grammar_nodes.text(child) for child in node.children if child.type == "variable_name"
            )
        elif kind == "expansion" and grammar_nodes.assigns(node):
            self.effects.append("sets a variable")
            self.doubts += _doubts_of_variables(
                grammar_nodes.text(child) for child in node.children if child.type == "variable_name"
            )

    def _read_backquoted(self, source: str) -> None:
        """Parse the text between backquotes again, without the backslashes, as the shell does."""
        if source:
            script = _read(source, self._depth + 1, self._limit)
            self.commands += script.commands
            self.doubts += script.doubts
            self.effects += script.effects
            self.files += script.files
            self.inputs += script.inputs
            self.values += script.values
            self.given += script.given

    def _take_command(self, node: Node) -> None:
        """Take one command; its words may be more than are written, or fewer."""
        parts = [child for child in node.children if child.type not in grammar_nodes.BESIDE_WORDS]
        try:
            words = tuple(self._words(parts))
        except TooManyWords:
            self.doubts.append("braces that become very many words")
            return
        if not words:
            self.doubts.append("a command without a name")
            return
        source = grammar_nodes.text(node)[parts[0].start_byte - node.start_byte :] if node.type == "command" else ""
        stdin = "\n".join(grammar_nodes.fed(node))
        if node.type == "declaration_command":
            self.effects.append("sets a variable")
            is_exported = any(word.text == "export" or word.text.startswith("-x") for word in words)
            self.exported |= {word.text for word in words[1:] if is_exported and word.text.isidentifier()}
        self.commands.append(_command(words, self._depth, self._limit, set(), source=source, stdin=stdin))

    def _words(self, parts: list[Node]) -> Iterator[Word]:
        for part in parts:
            if part.type == "file_redirect":
                continue
            for word in expand(tuple(_pieces_of_word(part))):
                yield Word(word.text, word.loose, grammar_nodes.text(part))

    def _collect_values(self, parts: list[Node]) -> None:
        try:
            words = list(self._words(parts))
        except TooManyWords:
            self.doubts.append("braces that become very many words")
            return
        self.given += [Word(part, part, word.source) for word in words for part in word.text.split()]

    def _take_assignment(self, node: Node) -> None:
        self.effects.append("sets a variable")
        name = grammar_nodes.text(node).partition("=")[0].rstrip("+")
        self.doubts += _doubts_of_variables([name])
        self.assigned.add(name)
        value = "".join(text for child in node.children[2:] for text, _ in _pieces_of_word(child))
        self.values.append(value)
        if "`" in value.replace(HOLE, "") or "$(" in value:
            self.doubts.append("a variable that holds a command")

    def _take_redirect(self, node: Node) -> None:
        operator = next((child.type for child in node.children if not child.is_named), "")
        target = [child for child in node.children if child.is_named and child.type != "file_descriptor"]
        try:
            words = [word for part in target for word in expand(tuple(_pieces_of_word(part)))]
        except TooManyWords:
            words = []
        self.files += words
        self.inputs += words if operator.startswith("<") else []
        if len(words) != 1 or not grammar_nodes.only_reads(operator, words[0]):
            self.effects.append("writes a file")


def _pieces_of_word(node: Node) -> Iterator[Piece]:
    """Yield the text of one word, piece by piece, without its quotes.

    Node kinds without a case here are holes if they have parts, and plain text if they have none.
    """
    kind = node.type
    if kind in ("command_name", "concatenation"):
        for child in node.children:
            yield from _pieces_of_word(child)
    elif kind == "raw_string":
        yield grammar_nodes.text(node)[1:-1], True
    elif kind == "ansi_c_string":
        yield ansi_c(grammar_nodes.text(node)[2:-1]), True
    elif kind in ("string", "translated_string"):
        yield "", True
        yield from _pieces_of_quoted(node if kind == "string" else node.children[-1])
    elif kind in grammar_nodes.UNKNOWN_VALUES:
        yield HOLE, False
    elif kind in grammar_nodes.UNQUOTED:
        yield from unescaped(grammar_nodes.text(node), quoted=False)
    elif node.child_count:
        yield HOLE, False
    elif kind == "``" or (kind == "$" and node.next_sibling is not None and node.next_sibling.type == "string"):
        yield "", False  # an empty command substitution, or the sign of `r$"m"`: the grammar has no node for them
    else:
        yield grammar_nodes.text(node), False


def _pieces_of_quoted(node: Node) -> Iterator[Piece]:
    """Yield the parts of a double-quoted text.

    Blanks next to an expansion have no node of their own: cut by offsets.
    """
    whole, place = node.text or b"", 1
    for child in node.children:
        if child.type in grammar_nodes.UNKNOWN_VALUES:
            start = child.start_byte - node.start_byte
            yield from unescaped(whole[place:start].decode(errors="replace"), quoted=True)
            yield HOLE, True
            place = child.end_byte - node.start_byte
    yield from unescaped(whole[place:-1].decode(errors="replace"), quoted=True)
