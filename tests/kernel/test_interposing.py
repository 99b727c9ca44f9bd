"""MCP servers whose standard input and output are swapped: a client sees what it sees natively, byte for byte."""

import pytest
from relaying import ALONE, SERVER, SWAPPED, UNTOUCHED, Clients, seen
from rows import MODES, mode_name


@pytest.fixture(scope="module")
def clients(tmp_path_factory: pytest.TempPathFactory) -> Clients:
    return Clients(tmp_path_factory.mktemp("interposing"))


@pytest.mark.parametrize("way", [*SWAPPED, *UNTOUCHED, *ALONE])
@pytest.mark.parametrize("options", MODES, ids=mode_name)
def test_a_client_sees_what_it_sees_natively(clients: Clients, options: tuple[str, ...], way: str) -> None:
    if way not in clients.ways:
        pytest.skip(f"{way}: not installed here")
    results, _ = clients.run(options)
    assert seen(results[way]) == seen(clients.natively[way])


@pytest.mark.parametrize("options", MODES, ids=mode_name)
def test_the_relay_had_each_server_once(clients: Clients, options: tuple[str, ...]) -> None:
    results, run = clients.run(options)
    assert sorted(session["server"] for session in run.sessions) == clients.wanted()
    assert run.left == 0
    assert "unrelayed-mcp" not in run.gaps()
    by_pid = {session["pid"]: session for session in run.sessions}
    for way in ("piped", "one socket", "two sockets", "sh", "vfork"):
        session = by_pid[results[way]["pid"]]
        assert session["up"] == "hello\n"
        assert session["down"].partition("\n")[2] == "echo hello\nbye\n"
        assert (session["how"], session["config"]) == ("config", "/conf/.mcp.json")
        assert session["command"] == ["python3", SERVER]


@pytest.mark.parametrize("options", MODES, ids=mode_name)
def test_calls_that_we_let_a_server_make_are_not_told_as_its_own(clients: Clients, options: tuple[str, ...]) -> None:
    _, run = clients.run(options)
    assert run.events("net.connect", "act.denied", "net.denied") == []
    assert "internal-fault" not in run.gaps()
