"""What credentials of known providers look like: a fixed beginning, then a length and an alphabet. Pure.

All of them are one unbroken run of `[A-Za-z0-9_.-]`, at least `RUN_BYTES` long: the scanner looks for such runs first
and asks these expressions only about those. To add one: a line here, and a fake in tests/recording/redact/fakes.py.
"""

import re
from collections.abc import Iterator
from itertools import islice
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


def _stems() -> dict[str, tuple[str, ...]]:
    """The beginnings, without those that another one begins; by the rare sign that each has, if it has one."""
    stems: dict[str, tuple[str, ...]] = {"": (), "-": (), "_": (), ".": ()}
    for prefix in sorted({prefix for provider in PROVIDERS for prefix in provider.prefixes}, key=len):
        text = prefix.decode()
        if not any(text.startswith(stem) for known in stems.values() for stem in known):
            sign = next((sign for sign in text if sign in "-_."), "")
            stems[sign] += (text,)
    return stems


_TOKEN, _KINDS = _compile()
_STEMS = _stems()
_RUN_LETTERS = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789_.-"
_RUN_TABLE = bytes(0x61 if c in _RUN_LETTERS else 0x20 for c in range(256))
_RUN = b"a" * RUN_BYTES
_LONG_RUN = re.compile(b" " + _RUN + b"a*")
"""So many fixed letters are searched for as fast as by `find`."""
_ENCODED_RUN_BYTES = RUN_BYTES * 4 // 3 + 1
_BASE64 = re.compile(rb"[A-Za-z0-9_-]{%d,}" % _ENCODED_RUN_BYTES)
_REMEMBERED = 20_000


def runs(data: bytes) -> list[tuple[int, int]]:
    """(start, end) of every run of token characters that is long enough to hold a credential."""
    return _runs(data.translate(_RUN_TABLE))


def _runs(shape: bytes) -> list[tuple[int, int]]:
    return [(start, end - 1) for start, end in map(re.Match.span, _LONG_RUN.finditer(b" " + shape))]


class TokenScanner:
    """Finds credentials of providers, and remembers the runs that were none: paths and names return all the time."""

    def __init__(self) -> None:
        self._innocent: set[bytes] = set()

    def find(self, data: bytes) -> list[Hit]:
        """Every credential in `data`, plain or in base64: (start, end, kind, credential)."""
        shape = data.translate(_RUN_TABLE)
        if shape.find(_RUN) < 0:
            return []
        places = [place for place in _runs(shape) if data[place[0] : place[1]] not in self._innocent]
        if not places:
            return []
        # Each once: the same paths and names fill a long text.
        different = {data[start:end] for start, end in places}
        joined = b" ".join(different)
        stems = _stems_in(joined)
        found = list(_plain(data, stems))
        letters = [piece for piece in joined.replace(b".", b" ").split(b" ") if _may_be_base64(piece)]
        if letters and _may_be_encoded(letters):
            for start, end in places:
                for piece in _BASE64.finditer(data, start, end):
                    if _may_be_base64(piece[0]):
                        found += _encoded(*piece.span(), piece[0])
        if not found:
            self._remember(different, stems)
        return found

    def _remember(self, different: set[bytes], stems: list[bytes]) -> None:
        if len(self._innocent) > _REMEMBERED:
            self._innocent.clear()
        for run in islice(different, _REMEMBERED):
            # What a run with a beginning in it is depends on the bytes around it.
            if len(run) <= 256 and not any(run.find(stem) >= 0 for stem in stems):
                self._innocent.add(run)


def _may_be_base64(letters: bytes) -> bool:
    """Base64 of ASCII text is long enough, and has letters of both cases, always."""
    return len(letters) >= _ENCODED_RUN_BYTES and not letters.islower() and not letters.isupper()


def _stems_in(runs_of_data: bytes) -> list[bytes]:
    """The beginnings that are somewhere in the text."""
    # Text, because `in` for bytes first tries to read its operand as a number.
    text = runs_of_data.decode("latin-1")
    return [
        stem.encode() for sign, stems in _STEMS.items() if not sign or sign in text for stem in stems if stem in text
    ]


def _plain(data: bytes, stems: list[bytes]) -> Iterator[Hit]:
    for beginning in stems:
        at = data.find(beginning)
        while at >= 0:
            match = _TOKEN.match(data, at)
            if match is not None:
                yield (*match.span(), _KINDS[(match.lastindex or 1) - 1], match[0])
            at = data.find(beginning, at + 1 if match is None else match.end())


def _may_be_encoded(letters: list[bytes]) -> bool:
    """Whether any of these texts, read as base64 from any letter on, gives a run of token characters.

    All of them are decoded in one go, from each of the first four letters of the whole, and so each of them from its
    first four, wherever it begins. AAAA keeps them apart: however those 24 zero bits are cut into bytes together with
    the letters beside them, one byte is no token character.
    """
    whole = b"AAAA".join(letters)
    return any(decode_run(whole, offset).translate(_RUN_TABLE).find(_RUN) >= 0 for offset in range(4))


def _encoded(start: int, end: int, text: bytes) -> Iterator[Hit]:
    """Credentials in base64 letters, which stand at [start, end): decoding decides, not a guess at the letters.

    Base64 of a credential is one run even among `+` and `/`: ASCII letters never make those two.
    """
    for offset in range(4):
        plain = decode_run(text, offset)
        stems = _stems_in(b" ".join([plain[begin:until] for begin, until in runs(plain)]))
        for at, until, kind, secret in _plain(plain, stems):
            # A credential that fills the text to its last whole byte may go on in the letters left over.
            last = end if until >= len(plain) - 2 else min(end, start + offset - (-until * 4 // 3))
            yield start + offset + at * 4 // 3, last, kind, secret
