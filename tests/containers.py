"""Real OCI containers for tests, through `runc`, with the seccomp profiles that engines really use.

No engine and no image: the root file system is a throw-away overlay over this machine's own, so the checkout and the
virtual environment are there as they are, and nothing written inside lasts. What differs from profile to profile:

    docker       14 capabilities; no namespaces, no mounts, no pidfd_getfd; ptrace and seccomp notification allowed
    podman       11 capabilities, the distribution's own profile as it is
    drop-all     docker without any capability, no_new_privs, uid 1000
    no-ptrace    docker, ptrace and process_vm_* refused with EPERM
    gvisor-like  no-ptrace, seccomp and Landlock answer ENOSYS

`Container(profile).run(argv)` gives a CompletedProcess. The fixture `container` (conftest.py) hands out containers that
can run this checkout, and skips, saying why, where root, runc or the profile's source is missing.
"""

import json
import os
import shutil
import subprocess
import tempfile
from collections.abc import Iterable, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any

PROFILES = ("docker", "podman", "drop-all", "no-ptrace", "gvisor-like")
SOURCE = Path("/usr/share/containers/seccomp.json")  # golang-github-containers-common

CAPABILITIES_PODMAN = frozenset(
    "CHOWN DAC_OVERRIDE FOWNER FSETID KILL NET_BIND_SERVICE SETFCAP SETGID SETPCAP SETUID SYS_CHROOT".split()
)
CAPABILITIES_DOCKER = CAPABILITIES_PODMAN | {"MKNOD", "NET_RAW", "AUDIT_WRITE"}
NAMESPACE_CALLS = frozenset(
    "unshare setns mount umount2 pivot_root open_tree move_mount fsopen fsmount mount_setattr".split()
)
SYS_PTRACE_CALLS = frozenset({"pidfd_getfd", "kcmp", "process_madvise"})
PTRACE_CALLS = frozenset({"ptrace", "process_vm_readv", "process_vm_writev"})
GVISOR_LACKS = frozenset({"seccomp", "landlock_create_ruleset", "landlock_add_rule", "landlock_restrict_self"})
CLONE_NEW = 0x7E020000
EPERM, ENOSYS = 1, 38


def missing() -> str:
    """Why no container can be run here; empty if one can."""
    if os.geteuid():
        return "containers need root"
    if not shutil.which("runc"):
        return "runc is not installed"
    if not SOURCE.exists():
        return f"{SOURCE} is not there (golang-github-containers-common)"
    return ""


def _applies(rule: dict[str, Any], capabilities: Iterable[str]) -> bool:
    """Whether a rule of the source profile holds on x86_64 with these capabilities."""
    have = {f"CAP_{name}" for name in capabilities}
    includes, excludes = rule.get("includes") or {}, rule.get("excludes") or {}
    if not set(includes.get("caps") or ()) <= have or set(excludes.get("caps") or ()) & have:
        return False
    if (arches := includes.get("arches")) and not {"amd64", "x32"} & set(arches):
        return False
    return "amd64" not in (excludes.get("arches") or ())


def _rule(names: Iterable[str], error: int) -> dict[str, Any]:
    return {"names": sorted(names), "action": "SCMP_ACT_ERRNO", "errnoRet": error}


def seccomp_profile(
    capabilities: Iterable[str], *, eperm: frozenset[str], enosys: frozenset[str], namespaces: bool
) -> dict[str, Any]:
    """The engines' shared profile as the runtime wants it, less what is refused here."""
    source = json.loads(SOURCE.read_text())
    taken = eperm | enosys
    rules = [_rule(names, error) for names, error in ((eperm, EPERM), (enosys, ENOSYS)) if names]
    if not namespaces:
        taken |= {"clone", "clone3"}
        no_new = [{"index": 0, "value": CLONE_NEW, "valueTwo": 0, "op": "SCMP_CMP_MASKED_EQ"}]
        rules += [{"names": ["clone"], "action": "SCMP_ACT_ALLOW", "args": no_new}, _rule(["clone3"], ENOSYS)]
    for one in source["syscalls"]:
        names = [name for name in one["names"] if name not in taken]
        if not names or not _applies(one, capabilities):
            continue
        rule = {"names": names, "action": one["action"]}
        if one.get("errnoRet") is not None:
            rule["errnoRet"] = one["errnoRet"]
        if one.get("args"):
            rule["args"] = [{"valueTwo": 0, **argument} for argument in one["args"]]
        rules.append(rule)
    return {
        "defaultAction": source["defaultAction"],
        "defaultErrnoRet": source.get("defaultErrnoRet", EPERM),
        "architectures": ["SCMP_ARCH_X86_64", "SCMP_ARCH_X86", "SCMP_ARCH_X32"],
        "syscalls": rules,
    }


def profile(name: str) -> dict[str, Any]:
    """Capabilities, seccomp and user of one profile."""
    if name == "podman":
        filters = seccomp_profile(CAPABILITIES_PODMAN, eperm=frozenset(), enosys=frozenset(), namespaces=True)
        return {"capabilities": CAPABILITIES_PODMAN, "seccomp": filters, "uid": 0}
    eperm, enosys = NAMESPACE_CALLS | SYS_PTRACE_CALLS, frozenset[str]()
    if name in ("no-ptrace", "gvisor-like"):
        eperm |= PTRACE_CALLS
    if name == "gvisor-like":
        enosys = GVISOR_LACKS
    capabilities = frozenset[str]() if name == "drop-all" else CAPABILITIES_DOCKER
    filters = seccomp_profile(capabilities, eperm=eperm, enosys=enosys, namespaces=False)
    return {"capabilities": capabilities, "seccomp": filters, "uid": 1000 if name == "drop-all" else 0}


class Container:
    """One profile; each `run` is a new container.

    `keep`: folders shared with it, writable, as they are. `share_network`: it stays in our network namespace, which has
    to be a test's own.
    """

    def __init__(self, name: str, *, keep: Sequence[Path] = (), share_network: bool = False) -> None:
        self.name = name
        self.keep = [Path(one).resolve() for one in keep]
        self._left_out = {"cgroup", "network"} if share_network else {"cgroup"}

    def _specification(self, work: Path, argv: Sequence[str], cwd: Path, env: dict[str, str]) -> dict[str, Any]:
        subprocess.run(["runc", "spec"], cwd=work, check=True)
        spec: dict[str, Any] = json.loads((work / "config.json").read_text())
        chosen = profile(self.name)
        environment = {"PATH": os.environ["PATH"], "HOME": "/tmp", "TERM": "dumb", **env}
        held = [f"CAP_{one}" for one in sorted(chosen["capabilities"])]
        spec["process"] |= {
            "terminal": False,
            "args": list(argv),
            "cwd": str(cwd),
            "env": [f"{key}={value}" for key, value in environment.items()],
            "user": {"uid": chosen["uid"], "gid": chosen["uid"]},
            "capabilities": dict.fromkeys(("bounding", "effective", "permitted"), held),
            "noNewPrivileges": self.name == "drop-all",
            "rlimits": [],
        }
        spec["root"] = {"path": str(work / "merged"), "readonly": False}
        spec["mounts"] += [
            {"destination": str(kept), "source": str(kept), "type": "bind", "options": ["rbind", "rw"]}
            for kept in self.keep
        ]
        linux = spec["linux"]
        linux.pop("resources", None)
        # A network namespace of its own with loopback alone: nothing in a test may reach outside.
        linux["namespaces"] = [one for one in linux["namespaces"] if one["type"] not in self._left_out]
        linux["seccomp"] = chosen["seccomp"]
        return spec

    def run(
        self, argv: Sequence[str], *, cwd: Path = Path("/"), env: dict[str, str] | None = None, timeout: float = 300
    ) -> "subprocess.CompletedProcess[str]":
        """Run a command in a new container and take it down, whatever happens."""
        with ExitStack() as undo:
            # An overlay's upper layer may not lie on the file system of the lower one's own tree.
            work = Path(tempfile.mkdtemp(prefix="agentwrap-container-", dir="/dev/shm"))
            undo.callback(shutil.rmtree, work, ignore_errors=True)
            for name in ("upper", "work", "merged"):
                (work / name).mkdir()
            layers = f"lowerdir=/,upperdir={work}/upper,workdir={work}/work"
            subprocess.run(["mount", "-t", "overlay", "overlay", "-o", layers, work / "merged"], check=True)
            undo.callback(subprocess.run, ["umount", "-l", work / "merged"], check=False)
            spec = self._specification(work, argv, cwd, env or {})
            (work / "config.json").write_text(json.dumps(spec))
            runc = ["runc", "--root", str(work / "state")]
            undo.callback(subprocess.run, [*runc, "delete", "--force", work.name], check=False, capture_output=True)
            return subprocess.run(
                [*runc, "run", "-b", work, work.name],
                stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=timeout,
            )  # fmt: skip
