"""What credentials of known providers look like: a fixed beginning, then a length and an alphabet. Pure.

All of them are one unbroken run of `[A-Za-z0-9_.-]`, at least `RUN_BYTES` long: the scanner looks for such runs first
and asks these expressions only about those. To add one: a line here, and a fake in tests/recording/redact/fakes.py.
"""

import re
from collections.abc import Iterator
from typing import NamedTuple

from agentwrap.recording.redact.base64_text import decode_run

RUN_BYTES = 16


Hit = tuple[int, int, str, bytes]
"""(start, end, kind, credential)."""


class Provider(NamedTuple):
    """`kind`: the word in the mark; `prefixes`: literal beginnings (base64 forms are derived from them)."""

    kind: str
    prefixes: tuple[bytes, ...]
    rest: bytes
    weak: bool = False
    """The beginning is short enough to end some other word: then it must not follow a letter or digit."""


def _p(kind: str, prefixes: str, rest: bytes, weak: bool = False) -> Provider:
    return Provider(kind, tuple(prefix.encode() for prefix in prefixes.split()), rest, weak)


_W = rb"[A-Za-z0-9_-]"
_A = rb"[A-Za-z0-9]"

PROVIDERS = (
    _p("anthropic-key", "sk-ant-", _W + rb"{20,}"),
    _p("openrouter-key", "sk-or-v1-", rb"[a-f0-9]{40,}"),
    _p("openai-key", "sk-proj- sk-svcacct- sk-admin- sk-None-", _W + rb"{20,}", weak=True),
    _p("langfuse-key", "sk-lf-", rb"[a-f0-9-]{30,}", weak=True),
    _p("api-key", "sk-", rb"(?=[A-Za-z_-]*[0-9])" + _A + rb"[A-Za-z0-9_]{19,}", weak=True),
    _p("google-api-key", "AIza", _W + rb"{30,}", weak=True),
    _p("google-oauth-token", "ya29.", rb"[A-Za-z0-9_.-]{20,}", weak=True),
    _p("google-oauth-secret", "GOCSPX-", _W + rb"{20,}"),
    _p("groq-key", "gsk_", _A + rb"{30,}", weak=True),
    _p("xai-key", "xai-", _A + rb"{40,}", weak=True),
    _p("perplexity-key", "pplx-", _A + rb"{30,}", weak=True),
    _p("nvidia-key", "nvapi-", _W + rb"{40,}"),
    _p("replicate-token", "r8_", _A + rb"{30,}", weak=True),
    _p("huggingface-token", "hf_ api_org_", _A + rb"{30,}", weak=True),
    _p("fireworks-key", "fw_", _A + rb"{20,}", weak=True),
    _p("tavily-key", "tvly-", _W + rb"{20,}", weak=True),
    _p("langsmith-key", "lsv2_pt_ lsv2_sk_", rb"[A-Za-z0-9_]{30,}"),
    _p("pinecone-key", "pcsk_", rb"[A-Za-z0-9_]{30,}"),
    _p("github-token", "ghp_ gho_ ghu_ ghs_ ghr_", _A + rb"{30,}"),
    _p("github-token", "github_pat_", rb"[A-Za-z0-9_]{36,}"),
    _p("gitlab-token", "glpat- gldt- glptt- glrt- glcbt- glagent- gloas-", rb"[A-Za-z0-9_.-]{18,}", weak=True),
    _p("aws-key-id", "AKIA ASIA ABIA ACCA", rb"[A-Z2-7]{16}(?![A-Za-z0-9])", weak=True),
    _p(
        "slack-token",
        "xoxb- xoxp- xoxa- xoxr- xoxs- xoxc- xoxd- xoxe- xoxe.xox xapp-",
        rb"[A-Za-z0-9.-]{16,}",
        weak=True,
    ),
    _p("stripe-key", "sk_live_ sk_test_ rk_live_ rk_test_", _A + rb"{16,}"),
    _p("webhook-secret", "whsec_", rb"[A-Za-z0-9]{20,}"),
    _p("sendgrid-key", "SG.", rb"[A-Za-z0-9_-]{16,32}\.[A-Za-z0-9_-]{30,}", weak=True),
    _p("mailgun-key", "key-", rb"[a-f0-9]{32}(?![A-Za-z0-9])", weak=True),
    _p("npm-token", "npm_", _A + rb"{30,}", weak=True),
    _p("pypi-token", "pypi-AgE", _W + rb"{40,}"),
    _p("rubygems-key", "rubygems_", rb"[a-f0-9]{40,}"),
    _p("docker-token", "dckr_pat_ dckr_oat_", _W + rb"{20,}"),
    _p("digitalocean-token", "dop_v1_ doo_v1_ dor_v1_", rb"[a-f0-9]{40,}"),
    _p("databricks-token", "dapi", rb"[a-f0-9]{32}(?:-\d)?(?![A-Za-z0-9])", weak=True),
    _p("shopify-token", "shpat_ shpca_ shppa_ shpss_", rb"[a-fA-F0-9]{30,}"),
    _p("figma-token", "figd_", _W + rb"{20,}"),
    _p("linear-key", "lin_api_ lin_oauth_", _A + rb"{30,}"),
    _p("notion-token", "ntn_", _A + rb"{40,}", weak=True),
    _p("atlassian-token", "ATATT3xFfGF0", rb"[A-Za-z0-9_=-]{40,}"),
    _p("sentry-token", "sntrys_ sntryu_", rb"[A-Za-z0-9_=]{30,}"),
    _p("grafana-token", "glsa_ glc_eyJ", rb"[A-Za-z0-9_=]{30,}", weak=True),
    _p("postman-key", "PMAK-", rb"[a-f0-9]{24}-[a-f0-9]{30,}"),
    _p("vault-token", "hvs. hvb. hvr.", _W + rb"{24,}", weak=True),
    _p("doppler-token", "dp.pt. dp.st. dp.sa. dp.ct.", rb"[A-Za-z0-9_.-]{30,}", weak=True),
    _p("supabase-key", "sbp_ sb_secret_", rb"[A-Za-z0-9_-]{20,}", weak=True),
    _p("tailscale-key", "tskey-", rb"[A-Za-z0-9-]{16,}"),
    _p("pulumi-token", "pul-", rb"[a-f0-9]{40}", weak=True),
    _p("newrelic-key", "NRAK- NRJS- NRII-", rb"[A-Za-z0-9_-]{16,}", weak=True),
    _p("planetscale-token", "pscale_tkn_ pscale_pw_ pscale_oauth_", rb"[A-Za-z0-9_.=-]{30,}"),
    _p("age-key", "AGE-SECRET-KEY-1", rb"[A-Z0-9]{50,}"),
    _p("jwt", "eyJ", rb"[A-Za-z0-9_-]{10,}\.eyJ[A-Za-z0-9_-]{8,}\.[A-Za-z0-9_-]{8,}", weak=True),
)

# A weak beginning may follow an escape: `\n` in JSON, `%3D` in a URL.
_BOUNDARY = rb"(?:(?<![A-Za-z0-9])|(?<=\\[nrtbf])|(?<=%[0-9A-F][0-9A-F])|(?<=%[0-9a-f][0-9a-f]))"


def _body(provider: Provider) -> bytes:
    beginnings = b"|".join(map(re.escape, provider.prefixes))
    return b"(?:%b)%b" % (beginnings, provider.rest)


def _compile() -> tuple[re.Pattern[bytes], tuple[str, ...]]:
    strong = [p for p in PROVIDERS if not p.weak]
    weak = [p for p in PROVIDERS if p.weak]
    text = b"|".join(b"(%b)" % _body(p) for p in strong)
    text += b"|" + _BOUNDARY + b"(?:" + b"|".join(b"(%b)" % _body(p) for p in weak) + b")"
    return re.compile(text), tuple(p.kind for p in strong + weak)


def _stems() -> tuple[str, ...]:
    """The beginnings, without those that another one begins."""
    stems: list[str] = []
    for prefix in sorted({prefix for provider in PROVIDERS for prefix in provider.prefixes}, key=len):
        if not any(prefix.decode().startswith(stem) for stem in stems):
            stems.append(prefix.decode())
    return tuple(stems)


_TOKEN, _KINDS = _compile()
_STEMS = _stems()
_RUN_LETTERS = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789_.-"
_RUN_TABLE = bytes(0x61 if c in _RUN_LETTERS else 0x20 for c in range(256))
_RUN = b"a" * RUN_BYTES
_ENCODED_RUN_BYTES = RUN_BYTES * 4 // 3 + 1
_REMEMBERED = 20_000


def runs(data: bytes) -> list[tuple[int, int]]:
    """(start, end) of every run of token characters that is long enough to hold a credential."""
    shape = data.translate(_RUN_TABLE)
    found: list[tuple[int, int]] = []
    start = shape.find(_RUN)
    while start >= 0:
        end = shape.find(b" ", start)
        end = len(data) if end < 0 else end
        found.append((start, end))
        start = shape.find(_RUN, end)
    return found


class TokenScanner:
    """Finds credentials of providers, and remembers the runs that were none: paths and names return all the time."""

    def __init__(self) -> None:
        self._innocent: set[bytes] = set()

    def find(self, data: bytes) -> list[Hit]:
        """Every credential in `data`, plain or in base64: (start, end, kind, credential)."""
        if data.translate(_RUN_TABLE).find(_RUN) < 0:
            return []
        places = [place for place in runs(data) if data[place[0] : place[1]] not in self._innocent]
        if not places:
            return []
        found = list(_plain(data, places))
        long_runs = [place for place in places if _may_be_base64(data[place[0] : place[1]])]
        if long_runs and _may_be_encoded(data, long_runs):
            for start, end in long_runs:
                found += _encoded(data, start, end)
        if not found:
            self._remember(data, places)
        return found

    def _remember(self, data: bytes, places: list[tuple[int, int]]) -> None:
        if len(self._innocent) > _REMEMBERED:
            self._innocent.clear()
        for start, end in places:
            run = data[start:end]
            # What a run with a beginning in it is depends on the bytes around it.
            if end - start <= 256 and not any(stem in run.decode("ascii") for stem in _STEMS):
                self._innocent.add(run)


def _may_be_base64(run: bytes) -> bool:
    """Base64 of ASCII text is long enough, and has letters of both cases, always."""
    return len(run) >= _ENCODED_RUN_BYTES and not run.islower() and not run.isupper()


def _plain(data: bytes, places: list[tuple[int, int]]) -> Iterator[Hit]:
    # Text, because `in` for bytes first tries to read its operand as a number.
    text = b" ".join([data[start:end] for start, end in places]).decode("latin-1")
    for stem in _STEMS:
        if stem not in text:
            continue
        beginning = stem.encode()
        at = data.find(beginning)
        while at >= 0:
            match = _TOKEN.match(data, at)
            if match is not None:
                yield (*match.span(), _KINDS[(match.lastindex or 1) - 1], match[0])
            at = data.find(beginning, at + 1 if match is None else match.end())


def _may_be_encoded(data: bytes, places: list[tuple[int, int]]) -> bool:
    """Whether any of the runs, read as base64 from any letter on, gives a run of token characters.

    All of them are decoded in one go; the group AAAA (three NUL bytes) keeps them apart.
    """
    for offset in range(4):
        texts = [data[start + offset : end] for start, end in places]
        padded = b"AAAA".join([text.ljust(-(-len(text) // 4) * 4, b"A") for text in texts])
        if decode_run(padded, 0).translate(_RUN_TABLE).find(_RUN) >= 0:
            return True
    return False


def _encoded(data: bytes, start: int, end: int) -> Iterator[Hit]:
    """Credentials in the base64 letters [start, end): decoding decides, not a guess at the letters.

    Base64 of a credential is one run even among `+` and `/`: ASCII letters never make those two.
    """
    text = data[start:end]
    for offset in range(4):
        plain = decode_run(text, offset)
        for at, until, kind, secret in _plain(plain, runs(plain)):
            # A credential that fills the text to its last whole byte may go on in the letters left over.
            last = end if until >= len(plain) - 2 else min(end, start + offset - (-until * 4 // 3))
            yield start + offset + at * 4 // 3, last, kind, secret
