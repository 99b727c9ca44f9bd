import msgspec
import pytest
import sample_run
from fake_recording import FakeRecording, FakeRow

from agentwrap.events import (
    Coverage,
    DnsQuery,
    DnsServer,
    Event,
    FileDirectory,
    FileEdit,
    FileLink,
    FileRead,
    FileRename,
    FileState,
    NetBind,
    NetConnect,
    NetDecision,
    NetListen,
    NetRefused,
    NetSend,
    ProcessExec,
    ProcessStart,
    RunStart,
)
from agentwrap.evidence.asked import Asked, Unclear, asked, places_of
from agentwrap.policy.questions import Connect, Exec, Family, Lookup, Question, Read, Unix, Write

ABSENT = FileState(type="absent")


def questions(*events: Event) -> list[Question | str]:
    return [one.question if isinstance(one, Asked) else one.why for one in asked(FakeRecording(events))]


def edit(path: bytes, **more: object) -> FileEdit:
    return FileEdit(at_ns=1, path=path, change="create", before=ABSENT, after=FileState(), **more)  # type: ignore[arg-type]


def tcp(host: bytes, port: int) -> NetConnect:
    return NetConnect(at_ns=1, family="inet", transport="tcp", host=host, port=port)


def test_files() -> None:
    assert questions(
        edit(b"/w/a", via="rename", temporary=b"/w/.a.tmp"),
        FileRename(at_ns=1, path=b"/w/a", target=b"/w/b"),
        FileLink(at_ns=1, path=b"/w/h", target=b"/etc/passwd", link="hard"),
        FileLink(at_ns=1, path=b"/w/s", target=b"/etc/passwd", link="symbolic"),
        FileDirectory(at_ns=1, path=b"/w/d", change="create"),
        FileRename(at_ns=1, path=b"/w/d", target=b"/w/.git", type="directory"),
        FileRead(at_ns=1, path=b"/etc/hosts"),
        edit(b"/w/out", klass="stdio"),
        edit(b"/w/\xff"),
    ) == [
        Write("/w/a"), Write("/w/.a.tmp"), Write("/w/a"), Write("/w/b"), Write("/w/h"), Write("/etc/passwd"),
        Write("/w/s", tree=True), Write("/w/d", folder=True),
        Write("/w/d", tree=True), Write("/w/.git", tree=True), Read("/etc/hosts"), Write("/w/\udcff"),
    ]  # fmt: skip


def test_programs_are_asked_by_both_their_names() -> None:
    script = ProcessExec(
        at_ns=1, path=b"/w/run.sh", exe=b"/usr/bin/bash", argv=(b"x",), cwd=b"/w", uid=1, gid=1, euid=1
    )
    assert questions(script) == [Exec("/w/run.sh"), Exec("/usr/bin/bash")]
    linked = msgspec.structs.replace(script, path=b"/w/bin/run", resolved=b"/w/run.sh")
    assert questions(linked) == [Exec("/w/run.sh"), Exec("/usr/bin/bash")]


def test_addresses_are_asked_without_a_name() -> None:
    assert questions(tcp(b"192.0.2.1", 443)) == [Connect("192.0.2.1", 443, nameless=True)]


def test_services_of_the_run_itself_are_known_by_their_listener() -> None:
    listens = NetListen(at_ns=1, family="inet6", transport="tcp", host=b"::", port=8080)
    binds = NetBind(at_ns=1, family="unix", transport="stream", path=b"@own")
    unix = NetConnect(at_ns=1, family="unix", transport="stream", path=b"@own")
    assert questions(
        tcp(b"127.0.0.1", 8080), tcp(b"127.0.0.1", 8081), tcp(b"192.0.2.1", 8080), unix, listens, binds
    ) == [
        Connect("127.0.0.1", 8080, inner=True, nameless=True),
        Connect("127.0.0.1", 8081, nameless=True),
        Connect("192.0.2.1", 8080, nameless=True),
        Unix("@own", inner=True),
    ]


def test_lookups_are_asked_and_their_server_is_not() -> None:
    server = NetConnect(at_ns=1, family="inet", transport="udp", host=b"127.0.0.53", port=53)
    names = DnsServer(at_ns=1, host=b"127.0.0.53", names=(b"a.example", b"b.example"))
    assert questions(server, names) == [Lookup("a.example"), Lookup("b.example")]
    assert questions(server) == ["a name server was asked, and what is not recorded"]
    assert questions(server, DnsServer(at_ns=1, host=b"127.0.0.53"))[1] == "names were asked that could not be read"


def test_datagrams() -> None:
    told = "a datagram socket was given an address; what it sent is not recorded"
    assert questions(
        NetConnect(at_ns=1, family="inet", transport="udp", host=b"192.0.2.1", port=443),
        NetConnect(at_ns=1, family="inet", transport="udp", host=b"192.0.2.1", port=0),
        NetSend(at_ns=1, family="inet", transport="udp", host=b"192.0.2.1", port=9),
    ) == [told, Connect("192.0.2.1", 9, transport="udp", nameless=True)]


def test_behind_a_gateway_its_rows_tell_the_names_and_the_calls_say_no_more() -> None:
    assert questions(
        Coverage(at_ns=0, what="connect", tier="wall", mechanism="gateway"),
        DnsServer(at_ns=1, host=b"9.9.9.9"),
        DnsQuery(at_ns=1, name=b"api.example", qtype="A", decision="allow", by="wall"),
        DnsQuery(at_ns=1, name=b"evil.example", qtype="A", decision="deny", by="wall"),
        DnsQuery(at_ns=1, name=b"seen.example", qtype="A", decision="would-deny", by="wall"),
        tcp(b"192.0.2.1", 443),
        NetDecision(at_ns=1, host=b"api.example", port=443, address=b"192.0.2.1", decision="allow", by="wall"),
        NetDecision(at_ns=1, host=b"192.0.2.9", port=22, address=b"192.0.2.9", decision="would-deny", by="guard"),
        NetDecision(at_ns=1, host=b"192.0.2.9", port=23, decision="deny", by="wall"),
        NetRefused(at_ns=1, host=b"192.0.2.9", port=443, decision="deny", by="wall"),
        NetRefused(at_ns=1, host=b"192.0.2.8", port=25, transport="tcp", decision="would-deny", by="wall"),
        NetDecision(at_ns=1, host=b"127.0.0.1", port=80, decision="allow", by="wall", rule=b"--publish"),
        NetDecision(at_ns=1, host=b"(others)", port=0, decision="allow", by="wall", count=9),
        NetListen(at_ns=1, family="inet", transport="tcp", host=b"127.0.0.1", port=3000),
        tcp(b"127.0.0.1", 3000),
        tcp(b"127.0.0.1", 3001),
        NetConnect(at_ns=1, family="unix", transport="stream", path=b"/run/docker.sock"),
    ) == [
        Lookup("api.example"), Lookup("seen.example"),
        Connect("api.example", 443, address="192.0.2.1"), Connect("192.0.2.9", 22),
        Connect("192.0.2.8", 25),
        "more connections were made than could be told apart",
        Connect("127.0.0.1", 3000, inner=True, nameless=True), Unix("/run/docker.sock"),
    ]  # fmt: skip


def test_other_families_and_the_cache_of_names() -> None:
    assert questions(
        NetConnect(at_ns=1, family="vsock", host=b"cid-2", port=1),
        NetConnect(at_ns=1, family="inet", transport="raw", host=b"192.0.2.1"),
        NetConnect(at_ns=1, family="netlink"),
        NetConnect(at_ns=1, family="unix", path=b"/var/run/nscd/socket"),
        NetConnect(at_ns=1, family="unix", path=b""),
    ) == [Family("vsock"), Family("raw"), Family("netlink")]


@pytest.mark.parametrize("name", ["/w/\u00abredacted:token:0a1b2c3d\u00bb", "\u00abshape:0a1b2c3d\u00bb"])
def test_hidden_names_are_not_guessed(name: str) -> None:
    (one,) = asked(FakeRecording([edit(name.encode())]))
    assert isinstance(one, Unclear)
    assert one.why == "the name is hidden in the recording"


def test_what_was_refused_did_not_happen() -> None:
    recording = FakeRecording([edit(b"/w/a")])
    next(iter(recording.rows())).verdict = "deny"
    assert list(asked(recording)) == []


def test_who_did_it_is_the_nearest_program() -> None:
    events = [
        ProcessStart(at_ns=0, span="p1", parent="run", how="root", comm=b"a"),
        sample_run.program(1, "p1", 1, b"bash"),
        ProcessStart(at_ns=2, span="p2", parent="p1", how="fork", comm=b""),
        edit(b"/w/a", span="p2"),
        edit(b"/w/b", span="unheard-of"),
    ]
    assert [one.who for one in asked(FakeRecording(events))][-2:] == ["bash", ""]


def test_places_are_those_of_the_recorded_run() -> None:
    start = RunStart(
        at_ns=0, command=(b"x",), cwd=b"/w/", uid=1, gid=1, mode="m",
        environment=((b"HOME", b"/home/u"), (b"TMPDIR", b"/var/t/"), (b"XDG_STATE_HOME", b"/st")),
    )  # fmt: skip
    places = places_of(FakeRecording([start]), "/w/p.toml")
    assert (places.cwd, places.home, places.tmp) == ("/w", "/home/u", "/var/t")
    assert places.own == ("/st/agentwrap", "/home/u/.config/agentwrap", "/w/p.toml")
    bare = places_of(FakeRecording([]))
    assert (bare.cwd, bare.home, bare.tmp, bare.own) == ("/srv", "/nonexistent", "/tmp", ())


def test_rows_that_a_person_made_by_hand_end_in_an_answer() -> None:
    recording = FakeRecording([])
    odd: list[dict[str, object]] = [
        {},
        {"path": 3, "target": {"b64": "?"}},
        {"host": None, "port": "x", "family": "inet"},
        {"names": 4, "exe": []},
        {"family": 9, "transport": [], "klass": {}},
    ]
    kinds = (
        "file.edit",
        "file.rename",
        "net.connect",
        "net.send",
        "net.listen",
        "dns.server",
        "process.exec",
        "file.link",
    )
    recording._rows = [FakeRow(seq, 0, kind, "p1", data=data) for seq, (kind, data) in enumerate(
        ((kind, data) for kind in kinds for data in odd), 1)]  # fmt: skip
    assert len(list(asked(recording))) > 0
