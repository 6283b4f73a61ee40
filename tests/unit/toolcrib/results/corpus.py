"""Secrets made by rule, in the shape that each issuer documents, and what stands near them without being one.

Nothing here is real: every value is random, from a fixed seed (`begin`).
"""

from __future__ import annotations

import base64
import json
import random
import string
import uuid
from collections.abc import Callable, Mapping
from typing import Final

_RANDOM: Final = random.Random(655)
ALNUM: Final = string.ascii_letters + string.digits
WORD: Final = ALNUM + "-_"
HEX: Final = "0123456789abcdef"
UPPER: Final = string.ascii_uppercase + string.digits
BASE32: Final = string.ascii_uppercase + "234567"
LOWER: Final = string.ascii_lowercase + string.digits
DIGITS: Final = string.digits


def begin(name: str) -> None:
    """Begin the random numbers of one test: the same ones in whatever order tests run."""
    _RANDOM.seed(name)


def of(alphabet: str, count: int) -> str:
    """`count` random characters; the ends are letters or digits, as words in text are."""
    made = [_RANDOM.choice(alphabet) for _ in range(count)]
    plain = [char for char in alphabet if char.isalnum()]
    made[0], made[-1] = _RANDOM.choice(plain), _RANDOM.choice(plain)
    return "".join(made)


def b64(count: int) -> str:
    """Random bytes in base64."""
    return base64.b64encode(_RANDOM.randbytes(count)).decode()


def jwt() -> str:
    """A signed token of three parts."""
    parts = [{"alg": "HS256", "typ": "JWT"}, {"sub": of(DIGITS, 10), "name": of(ALNUM, 8), "iat": 1_790_000_000}]
    head, body = (base64.urlsafe_b64encode(json.dumps(part).encode()).decode().rstrip("=") for part in parts)
    return f"{head}.{body}.{of(WORD, 43)}"


def pem(label: str = "RSA PRIVATE KEY") -> str:
    """A private key."""
    body = b64(1180)
    lines = "\n".join(body[start : start + 64] for start in range(0, len(body), 64))
    return f"-----BEGIN {label}-----\n{lines}\n-----END {label}-----"


def guid() -> str:
    """A random UUID."""
    return str(uuid.UUID(bytes=_RANDOM.randbytes(16), version=4))


KINDS: Final[Mapping[str, Callable[[], str]]] = {
    "github classic": lambda: "ghp_" + of(ALNUM, 36),
    "github oauth": lambda: "gho_" + of(ALNUM, 36),
    "github app": lambda: "ghs_" + of(ALNUM, 36),
    "github refresh": lambda: "ghr_" + of(ALNUM, 76),
    "github fine-grained": lambda: f"github_pat_{of(ALNUM, 22)}_{of(ALNUM, 59)}",
    "gitlab personal": lambda: "glpat-" + of(WORD, 20),
    "gitlab routable": lambda: f"glpat-{of(WORD, 27)}.01.{of(LOWER, 9)}",
    "gitlab deploy": lambda: "gldt-" + of(WORD, 20),
    "gitlab runner": lambda: "glrt-" + of(WORD, 20),
    "bitbucket app": lambda: "ATBB" + of(ALNUM, 32),
    "atlassian": lambda: "ATATT3xFfGF0" + of(WORD, 170) + "=" + of("0123456789ABCDEF", 8),
    "aws access key": lambda: "AKIA" + of(BASE32, 16),
    "aws session key": lambda: "ASIA" + of(BASE32, 16),
    "aws bedrock": lambda: "ABSK" + b64(96),
    "google api": lambda: "AIza" + of(WORD, 35),
    "google oauth secret": lambda: "GOCSPX-" + of(WORD, 28),
    "google access": lambda: "ya29." + of(WORD, 60),
    "google refresh": lambda: "1//0" + of(WORD, 40),
    "azure client secret": lambda: f"{of(ALNUM, 3)}8Q~{of(WORD, 34)}",
    "digitalocean": lambda: "dop_v1_" + of(HEX, 64),
    "alibaba": lambda: "LTAI5t" + of(ALNUM, 18),
    "heroku": lambda: "HRKU-AA" + of(WORD, 58),
    "databricks": lambda: "dapi" + of(HEX, 32),
    "planetscale": lambda: "pscale_tkn_" + of(WORD, 43),
    "pulumi": lambda: "pul-" + of(HEX, 40),
    "terraform": lambda: f"{of(ALNUM, 14)}.atlasv1.{of(WORD, 67)}",
    "vault": lambda: "hvs." + of(WORD, 90),
    "fly": lambda: "fo1_" + of(WORD, 43),
    "doppler": lambda: "dp.pt." + of(ALNUM, 43),
    "slack bot": lambda: f"xoxb-{of(DIGITS, 12)}-{of(DIGITS, 13)}-{of(ALNUM, 24)}",
    "slack user": lambda: f"xoxp-{of(DIGITS, 12)}-{of(DIGITS, 12)}-{of(DIGITS, 13)}-{of(HEX, 32)}",
    "slack app": lambda: f"xapp-1-A{of(UPPER, 10)}-{of(DIGITS, 13)}-{of(HEX, 64)}",
    "slack webhook": lambda: f"https://hooks.slack.com/services/T{of(UPPER, 9)}/B{of(UPPER, 10)}/{of(ALNUM, 24)}",
    "discord webhook": lambda: f"https://discord.com/api/webhooks/{of(DIGITS, 19)}/{of(WORD, 68)}",
    "telegram": lambda: f"{of('123456789', 10)}:AA{of(WORD, 33)}",
    "stripe live": lambda: "sk_live_" + of(ALNUM, 24),
    "stripe restricted": lambda: "rk_live_" + of(ALNUM, 99),
    "stripe webhook": lambda: "whsec_" + of(ALNUM, 32),
    "square": lambda: "sq0atp-" + of(WORD, 22),
    "shopify": lambda: "shpat_" + of(HEX, 32),
    "twilio key": lambda: "SK" + of(HEX, 32),
    "sendgrid": lambda: f"SG.{of(WORD, 22)}.{of(WORD, 43)}",
    "mailgun": lambda: "key-" + of(HEX, 32),
    "mailchimp": lambda: of(HEX, 32) + "-us12",
    "brevo": lambda: f"xkeysib-{of(HEX, 64)}-{of(ALNUM, 16)}",
    "npm": lambda: "npm_" + of(ALNUM, 36),
    "pypi": lambda: "pypi-AgEIcHlwaS5vcmc" + of(WORD, 150),
    "rubygems": lambda: "rubygems_" + of(HEX, 48),
    "crates": lambda: "cio" + of(ALNUM, 32),
    "nuget": lambda: "oy2" + of(LOWER, 43),
    "docker hub": lambda: "dckr_pat_" + of(WORD, 27),
    "openai project": lambda: "sk-proj-" + of(WORD, 156),
    "openai classic": lambda: f"sk-{of(ALNUM, 20)}T3BlbkFJ{of(ALNUM, 20)}",
    "anthropic": lambda: f"sk-ant-api03-{of(WORD, 93)}AA",
    "hugging face": lambda: "hf_" + of(string.ascii_letters, 34),
    "groq": lambda: "gsk_" + of(ALNUM, 52),
    "xai": lambda: "xai-" + of(ALNUM, 80),
    "perplexity": lambda: "pplx-" + of(ALNUM, 48),
    "replicate": lambda: "r8_" + of(ALNUM, 37),
    "linear": lambda: "lin_api_" + of(ALNUM, 40),
    "notion": lambda: f"ntn_{of(DIGITS, 11)}{of(ALNUM, 35)}",
    "airtable": lambda: f"pat{of(ALNUM, 14)}.{of(HEX, 64)}",
    "figma": lambda: "figd_" + of(WORD, 40),
    "postman": lambda: f"PMAK-{of(HEX, 24)}-{of(HEX, 34)}",
    "new relic": lambda: "NRAK-" + of(UPPER, 27),
    "grafana": lambda: f"glsa_{of(ALNUM, 32)}_{of(HEX, 8)}",
    "dynatrace": lambda: f"dt0c01.{of(UPPER, 24)}.{of(UPPER, 64)}",
    "sentry": lambda: "sntryu_" + of(HEX, 64),
    "sonar": lambda: "squ_" + of(HEX, 40),
    "dropbox": lambda: "sl." + of(WORD, 136),
    "cloudflare": lambda: f"cfut_{of(ALNUM, 40)}{of(HEX, 8)}",
    "vercel": lambda: "vcp_" + of(ALNUM, 56),
    "netlify": lambda: "nfp_" + of(ALNUM, 36),
    "supabase": lambda: f"sb_secret_{of(WORD, 22)}_{of(ALNUM, 8)}",
    "supabase personal": lambda: "sbp_" + of(HEX, 40),
    "tailscale": lambda: f"tskey-auth-{of(ALNUM, 11)}CNTRL-{of(ALNUM, 32)}",
    "gemini": lambda: "AQ.Ab8" + of(WORD, 46),
    "contentful": lambda: "CFPAT-" + of(WORD, 43),
    "circleci": lambda: f"CCIPAT_{of(ALNUM, 22)}_{of(HEX, 40)}",
    "buildkite": lambda: "bkua_" + of(HEX, 40),
    "infisical": lambda: f"st.{of(HEX, 24)}.{of(HEX, 32)}.{of(HEX, 32)}",
    "nvidia": lambda: "nvapi-" + of(WORD, 64),
    "pinecone": lambda: f"pcsk_{of(ALNUM, 6)}_{of(ALNUM, 63)}",
    "cursor": lambda: "key_" + of(HEX, 64),
    "elevenlabs": lambda: "sk_" + of(HEX, 48),
    "langsmith": lambda: f"lsv2_pt_{of(HEX, 32)}_{of(HEX, 10)}",
    "context7": lambda: "ctx7sk-" + guid(),
    "modal": lambda: "as-" + of(ALNUM, 22),
    "resend": lambda: f"re_{of(ALNUM, 8)}_{of(ALNUM, 24)}",
    "posthog": lambda: "phx_" + of(ALNUM, 43),
    "honeycomb": lambda: "hcaik_01" + of(LOWER, 56),
    "axiom": lambda: "xaat-" + guid(),
    "logfire": lambda: "pylf_v1_us_" + of(ALNUM, 43),
    "hubspot": lambda: "pat-na1-" + guid(),
    "paddle": lambda: f"pdl_live_apikey_{of(LOWER, 26)}_{of(ALNUM, 22)}_{of(ALNUM, 3)}",
    "neon": lambda: "napi_" + of(LOWER, 64),
    "render": lambda: "rnd_" + of(ALNUM, 32),
    "age": lambda: "AGE-SECRET-KEY-1" + of(UPPER, 58),
    "jwt": jwt,
    "rsa key": pem,
    "openssh key": lambda: pem("OPENSSH PRIVATE KEY"),
    "pkcs8 key": lambda: pem("PRIVATE KEY"),
    "postgres url": lambda: f"postgres://svc:{of(ALNUM, 16)}@db.internal.test:5432/app",
    "mongodb url": lambda: f"mongodb+srv://svc:{of(ALNUM, 16)}@cluster0.mongo.test/app",
    "redis url": lambda: f"redis://:{of(ALNUM, 24)}@cache.internal.test:6379/0",
    "amqp url": lambda: f"amqps://svc:{of(ALNUM, 20)}@mq.internal.test/vhost",
}
"""Kind → a new secret of it, as it stands bare."""


def _json(secret: str) -> str:
    return json.dumps({"ok": True, "output": f"first line\n{secret}\nlast line", "count": 3})


def _assigned(secret: str) -> str:
    return f"# settings\nDEBUG=1\nSERVICE_TOKEN={json.dumps(secret)}\nREGION=eu-west-1\n"


def _sent(secret: str) -> str:
    return f"GET /v1/items?page=2&limit=50 HTTP/1.1\r\nHost: api.test\r\nX-Custom: {secret}\r\nAccept: */*\r\n"


def _logged(secret: str) -> str:
    return f"2026-11-21T08:00:00Z ERROR client.py:42 request failed, sent {secret} to api.test, retrying in 5 s"


WRAPPINGS: Final[Mapping[str, Callable[[str], str]]] = {
    "bare": lambda secret: secret,
    "json": _json,
    "assignment": _assigned,
    "header": _sent,
    "log": _logged,
}


def _image() -> str:
    return f'<img src="data:image/png;base64,iVBORw0KGgo{b64(600)}">'


_NEAR: Final[tuple[Callable[[], str], ...]] = (
    lambda: f"commit {of(HEX, 40)}\nAuthor: Ada <ada@example.test>",
    lambda: f"index {of(HEX, 7)}..{of(HEX, 7)} 100644",
    lambda: f'"integrity": "sha512-{b64(64)}"',
    lambda: f"    --hash=sha256:{of(HEX, 64)} \\",
    lambda: f'checksum = "{of(HEX, 64)}"',
    lambda: f"image: registry.test/app@sha256:{of(HEX, 64)}",
    lambda: f'{{"id": "{guid()}", "name": "build"}}',
    lambda: f'{{"request_id": "{guid()}", "status": 200}}',
    lambda: f'{{"next_token": "{b64(60)}", "items": []}}',
    lambda: f'{{"nextPageToken": "{of(WORD, 64)}"}}',
    lambda: f'{{"continuation_token": "{b64(40)}"}}',
    lambda: f'ETag: "{of(HEX, 32)}"',
    lambda: f"Content-MD5: {b64(16)}",
    lambda: f"https://cdn.test/assets/app.{of(HEX, 8)}.js",
    lambda: f"https://git.test/org/repo/blob/{of(HEX, 40)}/src/main.py#L10",
    _image,
    lambda: f"traceparent: 00-{of(HEX, 32)}-{of(HEX, 16)}-01",
    lambda: f"public_key: {b64(32)}",
    lambda: f"ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAI{b64(32)[:43]} ada@laptop",
    lambda: f"fingerprint SHA256:{b64(32).rstrip('=')}",
    lambda: f"arn:aws:iam::{of(DIGITS, 12)}:role/deploy-role",
    lambda: f"vpc-{of(HEX, 17)} subnet-{of(HEX, 17)}",
    lambda: f"i-{of(HEX, 17)} is running",
    lambda: f"model-00001-of-00003-{of(HEX, 8)}.safetensors",
    lambda: f"container {of(HEX, 64)} exited with 0",
    lambda: f"pod/api-{of(LOWER, 10)}-{of(LOWER, 5)} 1/1 Running",
    lambda: f"msgid <{of(ALNUM, 24)}@mail.test>",
    lambda: f'"_id": "{of(HEX, 24)}"',
    lambda: f"orders-{of(DIGITS, 12)}-{of(DIGITS, 4)}.csv",
    lambda: f"cursor={of(WORD, 40)}&limit=100",
    lambda: f"serial number {of(UPPER, 20)}",
    lambda: f"max_tokens: {of('123456789', 5)}, prompt_tokens: {of('123456789', 6)}",
    lambda: f'"token_type": "Bearer", "expires_in": {of("123456789", 4)}',
    lambda: f"password_hash_algorithm: argon2id-v{of('123456789', 2)}",
    lambda: "AKIAIOSFODNN7EXAMPLE wJalrXUtnFEMI/K7MDENG/bPxRfiCYEXAMPLEKEY",
    lambda: "export GITHUB_TOKEN=ghp_" + "x" * 36,
    lambda: "token: ${{ secrets.GITHUB_TOKEN }}",
    lambda: 'api_key=os.environ["OPENAI_API_KEY"]',
    lambda: "postgres://user:password@localhost:5432/db",
    lambda: "Authorization: Bearer <your token>",
    lambda: "curl -H 'Authorization: Bearer $TOKEN' https://api.test",
)
NEAR_MISSES: Final = tuple(make() for make in _NEAR for _ in range(8))
"""What looks like a secret and is none: hashes, ids, cursors, placeholders, examples of documentation."""

BENIGN: Final = (
    "The secret of good tests: short names, one idea each.",
    "Passwords must have at least 12 characters; tokens expire after one hour.",
    "def authenticate(user: str, password: str) -> Token: ...",
    "class TokenBucket:\n    def __init__(self, rate: float, capacity: int) -> None:\n        self.tokens = capacity\n",
    'if not request.headers.get("Authorization"):\n    raise HTTPException(401, "missing bearer token")',
    "SELECT id, email, password_hash FROM users WHERE token_expires_at > now();",
    "key: value\nkeyboard: mechanical\nmonkey: banana\nprimary_key: id\nforeign_key: user_id",
    "npm install --save-dev @types/node@20.11.5 typescript@5.3.3",
    "2026-11-21 08:00:00,123 INFO app.server listening on 127.0.0.1:8080 (pid 4242)",
    '{"type": "object", "properties": {"api_key": {"type": "string", "description": "Your API key"}}}',
    "usage: toolcrib call NAME [ARGUMENTS] [--token TOKEN] [--timeout SECONDS]",
    "secret_name: db-credentials\nsecret_ref: arn:partition:service:region\nkey_path: /etc/ssl/private/server.key",
    "# Access tokens\n\nA token is sent in the `Authorization` header. See [tokens](/docs/tokens).",
    "from secrets import token_hex, token_urlsafe\nimport getpass\n\npassword = getpass.getpass()",
    "Author: Ada Lovelace\nAuthority: none\nAuthored-by: build-bot\nauthorization_url: https://id.test/authorize",
    "cache-key: linux-node-20-${{ hashFiles('**/package-lock.json') }}",
    "The quick brown fox jumps over the lazy dog. " * 20,
    "a,b,c\n1,2,3\n4,5,6\n" * 20,
    "\n".join(f"{number:04d}: value {number * 37 % 101}" for number in range(60)),
    "ls -la\ntotal 48\ndrwxr-xr-x 6 ada ada 4096 Nov 21 08:00 .\n-rw-r--r-- 1 ada ada  220 Nov 21 08:00 .env.example",
)
"""Text of every day, with the words of secrets in it."""

_OPAQUE: Final[tuple[Callable[[], str], ...]] = (
    lambda: b64(30),
    lambda: of(WORD, 40),
    lambda: of(HEX, 32),
    lambda: of(ALNUM, 24),
    lambda: of(HEX, 64),
    guid,
    lambda: base64.b64encode(json.dumps({"id": _RANDOM.randrange(10**6), "dir": "next"}).encode()).decode(),
    lambda: of(UPPER, 26),
)
_HANDLE_NAMES: Final = (
    "cursor endCursor resume_token resumeToken resumptionToken continuationToken nextPageToken page_token"
    " NextToken syncToken"
    " deltaToken $skiptoken changeToken watch_token progressToken ClientRequestToken idempotency_key"
    " Idempotency-Key cacheKey"
    " dedup_key routing_key partitionKey objectKey s3_key blob_key fileKey storage_key Key LastEvaluatedKey KeyMarker"
    " upload_token uploadId ReceiptHandle taskToken lock_token lease_token fencing_token consistency_token"
    " operation_token"
    " job_key issue_key requestState Mcp-Session-Id snapshot_token scroll_id bookmark version_token"
    " concurrencyToken RowKey"
    " message_key record_key event_key hash_key range_key shard_key lookup_key thread_key correlation_key"
    " historyToken"
    " artifact_key image_token file_token checkpoint_token transaction_token"
).split()
_OBJECT_KEYS: Final[tuple[Callable[[], str], ...]] = (
    lambda: f"uploads/2026/11/{of(HEX, 32)}.pdf",
    lambda: f"exports/{guid()}/part-00000-{of(HEX, 8)}.parquet",
    lambda: f"tenant-{of(DIGITS, 3)}/img/{of(ALNUM, 22)}",
    lambda: f"AWSLogs/{of(DIGITS, 12)}/CloudTrail/eu-west-1/2026/11/20/{of(ALNUM, 16)}.json.gz",
    lambda: f"{of(HEX, 2)}/{of(HEX, 38)}",
    lambda: f"node-cache-Linux-x64-npm-{of(HEX, 64)}",
    lambda: f"arn:aws:kms:eu-west-1:{of(DIGITS, 12)}:key/{guid()}",
)
_ASSIGNED: Final[tuple[Callable[[str, str], str], ...]] = (
    lambda name, value: json.dumps({name: value, "count": 3}),
    lambda name, value: f"{name}: {value}",
    lambda name, value: json.dumps({"text": json.dumps({"items": [1], name: value})}),
    lambda name, value: f"GET /v1/list?limit=10&{name}={value}",
    lambda name, value: f"<List><{name}>{value}</{name}></List>",
)


def _handles() -> tuple[str, ...]:
    begin("handles")
    named = [form(name, _RANDOM.choice(_OPAQUE)()) for name in _HANDLE_NAMES for form in _ASSIGNED]
    objects = [
        form(name, make()) for name in ("key", "Key", "object_key") for form in _ASSIGNED for make in _OBJECT_KEYS
    ]
    return (*named, *objects)


def _hashes() -> tuple[str, ...]:
    begin("hashes")
    names = (
        "sha256 sha1 md5 digest checksum ETag commit integrity content_hash token_hash api_key_hash cache_key"
        " kid keygrip"
        " key_fingerprint token_sha256 session_hash subject_key_identifier secret_digest lockfile_hash hash_key x5t"
    ).split()
    makes: tuple[Callable[[], str], ...] = (
        lambda: of(HEX, 64),
        lambda: of(HEX, 40),
        lambda: of(HEX, 32),
        lambda: f"sha256:{of(HEX, 64)}",
        lambda: f"sha512-{b64(64)}",
        lambda: f"SHA256:{b64(32).rstrip('=')}",
    )
    named = [form(name, make()) for name in names for form in _ASSIGNED for make in makes]
    lines = [
        f"Cache restored from key: build-{of(HEX, 64)}",
        f"gpg: using RSA key {of(HEX, 40).upper()}",
        f"{of(HEX, 64)}  token.tar.gz",
        f"00012-{of(HEX, 64)}",
        f"layer 3-{of(HEX, 64)} pulled",
        json.dumps({"Cache key": of(HEX, 64)}),
        json.dumps({"key": f"sha256:{of(HEX, 64)}"}),
    ]
    return (*named, *lines)


HANDLES: Final = _handles()
"""What a later call takes back, under names with the words of secrets."""
HASHES: Final = _hashes()
"""Digests of public data, likewise."""

_CHOSEN: Final = (
    "Tr0ub4dor&3 hunter2 S3cr3t! Winter2025! letmein123 P@ssw0rd1 Sommer2026 xK9#mQ2$vL dragon99 Passw0rd!"
    " qwerty789 k33pOut!"
    " sunshine-42 Adm1n$2024 Zebra!7788 m0nkeyBus river_Stone_9 Fr3dT3ch Abc123!xyz secure4ever Qx7pLw2zRt gr8Escape"
).split()
_ABOUT_PASSWORDS: Final = (
    "The password is {}.",
    "the password for the staging db is {}",
    "Your new password: {}",
    "I set the password to {} yesterday",
    "log in with user admin and password {}",
    "pwd={}",
    "login failed for ada with password '{}'",
    "2026-11-20 INFO auth: password={} rejected",
    "DEBUG connecting with password={}, host=db",
    "[auth] user=ada pass={} ok",
    "user: ada, pass: {}",
    "Password for ada: {}",
    'the passphrase is "{}"',
    "Your temporary password is {} (change it soon)",
    "credentials: ada / {}",
    "mysql -u root -p{} shop",
    "PGPASSWORD={} psql -h db",
    "sshpass -p '{}' ssh ada@host",
    "server --password {} --host db",
    "DB_PASS={}",
    "redis-cli -a {} ping",
    "password changed to {}",
    "the wifi password is `{}`",
    "pw: {}",
    "invalid password: {}",
    "htpasswd -b file ada {}",
    "smbclient -U ada%{} //h/s",
    "echo {} | sudo -S id",
    "Server=db;User Id=ada;Password={};",
    "The admin password has been reset to: {}",
    "password ({}) works",
    "| password | {} |",
    '{{"auth": {{"user": "ada", "pass": "{}"}}}}',
)
PASSWORDS: Final = tuple((line, password) for line in _ABOUT_PASSWORDS for password in _CHOSEN)
"""Sentences, log lines and commands, and passwords that people choose, with a digit or a sign in each."""
