"""Names that a secret follows: assignments in a text, and whether the value of one is a secret.

    DB_PASSWORD = "hunter2!"     ASSIGNMENT finds name, separator and value
                                 `SecretName(name).has_secret(separator, value, what follows)` decides

How much a value must look generated depends on the name: hardly for a password, at all for a secret, most for a `key`.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any, Final, Generic, TypeVar

from ...core.patterns import regex
from .scanner import WordPattern
from .values import HEX, NUMBER, is_path, is_placeholder, is_random, is_uuid, is_version, kinds

_PASSWORD: Final = rb"passw(?:or)?d|passwort|kennwort|passwd|passphrase|pass_?word|pwd|pswd"
"""Words of a name whose value is a password, also one that a person chose."""

_SECRET: Final = rb"secret|token|api[_.-]?key|access[_.-]?key|private[_.-]?key|auth[_.-]?key|credential|creds|passkey"
"""Words of a name whose value is a secret where it is generated."""

_WEAK: Final = rb"key|auth|access|api|session|cookie|hmac|salt"
"""Words of a name whose value is a secret only where it is generated, no UUID, and of 12 bytes or more."""

_ISSUERS: Final = (
    rb"adafruit|adobe|airtable|algolia|alibaba|asana|atlassian|auth0|azure|beamer|bitbucket|bittrex|blynk|clojars"
    rb"|cloudflare|codecov|cohere|coinbase|confluence|confluent|contentful|datadog|discord|dnkey|droneci|dropbox|etsy"
    rb"|facebook|fastly|finicity|finnhub|flickr|freshbooks|gitter|gocardless|heroku|hubspot|intercom|jfrog|artifactory"
    rb"|bintray|xray|jenkins|jira|kraken|kucoin|launchdarkly|linear|linked[_-]?in|lob|looker|mailchimp|mailgun|mapbox"
    rb"|mattermost|meraki|message[_-]?bird|netlify|new[_-]?relic|nytimes|new-?york-?times|(?-i:[Oo]kta|OKTA)|openai|particle|plaid|private[_-]?ai"
    rb"|rapidapi|sauce|segment|sendbird|sentry|snyk|sonar|squarespace|(?-i:[Ss]umo|SUMO)|telegr|travis|twilio|twitch|twitter"
    rb"|typeform|yandex|zendesk|contribsys"
)
"""Names of issuers: a value beside one may also be a UUID, or a long number."""

SECRET_NAME_WORD: Final = rb"(?:" + b"|".join((_PASSWORD, _SECRET, _WEAK, _ISSUERS)) + rb")"
"""The telling words of a name."""

_OPERATOR: Final = rb"(?:=>|:{1,3}=|[?.+]?==?|\|\||[:=>,])"

_VALUE: Final = rb"[^\s\"'`<>;,\\(){}\[\]&|]"

ASSIGNMENT: Final = (
    rb"(?i)(" + SECRET_NAME_WORD + rb"(?:[\w.\t -]|\\+t){0,24})"
    rb"([\s\"'\\\]]{0,12}" + _OPERATOR + rb"(?:\\[nrt]|[`\"'\s=>\\@]){0,20})"
    rb"(" + _VALUE + rb"{4,})"
)
"""Groups: the name from its telltale word on, the separator, the value."""

PREFILTER: Final = (
    rb"(?i)" + SECRET_NAME_WORD + rb"(?:[\w.\t -]|\\+t)*[\s\"'\\\]]*[:=>,|?.+]"
    rb"(?:\\[nrt]|[`\"'\s:=>|\\@])*" + _VALUE + rb"{4}"
)
"""A cheap necessary condition of `ASSIGNMENT`."""

_IS_PASSWORD: Final = regex(_PASSWORD, re.IGNORECASE)

_IS_SECRET: Final = regex(_SECRET, re.IGNORECASE)

_IS_WEAK: Final = regex(rb"(?:^|[_.\s-])(?:" + _WEAK + rb")|(?:Key|Auth|Api|Session)(?![a-z])|apikey", re.IGNORECASE)

_IS_ISSUER: Final = WordPattern(rb"(?i)(?:^|[^A-Za-z]|(?<=[a-z])(?=(?-i:[A-Z])))(?:" + _ISSUERS + rb")")

_BEGINNING: Final = rb"(?:\b|_|(?<=[a-z\d])(?=(?-i:[A-Z])))"
"""Of a word in a name: `backend_token` is not a token of an end."""

_HARMLESS_NAME: Final = WordPattern(
    rb"(?i)"
    + _BEGINNING
    + rb"(?:next|page|continuation|pagination|cancel|sync|start|end|last|first|max|min|num|total|prompt|completion"
    rb"|input|output|cached?|reasoning|special|stop|pad|mask|eos|bos|unk|sep|cls)[ _.-]?tokens?\b"
    rb"|tokens\b|tokeni[sz]|tokenType|token_type|keyboard|keyword|monkey|donkey|turkey|hotkey|author(?![iI]z)|accessib|accessor"
    rb"|(?:public|primary|foreign|sort|partition|row|cache|group|object|composite|natural|surrogate|candidate|shift|arrow)"
    rb"[ _.-]?key|pub[ _.-]?key|public[ _.-]?token|csrf|xsrf|audience|secret[ _.-]?santa|passwordless"
    rb"|[_.-]?(?:ids?|names?|paths?|files?|filename|dir|urls?|uris?|hosts?|ports?|types?|lengths?|sizes?|counts?"
    rb"|polic(?:y|ies)|versions?|hints?|labels?|fields?|format|class|expir(?:y|es|ation)(?:[ _.-]?(?:in|at))?|algorithm"
    rb"|encryption|scheme|strength|history|timeout|retries|attempts|rotation|provider|method|variable|usage|limit|enabled|required|region|endpoint|management|manager|status|ref|store|arn|alias|index"
    rb"|prefix|digest|sha\d*|audience|checksum|fingerprint|etag|hash)[\"'\s]*$",
)
"""Names with a telltale word whose values are not secrets: counters, references, public halves, attributes."""

_HANDLE_NAME: Final = WordPattern(
    rb"(?i)"
    + _BEGINNING
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
)
"""Names of handles that a later call takes back: cursors, resume tokens, keys of objects, of caches and of events."""

_CREDENTIAL: Final = regex(
    rb"secret|access|auth(?!ority)|api|refresh|bearer|private|signing|encrypt|passw", re.IGNORECASE
)

_FILE: Final = regex(
    rb"\.(?:rpm|deb|gz|tgz|xz|zip|tar|whl|jar|so|js|py|txt|json|ya?ml|bin|exe|dmg|iso|pub|pem|crt)\s*$"
)

_BARE_KEY: Final = regex(rb"(?:[\w.-]*\.)?keys?[\s\"']*", re.IGNORECASE)

_ANY_KEY: Final = regex(rb"(?:[ _.-]k|K)ey$")

_OBJECT: Final = regex(
    rb"[A-Za-z][a-z]{2,}(?:[-_]?\d+)?[/:].+|[0-9a-f]{2,}/[0-9a-f/]{12,}(?:\.\w+)?|.+/.*\.[a-z][a-z0-9]{1,7}(?:\.gz)?"
    rb"|(?:[A-Za-z][a-z]{2,}[-_]).*[-_][0-9a-f]{32,}|(?:[a-z]{3,}\d*[-_]){2,}[\w+/=.-]{16,}|AWSLogs/.*"
)
"""Keys of objects and caches: segments behind a word, or a name with an ending."""

_DIGEST_NAME: Final = regex(rb"\b(?:checksum|hashed|sha\d*|md5|digest)[ _-]", re.IGNORECASE)
"""Beginning of a name: `checksum/secret` of a deployment, `hashed_secret` of a scanner."""

_DIGEST: Final = regex(rb"(?:sha-?\d{1,3}|md5|blake\d\w?|crc\d*)[:_-].+", re.IGNORECASE)

_WORDS: Final = regex(rb"_?[A-Za-z][A-Za-z_-]*")

_URL: Final = regex(rb"(?:[a-z][a-z0-9+.-]*://|arn:|urn:).*", re.IGNORECASE)

_PASS: Final = regex(rb"pass(?:word|wd)?(?![a-z0-9])|password|getpass|passwd", re.IGNORECASE)
"""The word for a password in a value, which makes it a name."""


_KINDS: Final = ((b"password", "password"), (b"token", "token"), (b"secret", "secret"), (b"key", "key"))
_T = TypeVar("_T")


class _LazyProperty(Generic[_T]):
    """A property that is computed once; `cached_property` takes a lock for that until Python 3.12.

    No data descriptor: once the value is in the instance's `__dict__`, Python reads it there.
    """

    def __init__(self, compute: Callable[[Any], _T]) -> None:
        self._compute = compute

    def __get__(self, name: Any, kind: object = None) -> _T:
        found = name.__dict__[self._compute.__name__] = self._compute(name)
        return found


class SecretName:
    """A name that a value is assigned to, with the word before it. What the value has no part in is looked at once."""

    def __init__(self, name: bytes, word: bytes = b"") -> None:
        self._name = name
        self._word = word
        self._is_password = _IS_PASSWORD.search(name) is not None

    def has_secret(self, between: bytes, value: bytes, after: bytes) -> bool:
        """Whether `value` is a secret: `between` stands before it, and `after` behind."""
        is_password = self._is_password
        is_generated = not is_password and is_random(value)
        if not (is_password or is_generated or is_uuid(value) or _is_account(value)):  # first: most are ordinary
            return False
        if self._is_harmless or _refers(between, value, after, may_be_placeholder=not is_generated):
            return False
        if self._is_of_digest and HEX.fullmatch(value) is not None:
            return False
        if is_password:
            return _is_password(self._name, between, value)
        if self._names_handle(value):
            return False
        if NUMBER.fullmatch(value):
            return self._is_issuer and _is_account(value)
        if self._is_secret:
            return is_generated
        if self._is_issuer:
            return len(value) >= 11 and (is_generated or is_uuid(value))
        if (self._name.endswith(b"-") and between[:1] == b">") or self._is_file:  # of a file, or of a thing
            return False
        return self._is_weak and len(value) >= 12 and is_generated and not is_uuid(value)

    @_LazyProperty
    def kind(self) -> str:
        """Kind of a secret of this name."""
        lowered = self._name.lower()
        for word, kind in _KINDS:
            if word in lowered:
                return kind
        return "secret"

    @_LazyProperty
    def is_certain(self) -> bool:
        """Whether a generated value is a secret for sure; it may be a handle under `stream_key`."""
        return self._is_password or self._is_credential

    @_LazyProperty
    def _is_credential(self) -> bool:
        return self._name.isupper() or _CREDENTIAL.search(self._name) is not None

    @_LazyProperty
    def _is_harmless(self) -> bool:
        return _HARMLESS_NAME.occurs(self._name)

    @_LazyProperty
    def _is_handle(self) -> bool:
        whole = self._word + self._name
        return _HANDLE_NAME.occurs(whole) or (bool(self._word) and _HARMLESS_NAME.occurs(whole))

    @_LazyProperty
    def _is_of_digest(self) -> bool:
        return _DIGEST_NAME.search(self._word + self._name) is not None

    @_LazyProperty
    def _is_secret(self) -> bool:
        return _IS_SECRET.search(self._name) is not None

    @_LazyProperty
    def _is_issuer(self) -> bool:
        return _IS_ISSUER.occurs(self._name)

    @_LazyProperty
    def _is_file(self) -> bool:
        return _FILE.search(self._name) is not None

    @_LazyProperty
    def _is_weak(self) -> bool:
        return _IS_WEAK.search(self._name) is not None

    def _names_handle(self, value: bytes) -> bool:
        """Whether `value` is a handle or a digest: what a later call takes back, and what others may know."""
        if _DIGEST.fullmatch(value) is not None:
            return True
        if self._is_credential:  # a variable of an environment holds no handle
            return False
        if self._is_handle:
            return not _is_account_key(value)
        if _BARE_KEY.fullmatch(self._name) is not None:
            return self._name == b"Key" or _OBJECT.fullmatch(value) is not None
        return b"/" in value and _ANY_KEY.search(self._name) is not None and _OBJECT.fullmatch(value) is not None


def _is_account_key(value: bytes) -> bool:
    """Whether `value` is 64 bytes in base64, as keys of storage accounts are."""
    return len(value) == 88 and value.endswith(b"==")


def _refers(between: bytes, value: bytes, after: bytes, *, may_be_placeholder: bool) -> bool:
    """Whether `value` is a reference to a place, or on a line of its own, instead of the secret itself."""
    if (b"\n" in between and b">" not in between) or (between == b":" and (value[:2] == b"//" or value[:1] in b"?-+")):
        return True
    if not _is_quoted(between) and after[:1] in (b"(", b"[", b"{"):
        return True
    if (may_be_placeholder and is_placeholder(value)) or is_version(value) or (b":" in value and _URL.match(value)):
        return True
    return is_path(value) and sum(48 <= byte <= 57 for byte in value) < 4


def _is_quoted(between: bytes) -> bool:
    return between.translate(None, b"\"'`") != between


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
