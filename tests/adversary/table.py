"""The table: 67 known ways around a wrapper, and how each has to end. Data only.

`right`: what the right behaviour is, in words. `expect`: how each attempt ends where that is not `block`, by letter.
`elsewhere`: tiers in which a letter ends otherwise, with the reason. Rows 61 to 67 are about MCP.
"""

from dataclasses import dataclass, field

GUARDED = ("docker", "drop-all", "no-ptrace")
UNREADABLE = "its memory cannot be read there, so nobody knows where it connects to: refused, and a gap"
MCP = "not run: there is no MCP relay in this version"


@dataclass(frozen=True)
class Row:
    number: int
    technique: str
    right: str
    expect: dict[str, str] = field(default_factory=dict)
    elsewhere: dict[tuple[str, str], tuple[str, str]] = field(default_factory=dict)
    policy: str = ""
    terminal: bool = False
    inherit: bool = False
    alone: bool = False
    not_run: str = ""

    @property
    def runs(self) -> bool:
        return not self.not_run

    @property
    def together(self) -> bool:
        """Whether it may share a run with other rows."""
        return not (self.policy or self.terminal or self.inherit or self.alone)

    def expected(self, tier: str, letter: str) -> str:
        return self.elsewhere.get((tier, letter), (self.expect.get(letter, "block"), ""))[0]


GROUPS = {
    1: "Names and addresses",
    13: "DNS and other channels",
    23: "The proxy itself",
    33: "Local sockets and descriptors",
    39: "Syscalls and the tracer",
    52: "Files and persistence",
    61: "MCP",
}

ROWS: tuple[Row, ...] = (
    Row(1, "An empty allow-list that is read as no limit", "block everything", policy="closed"),
    Row(2, "Suffix match without a label boundary, prefix match", "block; whole labels", {"a": "see"}),
    Row(3, "Case, final dot, punycode, full-width dots", "one normal form; block what has none", {"a": "see"}),
    Row(4, "NUL, CR and LF in a name", "block as malformed"),
    Row(5, "User-info and backslash in the authority", "block; one parser for check and dial"),
    Row(6, "Decimal, octal, hex and short IPv4", "block unless the address itself is allowed"),
    Row(7, "0.0.0.0 and [::] as loopback", "block: they are loopback"),
    Row(8, "IPv4 inside IPv6: mapped, NAT64, 6to4", "unwrap, then judge"),
    Row(9, "IPv6 left open where IPv4 is closed", "block: no IPv6 route either"),
    Row(10, "A bare address", "block unless listed", {"a": "see"}),
    Row(11, "Metadata service, link-local, loopback, where everything is allowed", "block even then", policy="open"),
    Row(
        12,
        "A name that is allowed and leads to a private address",
        "block: the address dialled is judged",
        {"c": "see"},
    ),
    Row(13, "A lookup before the rule is asked", "block; never looked up"),
    Row(14, "Data in names", "block what is not listed, see the rest", {"c": "see"}),
    Row(15, "DNS by TCP, on an odd port, at another resolver", "block"),
    Row(16, "DNS over HTTPS and TLS", "block unless that host is listed"),
    Row(17, "UDP without connect; many messages in one call", "block; every address is judged"),
    Row(18, "QUIC", "block, so that clients fall back"),
    Row(19, "ICMP, raw and packet sockets", "block"),
    Row(20, "MPTCP, SCTP, TCP fast open", "block or see"),
    Row(21, "Other families: vsock, AF_ALG, TIPC, ...", "block: the families are a list"),
    Row(22, "NO_PROXY, --noproxy", "block: there is no other route"),
    Row(23, "SNI of another name; domain fronting", "block; inside of TLS only for hosts that are read", {"b": "see"}),
    Row(24, "Plain HTTP with another Host", "block: what is dialled is what was judged", {"a": "see"}),
    Row(25, "CONNECT through an allowed host", "block: every CONNECT is judged"),
    Row(26, "A redirect to an unlisted host", "block: the second request is judged anew"),
    Row(27, "An upgrade, then anything", "see as a tunnel with byte counts", {"a": "see"}),
    Row(28, "Another host on a kept connection; HTTP/2 coalescing", "block: each request is judged"),
    Row(29, "The gateway as deputy to the machine's loopback", "block"),
    Row(30, "A port that is allowed for one host, used for another", "block"),
    Row(31, "The supervisor's control socket from inside", "block: not reachable", policy="ask"),
    Row(32, "An allowed host used as a store", "see, with sizes", {"a": "see", "b": "see"}),
    Row(33, "docker, podman and containerd sockets", "block connect, not only the file"),
    Row(34, "D-Bus and systemd", "block"),
    Row(35, "Abstract unix sockets of the machine", "block"),
    Row(36, "Unix datagrams", "block"),
    Row(
        37,
        "Descriptors: inherited, or passed over a socket",
        "closed at the start; passed ones a gap",
        {"b": "gap"},
        inherit=True,
    ),
    Row(38, "ssh-agent, gpg-agent, X11, Wayland, PipeWire", "block unless named"),
    Row(39, "io_uring", "block: ENOSYS"),
    Row(40, "i386 and x32 calls", "block"),
    Row(41, "The address is rewritten after the check", "block: what was judged is what is used"),
    Row(42, "A symbolic link is swapped after the check", "block on what is opened"),
    Row(43, "Memory and descriptors of the supervisor; ptrace", "block"),
    Row(44, "Signals to the supervisor", "block"),
    Row(45, "setns, unshare, clone3", "block, or see what has no way out"),
    Row(46, "Double fork, setsid, a daemon", "followed all the same; dead at the end"),
    Row(
        47,
        "A child that does not want to be traced",
        "followed, or a gap",
        elsewhere={(tier, "b"): ("gap", UNREADABLE) for tier in GUARDED},
    ),
    Row(48, "Finding out about the tracer", "accept: hiding is not promised", {"a": "accept"}),
    Row(49, "The supervisor stopped or killed", "nothing opens", alone=True),
    Row(50, "memfd, ld.so, a copy under another name", "block by act, not by program name"),
    Row(51, "A flood that hides one event", "counts are exact, refusals are kept"),
    Row(52, "Git hooks, shell start files, settings, CI files", "block by default"),
    Row(53, "Settings that did not exist", "block by name; nothing is left behind"),
    Row(54, "A working folder chosen by the agent", "block: roots are fixed at the start"),
    Row(55, "Hard links, /proc/self/root, /proc/self/fd, device nodes", "block: what it leads to is judged"),
    Row(56, "Writes without write: mmap, splice, O_TMPFILE, ...", "see", dict.fromkeys("abcdefg", "see")),
    Row(57, "The policy, the recording, our state", "block"),
    Row(58, "A variable that says it is inside already", "block: no such switch"),
    Row(59, "TIOCSTI and TIOCLINUX", "block", terminal=True),
    Row(60, "sudo, su, the docker group", "block: no new privileges"),
    Row(61, "A tool's description changes after approval", "block and see", not_run=MCP),
    Row(62, "The request let through, only the reply blocked", "block the request", not_run=MCP),
    Row(63, "Batches, duplicate keys, odd encodings, long lines", "refuse; bounded", not_run=MCP),
    Row(64, "Replies never asked for, requests by the server", "block, see", not_run=MCP),
    Row(65, "A compressed or split event stream", "decode or refuse", not_run=MCP),
    Row(66, "The binary swapped between hash and exec", "block", not_run=MCP),
    Row(67, "A server started by another way than the configuration", "see, or gap", not_run=MCP),
)
