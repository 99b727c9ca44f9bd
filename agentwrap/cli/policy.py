"""`agentwrap policy`: whether a policy is well written, what it says to a question, and one made from a recording."""

import os
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING

import click

from agentwrap.cli import policy_suggest, policy_trust, policy_unused
from agentwrap.cli.output import SETTINGS, Output, common_options, pass_output
from agentwrap.cli.package_hosts import configured, policy_bytes
from agentwrap.cli.presets import find
from agentwrap.errors import EXIT_FINDING, EXIT_NOT_COVERED, AgentwrapError

if TYPE_CHECKING:
    from agentwrap.policy.layers import Layer
    from agentwrap.policy.paths import Places
    from agentwrap.policy.questions import Answer, Question
    from agentwrap.policy.rules import Policy
    from agentwrap.views.styled import Line, Role

_MODE_WORDS = {
    "observe": "what it denies is told and passes",
    "ask": "what no rule allows waits for a human",
    "enforce": "what it denies is refused",
}
_CONFIG_HELP = "What `config:pip` or `config:npm` stands for, besides what is configured here."
_VERDICTS: "dict[str, tuple[Role, int]]" = {
    "allow": ("good", 0),
    "deny": ("deny", EXIT_FINDING),
    "approve": ("gap", EXIT_FINDING),
    "unknown": ("gap", EXIT_NOT_COVERED),
}
_QUESTIONS = ("connect", "lookup", "unix", "write", "read", "exec", "mcp")
_VERBS = ("connect HOST:PORT", "lookup NAME", "unix SOCKET", "write PATH", "read PATH", "exec PATH",
          "mcp SERVER TOOL|METHOD [JSON]")  # fmt: skip


@click.group(no_args_is_help=False)
def command() -> None:
    """Check a policy, ask it, trust one, or have one written from a recording.

    `agentwrap --policy FILE -- COMMAND` enforces a policy, `agentwrap check RECORDING --policy FILE` judges by one.
    """


def load_policy(path: Path, places: "Places", configs: Mapping[str, tuple[str, ...]]) -> "Policy":
    """Read and check a policy file. Raises AgentwrapError with every problem."""
    from agentwrap.policy.document import MAX_BYTES, load

    return load(policy_bytes(path, MAX_BYTES), str(path), places, configs)


def _here(output: Output, file: Path) -> "Places":
    from agentwrap.evidence.asked import places_in

    return places_in(output.env, str(Path.cwd()), os.path.realpath(file))


@command.command("check", context_settings=SETTINGS, epilog="Exit status: 0 well written, 2 refused.")
@click.argument("file", required=False)
@click.option("--config", "given", multiple=True, metavar="NAME=HOST", help=_CONFIG_HELP)
@common_options(json_output=True)
@pass_output
def check(output: Output, file: str | None, given: tuple[str, ...]) -> int:
    """Read FILE, or a preset by its name, as strictly as it will be used, and tell what it means.

    Refused are unknown keys, entries without effect, patterns that allow more than they seem to, and duplicates: each
    with its line and what to write instead.

    Without FILE: every policy that holds for a run started here, the project's, the user's and the system's.
    """
    if file is None:
        return _check_layers(output, given)
    path = find(file)
    configs = configured(output.env, Path.cwd(), given)
    policy = load_policy(path, _here(output, path), configs)
    if output.json:
        output.document({"schema": "agentwrap.policy/1", "file": file, **_summary(policy)})
        return 0
    output.line([("well written", "good"), (f"  {policy.file}: {policy.name}, mode {policy.mode}", "")])
    _tell_sections(output, policy)
    for name, hosts in configs.items():
        used = any(one.rule.text == f"config:{name}" for one in policy.network.allow + policy.network.deny)
        if used:
            output.line(f"  config:{name:<5} {', '.join(hosts) or 'not configured here: what needs it cannot be told'}")
    output.line([(f"  {_MODE_WORDS[policy.mode]}: agentwrap --policy {file} -- COMMAND", "dim")])
    return 0


def _tell_sections(output: Output, policy: "Policy") -> None:
    for what, told in _summary(policy).items():
        if what in ("agent", "on_behalf_of"):
            output.line(f"  {what:<12} {told}")
        if what == "mcp" and isinstance(told, dict):
            counts = ", ".join(f"{number} {word}" for word, number in told.items() if number)
            output.line(f"  {what:<12} {counts}; what no rule names is allowed")
        elif isinstance(told, dict):
            output.line(f"  {what:<12} {told['default']:<6} {told['allow']} allowed, {told['deny']} denied by name")


def _layers_here(output: Output, given: tuple[str, ...]) -> "tuple[Layer, ...]":
    from agentwrap.cli.layers import Wish, gather

    return gather(output.env, output.env, Path.cwd(), Wish(config=given))


def _check_layers(output: Output, given: tuple[str, ...]) -> int:
    """What holds here, layer by layer."""
    from agentwrap.policy.layers import mode_of

    layers = _layers_here(output, given)
    mode = mode_of(layers) if layers else "observe"
    if output.json:
        rows = [{"layer": one.name, "trusted": one.trusted, "file": one.policy.file, **_summary(one.policy)}
                for one in layers]  # fmt: skip
        output.document({"schema": "agentwrap.layers/1", "mode": mode, "layers": rows})
        return 0
    for one in layers:
        trust: Line = [] if one.trusted else [("  not trusted: it may only narrow (`agentwrap policy trust`)", "gap")]
        output.line([(f"{one.name:<8}", "name"), (f" {one.policy.file}: {one.policy.name}, mode {one.policy.mode}", ""),
                     *trust])  # fmt: skip
        _tell_sections(output, one.policy)
    told = f"mode {mode}" if layers else "no policy holds here: everything passes, everything is recorded"
    output.line([(told, "title")])
    return 0


def _summary(policy: "Policy") -> dict[str, object]:
    found: dict[str, object] = {"name": policy.name, "mode": policy.mode}
    found |= {key: told for key, told in (("agent", policy.agent), ("on_behalf_of", policy.on_behalf_of)) if told}
    found["network"] = {
        "default": policy.network.default, "allow": len(policy.network.allow), "deny": len(policy.network.deny)
    }  # fmt: skip
    for name, rules in (("files.write", policy.write), ("files.read", policy.read), ("exec", policy.exec)):
        found[name] = {"default": rules.default, "allow": len(rules.allow), "deny": len(rules.deny)}
    if policy.mcp.rules or policy.mcp.pins:
        words = [one.decision for one in policy.mcp.rules]
        counts = {word: words.count(word) for word in ("allow", "approve", "deny")}
        found["mcp"] = {**counts, "pinned": len(policy.mcp.pins)}
    return found


@command.command(
    "explain",
    context_settings=SETTINGS,
    epilog="Exit status: 0 allowed, 1 denied or for a human to allow, 3 it cannot be told, 2 usage.",
)
@click.argument("words", metavar="[FILE] QUESTION...", nargs=-1, required=True)
@click.option(
    "--under", metavar="FILE", multiple=True, help="A wider policy that FILE, a project's own, may only narrow."
)
@click.option("--address", metavar="ADDRESS", default="", help="What the name of a connection leads to.")
@click.option("--config", "given", multiple=True, metavar="NAME=HOST", help=_CONFIG_HELP)
@common_options(json_output=True)
@pass_output
def explain(
    output: Output, words: tuple[str, ...], under: tuple[str, ...], address: str, given: tuple[str, ...]
) -> int:
    """Ask FILE (or a preset) a question: the verdict, the rule with its line, and what would have to change.

    Questions: `connect HOST:PORT`, `lookup NAME`, `unix SOCKET`, `write PATH`, `read PATH`, `exec PATH`, `mcp SERVER
    TOOL '{"argument": 1}'` (also `mcp SERVER resources/read '{"uri": "..."}'`). Paths may begin with `./`, `~/`,
    `$CWD/` and `$TMP/`. Without FILE, every policy that holds for a run started here is asked,
    and the answer says whose it is.
    """
    from agentwrap.policy.layers import decide_layers, layer_of

    bare = words[0] in _QUESTIONS
    asked = _question(words if bare else words[1:], address)
    layers = _layers_here(output, given) if bare else _layers_named(output, (words[0], *under), given)
    if not layers:
        output.line([("allow   ", "good"), (str(asked), "name"), ("  no policy holds here", "dim")])
        return 0
    answer = decide_layers(layers, asked)
    owner = layer_of(layers, asked, answer)
    _tell(output, asked, answer, owner.name if owner is not None and len(layers) > 1 else "")
    return _VERDICTS[answer.verdict][1]


def _layers_named(output: Output, files: tuple[str, ...], given: tuple[str, ...]) -> "tuple[Layer, ...]":
    from agentwrap.policy.layers import Layer

    configs = configured(output.env, Path.cwd(), given)
    paths = [find(file) for file in files]
    policies = [load_policy(path, _here(output, path), configs) for path in paths]
    trusted = [Layer("user", policy) for policy in policies[1:]]
    return (Layer("project", policies[0], trusted=not trusted), *trusted)


def _question(words: tuple[str, ...], address: str) -> "Question":
    from agentwrap.policy import questions

    verb, what = (words or ("",))[0], " ".join(words[1:])
    if verb == "mcp" and 3 <= len(words) <= 4:
        return _call(*words[1:])
    if verb == "connect" and what:
        host, port = _host_and_port(what)
        return questions.Connect(host, port, address=address)
    simple: dict[str, Callable[[str], Question]] = {
        "lookup": questions.Lookup, "unix": questions.Unix, "write": questions.Write, "read": questions.Read,
        "exec": questions.Exec,
    }  # fmt: skip
    if verb not in simple or not what:
        raise AgentwrapError(
            "usage", f"no question `{' '.join(words)}`", evidence=f"questions: {', '.join(_VERBS)}",
            hint="`agentwrap policy explain ci.toml connect api.example.com:443`",
        )  # fmt: skip
    return simple[verb](what)


def _call(server: str, what: str, arguments: str | None = None) -> "Question":
    """A call of a tool, or a request by its method. Without arguments, only what does not depend on them is told."""
    from agentwrap.policy.exact_json import Ambiguous, parse
    from agentwrap.policy.mcp_rules import PLUMBING, TOOL_CALL, WITH_ARGUMENTS
    from agentwrap.policy.questions import Call

    raw = None if arguments is None else os.fsencode(arguments)
    value: object = {}
    if raw is not None:
        try:
            value = parse(raw)
        except Ambiguous as error:
            raise AgentwrapError(
                "usage", "the arguments are no JSON that could be judged", evidence=f"{arguments}: {error}",
                hint=f"agentwrap policy explain mcp {server} {what} '{{\"branch\": \"main\"}}'",
            ) from error  # fmt: skip
    kinds = ("resources/", "prompts/", "sampling/", "elicitation/", "roots/", "completion/", "notifications/")
    if what in PLUMBING or what.startswith(kinds):
        names = [value.get(name) for name in ("name", "uri")] if isinstance(value, dict) else []
        named = next((name for name in names if isinstance(name, str)), "")
        return Call(server, what, named if what not in WITH_ARGUMENTS else "", raw)
    return Call(server, TOOL_CALL, what, raw)


def _host_and_port(text: str) -> tuple[str, int]:
    host, colon, port = text.rpartition(":")
    bare_address = text.count(":") > 1 and not text.startswith("[")
    if colon and not bare_address and port.isascii() and port.isdigit() and len(port) <= 5:
        return host, int(port)
    raise AgentwrapError(
        "usage", "a connection needs a port", evidence=text,
        hint=f"`connect {text}:443`" if not bare_address else f"`connect [{text}]:443`",
    )  # fmt: skip


def _tell(output: Output, question: "Question", answer: "Answer", owner: str) -> None:
    if output.json:
        output.document(
            {
                "schema": "agentwrap.explain/1",
                "question": str(question),
                "verdict": answer.verdict,
                "layer": owner,
                "rule": {name: getattr(answer.rule, name) for name in ("where", "text", "file", "line")},
                "why": answer.why,
                "change": answer.change,
            }
        )
        return
    output.line([(f"{answer.verdict:<8}", _VERDICTS[answer.verdict][0]), (str(question), "name")])
    why = f": {answer.why}" if answer.why else ""
    output.line(f"  by     {answer.rule}{f' [{owner}]' if owner else ''}{why}")
    if answer.change:
        output.line(f"  change {answer.change}")


command.add_command(policy_suggest.suggest)
command.add_command(policy_trust.trust_command)
command.add_command(policy_trust.untrust_command)
command.add_command(policy_unused.unused_command)
