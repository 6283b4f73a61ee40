"""Patterns of secrets: formats of known issuers, names that a secret follows, and the encodings of a known value.

Heuristics tell secrets from names, placeholders, words and hashes of public data in the same position. They look at one
short value; their figures were fitted on the examples and counter-examples of public
scanners' rules and on the standard library's own source (see `tests/unit/toolcrib/results/test_redact.py`).
"""

from __future__ import annotations

import base64
import html
import json
import math
import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from typing import Final
from urllib.parse import quote, quote_plus

from msgspec import Struct

__all__ = [
    "ASSIGNMENT",
    "ISSUER_FORMATS",
    "NAMED",
    "PREFILTER",
    "Format",
    "entropy",
    "is_certain_name",
    "is_credential",
    "is_generated",
    "is_mixed",
    "is_password",
    "is_placeholder",
    "is_random",
    "is_reference",
    "is_uuid",
    "kinds",
    "names_secret",
    "not_example",
    "spellings",
]

_PLACEHOLDER: Final = re.compile(
    rb"example|sample|placeholder|change.?me|your|xxxx|dummy|redact|insert|replace|\*\*\*|\.\.\.|todo|undefined|fake"
    rb"|process\.env|environ|getenv|\{\{|\$\{|\$\(|<[a-z]|%\(|secrets\.|12345678(?:9|$)|abcdefg|qwert[yz]?(?![yz\d])|foobar|lorem",
    re.IGNORECASE,
)
"""Words of documentation, and references to another place."""

_FILLER: Final = re.compile(
    rb"x{5}|X{5}|\.{3}|\*{3}|EXAMPLE|#{5}|PLACEHOLDER|placeholder|REDACTED|\[redacted|0{12}|1{12}|1234567890123"
)
"""Placeholders for the rest of a token in documentation."""

_KEPT: Final = re.compile(rb"\xe2\x9f\xa6secret:[a-z]{10}\xe2\x9f\xa7[^\w]{0,4}")
"""The placeholder of a value that the process keeps (`core.kept_secrets`), and punctuation behind it."""

_NO_PASSWORD: Final = frozenset(
    b"password passwd pass pwd pw token test user username xxx xxxx value string required".split()
)

_NOT_SECRET: Final = frozenset(
    b"password passwd pass pwd secret token key none null nil true false string required optional text hidden user"
    b" username admin root test testing str int bytes bool any number boolean object default value invalid forgot reset"
    b" login empty unknown disabled enabled basic bearer type name postgres mysql localhost".split()
)

_TAG: Final = re.compile(rb"![a-z_/]+")
"""A tag in YAML: what stands behind it is looked up."""
_IS_UUID: Final = re.compile(rb"[0-9a-fA-F]{8}-(?:[0-9a-fA-F]{4}-){3}[0-9a-fA-F]{12}")
_HEX: Final = re.compile(rb"(?:[0-9a-f]+|[0-9A-F]+)")
_PARTS: Final = re.compile(rb"[A-Za-z0-9]+")
_LETTERS: Final = re.compile(rb"[A-Za-z]+")
_DIGITS: Final = re.compile(rb"\d+")

_SIGNS: Final = re.compile(rb"[!@#$%^&*+?~]")
_BIGRAMS: Final = frozenset(
    b"ab ac ad ag ai al am an ap ar as at au ba be bi bl bo bu ca ce ch ci ck cl co cr ct cu da de di do ds ea ec ed"
    b" ee ef eg el em en ep er es et ev ew ex fa fe ff fi fo fr ge gi gr ha he hi ho ia ib ic id ie if ig il im in io"
    b" ip ir is it iv iz ke la ld le li ll lo ls lt lu ly ma me mi mo mp na nc nd ne nf ng ni no ns nt oc od ol om on"
    b" oo op or os ot ou ow pa pe pi pl po pp pr pt py qu ra rc rd re ri rm ro rr rs rt ru ry sa sc se sh si so sp ss"
    b" st su ta tc te th ti tl to tp tr ts tt tu ty ub ue ul um un up ur us ut va ve vi wa wi xt yp ze".split()
)
"""The 180 commonest letter pairs of English and of identifiers: 85 % of the pairs in words, 27 % in random letters."""

_B: Final = rb"(?:^|[^A-Za-z0-9]|\\[bfnrt]|\\u[0-9a-fA-F]{4}|%[0-9A-Fa-f]{2})"

_UUID: Final = rb"[0-9a-fA-F]{8}-[0-9a-fA-F]{4}-[0-9a-fA-F]{4}-[0-9a-fA-F]{4}-[0-9a-fA-F]{12}"

_PEM_BODY: Final = (
    rb"(?:(?:[^-]|-[^-]){64,}-----END[ A-Z0-9_-]*KEY(?: BLOCK)?-----|(?:[A-Za-z0-9+/]{40,}(?:[=\s\"',+]|\\[nr])*)+)"
)

_KIND_SECRET: Final = rb"kind[\"'\\]*:\s*[\"'\\]*Secret\b"
_ENTRY: Final = rb"[\w.-]+[\"'\\]*:\s*[\"'\\]*[A-Za-z0-9+/]{4,}={0,2}"
_ENTRIES: Final = rb"\bdata[\"'\\]*:(?:[\s{\"'\\]|\\n)*(" + _ENTRY + rb"(?:(?:[\s,\"'\\]|\\n)+" + _ENTRY + rb")*)"
"""The base64 entries of a Kubernetes secret, in YAML or JSON."""

_PASSWORD: Final = rb"passw(?:or)?d|passwort|kennwort|passwd|passphrase|pass_?word|pwd|pswd"
_SECRET: Final = rb"secret|token|api[_.-]?key|access[_.-]?key|private[_.-]?key|auth[_.-]?key|credential|creds|passkey"
_WEAK: Final = rb"key|auth|access|api|session|cookie|hmac|salt"

_ISSUERS: Final = (
    rb"adafruit|adobe|airtable|algolia|alibaba|asana|atlassian|auth0|azure|beamer|bitbucket|bittrex|blynk|clojars"
    rb"|cloudflare|codecov|cohere|coinbase|confluence|confluent|contentful|datadog|discord|dnkey|droneci|dropbox|etsy"
    rb"|facebook|fastly|finicity|finnhub|flickr|freshbooks|gitter|gocardless|heroku|hubspot|intercom|jfrog|artifactory"
    rb"|bintray|xray|jenkins|jira|kraken|kucoin|launchdarkly|linear|linked[_-]?in|lob|looker|mailchimp|mailgun|mapbox"
    rb"|mattermost|meraki|message[_-]?bird|netlify|new[_-]?relic|nytimes|new-?york-?times|(?-i:[Oo]kta|OKTA)|openai|particle|plaid|private[_-]?ai"
    rb"|rapidapi|sauce|segment|sendbird|sentry|snyk|sonar|squarespace|(?-i:[Ss]umo|SUMO)|telegr|travis|twilio|twitch|twitter"
    rb"|typeform|yandex|zendesk|contribsys"
)

NAMED: Final = rb"(?:" + b"|".join((_PASSWORD, _SECRET, _WEAK, _ISSUERS)) + rb")"
"""The telling words of a name."""
_OPERATOR: Final = rb"(?:=>|:{1,3}=|[?.+]?==?|\|\||[:=>,])"
_VALUE: Final = rb"[^\s\"'`<>;,\\(){}\[\]&|]"

ASSIGNMENT: Final = (
    rb"(?i)(" + NAMED + rb"(?:[\w.\t -]|\\+t){0,24})"
    rb"([\s\"'\\\]]{0,12}" + _OPERATOR + rb"(?:\\[nrt]|[`\"'\s=>\\@]){0,20})"
    rb"(" + _VALUE + rb"{4,})"
)
"""Groups: the name from its telltale word on, the separator, the value."""

PREFILTER: Final = (
    rb"(?i)" + NAMED + rb"(?:[\w.\t -]|\\+t)*[\s\"'\\\]]*[:=>,|?.+]"
    rb"(?:\\[nrt]|[`\"'\s:=>|\\@])*" + _VALUE + rb"{4}"
)
"""A cheap necessary condition of `ASSIGNMENT`."""

_IS_PASSWORD: Final = re.compile(_PASSWORD, re.IGNORECASE)
_IS_SECRET: Final = re.compile(_SECRET, re.IGNORECASE)
_IS_WEAK: Final = re.compile(
    rb"(?:^|[_.\s-])(?:" + _WEAK + rb")|(?:Key|Auth|Api|Session)(?![a-z])|apikey", re.IGNORECASE
)
_IS_ISSUER: Final = re.compile(rb"(?:^|[^A-Za-z]|(?<=[a-z])(?=(?-i:[A-Z])))(?:" + _ISSUERS + rb")", re.IGNORECASE)

_BEGINNING: Final = rb"(?:\b|_|(?<=[a-z\d])(?=(?-i:[A-Z])))"
"""Of a word in a name: `backend_token` is no token of an end."""
_HARMLESS: Final = re.compile(
    _BEGINNING
    + rb"(?:next|page|continuation|pagination|cancel|sync|start|end|last|first|max|min|num|total|prompt|completion"
    rb"|input|output|cached?|reasoning|special|stop|pad|mask|eos|bos|unk|sep|cls)[ _.-]?tokens?\b"
    rb"|tokens\b|tokeni[sz]|tokenType|token_type|keyboard|keyword|monkey|donkey|turkey|hotkey|author(?![iI]z)|accessib|accessor"
    rb"|(?:public|primary|foreign|sort|partition|row|cache|group|object|composite|natural|surrogate|candidate|shift|arrow)"
    rb"[ _.-]?key|pub[ _.-]?key|public[ _.-]?token|csrf|xsrf|audience|secret[ _.-]?santa|passwordless"
    rb"|[_.-]?(?:ids?|names?|paths?|files?|filename|dir|urls?|uris?|hosts?|ports?|types?|lengths?|sizes?|counts?"
    rb"|polic(?:y|ies)|versions?|hints?|labels?|fields?|format|class|expir(?:y|es|ation)(?:[ _.-]?(?:in|at))?|algorithm"
    rb"|encryption|scheme|strength|history|timeout|retries|attempts|rotation|provider|method|variable|usage|limit|enabled|required|region|endpoint|management|manager|status|ref|store|arn|alias|index"
    rb"|prefix|digest|sha\d*|audience|checksum|fingerprint|etag|hash)[\"'\s]*$",
    re.IGNORECASE,
)
"""Names with a telltale word whose values are not secrets: counters, references, public halves, attributes."""

_HANDLE: Final = re.compile(
    _BEGINNING
    + rb"(?:next|prev(?:ious)?|first|last|start(?:ing)?|end(?:ing)?|begin|before|after|forwards?|backwards?|page"
    rb"|paging|paginat\w*|continu\w*|resum\w*|restart|cursor|skip|offset|position|seek|scan|batch|chunk|part|poll(?:ing)?"
    rb"|commit|state|step|stage|phase|item|row|records?|results?|list(?:ing)?|delta|change|diff|watch|progress|sync\w*"
    rb"|sequence|seq|trace|span|client[ _.-]?request|lock|lease|fenc\w*|consistency|causal|zed|operation|task|workflow"
    rb"|snapshot|scroll|bookmark|version|revision|generation|epoch|concurrency|checkpoint|savepoint|history|transaction"
    rb"|txn|idempotency|dedup\w*|retry|multipart|upload|download|transfer|export|import|iterator|image|document|file|folder"
    rb"|wiki|obj|object|block)[ _.-]?tokens?\b"
    rb"|clientTokens?\b"
    rb"|"
    + _BEGINNING
    + rb"(?:idempotency|dedup\w*|routing|sort|order|page|paging|paginat\w*|next|prev(?:ious)?|last|end"
    rb"|start(?:ing)?|offset|s3|gcs|bucket|blob|file|path|storage|evaluated|exclusive[ _-]?start|job|step|item|issue"
    rb"|message|record|event|entity|hash|range|index|shard|external|lookup|node|thread|correlation|translation|artifact|asset"
    rb"|attachment|thumbnail|preview|avatar|photo|image|video|upload|download|invalidation|document|gpg|pgp|rsa|dsa)"
    rb"[ _.-]?keys?\b"
    rb"|key[ _.-]?marker|keygrip|key[ _.-]?identifier",
    re.IGNORECASE,
)
"""Names of handles that a later call takes back: cursors, resume tokens, keys of objects, of caches and of events."""
_CREDENTIAL: Final = re.compile(
    rb"secret|access|auth(?!ority)|api|refresh|bearer|private|signing|encrypt|passw", re.IGNORECASE
)
_FILE: Final = re.compile(
    rb"\.(?:rpm|deb|gz|tgz|xz|zip|tar|whl|jar|so|js|py|txt|json|ya?ml|bin|exe|dmg|iso|pub|pem|crt)\s*$"
)
_BARE_KEY: Final = re.compile(rb"(?:[\w.-]*\.)?keys?[\s\"']*", re.IGNORECASE)
_ANY_KEY: Final = re.compile(rb"(?:[ _.-]k|K)ey$")
_OBJECT: Final = re.compile(
    rb"[A-Za-z][a-z]{2,}(?:[-_]?\d+)?[/:].+|[0-9a-f]{2,}/[0-9a-f/]{12,}(?:\.\w+)?|.+/.*\.[a-z][a-z0-9]{1,7}(?:\.gz)?"
    rb"|(?:[A-Za-z][a-z]{2,}[-_]).*[-_][0-9a-f]{32,}|(?:[a-z]{3,}\d*[-_]){2,}[\w+/=.-]{16,}|AWSLogs/.*"
)
"""Keys of objects and caches: segments behind a word, or a name with an ending."""
_OF_DIGEST: Final = re.compile(rb"\b(?:checksum|hashed|sha\d*|md5|digest)[ _-]", re.IGNORECASE)
"""Beginning of a name: `checksum/secret` of a deployment, `hashed_secret` of a scanner."""
_DIGEST: Final = re.compile(rb"(?:sha-?\d{1,3}|md5|blake\d\w?|crc\d*)[:_-].+", re.IGNORECASE)

_WORDS: Final = re.compile(rb"_?[A-Za-z][A-Za-z_-]*")
_PATH: Final = re.compile(rb"[a-z_][\w]*(?:\.[a-z_]\w*)+|(?:\.{0,2}|~)/[\w./-]*", re.IGNORECASE)
_URL: Final = re.compile(rb"(?:[a-z][a-z0-9+.-]*://|arn:|urn:).*", re.IGNORECASE)
_NUMBER: Final = re.compile(rb"[-+]?\d+(?:[.:/_-]\d+)*(?:[a-z%]{0,3}|e[-+]?\d+)\.?", re.IGNORECASE)
_VERSION: Final = re.compile(
    rb"(?:[A-Za-z][\w-]*[-_:])?v?\d+(?:\.\d+){1,3}(?:[-+.]\w+)*|\d{4}-\d\d-\d\d.*|\d{1,2}:\d\d.*"
)

_PASS: Final = re.compile(rb"pass(?:word|wd)?(?![a-z0-9])|password|getpass|passwd", re.IGNORECASE)
"""The word for a password in a value, which makes it a name."""

_SHORTEST: Final = 6
"""Characters. Shorter values (`1`, `true`, `dev`) occur in every text."""


def entropy(value: bytes) -> float:
    """Shannon entropy in bits per byte."""
    total = len(value)
    return -sum(count / total * math.log2(count / total) for count in Counter(value).values()) if total else 0.0


def is_placeholder(value: bytes) -> bool:
    """Whether `value` is a placeholder for a secret."""
    if len(set(value)) <= 3 or _begins_reference(value) or value.lower() in _NOT_SECRET:
        return True
    return _PLACEHOLDER.search(value) is not None or _KEPT.fullmatch(value) is not None


def _begins_reference(value: bytes) -> bool:
    """Whether `value` begins as a reference to another place does; `%` and `*` may begin a password of many kinds."""
    if value[:1] in b"%*":
        return value[-1:] in b"%*)" or kinds(value) < 3
    return value[:1] in b"$<{[" or _TAG.fullmatch(value) is not None


def kinds(value: bytes) -> int:
    """How many of upper case, lower case, digits and signs a value has."""
    found = (value.lower() != value, value.upper() != value, _DIGITS.search(value), _SIGNS.search(value))
    return sum(map(bool, found))


def is_reference(value: bytes) -> bool:
    """Whether `value` is a version, a number, a time, an id or a path."""
    shapes = (_VERSION, _NUMBER, _PATH)
    return is_uuid(value) or any(shape.fullmatch(value) is not None for shape in shapes)


def not_example(value: bytes) -> bool:
    """Whether `value` is not a placeholder; for formats that nothing else has."""
    return not is_placeholder(value)


def is_uuid(value: bytes) -> bool:
    """Whether `value` is one UUID: far more often a name than a secret."""
    return _IS_UUID.fullmatch(value) is not None


def is_generated(value: bytes) -> bool:
    """Whether a value in a format that only its issuer uses can be real: not the same few characters over and over."""
    return entropy(value) >= 2.9 and _FILLER.search(value) is None


def is_password(value: bytes) -> bool:
    """Whether `value`, in the place of a password, is one: anything but a word for it."""
    return (
        len(set(value)) > 1
        and value.lower() not in _NO_PASSWORD
        and not _begins_reference(value)
        and _FILLER.search(value) is None
        and _KEPT.fullmatch(value) is None
    )


def is_mixed(value: bytes) -> bool:
    """Whether a value in a rather common format looks generated: digits among letters, no placeholder."""
    digits = sum(48 <= byte <= 57 for byte in value)
    return digits >= 2 and len(set(value)) >= 8 and not is_placeholder(value)


def _is_mixed_beyond_hex(value: bytes) -> bool:
    """Whether a number and a generated word are joined, and the word is no digest (`00012-SHA256`)."""
    return is_mixed(value) and _HEX.fullmatch(value.rpartition(b"-")[2]) is None


def is_credential(value: bytes) -> bool:
    """Whether `value`, standing after the word bearer or authorization, is one."""
    return not is_placeholder(value) and not is_uuid(value) and is_random(value)


def is_random(value: bytes) -> bool:
    """Whether `value` looks generated rather than written: no word, no path, no version, no identifier."""
    if len(value) < 8 or is_placeholder(value):
        return False
    if _HEX.fullmatch(value):
        return len(value) >= 12 and len(set(value)) >= 6
    longest = max(_PARTS.findall(value), key=len, default=b"")
    if 16 <= len(longest) < len(value) and is_random(longest):
        return True
    digits = sum(48 <= byte <= 57 for byte in value)
    if digits == 0:
        return len(value) >= 16 and entropy(value) >= 3.2 and _wordiness(value) < 0.45
    if entropy(value) < 2.6:
        return False
    groups = len(_DIGITS.findall(value))
    return _wordiness(value) < (0.7 if groups >= 3 else 0.56)


def _wordiness(value: bytes) -> float:
    """The share of letter pairs that are common in words; 0 when there are too few letters."""
    pairs = [run[i : i + 2].lower() for run in _LETTERS.findall(value) for i in range(len(run) - 1)]
    if len(pairs) < 3:
        return 0.0
    return sum(pair in _BIGRAMS for pair in pairs) / len(pairs)


class Format(Struct, frozen=True):
    """One kind of secret: the first group of `pattern`. `judge` confirms a match; None accepts every match."""

    kind: str
    pattern: bytes
    judge: Callable[[bytes], bool] | None = None
    is_certain: bool = True
    """Whether the format alone shows a secret; a password in prose is a guess from the words around it."""
    below: Callable[[bytes, int, int], Iterable[tuple[int, int]]] | None = None
    """Returns where the values are in a text, from where their heading is; None where the match is the value."""

    def spans(self, raw: bytes, start: int, end: int) -> Iterable[tuple[int, int]]:
        """Return where the values of a match are that are secrets."""
        found = ((start, end),) if self.below is None else self.below(raw, start, end)
        return found if self.judge is None else [span for span in found if self.judge(raw[slice(*span)])]


def _token(kind: str, *patterns: bytes, judge: Callable[[bytes], bool] = is_generated) -> list[Format]:
    """Tokens that are known by how they begin.

    Where a count, which the scanner reads as `+`, would hit dates, UUIDs or capital letters, the first characters
    are written out (`* 13`): a result that the scanner passes costs a fifth of one that is looked at again.
    """
    return [Format(kind, _B + b"(" + pattern + b")", judge) for pattern in patterns]


ISSUER_FORMATS: Final[tuple[Format, ...]] = (
    # Keys and signed tokens
    Format("private_key", rb"(-----BEGIN[ A-Z0-9_-]*PRIVATE KEY(?: BLOCK)?-----" + _PEM_BODY + rb")"),
    Format("private_key", rb"(LS0tLS1CRUdJTi[A-Za-z0-9+/]{60,}={0,2})"),
    Format("private_key", rb"(?i)private-lines: \d+\s+((?:[A-Za-z0-9+/=]{20,}\s*)+)"),
    *_token("private_key", rb"AGE-SECRET-KEY-1[A-Z0-9]{50,}"),
    *_token(
        "jwt",
        rb"ey[A-Za-z0-9]{15,}\.ey[A-Za-z0-9_/-]{10,}(?:\.[A-Za-z0-9_/-]*={0,2})?",
        rb"ZXlK[A-Za-z0-9+/_-]{40,}={0,2}",
    ),
    *_token(
        "password_hash",
        rb"\$2[abxy]?\$\d\d\$[./A-Za-z0-9]{53}",
        rb"\$[156]\$(?:rounds=\d+\$)?[^\s$:\"']{1,40}\$[./A-Za-z0-9]{22,}",
    ),
    *_token(
        "password_hash", rb"\$y\$[./A-Za-z0-9]+\$[./A-Za-z0-9]+\$[./A-Za-z0-9]{40,}", rb"\$argon2(?:id|i|d)\$\S{20,}"
    ),
    *_token("password_hash", rb"\$8\$[./A-Za-z0-9]{10,}\$[./A-Za-z0-9]{40,}", rb"\$krb5[a-z]+\$\d+\$\S{20,}"),
    Format("kubernetes_secret", _KIND_SECRET + rb"[\s\S]{0,500}?" + _ENTRIES),
    Format("kubernetes_secret", _ENTRIES + rb"[\s\S]{0,500}?" + _KIND_SECRET),
    # Clouds
    *_token(
        "aws_key",
        rb"(?:A3T[A-Z0-9]|AKIA|ASIA|ABIA|ACCA|AGPA|AIDA|AROA|AIPA|ANPA|ANVA)[A-Z0-9]{16}\b",
        judge=not_example,
    ),
    *_token(
        "aws_key", rb"ABSK[A-Za-z0-9+/]{100,}={0,2}", rb"bedrock-api-key-YmVkcm9jay5hbWF6b25hd3MuY29t[A-Za-z0-9+/=]*"
    ),
    *_token("aws_key", rb"amzn\.mws\." + _UUID, rb"da2-[a-z0-9]{26}\b"),
    *_token(
        "google_key",
        rb"AIza[\w-]{35}\b",
        rb"ya29\.[\w.-]{20,}",
        rb"GOCSPX-[\w-]{20,}",
        rb"1//0[\w-]{30,}",
        judge=not_example,
    ),
    *_token("azure_key", rb"[\w~.-]{3}\dQ~[\w~.-]{31,34}", rb"[A-Za-z0-9]{76}AZDO[A-Za-z0-9]{4}"),
    Format("azure_key", rb"(?i)(?:account|shared ?access|primary|secondary)_?key=([a-z0-9+/%]{40,}={0,2})"),
    Format("azure_key", rb"(?i)\bsecret=([a-z0-9+/]{40,}={0,2})"),
    Format("azure_key", rb"[?&]sig=([A-Za-z0-9%+/=_-]{40,})"),
    *_token("digitalocean_token", rb"do[opr]_v1_[a-f0-9]{64}"),
    *_token("alibaba_key", rb"LTAI[A-Za-z0-9]{17,20}\b"),
    *_token("cloudflare_key", rb"v1\.0-[a-f0-9]{24}-[a-f0-9]{100,}"),
    *_token("heroku_key", rb"HRKU-AA[\w-]{58}"),
    *_token("databricks_token", rb"dapi[a-f0-9]{32}(?:-\d)?"),
    *_token("fly_token", rb"fo1_[\w-]{40,}", rb"fm1[ar]_[A-Za-z0-9+/]{60,}={0,3}", rb"fm2_[A-Za-z0-9+/]{60,}={0,3}"),
    *_token("planetscale_token", rb"pscale_(?:tkn|pw|oauth)_[\w=.-]{32,}"),
    *_token("clickhouse_key", rb"4b1d[A-Za-z0-9]{38}\b", judge=is_mixed),
    *_token("scalingo_token", rb"tk-us-[\w-]{48}"),
    *_token("yandex_key", rb"t1\.[\w-]+={0,2}\.[\w-]{86}={0,2}", rb"AQVN[\w-]{35,38}"),
    *_token("pulumi_token", rb"pul-[a-f0-9]{40}"),
    *_token("terraform_token", rb"[A-Za-z0-9]{14}\.atlasv1\.[\w=-]{50,}"),
    *_token("vault_token", rb"hv[sbr]\.[\w-]{24,}"),
    *_token("vault_token", rb"[sbr]\.[A-Za-z0-9_-]{24,}", judge=is_mixed),
    *_token(
        "onepassword_key",
        rb"ops_eyJ[A-Za-z0-9+/]{100,}={0,3}",
        rb"A3-[A-Z0-9]{6}-[A-Z0-9]{6}-?[A-Z0-9]{5}-[A-Z0-9]{5}-[A-Z0-9]{5}-[A-Z0-9]{5}",
    ),
    *_token("kubernetes_token", rb"sha256~[\w-]{43}"),
    # Code and packages
    *_token("github_token", rb"gh[pousr]_[A-Za-z0-9]{30,}", rb"github_pat_\w{50,}"),
    *_token(
        "gitlab_token",
        rb"gl(?:pat|dt|rt|rtr|cbt|ptt|ft|imt|agent|oas|soat|ffct|wt)-[\w.-]{20,}",
        rb"GR1348941[\w-]{20,}",
    ),
    Format("gitlab_token", rb"_gitlab_session=([0-9a-z]{32})"),
    *_token("bitbucket_token", rb"ATBB[A-Za-z0-9_=.-]{20,}"),
    *_token("atlassian_token", rb"ATATT3x[A-Za-z0-9_=-]{60,}", rb"ATCTT3x[A-Za-z0-9_=-]{60,}"),
    *_token("npm_token", rb"npm_[A-Za-z0-9]{36}"),
    *_token("pypi_token", rb"pypi-[\w-]{50,}"),
    *_token("rubygems_token", rb"rubygems_[a-f0-9]{48}"),
    *_token("crates_token", rb"cio[A-Za-z0-9]{32}\b", judge=is_mixed),
    *_token("nuget_key", rb"oy2[a-z0-9]{43}\b"),
    *_token("clojars_token", rb"(?i:CLOJARS_)[A-Za-z0-9]{60}"),
    *_token("docker_token", rb"dckr_(?:pat|oat)_[\w-]{20,}"),
    *_token("artifactory_key", rb"AKCp[A-Za-z0-9]{60,}", rb"cmVmd[A-Za-z0-9]{59}\b"),
    *_token("octopus_key", rb"API-[A-Z0-9]{26}\b", judge=is_mixed),
    *_token("sonar_token", rb"sq[upa]_[a-f0-9]{40}"),
    *_token("sourcegraph_token", rb"sgp_(?:[a-fA-F0-9]{16}_|local_)?[a-fA-F0-9]{40,64}", rb"slk_[a-f0-9]{64}"),
    *_token("snyk_token", rb"snyk_[a-z]+\.[\w.-]{30,}"),
    *_token("teamcity_token", rb"eyJ0eXAiOiAiVENWMiJ9\.[\w-]{20,}\.[\w-]{20,}"),
    *_token("postman_key", rb"PMAK-[A-Fa-f0-9]{24}-[A-Fa-f0-9]{34}"),
    *_token("readme_key", rb"rdme_[a-z0-9]{70}"),
    *_token("prefect_token", rb"pnu_[A-Za-z0-9]{36}"),
    *_token("harness_token", rb"[ps]at\.[\w-]{22}\.[A-Za-z0-9]{24}\.[A-Za-z0-9]{20}"),
    *_token("doppler_token", rb"dp\.(?:pt|ct|st|sa|scim|audit)\.[\w.-]{30,}"),
    *_token("infracost_key", rb"ico-[A-Za-z0-9]{32}\b"),
    *_token("linear_key", rb"lin_(?:api|oauth)_[A-Za-z0-9]{30,}"),
    *_token("stackhawk_key", rb"hawk\.[\w-]{20}\.[\w-]{20}"),
    *_token("dependencytrack_key", rb"odt_[A-Za-z0-9]{32,255}"),
    *_token("settlemint_token", rb"sm_[aps]at_[A-Za-z0-9]{16}"),
    *_token("truenas_key", rb"\d+-" + rb"[A-Za-z0-9]" * 13 + rb"[A-Za-z0-9]{51}\b", judge=_is_mixed_beyond_hex),
    *_token("intra42_secret", rb"s-s4t2(?:ud|af)-[A-Fa-f0-9]{64}"),
    *_token(
        "authress_key",
        rb"(?:sc|ext|scauth|authress)_[A-Za-z0-9]{5,30}\.[A-Za-z0-9]{4,6}\.acc[_-][A-Za-z0-9-]{10,32}\.[\w+/=-]{30,}",
    ),
    *_token("adobe_secret", rb"p8e-[A-Za-z0-9_-]{32}"),
    *_token("airtable_token", rb"pat[A-Za-z0-9]{14}\.[a-f0-9]{64}"),
    *_token("notion_token", rb"ntn_[0-9]{11}[A-Za-z0-9]{30,}", rb"secret_[A-Za-z0-9]{43}\b"),
    *_token("figma_token", rb"figd_[\w-]{36,}"),
    # Models
    *_token("api_key", rb"sk-(?:ant|proj|svcacct|admin|or|lf)-[\w-]{20,}", rb"sk-[A-Za-z0-9]{20,}\b", judge=is_mixed),
    *_token(
        "api_key",
        rb"xai-[A-Za-z0-9]{40,}",
        rb"gsk_[A-Za-z0-9]{40,}",
        rb"pplx-[A-Za-z0-9]{40,}",
        rb"r8_[A-Za-z0-9]{35,}",
    ),
    *_token(
        "api_key",
        rb"tvly-(?:[a-z]+-)?[A-Za-z0-9-]{24,}",
        rb"fc-[a-f0-9]{32}\b",
        rb"jina_[\w-]{50,}",
    ),
    *_token("api_key", rb"hf_[A-Za-z]{30,}", rb"api_org_[A-Za-z]{30,}", judge=is_random),
    # Messages
    *_token(
        "slack_token",
        rb"xox[bep]-\d{8,14}-[A-Za-z0-9-]{10,}",
        rb"xox[os]-\d+-\d+-\d+-[a-fA-F0-9]{8,}",
        rb"xox[ar]-(?:\d-)?[0-9a-zA-Z]{8,48}",
        rb"xapp-\d-[A-Za-z0-9-]{12,}",
        rb"xoxe.(?:xox[bp]-)?\d-[A-Za-z0-9]{100,}",
        judge=is_mixed,
    ),
    Format("slack_webhook", rb"hooks\.slack\.com/(?:services|workflows|triggers)/([A-Za-z0-9+/_-]{20,})"),
    Format("teams_webhook", rb"\.webhook\.office\.com/webhookb2/([A-Za-z0-9@/-]{60,})"),
    Format("discord_webhook", rb"discord(?:app)?\.com/api/webhooks/\d+/([\w-]{40,})"),
    *_token("discord_token", rb"[MNO][A-Za-z0-9_-]{23,27}\.[\w-]{6}\.[\w-]{27,}"),
    *_token("telegram_token", rb"\d{5,16}:A[\w-]{32,35}\b"),
    *_token("twilio_key", rb"SK[0-9a-fA-F]{32}\b"),
    *_token("sendgrid_key", rb"SG\.[A-Za-z0-9_=.-]{40,}"),
    *_token("brevo_key", rb"x(?:keysib|smtpsib)-[a-f0-9]{64}-[A-Za-z0-9]{16}"),
    *_token("mailgun_key", rb"(?:pub)?key-[a-f0-9]{32}\b"),
    *_token("mailgun_key", rb"[a-f0-9]" * 13 + rb"[a-f0-9]{19}-[a-f0-9]{8}-[a-f0-9]{8}\b"),
    *_token("mailchimp_key", rb"[a-f0-9]{32}-us\d{1,2}\b"),
    # Money and shops
    *_token("stripe_key", rb"[rs]k_(?:test|live|prod)_[A-Za-z0-9]{10,}", rb"whsec_[A-Za-z0-9+/=]{24,}"),
    *_token("square_token", rb"sq0(?:atp|csp|idp|csb)-[\w-]{22,}", rb"EAAA[\w-]{22,60}\b", judge=is_mixed),
    *_token("shopify_token", rb"shp(?:at|ca|pa|ss|tka)_[a-fA-F0-9]{32}"),
    *_token("easypost_key", rb"EZ[AT]K[A-Za-z0-9]{54}\b"),
    *_token("shippo_token", rb"shippo_(?:live|test)_[a-fA-F0-9]{40}"),
    *_token("duffel_token", rb"duffel_(?:test|live)_[\w=-]{43}"),
    *_token("flutterwave_key", rb"FLW(?:SECK|PUBK)(?:_TEST)?-[A-Za-z0-9]{12,}(?:-X)?"),
    *_token("plaid_token", rb"access-(?:sandbox|development|production)-" + _UUID),
    *_token("lob_key", rb"(?:live|test)_(?:pub_)?[a-f0-9]{31,35}\b"),
    *_token("gocardless_token", rb"live_[A-Za-z0-9_=-]{40}\b", judge=is_mixed),
    # Observability and marketing
    *_token(
        "newrelic_key",
        rb"NR(?:AK|JS|II|IQ|AA|RA|SP)-[A-Za-z0-9-]{18,}",
        rb"[A-Za-z0-9]{36}NRAL\b",
        rb"px-(?:api|dep)-" + _UUID,
    ),
    *_token(
        "grafana_token",
        rb"glc_[A-Za-z0-9+/]{32,}={0,3}",
        rb"glsa_[A-Za-z0-9]{32}_[A-Fa-f0-9]{8}",
        rb"eyJrIjoi[A-Za-z0-9]{50,}={0,3}",
    ),
    *_token("dynatrace_token", rb"dt0[a-z]\d\d\.[A-Za-z0-9]{24}\.[A-Za-z0-9]{64}"),
    *_token("sentry_token", rb"sntrys_[A-Za-z0-9+/=_-]{40,}", rb"sntryu_[a-f0-9]{64}"),
    *_token("maxmind_key", rb"[A-Za-z0-9]{6}_[A-Za-z0-9]{29}_mmk"),
    *_token("mapbox_token", rb"[st]k\.eyJ[\w-]{20,}\.[\w-]{20,}", rb"pk\.(?:eyJ)?[A-Za-z0-9_-]{50,}\.[\w-]{20,}"),
    *_token("frameio_token", rb"fio-u-[\w=-]{60,}"),
    *_token("typeform_token", rb"tfp_[\w.=-]{40,}"),
    *_token("beamer_token", rb"b_[a-z0-9=_-]{44}\b", judge=is_mixed),
    *_token("dnkey_token", rb"dnkey-[a-z0-9=_-]{26}-[a-z0-9=_-]{52}"),
    *_token("facebook_token", rb"EAA[A-Z][A-Za-z0-9]{60,}", rb"\d{15,16}(?:\||%7C)[\w-]{27,40}", judge=is_mixed),
    *_token("dropbox_token", rb"sl\.[A-Za-z0-9_=-]{100,}"),
    *_token("twitter_token", rb"A" * 20 + rb"[A-Za-z0-9%]{60,}"),
    *_token("salesforce_token", rb"00[A-Za-z0-9]{13}![A-Za-z0-9_.]{90,}"),
    # Positions of secrets, in any format
    Format(
        "authorization",
        rb"(?i)\bauthorization[\"'\\]*\s*[:=,]\s*[\"'\\]*(?:bearer|basic|token|digest|apikey|api-key|bot|ssws)\s+([\w.~+/=:@-]{8,})",
        not_example,
    ),
    Format("authorization", rb"(?i)\bbearer\s+[\"'\\]*([\w.~+/=-]{16,})", is_credential),
    Format("authorization", rb"(?i)\bauthorization:\s*([\w.~+/=@-]{8,})", is_credential),
    Format("url_password", rb"[A-Za-z][A-Za-z0-9+.-]*://[^\s/:@\"'<>?#]*:([^\s/\"'<>]{3,})@[^\s@/\"']", is_password),
    Format("url_password", rb"(?i)\bmongodb(?:\+srv)?://[^\s/:@\"'<>]*:([^\s@\"'<>]{3,})@", is_password),
)
"""Formats of issuers and of positions, most specific first: where two overlap, the first names the kind."""


def names_secret(name: bytes, between: bytes, value: bytes, after: bytes, word: bytes = b"") -> bool:
    """Whether `value`, assigned to `name`, is a secret; `after` follows it, `word` stands before the name."""
    if _HARMLESS.search(name) or _refers(between, value, after):
        return False
    if _OF_DIGEST.search(word + name) is not None and _HEX.fullmatch(value) is not None:
        return False
    if _IS_PASSWORD.search(name):
        return _is_password(name, between, value)
    if _names_handle(name, word, value):
        return False
    if _NUMBER.fullmatch(value):
        return _IS_ISSUER.search(name) is not None and _is_account(value)
    if _IS_SECRET.search(name):
        return len(value) >= 8 and is_random(value)
    if _IS_ISSUER.search(name):
        return len(value) >= 11 and (is_uuid(value) or is_random(value))
    if (name.endswith(b"-") and between[:1] == b">") or _FILE.search(name):  # what belongs to a file, or to a thing
        return False
    return bool(_IS_WEAK.search(name)) and len(value) >= 12 and not is_uuid(value) and is_random(value)


def is_certain_name(name: bytes) -> bool:
    """Whether a generated value under this name is a secret for sure; it may be a handle under `stream_key`."""
    return _IS_PASSWORD.search(name) is not None or _CREDENTIAL.search(name) is not None or name.isupper()


def _names_handle(name: bytes, word: bytes, value: bytes) -> bool:
    """Whether `value` is a handle or a digest: what a later call takes back, and what others may know."""
    if _DIGEST.fullmatch(value) is not None:
        return True
    if name.isupper() or _CREDENTIAL.search(name) is not None:  # a variable of an environment holds no handle
        return False
    if _HANDLE.search(word + name) is not None or (word and _HARMLESS.search(word + name) is not None):
        return not _is_account_key(value)
    if _BARE_KEY.fullmatch(name) is not None:
        return name == b"Key" or _OBJECT.fullmatch(value) is not None
    return _ANY_KEY.search(name) is not None and b"/" in value and _OBJECT.fullmatch(value) is not None


def _is_account_key(value: bytes) -> bool:
    """Whether `value` is 64 bytes in base64, as keys of storage accounts are."""
    return len(value) == 88 and value.endswith(b"==")


def _refers(between: bytes, value: bytes, after: bytes) -> bool:
    """Whether `value` is a reference to a place, or on a line of its own, instead of the secret itself."""
    if (b"\n" in between and b">" not in between) or (between == b":" and (value[:2] == b"//" or value[:1] in b"?-+")):
        return True
    if not _is_quoted(between) and after[:1] in (b"(", b"[", b"{"):
        return True
    if is_placeholder(value) or _VERSION.fullmatch(value) or _URL.match(value):
        return True
    return _PATH.fullmatch(value) is not None and sum(48 <= byte <= 57 for byte in value) < 4


def _is_quoted(between: bytes) -> bool:
    return any(quote in between for quote in (b'"', b"'", b"`"))


def _is_account(value: bytes) -> bool:
    """Account numbers and client ids of issuers: all digits, too long for anything that people count."""
    return len(value) >= 15 and value.isdigit() and len(set(value)) >= 5


def _is_password(name: bytes, between: bytes, value: bytes) -> bool:
    """Whether a value is a password: a quoted word may be one; a bare one only where nothing else is possible."""
    quoted = _is_quoted(between)
    between = between.replace(b"=>", b"=")
    if b"," in between or b">" in between:
        return is_random(value) or (quoted and kinds(value) > 2)
    if not _WORDS.fullmatch(value):
        return quoted or (_PASS.search(value) is None and len(value) >= 5)
    if quoted:
        return len(value) >= 6 and not _IS_PASSWORD.search(value)
    return name.isupper() and b"=" in between and len(value) >= 6


def spellings(secret: str) -> frozenset[bytes]:
    """Return every form of `secret` to look for, UTF-8; none when it is too short to differ from other text."""
    secret = secret.strip()
    if len(secret) < _SHORTEST:
        return frozenset()
    raw = secret.encode("utf-8", "surrogatepass")
    forms = {raw, raw.hex().encode(), raw.hex().upper().encode(), *_base64(raw)}
    forms |= {form.encode("utf-8", "surrogatepass") for form in _escaped(secret)}
    return frozenset(form for form in forms if len(form) >= _SHORTEST)


def _escaped(secret: str) -> Iterator[str]:
    for written in (json.dumps(secret)[1:-1], json.dumps(secret, ensure_ascii=False)[1:-1]):
        yield written
        yield written.replace("/", "\\/")
        yield json.dumps(written)[1:-1]
    yield repr(secret)[1:-1]
    yield html.escape(secret)
    for part in (quote(secret, safe="", errors="replace"), quote(secret, errors="replace")):
        yield part
        yield _lower_percent(part)
    yield quote_plus(secret, errors="replace")
    yield quote(quote(secret, safe="", errors="replace"), safe="")


def _lower_percent(text: str) -> str:
    """RFC 3986 allows both cases in percent codes."""
    head, *codes = text.split("%")
    return head + "".join(f"%{code[:2].lower()}{code[2:]}" for code in codes)


def _base64(raw: bytes) -> Iterator[bytes]:
    """The base64 characters that depend on `raw` alone, for each alignment in the encoded text."""
    for before in range(3):
        for encode in (base64.b64encode, base64.urlsafe_b64encode):
            text = encode(b"\0" * before + raw).rstrip(b"=")
            start = (0, 2, 3)[before]
            whole = (before + len(raw)) // 3 * 4
            yield text[start:whole]
