"""Conversations as ATIF v1.7 trajectories (Agent Trajectory Interchange Format, harborframework.com/docs/agents).

A line is one JSON document: the conversation of one agent, with those of its sub-agents in it. So a run with one agent
is one document. Each call of a model is a step with its tool calls and, as observations, what the agent reported of
them; what the model was told in between are steps of `user` and `system`. What ATIF has no field for is in `extra`: ids
of the recording, and what a tool call caused. Pure.
"""

import json
from collections.abc import Iterable, Iterator
from typing import Any

from agentwrap import __version__
from agentwrap.evidence import linking
from agentwrap.evidence.linking import Linker
from agentwrap.evidence.turns import Call, ToolUse
from agentwrap.export import genai
from agentwrap.export.otlp_attributes import whole
from agentwrap.export.stamps import rfc3339
from agentwrap.models.loose import mapping, sequence
from agentwrap.rows import Row, is_number
from agentwrap.views.source import Source, foreign_text

MEDIA = "application/json"
VERSION = "ATIF-v1.7"
_DEEPEST = 20
_encode = json.JSONEncoder(ensure_ascii=True, separators=(",", ":"), allow_nan=False).encode

Step = dict[str, Any]


def export(source: Source, rows: Iterable[Row], started_unix_ns: int) -> Iterator[bytes]:
    """One line for each agent that no tool call started and of which a row was asked for."""
    wanted = {str(row.data.get("agent", "")) for row in rows if row.kind.startswith(("model.", "tool."))}
    made = _Trajectories(source, linking.of_recording(source, source.meta), started_unix_ns)
    for agent in made.roots():
        if made.family(agent) & wanted:
            trajectory = made.trajectory(agent, 0)
            if trajectory is not None:
                yield _encode(genai.clipped(trajectory, 1 << 30)).encode("ascii") + b"\n"


class _Trajectories:
    """Documents of one recording."""

    def __init__(self, source: Source, story: Linker, started_unix_ns: int) -> None:
        self._source, self._story, self._started_ns = source, story, started_unix_ns
        self._caused: dict[str, list[str]] = {}
        for link in story.links:
            self._caused.setdefault(link.tool, []).append(link.span or f"event {link.seq}")
        self._below: dict[str, list[str]] = {}
        self._by_call: dict[str, list[ToolUse]] = {}
        self._by_agent: dict[str, list[ToolUse]] = {}
        turns = story.turns
        for tool in turns.tools.values():
            self._by_call.setdefault(tool.call, []).append(tool)
            self._by_agent.setdefault(tool.agent, []).append(tool)
        for agent in turns.agents.values():
            starter = turns.tools.get(agent.parent)
            if starter is not None and starter.agent != agent.id:
                self._below.setdefault(starter.id, []).append(agent.id)

    def roots(self) -> list[str]:
        """Agents that stand under no other."""
        below = {agent for agents in self._below.values() for agent in agents}
        return [agent for agent in self._story.turns.agents if agent not in below]

    def family(self, agent: str) -> set[str]:
        """An agent and those under it."""
        found, left = {agent}, [agent]
        while left:
            tools = [tool.id for tool in self._tools(left.pop())]
            new = {one for tool in tools for one in self._below.get(tool, [])} - found
            found |= new
            left += new
        return found

    def trajectory(self, agent: str, depth: int) -> dict[str, Any] | None:
        """The document of an agent; None where nothing of it can be told."""
        steps, tools, totals = _Steps(self, self._started_ns).of(self._calls(agent))
        if not steps:
            return None
        process = self._source.span(self._story.turns.agents[agent].span)
        models = [model for step in steps if (model := step.get("model_name"))]
        made: dict[str, Any] = {
            "schema_version": VERSION,
            "session_id": self._session(agent) or self._source.meta.get("run_id") or agent,
            "trajectory_id": agent,
            "agent": {"name": (process.name if process is not None else "") or "agent", "version": "unknown"},
            "steps": steps,
            "final_metrics": {**totals, "total_steps": len(steps)},
            "extra": {"exporter": f"agentwrap {__version__}", "run_id": self._source.meta.get("run_id", "")},
        }
        if models:
            made["agent"]["model_name"] = models[0]
        if tools:
            made["agent"]["tool_definitions"] = tools
        below = [one for tool in self._tools(agent) for one in self._below.get(tool.id, [])]
        inner = [self.trajectory(one, depth + 1) for one in below] if depth < _DEEPEST else []
        if any(inner):
            made["subagent_trajectories"] = [one for one in inner if one is not None]
        return made

    def said(self, call: Call) -> tuple[genai.Told, list[genai.Message]]:
        """A request and its answer, as messages."""
        asked, answer = whole(self._source, call.request, "request"), whole(self._source, call.response, "message")
        told = genai.request(asked) if asked is not None else genai.Told(problem="the request's body was not kept")
        return told, genai.answer(answer) if answer is not None else []

    def tools_of(self, call: Call) -> list[ToolUse]:
        """The tool calls of an answer."""
        return self._by_call.get(call.id, [])

    def caused(self, tool: ToolUse) -> list[str]:
        """What a tool call caused."""
        return self._caused.get(tool.id, [])[:100]

    def started(self, tool: ToolUse) -> list[str]:
        """Agents that a tool call started, and of which there is a document."""
        return [one for one in self._below.get(tool.id, []) if self._calls(one)]

    def _tools(self, agent: str) -> list[ToolUse]:
        return self._by_agent.get(agent, [])

    def _calls(self, agent: str) -> list[Call]:
        """Calls of an agent, of several attempts of the same the last."""
        turns = self._story.turns
        calls = [turns.calls[one] for one in turns.agents[agent].calls]
        tried = {call.retry_of or call.id: call for call in calls}
        return [call for call in calls if tried[call.retry_of or call.id] is call]

    def _session(self, agent: str) -> str:
        calls = self._calls(agent)
        return foreign_text(calls[0].request.data.get("session")) if calls and calls[0].request is not None else ""


class _Steps:
    """The steps of one conversation, call by call."""

    def __init__(self, trajectories: _Trajectories, started_unix_ns: int) -> None:
        self._trajectories, self._started_ns = trajectories, started_unix_ns
        self._steps: list[Step] = []
        self._said: set[bytes] = set()
        self._by_tool: dict[str, Step] = {}
        self._totals = dict.fromkeys(("total_prompt_tokens", "total_completion_tokens", "total_cached_tokens"), 0)
        self._cost = 0.0

    def of(self, calls: list[Call]) -> tuple[list[Step], list[Any], dict[str, Any]]:
        """Steps, definitions of tools, sums."""
        tools: list[Any] = []
        for position, call in enumerate(calls):
            told, answer = self._trajectories.said(call)
            system = {"role": "system", "parts": told.system}
            for message in ([system] if told.system else []) + told.messages:
                self._told(message, call, first=position == 0)
            tools = tools or [one for one in told.tools if isinstance(one, dict)]
            self._answered(call, answer)
        totals: dict[str, Any] = {**self._totals, **({"total_cost_usd": self._cost} if self._cost else {})}
        return self._steps, [{"type": "function", "function": one} for one in tools], totals

    def _told(self, message: genai.Message, call: Call, *, first: bool) -> None:
        """A message that was not told before: a step, or the observation of an earlier one."""
        identity = genai.encoded([message]).encode()
        if identity in self._said:
            return
        self._said.add(identity)
        role = message["role"]
        own = role in ("assistant", "model")
        if own and not first:
            return  # the answer of a call, which is a step
        left = [part for part in message["parts"] if not self._observed(part)]
        if not left:
            return
        step = self._step("agent" if own else "system" if role in ("system", "developer") else "user", call.asked_ns)
        step["message"] = "\n\n".join(text for part in left if (text := _text(part)))
        if own:
            self._calls(step, left)
            step["is_copied_context"] = True

    def _observed(self, part: genai.Part) -> bool:
        """Take a tool's result to the step that asked for it."""
        if part["type"] != "tool_call_response":
            return False
        step = self._by_tool.get(str(part.get("id")))
        if step is None:
            return False
        self._result(step, str(part.get("id")), _text(part))
        return True

    def _result(self, step: Step, ident: str, content: str) -> None:
        results = step.setdefault("observation", {"results": []})["results"]
        known = next((one for one in results if one["source_call_id"] == ident), None)
        if known is None:
            results.append({"source_call_id": ident, "content": content})
        else:
            known["content"] = content

    def _answered(self, call: Call, answer: list[genai.Message]) -> None:
        row = call.response
        data = row.data if row is not None else {}
        step = self._step("agent", call.asked_ns)
        said = [part for message in answer for part in message["parts"]]
        texts = [_text(part) for part in said if part["type"] not in ("reasoning", "tool_call", "server_tool_call")]
        thoughts = [_text(part) for part in said if part["type"] == "reasoning"]
        step["message"] = "\n\n".join(text for text in texts if text)
        if any(thoughts):
            step["reasoning_content"] = "\n\n".join(thoughts)
        model = foreign_text(data.get("model")) or foreign_text(_request(call).get("model"))
        if model:
            step["model_name"] = model
        self._calls(step, said)
        self._uses(step, call)
        step["metrics"] = self._metrics(data)
        step["llm_call_count"] = 1
        told = {"call": call.id, "turn": call.turn, "ending": data.get("ending", "unfinished")}
        step["extra"] = {**told, **({"error": foreign_text(data["error"])} if data.get("error") else {})}

    def _calls(self, step: Step, said: list[genai.Part]) -> None:
        """The tool calls among the parts of an answer."""
        for part in said:
            if part["type"] in ("tool_call", "server_tool_call"):
                self._call(step, str(part.get("id") or ""), str(part.get("name") or "?"), part.get("arguments"))

    def _call(self, step: Step, ident: str, name: str, given: Any) -> Step:
        given = given if isinstance(given, dict) else {} if given in (None, "") else {"input": given}
        made = {"tool_call_id": ident, "function_name": name, "arguments": given}
        step.setdefault("tool_calls", []).append(made)
        self._by_tool[ident] = step
        return made

    def _uses(self, step: Step, call: Call) -> None:
        """What is known of the tool calls: what they caused, and their results as far as the agent told them."""
        for use in self._trajectories.tools_of(call):
            data = use.asked.data
            ident = foreign_text(data.get("id")) or use.id
            made = next((one for one in step.get("tool_calls", ()) if one["tool_call_id"] == ident), None)
            if made is None:
                given = genai.arguments(foreign_text(data.get("arguments")))
                made = self._call(step, ident, foreign_text(data.get("name")) or "?", given)
            caused = self._trajectories.caused(use)
            made["extra"] = {"tool": use.id, **({"caused": caused, "caused_how": "inferred"} if caused else {})}
            if use.result is not None:
                self._result(step, ident, foreign_text(use.result.data.get("text")))
            started = self._trajectories.started(use)
            if started:
                if use.result is None:
                    self._result(step, ident, "")
                refs = [{"trajectory_id": one} for one in started]
                step["observation"]["results"][-1]["subagent_trajectory_ref"] = refs

    def _metrics(self, data: dict[str, Any]) -> dict[str, Any]:
        made: dict[str, Any] = {}
        for field, name in (("input", "prompt"), ("output", "completion"), ("cache_read", "cached")):
            value = data.get(f"{field}_tokens")
            if is_number(value):
                made[f"{name}_tokens"] = value
                self._totals[f"total_{name}_tokens"] += value
        try:
            cost = float(str(data.get("cost_usd") or "x")[:40])
        except ValueError:
            return made
        if 0 <= cost < 1e9:
            made["cost_usd"] = cost
            self._cost += cost
        return made

    def _step(self, source: str, at_ns: int) -> Step:
        unix_ns = min(max(self._started_ns + at_ns, 0), 253_402_300_799 * 10**9)
        number = len(self._steps) + 1
        step: Step = {"step_id": number, "timestamp": rfc3339(unix_ns, 6), "source": source, "message": ""}
        self._steps.append(step)
        return step


def _request(call: Call) -> dict[str, Any]:
    return call.request.data if call.request is not None else {}


def _text(part: genai.Part) -> str:
    """A part as text."""
    if part["type"] == "tool_call_response":
        told = part.get("response")
        if isinstance(told, list):
            return "\n".join(_text(mapping(one) | {"type": str(mapping(one).get("type"))}) for one in sequence(told))
        return told if isinstance(told, str) else _encode(genai.clipped(told, 1 << 20))
    content = part.get("content")
    if isinstance(content, str) and part["type"] != "blob":
        return content
    return f"({part.get('mime_type') or part['type']})"
