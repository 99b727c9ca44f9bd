"""`agentwrap policy`: whether a policy is well written, what it says to a question, and one made from a recording."""

import os
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING

import click

from agentwrap.cli import reading
from agentwrap.cli.output import Output, common_options, pass_output
from agentwrap.cli.package_hosts import configured, policy_bytes
from agentwrap.errors import EXIT_FINDING, EXIT_NOT_COVERED, AgentwrapError

if TYPE_CHECKING:
    from agentwrap.policy.paths import Places
    from agentwrap.policy.questions import Answer, Question
    from agentwrap.policy.rules import Policy
    from agentwrap.views.styled import Role

SETTINGS = {"help_option_names": ["-h", "--help"], "max_content_width": 100}
_CONFIG_HELP = "What `config:pip` or `config:npm` stands for, besides what is configured here."
_VERDICTS: "dict[str, tuple[Role, int]]" = {
    "allow": ("good", 0),
    "deny": ("deny", EXIT_FINDING),
    "unknown": ("gap", EXIT_NOT_COVERED),
}
_VERBS = ("connect HOST:PORT", "lookup NAME", "unix SOCKET", "write PATH", "read PATH", "exec PATH")


@click.group(no_args_is_help=False)
def command() -> None:
    """Check a policy, ask it, or have one written from a recording.

    A policy judges recordings (`agentwrap check --policy FILE`). This version enforces none.
    """


def load_policy(path: Path, places: "Places", configs: Mapping[str, tuple[str, ...]]) -> "Policy":
    """Read and check a policy file. Raises AgentwrapError with every problem."""
    from agentwrap.policy.document import MAX_BYTES, load

    return load(policy_bytes(path, MAX_BYTES), str(path), places, configs)


def _here(output: Output, file: Path) -> "Places":
    from agentwrap.evidence.asked import places_in

    return places_in(output.env, str(Path.cwd()), os.path.realpath(file))


@command.command("check", context_settings=SETTINGS, epilog="Exit status: 0 well written, 2 refused.")
@click.argument("file")
@click.option("--config", "given", multiple=True, metavar="NAME=HOST", help=_CONFIG_HELP)
@common_options(json_output=True)
@pass_output
def check(output: Output, file: str, given: tuple[str, ...]) -> int:
    """Read FILE as strictly as it will be used, and tell what it means.

    Refused are unknown keys, entries without effect, patterns that allow more than they seem to, and duplicates: each
    with its line and what to write instead.
    """
    path = Path(file)
    configs = configured(output.env, Path.cwd(), given)
    policy = load_policy(path, _here(output, path), configs)
    if output.json:
        output.document({"schema": "agentwrap.policy/1", "file": file, **_summary(policy)})
        return 0
    output.line([("well written", "good"), (f"  {policy.file}: {policy.name}, mode {policy.mode}", "")])
    for what, told in _summary(policy).items():
        if what in ("agent", "on_behalf_of"):
            output.line(f"  {what:<12} {told}")
        if isinstance(told, dict):
            output.line(f"  {what:<12} {told['default']:<6} {told['allow']} allowed, {told['deny']} denied by name")
    for name, hosts in configs.items():
        used = any(one.rule.text == f"config:{name}" for one in policy.network.allow + policy.network.deny)
        if used:
            output.line(f"  config:{name:<5} {', '.join(hosts) or 'not configured here: what needs it cannot be told'}")
    output.line([("  it judges recordings; this version of agentwrap enforces no policy", "dim")])
    return 0


def _summary(policy: "Policy") -> dict[str, object]:
    found: dict[str, object] = {"name": policy.name, "mode": policy.mode}
    found |= {key: told for key, told in (("agent", policy.agent), ("on_behalf_of", policy.on_behalf_of)) if told}
    found["network"] = {
        "default": policy.network.default, "allow": len(policy.network.allow), "deny": len(policy.network.deny)
    }  # fmt: skip
    for name, rules in (("files.write", policy.write), ("files.read", policy.read), ("exec", policy.exec)):
        found[name] = {"default": rules.default, "allow": len(rules.allow), "deny": len(rules.deny)}
    return found


@command.command(
    "explain",
    context_settings=SETTINGS,
    epilog="Exit status: 0 allowed, 1 denied, 3 it cannot be told, 2 usage.",
)
@click.argument("file")
@click.argument("question", nargs=-1, required=True)
@click.option(
    "--under", metavar="FILE", multiple=True, help="A wider policy that FILE, a project's own, may only narrow."
)
@click.option("--address", metavar="ADDRESS", default="", help="What the name of a connection leads to.")
@click.option("--config", "given", multiple=True, metavar="NAME=HOST", help=_CONFIG_HELP)
@common_options(json_output=True)
@pass_output
def explain(
    output: Output, file: str, question: tuple[str, ...], under: tuple[str, ...], address: str, given: tuple[str, ...]
) -> int:
    """Ask FILE a question: the verdict, the rule with its line, and what would have to change.

    Questions: `connect HOST:PORT`, `lookup NAME`, `unix SOCKET`, `write PATH`, `read PATH`, `exec PATH`. Paths may
    begin with `./`, `~/`, `$CWD/` and `$TMP/`.
    """
    from agentwrap.policy.layers import Layer, decide_layers

    configs = configured(output.env, Path.cwd(), given)
    policies = [load_policy(Path(one), _here(output, Path(one)), configs) for one in (file, *under)]
    asked = _question(question, address)
    trusted = [Layer("user", policy) for policy in policies[1:]]
    own = Layer("project", policies[0], trusted=not trusted)
    answer = decide_layers([own, *trusted], asked)
    _tell(output, asked, answer)
    return _VERDICTS[answer.verdict][1]


def _question(words: tuple[str, ...], address: str) -> "Question":
    from agentwrap.policy import questions

    verb, what = words[0], " ".join(words[1:])
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


def _host_and_port(text: str) -> tuple[str, int]:
    host, colon, port = text.rpartition(":")
    bare_address = text.count(":") > 1 and not text.startswith("[")
    if colon and not bare_address and port.isascii() and port.isdigit() and len(port) <= 5:
        return host, int(port)
    raise AgentwrapError(
        "usage", "a connection needs a port", evidence=text,
        hint=f"`connect {text}:443`" if not bare_address else f"`connect [{text}]:443`",
    )  # fmt: skip


def _tell(output: Output, question: "Question", answer: "Answer") -> None:
    if output.json:
        output.document(
            {
                "schema": "agentwrap.explain/1",
                "question": str(question),
                "verdict": answer.verdict,
                "rule": {name: getattr(answer.rule, name) for name in ("where", "text", "file", "line")},
                "why": answer.why,
                "change": answer.change,
            }
        )
        return
    output.line([(f"{answer.verdict:<8}", _VERDICTS[answer.verdict][0]), (str(question), "name")])
    why = f": {answer.why}" if answer.why else ""
    output.line(f"  by     {answer.rule}{why}")
    if answer.change:
        output.line(f"  change {answer.change}")


@command.command("suggest", context_settings=SETTINGS)
@click.argument("recording", required=False)
@click.option("-o", "--output", "target", metavar="FILE", help="Write the policy here; an existing file is kept.")
@click.option("--name", default="suggested", show_default=True, help="The policy's name.")
@common_options()
@pass_output
def suggest(output: Output, recording: str | None, target: str | None, name: str) -> int:
    """Write the narrowest policy that would have allowed RECORDING (default: the latest).

    Each entry says which programs needed it. Names that change from run to run (temporary files, caches, an agent's
    own state) are allowed as folders. Which name led to which address is not in a recording: names that were looked up
    are allowed, and addresses only where no name was.
    """
    from agentwrap.evidence.asked import asked, places_of
    from agentwrap.evidence.judge import judge
    from agentwrap.policy import suggest as suggesting
    from agentwrap.policy.document import load

    path = Path(recording) if recording is not None else reading.latest()
    with reading.open_recording(path) as source:
        places = places_of(source)
        acts = (one for one in asked(source) if isinstance(one, suggesting.Asked))
        text = suggesting.suggest(acts, places, name=name, source=path.name)
        data = text.encode()
        judged = judge(source, load(data, target or "suggestion", places, {}))
    if target is None:
        output.write_bytes([data])
    else:
        _write_new(Path(target), data)
    unclear = sum(one.count for one in judged.cannot_tell)
    told = f"judged by it, {path.name} has {judged.violated} violations"
    told += f"; about {unclear} of {judged.acts} acts it cannot be told" if unclear else ""
    output.note(told)
    return 0


def _write_new(path: Path, data: bytes) -> None:
    try:
        with path.open("xb") as file:
            file.write(data)
    except FileExistsError as error:
        raise AgentwrapError(
            "exists", "the policy is there already", evidence=str(path), hint="choose another name with -o"
        ) from error
    except OSError as error:
        raise AgentwrapError("output", "the policy cannot be written", evidence=f"{path}: {error.strerror}") from error
