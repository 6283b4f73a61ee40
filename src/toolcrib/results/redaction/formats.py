"""Formats of secrets: tokens of known issuers, and positions that only a secret has."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Final

from msgspec import Struct

from .values import HEX, is_credential, is_generated, is_mixed, is_password, is_random, not_example

_B: Final = rb"(?:^|[^A-Za-z0-9]|\\[bfnrt]|\\u[0-9a-fA-F]{4}|%[0-9A-Fa-f]{2})"

_UUID: Final = rb"[0-9a-fA-F]{8}-[0-9a-fA-F]{4}-[0-9a-fA-F]{4}-[0-9a-fA-F]{4}-[0-9a-fA-F]{12}"

_PEM_BODY: Final = (
    rb"(?:(?:[^-]|-[^-]){64,}-----END[ A-Z0-9_-]*KEY(?: BLOCK)?-----|(?:[A-Za-z0-9+/]{40,}(?:[=\s\"',+]|\\[nr])*)+)"
)

_KIND_SECRET: Final = rb"kind[\"'\\]*:\s*[\"'\\]*Secret\b"
_ENTRY: Final = rb"[\w.-]+[\"'\\]*:\s*[\"'\\]*[A-Za-z0-9+/]{4,}={0,2}"
_ENTRIES: Final = rb"\bdata[\"'\\]*:(?:[\s{\"'\\]|\\n)*(" + _ENTRY + rb"(?:(?:[\s,\"'\\]|\\n)+" + _ENTRY + rb")*)"
"""The base64 entries of a Kubernetes secret, in YAML or JSON."""


def _is_mixed_beyond_hex(value: bytes) -> bool:
    """Whether a number and a generated word are joined, and the word is not a digest (`00012-SHA256`)."""
    return is_mixed(value) and HEX.fullmatch(value.rpartition(b"-")[2]) is None


class Format(Struct, frozen=True):
    """One kind of secret: the first group of `pattern`. `judge` confirms a match; None accepts every match.

    `pattern` is RE2 over bytes, without look-arounds; `_B` stands for what may come before a token.
    """

    kind: str
    pattern: bytes
    judge: Callable[[bytes], bool] | None = None
    is_certain: bool = True
    """Whether the format alone shows a secret; a password in prose is a guess from the words around it."""
    below: Callable[[bytes, int, int], Iterable[tuple[int, int]]] | None = None
    """Returns where the values are in a text, from where their heading is; None where the match is the value."""


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
        rb"AQ\.Ab8[\w-]{40,}",
        rb"1//0[\w-]{30,}",
        judge=not_example,
    ),
    *_token("azure_key", rb"[\w~.-]{3}\dQ~[\w~.-]{31,34}", rb"[A-Za-z0-9]{76}AZDO[A-Za-z0-9]{4}"),
    Format("azure_key", rb"(?i)(?:account|shared ?access|primary|secondary)_?key=([a-z0-9+/%]{40,}={0,2})"),
    Format("azure_key", rb"(?i)\bsecret=([a-z0-9+/]{40,}={0,2})"),
    Format("azure_key", rb"[?&]sig=([A-Za-z0-9%+/=_-]{40,})"),
    *_token("digitalocean_token", rb"do[opr]_v1_[a-f0-9]{64}"),
    *_token("alibaba_key", rb"LTAI[A-Za-z0-9]{17,20}\b"),
    *_token("cloudflare_key", rb"v1\.0-[a-f0-9]{24}-[a-f0-9]{100,}", rb"cf(?:k|ut|at|ast)_[A-Za-z0-9]{48}"),
    *_token("vercel_token", rb"vc[aciprk]_[A-Za-z0-9]{40,}"),
    *_token("netlify_token", rb"nf[bcopu]_[A-Za-z0-9]{36}"),
    *_token("supabase_key", rb"sb_secret_[\w-]{31}", rb"sbp_(?:oauth_)?[a-f0-9]{40}"),
    *_token("tailscale_key", rb"tskey-[a-z]+-[A-Za-z0-9]{10,}-[A-Za-z0-9]{20,}"),
    *_token("heroku_key", rb"HRKU-AA[\w-]{58}"),
    *_token("databricks_token", rb"(?:dapi|dose)[a-f0-9]{32}(?:-\d)?"),
    *_token("neon_key", rb"napi_[a-z0-9]{64}"),
    *_token("render_key", rb"rnd_[A-Za-z0-9]{32}\b"),
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
    *_token("contentful_token", rb"CFPAT-[\w-]{43}"),
    *_token("circleci_token", rb"CCIP(?:AT|RJ)_[A-Za-z0-9]{22}_[a-f0-9]{40}"),
    *_token("buildkite_token", rb"bkua_[a-f0-9]{40}"),
    *_token("infisical_token", rb"st\.[a-f0-9]{24}\.[a-f0-9]{32}\.[a-f0-9]{32}"),
    # Models
    *_token(
        "api_key",
        rb"sk-(?:ant|proj|svcacct|admin|or|lf|let|helicone)-[\w-]{20,}",
        rb"sk-[A-Za-z0-9]{20,}\b",
        judge=is_mixed,
    ),
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
        rb"(?:nvapi|csk|pcsk|tgp_v1|wandb_v1)[_-][\w-]{43,}",
        rb"(?:key|crsr|dtn)_" + rb"[a-f0-9]" * 13 + rb"[a-f0-9]{51}",
        rb"(?:sk_[a-f0-9]{8}|e2b_)[a-f0-9]{40}",
        rb"lsv2_[ps][tk]_[a-f0-9]{32}_[a-f0-9]{10}",
        rb"ctx7sk-" + _UUID,
    ),
    *_token("api_key", rb"(?:fw_|a[ks]-)" + rb"[A-Za-z0-9]" * 13 + rb"[A-Za-z0-9]{9,11}\b", judge=is_mixed),
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
    *_token("resend_key", rb"re_" + rb"[A-Za-z0-9]" * 8 + rb"_[A-Za-z0-9]{24}\b"),
    # Money and shops
    *_token("stripe_key", rb"[rs]k_(?:test|live|prod)_[A-Za-z0-9]{10,}", rb"whsec_[A-Za-z0-9+/=]{24,}"),
    *_token("square_token", rb"sq0(?:atp|csp|idp|csb)-[\w-]{22,}", rb"EAAA[\w-]{22,60}\b", judge=is_mixed),
    *_token("shopify_token", rb"shp(?:at|ca|pa|ss|tka)_[a-fA-F0-9]{32}"),
    *_token("paddle_key", rb"pdl_(?:live|sdbx)_apikey_[a-z0-9]{26}_[A-Za-z0-9]{22}_[A-Za-z0-9]{3}"),
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
    *_token("sentry_token", rb"sntrys_[A-Za-z0-9+/=_-]{40,}", rb"sntry[iu]_[a-f0-9]{64}"),
    *_token("posthog_key", rb"ph[sx]_[A-Za-z0-9]{40,}"),
    *_token("honeycomb_key", rb"hc[a-z]ik_[a-z0-9]{58}"),
    *_token("axiom_token", rb"xa[ap]t-" + _UUID),
    *_token("logfire_token", rb"pylf_v\d_[a-z]+_[A-Za-z0-9]{43}"),
    *_token("hubspot_token", rb"pat-[a-z]{2}\d-" + _UUID),
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
        rb"(?i)(?:\b|_)authorization[\"'\\]*\s*[:=,]\s*[\"'\\]*(?:bearer|basic|token|digest|apikey|api-key|bot|ssws)\s+([\w.~+/=:@-]{8,})",
        not_example,
    ),
    Format("authorization", rb"(?i)\bbearer\s+[\"'\\]*([\w.~+/=-]{16,})", is_credential),
    Format("authorization", rb"(?i)\bauthorization:\s*([\w.~+/=@-]{8,})", is_credential),
    Format("url_password", rb"[A-Za-z][A-Za-z0-9+.-]*://[^\s/:@\"'<>?#]*:([^\s/\"'<>]{3,})@[^\s@/\"']", is_password),
    Format("url_password", rb"(?i)\bmongodb(?:\+srv)?://[^\s/:@\"'<>]*:([^\s@\"'<>]{3,})@", is_password),
)
"""Formats of issuers and of positions, most specific first: where two overlap, the first names the kind."""
