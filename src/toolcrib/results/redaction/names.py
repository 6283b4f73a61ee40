"""Names that a secret follows: assignments in a text, and whether the value of one is a secret."""

from __future__ import annotations

import re
from typing import Final

from ...core.patterns import regex
from .scanner import WordPattern
from .values import HEX, NUMBER, PATH, VERSION, is_placeholder, is_random, is_uuid, kinds

__all__ = ["ASSIGNMENT", "NAMED", "PREFILTER", "is_certain_name", "names_secret"]

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

_IS_PASSWORD: Final = regex(_PASSWORD, re.IGNORECASE)

_IS_SECRET: Final = regex(_SECRET, re.IGNORECASE)

_IS_WEAK: Final = regex(rb"(?:^|[_.\s-])(?:" + _WEAK + rb")|(?:Key|Auth|Api|Session)(?![a-z])|apikey", re.IGNORECASE)

_IS_ISSUER: Final = WordPattern(rb"(?i)(?:^|[^A-Za-z]|(?<=[a-z])(?=(?-i:[A-Z])))(?:" + _ISSUERS + rb")")

_BEGINNING: Final = rb"(?:\b|_|(?<=[a-z\d])(?=(?-i:[A-Z])))"
"""Of a word in a name: `backend_token` is no token of an end."""

_HARMLESS: Final = WordPattern(
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

_HANDLE: Final = WordPattern(
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

_OF_DIGEST: Final = regex(rb"\b(?:checksum|hashed|sha\d*|md5|digest)[ _-]", re.IGNORECASE)
"""Beginning of a name: `checksum/secret` of a deployment, `hashed_secret` of a scanner."""

_DIGEST: Final = regex(rb"(?:sha-?\d{1,3}|md5|blake\d\w?|crc\d*)[:_-].+", re.IGNORECASE)

_WORDS: Final = regex(rb"_?[A-Za-z][A-Za-z_-]*")

_URL: Final = regex(rb"(?:[a-z][a-z0-9+.-]*://|arn:|urn:).*", re.IGNORECASE)

_PASS: Final = regex(rb"pass(?:word|wd)?(?![a-z0-9])|password|getpass|passwd", re.IGNORECASE)
"""The word for a password in a value, which makes it a name."""


def names_secret(name: bytes, between: bytes, value: bytes, after: bytes, word: bytes = b"") -> bool:
    """Whether `value`, assigned to `name`, is a secret; `after` follows it, `word` stands before the name."""
    is_password = _IS_PASSWORD.search(name) is not None
    is_generated = not is_password and is_random(value)
    if not (is_password or is_generated or is_uuid(value) or _is_account(value)):  # first, since most are ordinary
        return False
    if _HARMLESS.occurs(name) or _refers(between, value, after):
        return False
    if _OF_DIGEST.search(word + name) is not None and HEX.fullmatch(value) is not None:
        return False
    if is_password:
        return _is_password(name, between, value)
    if _names_handle(name, word, value):
        return False
    if NUMBER.fullmatch(value):
        return _IS_ISSUER.occurs(name) and _is_account(value)
    if _IS_SECRET.search(name):
        return is_generated
    if _IS_ISSUER.occurs(name):
        return len(value) >= 11 and (is_generated or is_uuid(value))
    if (name.endswith(b"-") and between[:1] == b">") or _FILE.search(name):  # what belongs to a file, or to a thing
        return False
    return bool(_IS_WEAK.search(name)) and len(value) >= 12 and is_generated and not is_uuid(value)


def is_certain_name(name: bytes) -> bool:
    """Whether a generated value under this name is a secret for sure; it may be a handle under `stream_key`."""
    return _IS_PASSWORD.search(name) is not None or _CREDENTIAL.search(name) is not None or name.isupper()


def _names_handle(name: bytes, word: bytes, value: bytes) -> bool:
    """Whether `value` is a handle or a digest: what a later call takes back, and what others may know."""
    if _DIGEST.fullmatch(value) is not None:
        return True
    if name.isupper() or _CREDENTIAL.search(name) is not None:  # a variable of an environment holds no handle
        return False
    if _HANDLE.occurs(word + name) or (word and _HARMLESS.occurs(word + name)):
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
    if is_placeholder(value) or VERSION.fullmatch(value) or _URL.match(value):
        return True
    return PATH.fullmatch(value) is not None and sum(48 <= byte <= 57 for byte in value) < 4


def _is_quoted(between: bytes) -> bool:
    return b'"' in between or b"'" in between or b"`" in between


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
