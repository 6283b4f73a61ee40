"""Node kinds of the bash grammar, and their meaning for a reader of commands. An unlisted kind is a doubt.

The grammar is lenient where bash is not, so that a tree without errors proves nothing yet: `doubt` looks at each node
for text that the two put together in different ways (`_SPLIT_DOUBT`), for substitutions that the grammar saw as plain
text, and for arithmetic, in which bash runs the values of variables.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from itertools import pairwise, takewhile
from typing import Final

from tree_sitter import Node

from ...core.patterns import regex
from .script import Word

COMMANDS: Final = frozenset({"command", "declaration_command", "unset_command", "test_command"})
"""Nodes that run a command, with its words."""

BESIDE_WORDS: Final = frozenset(
    {"variable_assignment", "variable_assignments", "herestring_redirect", "heredoc_redirect"}
)
"""Parts of a command that are not words of it."""

UNKNOWN_VALUES: Final = frozenset(
    {"simple_expansion", "expansion", "command_substitution", "process_substitution", "arithmetic_expansion"}
)
"""Values known only to the running shell."""

UNQUOTED: Final = frozenset({"word", "number", "variable_name", "test_operator", "extglob_pattern", "regex"})
"""Text outside of quotes."""

VALUE_GIVERS: Final = frozenset({"variable_assignment", "for_statement", "array", "herestring_redirect", "expansion"})
"""Nodes with words that a variable gets."""
_NAMES: Final = frozenset({"variable_name", "special_variable_name", "subscript"})

_STRUCTURE: Final = frozenset(
    "program list pipeline redirected_statement subshell compound_statement if_statement elif_clause else_clause"
    " for_statement while_statement do_group case_statement case_item negated_command command_name concatenation"
    " string raw_string ansi_c_string translated_string string_content special_variable_name file_descriptor"
    " herestring_redirect heredoc_redirect heredoc_start heredoc_body heredoc_content heredoc_end comment array"
    " variable_assignments brace_expression file_redirect function_definition"
    " subscript unary_expression binary_expression parenthesized_expression"
    " c_style_for_statement postfix_expression ternary_expression".split()
)
_KNOWN_KINDS: Final = _STRUCTURE | COMMANDS | BESIDE_WORDS | UNKNOWN_VALUES | UNQUOTED
"""All kinds with a known meaning. A new version of the grammar with a new kind makes doubts, not holes in the policy.
"""
_ARITHMETIC_WITHOUT_NAMES: Final = regex(rb"[\s\d+*/%()<>=!&|^~?:,-]*")
"""Arithmetic that names no variable: a variable's value would be run as arithmetic, commands in it included."""
_PLAIN_INDEX: Final = regex(rb"[@*\d]*")
_HIDDEN_SUBSTITUTION: Final = regex(r"(?<!\\)(?:`|\$[({])|[<>]\(")
"""Text that the shell would run although the grammar saw plain text."""
_SUBSTITUTION: Final = regex(r"(?<!\\)(?:`|\$[({])")
_EXPANDED_KINDS: Final = frozenset({"string_content", "heredoc_content", "heredoc_body"})
_SINGLE_LINE_KINDS: Final = frozenset(
    {"command", "declaration_command", "file_redirect", "herestring_redirect", "redirected_statement"}
)
"""Nodes whose parts are on one line."""
_ADJACENT_KINDS: Final = frozenset({"concatenation", "variable_assignment"})
"""Nodes whose parts are adjacent."""
_GAP: Final = regex(rb"(?<!\\)\n|[^\s\\]")
_ARITHMETIC_COMPARISON: Final = regex(rb"\s-(?:eq|ne|lt|le|gt|ge|v|R)\s")

_SPLIT_DOUBT: Final = "words that the grammar and the shell put together in different ways"
_ARITHMETIC_DOUBT: Final = "arithmetic with variables"
_METACHARACTER: Final = regex(rb"[\s;&|()<>]")
_DELIMITER: Final = regex(rb"(?:[^\s;&|()<>'\"\\]|\\.|'[^'\n]*'|\"[^\"\n]*\")+")
_QUOTING: Final = regex(rb"[\\'\"]")
_SPACE: Final = regex(rb"(?<!\\)\s")
_DUPLICATED: Final = regex(rb"[<>]&|&>")
_OPENING: Final = regex(rb"\[\[?\s")
_ANGLE: Final = regex(r"(?<!\\)[<>]")
_REDIRECTS: Final = frozenset({"<", ">", "<<", ">>", "<=", ">="})
_READING: Final = frozenset({"<", "<&", "<&-", ">&-"})


def text(node: Node) -> str:
    """Return the source of a node."""
    return (node.text or b"").decode(errors="replace")


def doubt(node: Node) -> str | None:
    """Return why this node could run a command outside of the tree; None when it could not.

    Called for every node of every tree: it returns at the first reason.
    """
    kind = node.type
    if node.is_error or node.is_missing:
        return "it cannot be parsed as bash"
    if not node.is_named:
        return None
    if kind not in _KNOWN_KINDS:
        return f"a {kind.replace('_', ' ')}, which is not known here"
    if (kind in _ADJACENT_KINDS and _text_between(node)) or (
        kind in _SINGLE_LINE_KINDS and _GAP.search(_text_between(node))
    ):
        return _SPLIT_DOUBT
    if (kind in UNQUOTED and _HIDDEN_SUBSTITUTION.search(text(node))) or (
        kind in _EXPANDED_KINDS and _has_hidden_substitution(node)
    ):
        return "a substitution where the grammar has none"
    check = _DOUBT_BY_KIND.get(kind)
    return check(node, node.text or b"") if check is not None else None


def given(node: Node) -> list[Node]:
    """Return the words that a variable gets: `x=.env`, `for x in a b`, `${x:-.env}`."""
    if node.type == "for_statement":
        return node.children_by_field_name("value")
    return [child for child in node.named_children if child.type not in _NAMES]


def _case_item(node: Node, source: bytes) -> str | None:
    """Patterns have `|` between them: in `a)( rm x )` the grammar sees one pattern."""
    patterns = [child for child in takewhile(lambda child: child.type != ")", node.children) if child.is_named]
    bars = sum(child.type == "|" for child in node.children)
    return None if len(patterns) == bars + 1 else _SPLIT_DOUBT


def _command(node: Node, source: bytes) -> str | None:
    """Two words with nothing between them are one to the shell, and a pattern may be more than one."""
    if any(child.type == "regex" and (_SPACE.search(child.text or b"") or _redirects(node)) for child in node.children):
        return _SPLIT_DOUBT
    touching = (right for left, right in pairwise(node.children) if left.end_byte == right.start_byte)
    return None if all(right.type.endswith("_redirect") for right in touching) else _SPLIT_DOUBT


def _redirect(node: Node, source: bytes) -> str | None:
    """Bash expands the word behind `>&` twice, in quotes as well."""
    if _DUPLICATED.search(source) and (b"$" in source or b"`" in source):
        return "a word that is expanded twice"
    return "words behind the file of a redirection" if len(node.children_by_field_name("destination")) > 1 else None


def _document(node: Node, source: bytes) -> str | None:
    """A here-document ends where its delimiter is; the grammar may take more for one, and another line for its end."""
    ends = [child.text or b"" for child in node.children if child.type in ("heredoc_start", "heredoc_end")]
    is_whole = len(ends) == 2 and _DELIMITER.fullmatch(ends[0]) and _QUOTING.sub(b"", ends[0]) == ends[1].strip()
    return None if is_whole else _SPLIT_DOUBT


def _comment(node: Node, source: bytes) -> str | None:
    """A sign in the middle of a word, such as `}#`, begins none in a shell."""
    before = node.prev_sibling
    if before is None or before.end_byte < node.start_byte:
        return None
    return None if _METACHARACTER.fullmatch((before.text or b"")[-1:]) else _SPLIT_DOUBT


def _variable(node: Node, source: bytes) -> str | None:
    return "a variable without a name" if len(source.split()) > 1 else None


def _expansion(node: Node, source: bytes) -> str | None:
    return "an expansion that may run its value" if any(child.type == "@" for child in node.children) else None


def _substitution(node: Node, source: bytes) -> str | None:
    """Return the text between backquotes without the backslashes that the shell removes before it parses."""
    return "a backslash between backquotes" if source.startswith(b"`") and b"\\" in source else None


def _arithmetic(node: Node, source: bytes) -> str | None:
    return None if _ARITHMETIC_WITHOUT_NAMES.fullmatch(source.strip(b"$([])")) else _ARITHMETIC_DOUBT


def _compound(node: Node, source: bytes) -> str | None:
    """A brace at the beginning of a word is a part of it: `{rm,x}`."""
    if source.startswith(b"{") and not source[1:2].isspace():
        return _SPLIT_DOUBT
    return _arithmetic(node, source) if source.startswith(b"((") else None


def _counting(node: Node, source: bytes) -> str | None:
    return _arithmetic(node, source.partition(b"((")[2].partition(b"))")[0])


def _subscript(node: Node, source: bytes) -> str | None:
    return None if _PLAIN_INDEX.fullmatch(source.partition(b"[")[2].rpartition(b"]")[0]) else _ARITHMETIC_DOUBT


def _test(node: Node, source: bytes) -> str | None:
    if _ARITHMETIC_COMPARISON.search(source):
        return _ARITHMETIC_DOUBT
    return None if _OPENING.match(source) and (source.startswith(b"[[") or not _redirects(node)) else _SPLIT_DOUBT


def _redirects(node: Node) -> bool:
    """Whether a part of `[` is a redirection: only `[[` compares by `<` and `>`."""
    return any(
        child.type in _REDIRECTS
        or (child.type in UNQUOTED and _ANGLE.search(text(child)) is not None)
        or (child.type.endswith(("_expression", "concatenation")) and _redirects(child))
        for child in node.children
    )


_DOUBT_BY_KIND: Final[Mapping[str, Callable[[Node, bytes], str | None]]] = {
    "arithmetic_expansion": _arithmetic,
    "c_style_for_statement": _counting,
    "case_item": _case_item,
    "command": _command,
    "command_substitution": _substitution,
    "comment": _comment,
    "compound_statement": _compound,
    "declaration_command": _command,
    "expansion": _expansion,
    "file_redirect": _redirect,
    "heredoc_redirect": _document,
    "simple_expansion": _variable,
    "subscript": _subscript,
    "subshell": _compound,
    "test_command": _test,
    "unset_command": _command,
    "word": lambda node, source: _SPLIT_DOUBT if _SPACE.search(source) else None,
}


def _text_between(node: Node) -> bytes:
    """Return the text between the parts of a node: blanks and continued lines only, in a valid tree."""
    source, place, gaps = node.text or b"", 0, b""
    for child in node.children:
        gaps += source[place : child.start_byte - node.start_byte]
        place = child.end_byte - node.start_byte
    return gaps


def _has_hidden_substitution(node: Node) -> bool:
    """Whether an expanded text has parts that the grammar did not see; `<(` is plain there."""
    if node.type == "heredoc_body":
        around = node.parent
        start = next((child for child in around.children if child.type == "heredoc_start"), None) if around else None
        if node.child_count or start is None or re.search(r"[\\'\"]", text(start)):
            return False
    return _SUBSTITUTION.search(text(node)) is not None


def backquoted(node: Node) -> str:
    """Return the text that the shell reads between backquotes with backslashes; empty for any other substitution."""
    if _substitution(node, node.text or b"") is None:
        return ""
    return re.sub(r"\\([\\`$])", r"\1", text(node)[1:-1])


def assigns(node: Node) -> bool:
    """Whether `${x:=y}` sets its variable."""
    return any(child.type in ("=", ":=") for child in node.children)


def fed(node: Node) -> Iterator[str]:
    """Yield the here-documents and here-strings that a command reads."""
    around = node.parent
    inside = (
        node.children if around is None or around.type != "redirected_statement" else [*node.children, *around.children]
    )
    for child in inside:
        if child.type == "herestring_redirect":
            yield text(child).removeprefix("<<<").strip().strip("'\"")
        elif child.type == "heredoc_redirect":
            yield from (text(body) for body in child.children if body.type == "heredoc_body")


def only_reads(operator: str, target: Word) -> bool:
    """Whether a redirection writes no file and opens no connection."""
    if not target.known or target.text.startswith(("/dev/tcp", "/dev/udp")):
        return False
    if operator in _READING:
        return True
    if operator in (">", ">>", ">|", "&>", "&>>"):
        return target.text == "/dev/null"
    return operator == ">&" and (target.text == "/dev/null" or target.text.rstrip("-").isdigit())
