"""Patterns of passwords that stand in prose, in logs, in tables and behind the options of command lines.

A password has no format of its own: the words around it say that it is one, and its letters, digits and signs that it
is not an ordinary word. A find in prose is a guess (`Format.is_certain`). Figures: `bench/redaction.py`.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from typing import Final

from ...core.patterns import regex
from .formats import Format
from .values import is_password, is_placeholder, is_reference, kinds

_TECHNICAL: Final = regex(
    rb"\b(?:sha-?\d|md5|base\d|utf|aes|rsa|rfc|iso-?\d|python|x509|sql\b|ssl|tls|nist)|oauth|https?|pbkdf|crypt|argon|ldap"
    rb"|pkcs|saml|pass_?word|passwd|\d-?(?:char|digit|bit|byte|letter|day|hour|min|time|month|year|factor|step)",
    re.IGNORECASE,
)
"""Words with digits that stand behind the word password without being one: algorithms, standards, lengths, times."""
_NOT_CHOSEN: Final = regex(
    rb"[/\\(){}<>=\[\]|`\"',;:]|\w@\w+\.|\A[a-z]+@\Z|\A[a-z]+\d?(?:_[a-z]+\d?)+\Z|\A[A-Za-z]+\d?\Z(?<!\d)"
)
_LETTER: Final = regex(rb"[A-Za-z]")
_DIGIT_OR_SIGN: Final = regex(rb"[0-9!@#$%^&*+?~]")

_NAME: Final = (
    rb"(?:[a-z]*pass(?:word|wort|wd|phrase|code)|kennwort|mot[ _]de[ _]passe|contrase(?:n|\xc3\xb1)a"
    rb"|palavra-passe|senha|wachtwoord|mdp)"
)
_SHORT: Final = rb"(?:pwd|pw)"
_IS: Final = (
    rb"(?:is|was|are|be|to|of|as|reads|enter|type|use|lautet|ist|war|hei(?:\xc3\x9f|ss)t|est|es|era"
    rb"|qued\xc3\xb3 en|\xc3\xa8)"
    rb"(?:\s+(?:now|still|currently|set\s+to|changed\s+to|jetzt|nun|d\xc3\xa9sormais|maintenant|ahora|ora))?"
)
_WHOSE: Final = (
    rb"(?:the|my|your|our|his|her|their|and|root|db|database|admin|user|login|wi-?fi|wlan|e?mail|vpn|ftp|ssh|sudo|smtp"
    rb"|imap|router|host|server|default|temp|temporary|initial|new|old|master)"
)
"""Words that make `pass` or `pin` behind them a password: `root pass is …`."""
_ARROW: Final = rb"(?:->|=>|=|-|\xe2\x80[\x93\x94]|\xe2\x86\x92)"
_OPEN: Final = rb"[\"']?"
_FOREIGN: Final = rb"(?:\xc2\xab(?:\s|\xc2\xa0)*|\xe2\x80[\x9c\x9e])?"
"""Quotation marks of other languages."""
_WORD: Final = rb"([^\s\"'`]{5,}[^\s\"'`.,;:?)])"
"""An unquoted word of six bytes or more, without the punctuation of the sentence."""
_QUOTED: Final = rb"[\"'`]([^\s\"'`]{4,})[\"'`]"
_ARGUMENT: Final = rb"[\"']?([^\s\"'<>$-][^\s\"'<>]{3,})"
"""An argument on a command line; a variable (`$PASSWORD`) and a further option are none."""

_CLAUSE: Final = rb"(?i)\b(?:" + _NAME + rb"|" + _SHORT + rb")\b((?:[^\n.;:=|]|\.\w|:\s){6,160})"
_STATED: Final = regex(rb"(?<=[\s'])" + _IS + rb":?\s+[\"'`]?" + _FOREIGN + rb"(?=" + _WORD + rb")", re.IGNORECASE)
"""A verb, and what it says; in the clause the words of two verbs may overlap (`was changed to …`)."""
_HEADING: Final = (
    rb"(?im)^(?:[^\n']{0,300}[|,;\t])?[ \t]*\"?((?:[\w-]+[ \t]){0,3}[\w-]*(?:"
    + _NAME
    + rb"|"
    + _SHORT
    + rb")(?:[ \t][\w()-]+){0,2})"
    rb"\"?[ \t]*(?:[|,;\t]|\r?$)"
)
"""A column of passwords in a table with `|`, commas, semicolons or tabulators."""
_NAMED: Final = regex(_NAME, re.IGNORECASE)

_INSERTED: Final = (
    rb"(?i)\binsert\s+(?:ignore\s+)?into\s+\S+\s*\(([^)]{0,400}\b\w*" + _NAME + rb"\b[^)]{0,400})\)\s*values"
)
_ROWS: Final = regex(rb"\)\s*values", re.IGNORECASE)
_ROW: Final = regex(rb"\s*,?\s*\(((?:'[^']*'|[^()'])*)\)")
_VALUE: Final = regex(rb"\s*(?:'([^']*)'[^,]*|[^,']*)(?:,|\Z)")


def _is_chosen(value: bytes) -> bool:
    """Whether `value`, in prose about a password, is one that a person chose: letters, and digits or signs.

    Between six and 64 bytes; words, references and technical terms are none.
    """
    value = value.rstrip(b".,;:?)")
    if not 6 <= len(value) <= 64 or is_placeholder(value) or is_reference(value):
        return False
    if _TECHNICAL.search(value) or _NOT_CHOSEN.search(value):
        return False
    if value[:1] in b"-_." and kinds(value) < 3:
        return False
    return _LETTER.search(value) is not None and _DIGIT_OR_SIGN.search(value) is not None


def _is_strong(value: bytes) -> bool:
    """Whether `value`, right behind the word, can be nothing but a password: letters of both cases, digits or signs."""
    return kinds(value) >= 3 and _is_chosen(value)


def _is_given(value: bytes) -> bool:
    """Whether the value of a password option is the password itself."""
    is_word = len(value) < 12 and value.isalpha() and value.islower()  # of a manual: `--password takes`
    return is_password(value) and not is_placeholder(value) and not is_word and not value.isupper()


def _stated(raw: bytes, start: int, end: int) -> Iterator[tuple[int, int]]:
    """Yield the words that follow a verb in the rest of a clause about a password."""
    for found in _STATED.finditer(raw, start, end):
        yield found.span(1)


def _cells(raw: bytes, start: int, end: int) -> Iterator[tuple[int, int]]:
    """Yield where the cells are below the heading of a column, until a line has no such column or is a heading, too.

    Columns are counted by the sign that the heading has most of.
    """
    line = raw.rfind(b"\n", 0, start) + 1
    close = raw.find(b"\n", end)
    heading = raw[line : close if close >= 0 else len(raw)].replace(b"||", b"|")  # as in the table of a wiki
    sign = max((b"|", b",", b";", b"\t"), key=heading.count)
    column, signs = raw[line:start].replace(b"||", b"|").count(sign), heading.count(sign)
    while close >= 0 and signs:
        line, close = close + 1, raw.find(b"\n", close + 1)
        row = raw[line : close if close >= 0 else len(raw)]
        if not row.strip(b"-+=: \t\r|"):  # the line below a heading
            continue
        cells = row.split(sign)
        value = cells[column].strip(b" \t\r\"'`") if len(cells) == signs + 1 else b"password"
        if _NAMED.search(value):
            return
        begin = line + sum(len(cell) + 1 for cell in cells[:column]) + cells[column].find(value)
        yield begin, begin + len(value)


def _values(raw: bytes, start: int, end: int) -> Iterator[tuple[int, int]]:
    """Yield where the passwords are in the rows of a statement that inserts them; `start` is that of its columns."""
    columns = [_NAMED.search(name) is not None for name in raw[start:end].split(b",")]
    row = _ROWS.match(raw, end)
    while row is not None and (row := _ROW.match(raw, row.end())) is not None:
        for is_named, found in zip(columns, _VALUE.finditer(raw, *row.span(1)), strict=False):
            if is_named and found[1]:
                yield found.span(1)


def _prose(pattern: bytes, judge: Callable[[bytes], bool] = _is_chosen) -> Format:
    """Return the format of a password in a sentence, a log or a table: a guess, confirmed by `judge`."""
    return Format("password", rb"(?i)" + pattern, judge, is_certain=False)


def _certain(pattern: bytes, judge: Callable[[bytes], bool] = _is_given) -> Format:
    """Return the format of a password at a place where nothing else stands."""
    return Format("password", pattern, judge)


def _option(programs: bytes, option: bytes) -> Format:
    """Return the format of an option, up to its value, of some programs."""
    return _certain(rb"\b(?:" + programs + rb")\b[^\n|]{0,160}\s(?:" + option + rb")" + _ARGUMENT)


PASSWORD_FORMATS: Final[tuple[Format, ...]] = (
    # Behind a quote only a password is possible
    _certain(rb"(?i)\b" + _NAME + rb"(?:\s+" + _IS + rb")?:?\s+" + _QUOTED, is_password),
    _certain(
        rb"(?i)\b(?:user|role|to)\s[^\n]{1,120}\sidentified\s+(?:with\s+\S+\s+)?by\s+(?:password\s+)?" + _QUOTED,
        is_password,
    ),
    _certain(rb"(?i)\bConvertTo-SecureString\s+(?:-String\s+)?" + _QUOTED, is_password),
    # Sentences
    Format("password", _CLAUSE, _is_chosen, is_certain=False, below=_stated),
    _prose(rb"\b" + _NAME + rb"\b[^\n.;:,=|\"']{0,30}\sfrom\s+" + _WORD, _is_strong),
    _prose(rb"\b(?:chang|updat|rotat)\w+\s+(?:\w+\s+){0,3}" + _NAME + rb"\s+from\s+" + _WORD),
    _certain(rb"(?i)\b" + _SHORT + rb"(?:\s+" + _IS + rb")?:?\s+[\"'`]([^\s\"'`]{4,})[\"'`]", is_password),
    _prose(rb"\b" + _WHOSE + rb"\s+(?:pass|pin)\s+(?:is|was)(?:\s+now)?:?\s+" + _WORD),
    _prose(
        rb"\b(?:use|used|using|enter|type|try|set|choose|with)\s+([^\s\"'`]{6,})\s+as\s+(?:\w+\s+){0,4}(?:"
        + _NAME
        + rb"|pw)\b"
    ),
    _prose(
        rb"\b(?:"
        + _NAME
        + rb"|"
        + _SHORT
        + rb")\b[^\n?]{0,60}\?\s+(?:\[[^\]\n]*\]\s*)?[\w .@-]{1,24}:\s+(?:it'?s\s+)?"
        + _WORD
    ),  # an answer in a chat
    _prose(rb"\b(?:" + _NAME + rb"|" + _SHORT + rb")\b[^\n]{0,80}\bnew(?:\s+one)?:\s+" + _WORD),
    _prose(rb"\b(?:log(?:ged)?|sign(?:ed)?)[- ]?in\b[^\n.]{0,40}\s(?:with|as|using)\s+[\w.@-]+\s*/\s*" + _WORD),
    _prose(rb"\b(?:clave|parola d'ordine)\s?:\s+" + _WORD),
    _prose(rb"\b(?:use|enter|type)\s+" + _WORD + rb"\s+(?:when|if|where|as soon as)\s[^\n.]{0,60}\b" + _NAME),
    _prose(rb"\b" + _WHOSE + rb"\s+(?:\w+\s+){0,2}" + _NAME + rb",\s+" + _WORD),
    _prose(
        rb"(?:\b(?:and|with|und|mit|et|avec|con|y|e|supplied|provided|rejected|using)|[/?,;+&])\s+(?:(?:the|la|le|das|initial|temporary|default|new)\s+){0,2}(?:"
        + _NAME
        + rb"|"
        + _SHORT
        + rb"):?\s+"
        + _WORD
    ),
    _prose(rb"\b" + _NAME + rb"\s+\(?([^\s\"'`()]{5,}[^\s\"'`.,;:?()])", _is_strong),
    _prose(rb"\b" + _NAME + rb"\s+\(([^\s\"'`()]{6,})\)"),
    _prose(
        rb"\b(?:cred(?:ential)?s?|(?:log|sign)[- ]?in|zugangsdaten)(?::|\s+(?:is|are|with|as|using):?)\s+[\w.@-]+"
        rb"(?:\s*/\s*|:)([^\s\"'`/]{5,}[^\s\"'`.,;:?)])"
    ),
    # Fields of notes, logs and tables
    _prose(rb"\b" + _NAME + rb"\b[^\n:=]{0,40}:\s+" + _WORD),
    _prose(rb"\b(?:" + _NAME + rb"|" + _SHORT + rb")(?:\s[^\n:=.,]{0,30})?\s" + _ARROW + rb"\s+" + _WORD),
    _prose(rb"\b" + _WHOSE + rb"\s+(?:pass|pin|" + _SHORT + rb")\s?[:=]\s*" + _WORD),
    _prose(rb"(?:[a-z]_pass|\b" + _SHORT + rb"):\s+([^\s\"'`,;&]{5,})"),
    _prose(rb"(?:[\"']pass\\*[\"']|\w*pass)\s*[:=]\s*\\*[\"']([^\s\"'`,;&]{5,})"),
    _prose(_NAME + rb"(?:[\]\w-]*[\"'][ \t]*,|\(|\s*\*/)[ \t]*[\"']([^\s\"'`]{6,})[\"']"),  # an argument in code
    _prose(_NAME + rb"[\"'\])]{1,4}\.\w+\(\s*[\"']([^\s\"'`]{6,})[\"']"),
    _prose(
        rb"\b(?:login|log_in|sign_in|connect|getConnection|auth=?|authenticate|\w*BasicAuth|basic_auth|NetworkCredential|mysqli)\("
        rb"\s*(?:[\"'][^\"'\n]{0,200}[\"']\s*,\s*){1,2}[\"']([^\s\"'`]{6,})[\"']"
    ),
    Format("password", _INSERTED, is_password, is_certain=False, below=_values),
    _certain(
        rb"(?i)\bvariable\s+\"[\w-]*" + _NAME + rb"[\w-]*\"\s*\{[^}]{0,200}\bdefault\s*=\s*\"([^\"\s]{4,})\"",
        is_password,
    ),
    _certain(
        rb"(?i)\bname[\"']?:\s*[\"']?[\w-]*" + _NAME + rb"[\"']?,?\s+[\"']?value[\"']?:\s*[\"']?([^\s\"',}]{4,})",
        is_password,
    ),
    _prose(rb"[\"'][\w.-]+:([^\s\"'@]{4,}(?:@[^\s\"'@]+)?)@(?:tcp|unix)\("),
    _prose(rb"assword:?[\"']?\s+send\s+[\"']([^\s\"'\\]{4,})"),
    _prose(rb"\bLOGIN\s+[\"']?[\w.@+-]+[\"']?\s+[\"']?([^\s\"'`]{6,})"),
    _prose(rb"\b(?:password|secret)\s+\d\s+(\S{4,})"),  # the configuration of a network device
    Format("password", rb"\bPASS\s+" + _WORD, _is_strong, is_certain=False),  # FTP, POP3
    _prose(rb"(?:\b|[a-z]_)(?:pass|pw)=([^\s\"'`,;&]{5,})"),
    _prose(rb"\b(?:user|username|login)[:=]\s?\S+\s+(?:pass|pw):?[:=]?\s?([^\s\"'`]{4,}[^\s\"'`.,;:?)])"),
    _prose(rb"\|\s*(?:" + _NAME + rb"|pass|" + _SHORT + rb")\s*\|\s*([^\s|]{5,})\s*\|"),
    _prose(rb"(?m)^\s*\w*" + _NAME + rb"\s+\|\s+(\S{5,})\s*$"),
    _prose(rb"\bKey Content\s*:\s+" + _WORD),
    _certain(rb"(?i)<password>\s*<value[^>]*>([^<\s]{4,})", is_password),
    _certain(rb"(?i)>password</\w+>\s*<value[^>]*>([^<\s]{4,})", is_password),
    Format("password", _HEADING, _is_chosen, is_certain=False, below=_cells),
    _prose(rb"(?m)^[\w.*-]+:(?:\d{2,5}|\*):[\w*-]+:[\w*-]+:(\S{4,})(?:\s*#[^\n]*)?$"),  # a line of `.pgpass`
    _certain(rb"(?i)<[\w:.-]*(?:password|passwd|secret|api_?key)>\s*([^<>\s]{4,})\s*</", is_password),
    _certain(
        rb"(?i)key=\\*\"[^\"]{0,80}(?:password|secret|token|api_?key)[^\"]{0,80}\"\s+value=\\*\"([^\"\s\\]{4,})",
        is_password,
    ),
    _certain(rb"(?i)(?:password|pwd)%5D=([^\s\"'<>&]{4,})"),
    _certain(rb"(?i)[;?&](?:password|pwd)=([^\s\"'<>$;&(){}]{4,})(?:;|&|\s|$)"),
    _certain(rb"\bmachine\s+\S+\s+login\s+\S+\s+password\s+(\S{3,})", is_password),
    _certain(rb"(?i)\b(?:requirepass|masterauth|rootpw(?:\s+--plaintext)?)[\"']?\s+" + _ARGUMENT),
    _certain(rb"(?i)\bpsk=[\"']?([^\s\"'<>$]{8,63})"),
    # Command lines: options of any program, then of those whose option has another meaning elsewhere
    _certain(rb"(?i)\s--?pass(?:word|wd|phrase)?\s+" + _ARGUMENT),
    _certain(rb"(?i)\s/(?:password|pass|p):" + _OPEN + rb"([^\s\"'<>$*]{4,})"),
    _certain(rb"(?i)\s-pass(?:in|out)?\s+[\"']?pass:([^\s\"'<>$]{4,})"),
    _certain(rb"(?i)\s-(?:src|dest)?(?:key)?(?:store|key)pass(?:wd)?\s+" + _ARGUMENT),
    _certain(rb"\s-U\s+" + _OPEN + rb"[\w.\\/-]+%([^\s\"'<>$][^\s\"'<>]{3,})"),
    _certain(
        rb"\b(?:echo|printf)\s+(?:-\w+\s+)?[\"']?([^\s\"'<>|:]{4,}?)(?:\\n)?[\"']?\s*\|[^\n]{0,120}"
        rb"(?:--pass(?:word|wd|phrase)?(?:-on)?-(?:stdin|fd)|--stdin\b|\bkinit\b|\bcryptsetup\b|\bsudo\s+(?:-\w+\s+)*-\w*S)"
    ),
    _certain(rb"\becho\s+(?:-\w+\s+)?[\"']?[\w.-]+:([^\s\"'<>|]{4,})[\"']?\s*\|\s*(?:sudo\s+)?chpasswd"),
    _certain(rb"(?i)\bpassword\s*=\s*N'([^'\s]{4,})'", is_password),
    _certain(rb"(?i)<input\b[^>]{0,200}\btype=[\"']?password\b[^>]{0,200}\bvalue=[\"']([^\"'\s]{4,})", is_password),
    _certain(
        rb"(?i)<input\b[^>]{0,200}\bvalue=[\"']([^\"'\s]{4,})[\"'][^>]{0,200}\btype=[\"']?password\b", is_password
    ),
    _certain(
        rb"(?i)\b(?:curl|https?|xh|ab|wget)\b[^\n]*\s(?:-[uUaA]|--user|--proxy-user|--auth)[ =]?[\"']*[^\s\"':<>]*"
        rb"[\"']*:[\"']*([^\s\"'<>/][^\s\"'<>]{2,})",
        is_password,
    ),
    _certain(rb"\bmysql(?:dump|admin|import|check)?\b[^\n|]{0,120}\s-p" + _OPEN + rb"([^\s\"'<>$]{4,})"),
    _certain(rb"\b(?:7z[arz]?|rar|unrar)\b[^\n|]{0,120}\s-h?p" + _OPEN + rb"([^\s\"'<>$]{4,})"),
    _certain(rb"\bsshpass\s+-p\s*" + _ARGUMENT),
    _certain(rb"\bhtpasswd\s+-[a-zB]*b[a-zB]*\s+\S+\s+\S+\s+" + _ARGUMENT),
    _certain(rb"\bsqlplus\s+[\w.-]+/([^\s\"'<>$@]{4,})"),
    _certain(rb"\blftp\b[^\n|]{0,80}\s-u\s+" + _OPEN + rb"[\w.@-]+,([^\s\"'<>$]{4,})"),
    _certain(rb"\brabbitmqctl\s+(?:add_user|change_password)\s+\S+\s+" + _ARGUMENT),
    _certain(rb"(?i)\bnet\s+use\b[^\n|]{0,120}/user:\S+\s+([^\s\"'<>$/*][^\s\"'<>]{3,})"),
    _certain(rb"(?i)\bnet\s+use\s+\S+\s+\S+\s+([^\s\"'<>$/*][^\s\"'<>]{3,})\s+/user:"),
    _certain(rb"(?i)\bnet\s+user\s+\S+\s+([^\s\"'<>$/*][^\s\"'<>]{3,})"),
    _certain(rb"\bwpa_passphrase\s+\S+\s+" + _ARGUMENT),
    _option(rb"redis-cli", rb"-a\s+|AUTH\s+"),
    _option(rb"ldap(?:search|add|modify|delete|whoami|passwd)", rb"-w\s+"),
    _option(rb"snmp\w+", rb"-[AX]\s+"),
    _option(rb"(?:docker|podman|buildah|skopeo|helm\s+registry|az|oc|cf)\s+login", rb"-p\s+"),
    _option(rb"mongo\w*|cqlsh|psexec|rdesktop|winexe|evil-winrm", rb"-p\s+"),
    _option(rb"ipmitool|sqlcmd|bcp|mosquitto_(?:pub|sub)|unzip|zip|ssh-keygen", rb"-P\s+"),
    _option(rb"ssh-keygen", rb"-N\s+"),
    _option(rb"useradd|usermod", rb"-p\s+"),
    _option(rb"nmcli", rb"password\s+"),
)
"""Most certain first: where two overlap, the first names the kind."""
