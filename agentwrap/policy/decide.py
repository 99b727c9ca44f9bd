"""The one decision: a policy and a question in, a verdict and its rule out. Live and offline use is the same.

Denials are asked before permissions, our own before the policy's; what no rule names has the default of its section;
an empty list allows nothing. Where a question leaves something open that would matter, the answer is `unknown`.
"""

from shlex import quote

from agentwrap.policy import defaults
from agentwrap.policy.calls import decide_call
from agentwrap.policy.hosts import Host, HostError, parse_host, special
from agentwrap.policy.names import HostPattern
from agentwrap.policy.paths import PathError, normal, portable
from agentwrap.policy.questions import Answer, Call, Connect, Exec, Family, Lookup, Question, Read, Unix, Write
from agentwrap.policy.rules import COMMAND_LINE, HostRule, PathRules, Policy, Rule, Section

_SPECIAL_WHY = {
    "metadata": "a metadata service gives out the machine's own credentials",
    "loopback": "a service on the machine's own loopback, outside of the run",
    "link-local": "a link-local address is the machine's own surroundings",
    "private": "a private address is somebody's own network",
    "reserved": "a reserved address is nobody's server",
}


def decide(policy: Policy, question: Question) -> Answer:
    """What the policy says to a question."""
    if isinstance(question, Connect):
        return _connect(policy, question)
    if isinstance(question, Lookup):
        return _lookup(policy, question)
    if isinstance(question, Unix):
        return _unix(policy, question)
    if isinstance(question, Family):
        return _family(policy, question)
    if isinstance(question, Write):
        return _write(policy, question)
    if isinstance(question, Read):
        return _read(policy, question)
    if isinstance(question, Call):
        return decide_call(policy.mcp, policy.places, policy.file, question)
    return _exec(policy, question)


def _own(name: str) -> Rule:
    """A rule that is no file's."""
    return Rule(f"built-in.{name}")


_OPTIONS = {"network.allow": "--allow", "files.write.allow": "--rw"}


def _add(policy: Policy, entry: str, where: str) -> str:
    """How somebody adds an entry to a list of the policy."""
    if policy.file == COMMAND_LINE and where in _OPTIONS:
        return f"add `{_OPTIONS[where]} {quote(entry)}` to the command line"
    return f"add `{entry}` to {where} of {policy.file}"


def _malformed(error: Exception) -> Answer:
    return Answer("deny", _own("malformed"), str(error), "nothing: it has no normal form that could be allowed")


# Hosts


def _connect(policy: Policy, question: Connect) -> Answer:
    try:
        host = parse_host(question.host)
        dialled = parse_host(question.address) if question.address else host
    except HostError as error:
        return _malformed(error)
    if not 0 < question.port < 65536:
        return _malformed(HostError(f"{question.port} is no port"))
    refused, perhaps_refused = _denied(policy, host, dialled, question)
    if refused is not None:
        return Answer("deny", refused.rule, "deny is asked first", f"remove {refused.rule}")
    kind = special(dialled)
    if question.inner and kind == "loopback":
        return Answer("allow", _own("inner"), "something of the run itself listens there")
    if question.transport == "udp":
        return _udp(policy)
    allowed = _allowed(policy, host, question.port)
    if kind and not _free(policy):
        answer = _special(policy, host, dialled, question, kind, allowed)
    else:
        answer = _ordinary(policy, host, question, allowed)
    if answer.verdict == "allow" and perhaps_refused is not None:
        return Answer("unknown", perhaps_refused.rule, "the name behind the address is not known; deny has names")
    return answer


def _free(policy: Policy) -> bool:
    """Without a word about the network in mode `observe`, or by options about other things, nothing is special."""
    return "network" in policy.silent or (policy.mode == "observe" and "network" not in policy.stated)


def _denied(policy: Policy, host: Host, dialled: Host, question: Connect) -> tuple[HostRule | None, HostRule | None]:
    """The denial that fits, and one that might if the name were known."""
    perhaps: HostRule | None = None
    for one in policy.network.deny:
        if one.fits(host, question.port) or (dialled is not host and one.fits(dialled, question.port)):
            return one, None
        if any(_open(pattern, question) for pattern in one.patterns):
            perhaps = perhaps or one
    return None, perhaps


def _open(pattern: HostPattern, question: Connect) -> bool:
    """Whether more knowledge (a name, the meaning of a placeholder) could make a pattern fit."""
    if pattern.kind == "unresolved":
        return True
    return question.nameless and pattern.by_name and pattern.fits_port(question.port)


def _allowed(policy: Policy, host: Host, port: int | None) -> HostRule | None:
    return next((one for one in policy.network.allow if one.fits(host, port)), None)


def _udp(policy: Policy) -> Answer:
    if policy.network.default == "allow":
        return Answer("allow", policy.network.default_rule)
    return Answer("deny", _own("udp"), "datagrams other than DNS go nowhere: no name could be judged in them",
                  "nothing in the lists: clients of QUIC fall back to TCP")  # fmt: skip


def _special(
    policy: Policy, host: Host, dialled: Host, question: Connect, kind: str, allowed: HostRule | None
) -> Answer:
    """Addresses that nobody reaches by accident: a rule has to name the address, one's own cloud's exactly."""
    named = [one for one in policy.network.allow if one.fits(dialled, question.port)]
    if kind == "metadata":
        named = [one for one in named if any(p.exact and p.fits(dialled, question.port) for p in one.patterns)]
    if named and (dialled == host or allowed is not None):
        return Answer("allow", named[0].rule)
    entry = f"host.loopback:{question.port}" if kind == "loopback" else f"{dialled}:{question.port}"
    if dialled.address is not None and dialled.address.version == 6 and kind != "loopback":
        entry = f"[{dialled}]:{question.port}"
    why = _SPECIAL_WHY[kind]
    if dialled != host:
        why = f"the name leads to {dialled}: {why}"
    return Answer("deny", _own(kind), why, _add(policy, entry, "network.allow"))


def _ordinary(policy: Policy, host: Host, question: Connect, allowed: HostRule | None) -> Answer:
    network = policy.network
    if allowed is not None:
        return Answer("allow", allowed.rule)
    if network.default == "allow":
        return Answer("allow", network.default_rule)
    entry = f"[{host}]:{question.port}" if ":" in str(host) else f"{host}:{question.port}"
    change = _add(policy, entry, "network.allow")
    if (unresolved := _unresolved(policy, change)) is not None:
        return unresolved
    waiting = [one for one in network.allow if any(_open(pattern, question) for pattern in one.patterns)]
    if waiting:
        return Answer("unknown", waiting[0].rule, "the name behind the address is not known; allow has names")
    return Answer("deny", network.default_rule, "no rule allows it", change)


def _unresolved(policy: Policy, change: str) -> Answer | None:
    """Where a placeholder might name it. That entry says nothing about it, so the default is the rule."""
    network = policy.network
    for one in network.allow:
        if any(pattern.kind == "unresolved" for pattern in one.patterns):
            why = f"no rule allows it, and what `{one.rule.text}` stands for is not known here"
            return Answer("unknown", network.default_rule, why, f"{change}, or configure the package index")
    return None


def _served(host: Host) -> Host:
    """`_http._tcp.a.example` asks how a.example serves something (RFC 2782, RFC 8552): it is judged as a.example."""
    labels = host.labels
    while len(labels) > 1 and labels[0].startswith("_"):
        labels = labels[1:]
    return Host(name=".".join(labels)) if host.name and labels != host.labels else host


def _lookup(policy: Policy, question: Lookup) -> Answer:
    """A name may be asked if some port of it may be reached; nothing is asked for a name that no rule allows."""
    network = policy.network
    try:
        host = parse_host(question.name)
    except HostError as error:
        if network.default == "allow" and not network.deny:
            return Answer("allow", network.default_rule)
        return _malformed(error)
    host = _served(host)
    whole = [one for one in network.deny if any(p.ports == (0, 65535) and p.fits(host, None) for p in one.patterns)]
    if whole:
        return Answer("deny", whole[0].rule, "deny is asked first", f"remove {whole[0].rule}")
    if host.address is not None or special(host) == "loopback":
        return Answer("allow", _own("no-lookup"), "it is answered without asking anybody")
    if special(host) == "metadata" and not _free(policy):
        exact = [one for one in network.allow if any(p.exact and p.fits(host, None) for p in one.patterns)]
        if not exact:
            return Answer("deny", _own("metadata"), _SPECIAL_WHY["metadata"],
                          _add(policy, str(host), "network.allow"))  # fmt: skip
        return Answer("allow", exact[0].rule)
    allowed = _allowed(policy, host, None)
    if allowed is not None:
        return Answer("allow", allowed.rule)
    if network.default == "allow":
        return Answer("allow", network.default_rule)
    change = _add(policy, f"{host}:443", "network.allow")
    if (unresolved := _unresolved(policy, change)) is not None:
        return unresolved
    return Answer("deny", network.default_rule, "no rule allows any port of it", change)


def _unix(policy: Policy, question: Unix) -> Answer:
    if question.inner:
        return Answer("allow", _own("inner"), "something of the run itself listens there")
    abstract = question.path.startswith("@")
    try:
        path = question.path if abstract else normal(question.path, policy.places)
    except PathError as error:
        return Answer("allow", policy.network.default_rule) if _free(policy) else _malformed(error)
    if policy.mode != "observe" and defaults.is_own(path, policy.places):
        return Answer("deny", _own("own-files"), "who answers questions about the agent is not the agent",
                      "nothing in a policy")  # fmt: skip
    if _free(policy):
        return Answer("allow", policy.network.default_rule)
    named = policy.unix.match(path)
    if named is not None:
        return Answer("allow", named.rule)
    change = f"add `{question.path}` to network.unix of {policy.file}"
    if abstract:
        return Answer("deny", _own("abstract-socket"), "an abstract socket that nothing of the run made", change)
    if defaults.protected_socket(path, policy.places):
        return Answer("deny", _own("sockets"), defaults.WAYS_OUT.why, change)
    return Answer("allow", _own("unix"), "no known way out of the run")


def _family(policy: Policy, question: Family) -> Answer:
    if question.family in defaults.FAMILIES or _free(policy):
        return Answer("allow", _own("family"))
    return Answer("deny", _own("family"), "only unix, IPv4, IPv6 and netlink sockets are let through",
                  "nothing in a policy")  # fmt: skip


# Paths


def _write(policy: Policy, question: Write) -> Answer:
    try:
        path = normal(question.path, policy.places)
    except PathError as error:
        return _unclear(policy, policy.write, "files.write", error)
    if policy.mode != "observe" and defaults.is_own(path, policy.places, tree=question.tree):
        return Answer("deny", _own("own-files"), "recordings, keys and policies are not for the agent to write",
                      "nothing in a policy")  # fmt: skip
    denied = policy.write.deny.match(path) or (policy.write.deny.below(path) if question.tree else None)
    if denied is not None:
        return Answer("deny", denied.rule, "deny is asked first", f"remove {denied.rule}")
    if defaults.is_device(path, policy.places):
        return Answer("allow", _own("device"), "a device that stores nothing")
    if (named := policy.write.allow.literal.get(path)) is not None:
        return Answer("allow", named.rule)
    if policy.mode != "observe" and "files.write" not in policy.silent and not question.folder:
        protected = defaults.protected_write(
            path, policy.places, tree=question.tree, own_repository=question.own_repository
        )
        if protected is not None:
            change = f"add `{portable(path, policy.places)}`, without wildcards, to files.write.allow of {policy.file}"
            if policy.file == COMMAND_LINE:
                change = _add(policy, path, "files.write.allow")
            return Answer("deny", _own(protected.name), protected.why, change)
    return _listed(policy.write, "files.write", path, policy)


def _read(policy: Policy, question: Read) -> Answer:
    try:
        path = normal(question.path, policy.places)
    except PathError as error:
        return _unclear(policy, policy.read, "files.read", error)
    if policy.mode != "observe" and defaults.is_under(path, policy.places.secret):
        return Answer("deny", _own("own-keys"), "the key that signs recordings is not for the agent to read",
                      "nothing in a policy")  # fmt: skip
    if path in policy.places.shown:
        return Answer("allow", _own("authority"), "the certificates that say whom to believe in this run")
    return _denied_or_listed(policy.read, "files.read", path, policy)


def _exec(policy: Policy, question: Exec) -> Answer:
    try:
        path = normal(question.path, policy.places)
    except PathError as error:
        return _unclear(policy, policy.exec, "exec", error)
    return _denied_or_listed(policy.exec, "exec", path, policy)


def _unclear(policy: Policy, rules: PathRules, section: Section, error: PathError) -> Answer:
    """A name that does not say where it leads passes only where everything does."""
    if section in policy.silent or (rules.default == "allow" and not rules.deny and policy.mode == "observe"):
        return Answer("allow", rules.default_rule)
    return Answer("deny", _own("unclear-path"), str(error), "ask for the path itself")


def _denied_or_listed(rules: PathRules, section: str, path: str, policy: Policy) -> Answer:
    if (denied := rules.deny.match(path)) is not None:
        return Answer("deny", denied.rule, "deny is asked first", f"remove {denied.rule}")
    return _listed(rules, section, path, policy)


def _listed(rules: PathRules, section: str, path: str, policy: Policy) -> Answer:
    if rules.default == "allow":
        return Answer("allow", rules.default_rule)
    if (allowed := rules.allow.match(path)) is not None:
        return Answer("allow", allowed.rule)
    # A shell would fill in a `$TMP` of its own.
    entry = path if policy.file == COMMAND_LINE else portable(path, policy.places)
    change = _add(policy, entry, f"{section}.allow")
    return Answer("deny", rules.default_rule, "no rule allows it", change)
