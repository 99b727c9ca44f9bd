"""Which hosts `config:pip` and `config:npm` stand for: those that this machine's pip and npm are configured to ask.

Reads variables and files, runs nothing, and knows no public index: where none is configured there is no answer, and
`--config` can give one.
"""

import os
import re
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path

from agentwrap.errors import AgentwrapError
from agentwrap.policy.names import CONFIGS

SYSTEM_PIP = (Path("/etc/pip.conf"), Path("/etc/xdg/pip/pip.conf"))
SYSTEM_NPM = (Path("/etc/npmrc"),)
_URL = re.compile(r"https?://(?:[^\s/@]*@)?(\[[0-9A-Fa-f:.]+\]|[^\s/:@\[\]]+)(?::(\d{1,5}))?(?=[/\s]|$)")
_PIP_KEYS = re.compile(r"^\s*(?:extra[-_])?index[-_]url\s*[=:]\s*(.*(?:\n[ \t]+.*)*)", re.MULTILINE)
_NPM_KEYS = re.compile(r"^\s*(?:@[^\s:=]+:)?registry\s*=\s*\"?(\S+?)\"?\s*$", re.MULTILINE)
_MAX_BYTES = 1 << 20


def configured(env: Mapping[str, str], cwd: Path, given: Iterable[str] = ()) -> dict[str, tuple[str, ...]]:
    """What each placeholder stands for, as `host:port`. `given` are `NAME=HOST[:PORT]` of the command line."""
    found = {"pip": list(_hosts(_pip(env))), "npm": list(_hosts(_npm(env, cwd)))}
    for word in given:
        name, equals, host = word.partition("=")
        if name not in CONFIGS or not equals or not host:
            hint = f"names: {', '.join(CONFIGS)}"
            raise AgentwrapError("usage", "--config takes NAME=HOST[:PORT]", evidence=word, hint=hint)
        found[name].append(host)
    return {name: tuple(dict.fromkeys(hosts)) for name, hosts in found.items()}


def _hosts(texts: Iterable[str]) -> Iterator[str]:
    for text in texts:
        for match in _URL.finditer(text):
            port = match[2] or ("443" if match[0].lower().startswith("https") else "80")
            yield f"{match[1]}:{port}"


def _pip(env: Mapping[str, str]) -> Iterator[str]:
    """Pip's own variables and files (pip documentation, Configuration)."""
    yield env.get("PIP_INDEX_URL", "")
    yield env.get("PIP_EXTRA_INDEX_URL", "")
    home = Path(env.get("HOME") or "/nonexistent")
    config = Path(env.get("XDG_CONFIG_HOME") or home / ".config")
    files = [*SYSTEM_PIP, home / ".pip/pip.conf", config / "pip/pip.conf"]
    if env.get("PIP_CONFIG_FILE"):
        files.append(Path(env["PIP_CONFIG_FILE"]))
    if env.get("VIRTUAL_ENV"):
        files.append(Path(env["VIRTUAL_ENV"]) / "pip.conf")
    for file in files:
        yield from _PIP_KEYS.findall(_content(file))


def _npm(env: Mapping[str, str], cwd: Path) -> Iterator[str]:
    """Npm's variables and files (npm documentation, npmrc)."""
    for name in ("npm_config_registry", "NPM_CONFIG_REGISTRY"):
        yield env.get(name, "")
    home = Path(env.get("HOME") or "/nonexistent")
    files = [*SYSTEM_NPM, Path(env.get("NPM_CONFIG_USERCONFIG") or home / ".npmrc"), cwd / ".npmrc"]
    for file in files:
        yield from _NPM_KEYS.findall(_content(file))


def _content(file: Path) -> str:
    """The text of a small regular file, nothing of any other."""
    try:
        if not file.is_file() or file.stat().st_size > _MAX_BYTES:
            return ""
        return file.read_text("utf-8", errors="replace")
    except OSError:
        return ""


def policy_bytes(path: Path, limit_bytes: int) -> bytes:
    """The content of a policy file, at most one byte over the limit. Raises AgentwrapError with the reason."""
    try:
        # A fifo or a terminal would keep us waiting for a policy for ever.
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK | os.O_NOCTTY)
        with open(descriptor, "rb") as file:
            return file.read(limit_bytes + 1) or b""
    except OSError as error:
        raise AgentwrapError(
            "not-found",
            "the policy cannot be read",
            evidence=f"{path}: {error.strerror}",
            hint="a policy is a TOML file; policies/ has some to begin with",
        ) from error
