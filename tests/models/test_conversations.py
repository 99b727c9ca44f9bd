"""Agents, turns, attempts and tool results are found from requests alone."""

from hypothesis import given
from hypothesis import strategies as st

from agentwrap.models.conversations import Asked, Conversations, Place
from agentwrap.models.shape import Message, RequestFacts


def facts(
    *messages: str, tools: int = 3, model: bytes = b"sonnet", session: bytes = b"", previous: bytes = b""
) -> RequestFacts:
    told = tuple(Message("user", one.encode(), 0, 0) for one in messages)
    return RequestFacts(model=model, messages=told, tools=tools, session=session, previous=previous)


def ask(one: Conversations, request: RequestFacts, span: str = "p1", retries: int = 0, key: bytes = b"") -> Place:
    place = begin(one, request, span, retries, key)
    one.answered(place, b"", failed=False)
    return place


def begin(one: Conversations, request: RequestFacts, span: str = "p1", retries: int = 0, key: bytes = b"") -> Place:
    return one.place(Asked(request, "anthropic.messages", span, b"api.example", key, retries))


def test_a_call_that_goes_on_is_the_next_turn_of_the_same_agent() -> None:
    runs = Conversations()
    first = ask(runs, facts("a"))
    second = ask(runs, facts("a", "b", "c"))
    assert (first.agent, first.turn, first.joined, first.parent) == ("a1", "t1", "first", "p1")
    assert (second.agent, second.turn, second.joined) == ("a1", "t2", "prefix")
    assert (second.call, second.repeated, second.dropped) == ("m2", 1, 0)


def test_messages_that_are_left_out_are_counted() -> None:
    runs = Conversations()
    ask(runs, facts("a", "b", "c", "d"))
    again = ask(runs, facts("a", "b", "x"))
    assert (again.agent, again.repeated, again.dropped) == ("a1", 2, 2)


def test_another_beginning_is_another_agent() -> None:
    runs = Conversations()
    ask(runs, facts("a", "b", "c"))
    other = ask(runs, facts("title of: a", tools=0))
    assert (other.agent, other.turn, other.joined) == ("a2", "t2", "first")
    assert ask(runs, facts("a", "b", "c", "d")).agent == "a1"


def test_a_failed_call_again_is_an_attempt_and_no_turn() -> None:
    runs = Conversations()
    first = ask(runs, facts("a"))
    runs.answered(first, b"", failed=True)
    second = ask(runs, facts("a"))
    runs.answered(second, b"", failed=True)
    third = ask(runs, facts("a"))
    runs.answered(third, b"msg_1", failed=False)
    assert [(one.turn, one.attempt, one.retry_of) for one in (first, second, third)] == [
        ("t1", 1, ""),
        ("t1", 2, "m1"),
        ("t1", 3, "m1"),
    ]
    assert ask(runs, facts("a")).turn == "t2"  # it had been answered: this is a new question


def test_what_a_client_says_about_its_tries_counts() -> None:
    assert ask(Conversations(), facts("a"), retries=2).attempt == 3


def test_a_response_id_joins_calls_that_send_only_what_is_new() -> None:
    runs = Conversations()
    first = ask(runs, facts("a"))
    runs.answered(first, b"resp_1", failed=False)
    ask(runs, facts("z"))
    second = ask(runs, facts("tool output", previous=b"resp_1"))
    assert (second.agent, second.joined, second.dropped) == ("a1", "id", 0)


def test_a_compaction_stays_with_its_agent_and_a_subagent_does_not() -> None:
    runs = Conversations()
    first = ask(runs, facts("a", "b", session=b"s1"))
    compacted = ask(runs, facts("summary of it all", session=b"s1"))
    assert (compacted.agent, compacted.joined, compacted.dropped) == ("a1", "id", 2)
    task = runs.called(first, b"toolu_1", b"Task")
    below = ask(runs, facts("do one thing", session=b"s1"))
    assert (below.agent, below.parent, below.joined) == ("a2", task, "first")
    assert ask(runs, facts("title", tools=0, session=b"s1")).parent == "p1"


def test_two_subagents_at_once_are_not_one_that_was_shortened() -> None:
    runs = Conversations()
    first = ask(runs, facts("a", session=b"s1"))
    tasks = [runs.called(first, b"toolu_%d" % one, b"Task") for one in range(2)]
    below = [ask(runs, facts(f"thing {one}", session=b"s1")) for one in range(2)]
    assert [one.agent for one in below] == ["a2", "a3"]
    assert [one.parent for one in below] == tasks


def test_results_find_their_calls_once() -> None:
    runs = Conversations()
    first = ask(runs, facts("a"))
    tool = runs.called(first, b"toolu_1", b"Bash")
    second = ask(runs, facts("a", "b", "c"))
    found = runs.resolved(second, b"toolu_1")
    assert found is not None
    assert (found.tool, found.name) == (tool, b"Bash")
    assert runs.resolved(second, b"toolu_1") is None
    stranger = runs.resolved(second, b"toolu_0")
    assert stranger is not None
    assert stranger.tool == ""
    assert runs.resolved(second, b"toolu_0") is None


def test_an_id_that_comes_back_is_a_new_call() -> None:
    runs = Conversations()
    first = ask(runs, facts("a"))
    runs.called(first, b"call_1", b"ls")
    assert runs.resolved(first, b"call_1") is not None
    second = runs.called(first, b"call_1", b"ls")
    found = runs.resolved(first, b"call_1")
    assert found is not None
    assert found.tool == second


def test_two_processes_that_begin_alike_part_when_they_differ() -> None:
    runs = Conversations()
    ask(runs, facts("hello", "one", "two", "three"), span="p1")
    other = ask(runs, facts("hello", "other", "way", "entirely"), span="p2")
    assert other.agent == "a2"


def test_two_processes_with_the_same_first_words_are_two_agents() -> None:
    runs = Conversations()
    assert ask(runs, facts("hello"), span="p1").agent == "a1"
    assert ask(runs, facts("hello"), span="p2").agent == "a2"
    assert ask(runs, facts("hello", "hi", "go on"), span="p2").agent == "a2"


def test_the_same_words_while_the_first_still_wait_are_another_agent() -> None:
    runs = Conversations()
    first, second = begin(runs, facts("hello")), begin(runs, facts("hello"))
    assert (first.agent, second.agent) == ("a1", "a2")
    # The next request may come before the last byte of the answer that it goes on from.
    assert begin(runs, facts("hello", "hi", "go on")).agent == "a2"


def test_a_client_that_names_its_conversations_is_believed() -> None:
    runs = Conversations()
    assert ask(runs, facts("hello"), key=b"k1").agent == "a1"
    assert ask(runs, facts("hello"), key=b"k2").agent == "a2"
    assert ask(runs, facts("hello", "hi", "more"), span="p9", key=b"k1").agent == "a1"


@given(st.lists(st.lists(st.sampled_from("abc"), max_size=5), max_size=30))
def test_ids_never_repeat_and_counts_never_lie(requests: list[list[str]]) -> None:
    runs = Conversations()
    sizes: dict[str, int] = {}
    places = []
    for request in requests:
        place = ask(runs, facts(*request))
        assert 0 <= place.repeated <= len(request)
        assert place.repeated + place.dropped == sizes.get(place.agent, 0)
        sizes[place.agent] = len(request)
        places.append(place)
    assert len({place.call for place in places}) == len(places)
    assert len({place.turn for place in places}) == len(places)  # none of them failed
