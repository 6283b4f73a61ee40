"""Values that are secret because of the name they stand behind: `password: …`, `"api_key": "…"`, `GITLAB_TOKEN=…`.

A name is one of three kinds, and the kind says how much the value itself must look like a secret.
"""

from __future__ import annotations

import re
from typing import Final

from .judge import is_placeholder, is_random, is_uuid

__all__ = ["ASSIGNMENT", "NAMED", "PREFILTER", "names_secret"]

_PASSWORD: Final = rb"passw(?:or)?d|passwd|passphrase|pass_?word|pwd|pswd"
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
"""Groups: the name from its telling word on, what stands between, the value."""

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

_HARMLESS: Final = re.compile(
    rb"(?:next|page|continuation|pagination|cancel|sync|start|end|last|first|max|min|num|total|prompt|completion|input"
    rb"|output|cached?|reasoning|special|stop|pad|mask|eos|bos|unk|sep|cls)[ _.-]?tokens?\b"
    rb"|tokens\b|tokeni[sz]|tokenType|token_type|keyboard|keyword|monkey|donkey|turkey|hotkey|author(?![iI]z)|accessib|accessor"
    rb"|(?:public|primary|foreign|sort|partition|row|cache|group|object|composite|natural|surrogate|candidate|shift|arrow)"
    rb"[ _.-]?key|pub[ _.-]?key|public[ _.-]?token|csrf|xsrf|audience|secret[ _.-]?santa|passwordless"
    rb"|[_.-]?(?:ids?|names?|paths?|files?|filename|dir|urls?|uris?|hosts?|ports?|types?|lengths?|sizes?|counts?"
    rb"|polic(?:y|ies)|versions?|hints?|labels?|fields?|format|class|expir(?:y|es|ation)(?:[ _.-]?(?:in|at))?|algorithm"
    rb"|provider|method|variable|usage|limit|enabled|required|region|endpoint|management|manager|status|ref|store|arn|alias|index"
    rb"|prefix|digest|sha\d*|audience|checksum|fingerprint|etag|hash)[\"'\s]*$",
    re.IGNORECASE,
)
"""Names with a telling word in them whose values are no secrets: counters, references, public halves, attributes."""

_WORDS: Final = re.compile(rb"[A-Za-z][A-Za-z_-]*")
_PATH: Final = re.compile(rb"[a-z_][\w]*(?:\.[a-z_]\w*)+|(?:\.{0,2}|~)/[\w./-]*", re.IGNORECASE)
_URL: Final = re.compile(rb"[a-z][a-z0-9+.-]*://.*", re.IGNORECASE)
_NUMBER: Final = re.compile(rb"[-+]?\d+(?:[.:/_-]\d+)*(?:[a-z%]{0,3}|e[-+]?\d+)\.?", re.IGNORECASE)
_VERSION: Final = re.compile(
    rb"(?:[A-Za-z][\w-]*[-_:])?v?\d+(?:\.\d+){1,3}(?:[-+.]\w+)*|\d{4}-\d\d-\d\d.*|\d{1,2}:\d\d.*"
)


def names_secret(name: bytes, between: bytes, value: bytes, after: bytes) -> bool:
    """Whether `value`, assigned to `name`, is a secret. `after` is the byte that follows it."""
    if _HARMLESS.search(name) or _refers(between, value, after):
        return False
    if _IS_PASSWORD.search(name):
        return _is_password(name, between, value)
    if _NUMBER.fullmatch(value):
        return _IS_ISSUER.search(name) is not None and _is_account(value)
    if _IS_SECRET.search(name):
        return len(value) >= 8 and is_random(value)
    if _IS_ISSUER.search(name):
        return len(value) >= 11 and (is_uuid(value) or is_random(value))
    return bool(_IS_WEAK.search(name)) and len(value) >= 12 and not is_uuid(value) and is_random(value)


def _refers(between: bytes, value: bytes, after: bytes) -> bool:
    """Whether `value` says where something is, or stands on a line of its own, instead of being it."""
    if b"\n" in between and b">" not in between:
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
    """People choose passwords: a quoted word may be one; a bare one only where nothing else can stand."""
    quoted = _is_quoted(between)
    between = between.replace(b"=>", b"=")
    if b"," in between or b">" in between:
        return is_random(value)
    if not _WORDS.fullmatch(value):
        return quoted or (b"pass" not in value.lower() and len(value) >= 5)
    if quoted:
        return len(value) >= 6 and not _IS_PASSWORD.search(value)
    return name.isupper() and b"=" in between and len(value) >= 6
