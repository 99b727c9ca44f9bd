"""The conductor: the one place where launching, tracing and recording are wired together for a run.

Order matters and is kept here: the tracer is forked first (a small process, one thread), the file is made, the child
stands, the start is on disk, and only then the child is told to go.
"""

import errno
import functools
import os
import signal
import socket
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Literal

import msgspec

from agentwrap.errors import EXIT_FAILED, EXIT_NOT_COVERED, EXIT_TIMEOUT, AgentwrapError
from agentwrap.launching.options import Outcome, RunOptions, errno_name, option_words
from agentwrap.session.endings import both_clocks, clock_jump, die_of, end_orphans, tracer_lost
from agentwrap.session.following import WATCHED_SIGNALS, Following, fork_tracer, working_directory
from agentwrap.session.mcp_traffic import McpTraffic
from agentwrap.session.model_traffic import ModelTraffic
from agentwrap.session.process_spans import ProcessSpans
from agentwrap.session.session_files import OfTheRun, attach

if TYPE_CHECKING:
    from agentwrap.approvals.desk import Desk
    from agentwrap.claims.server import ClaimsServer
    from agentwrap.events import Coverage, Gap, Item
    from agentwrap.session.surroundings import Surroundings
    from agentwrap.tracing import wire

TERM_GRACE_S = 10.0
TIMEOUT_GRACE_S = 5.0
CLAIMS_VARIABLE = b"AGENTWRAP_CLAIMS"
_LOOK_S = 0.05
_SI_KERNEL = 0x80  # siginfo: sent by the terminal driver, which also sent it to the agent (sigaction(2))


class Session:
    """One run, from options to a closed recording. Use once: `prepare`, then `run`.

    `say`: one line to the human at the terminal, when something waits for one. `attended`: somebody can be asked.
    """

    def __init__(self, options: RunOptions, say: Callable[[str], None] = lambda _line: None) -> None:
        self.options = options
        self._say = say
        self.outcome = Outcome()
        self._start_ns, self._started_unix_ns = both_clocks()
        self._channel: socket.socket
        self._tracer_pid = 0
        self._term_count = 0
        self._term_deadline: float | None = None
        self._timeout_asked: float | None = None
        self._over = False
        self._made_file = False
        self._around: Surroundings
        self.attended = False
        self._desk: Desk | None = None
        self._spans = ProcessSpans()
        self._own = OfTheRun()
        self._claims: ClaimsServer | None = None
        self._mcp: McpTraffic | None = None

    def _now(self) -> int:
        return time.monotonic_ns() - self._start_ns

    def prepare(self) -> str:
        """Start the tracer, make the file, bring the child to stand, write the start. Returns the mode.

        Raises AgentwrapError; then nothing has run and no recording is left.
        """
        from agentwrap.launching import command

        if not os.path.exists("/proc/self/fd"):
            raise AgentwrapError(
                "unsupported",
                "there is no /proc here, and nothing can be followed without it",
                evidence="/proc/self/fd: " + os.strerror(errno.ENOENT),
                hint="mount -t proc proc /proc",
                exit_status=EXIT_FAILED,
            )
        path = command.find(self.options.command[0], self.options.environment, self.options.cwd)
        if self.options.cwd is not None and not os.path.isdir(self.options.cwd):
            is_there = os.path.lexists(self.options.cwd)
            raise AgentwrapError(
                "not-found",
                f"the working directory is {'no directory' if is_there else 'not there'}",
                evidence=os.fsdecode(self.options.cwd),
                hint="-C DIR names where the command starts; without it, that is here",
                exit_status=EXIT_FAILED,
            )
        self._around = self._surround()
        try:
            self._open_claims()
            self._tracer_pid, self._channel = fork_tracer(Following(self.options, path, self._start_ns, self._around))
            self._around.forked_all()
            self._make_recorder()
            standing = self._receive_standing()
            self._begin(standing)
        except BaseException:
            self._abandon()
            raise
        return self.outcome.mode

    def _open_claims(self) -> None:
        """A socket for what programs say about themselves, and its path for their environment."""
        from agentwrap.claims.server import ClaimsServer

        try:
            self._claims = ClaimsServer(self._now)
        except OSError:
            return  # without one they say nothing, as outside of a run
        environment = {**self.options.environment, CLAIMS_VARIABLE: os.fsencode(self._claims.path)}
        self.options = msgspec.structs.replace(self.options, environment=environment)

    def _surround(self) -> "Surroundings":
        """Namespaces, gateway and what else the policy asks for."""
        from agentwrap.session import asking, surroundings

        self.attended = asking.attended(self.options)
        around = surroundings.surround(self.options, self._now, attended=self.attended)
        self.outcome.tier = around.tier
        return around

    def _make_recorder(self) -> None:
        from agentwrap.session.recorder import make_pump

        self._pump = make_pump(self.options, self._started_unix_ns, self._now)
        self._made_file = True

    def _receive_standing(self) -> "wire.Standing":
        from agentwrap.tracing import wire

        self._frames = wire.FrameReader()
        while True:
            data = self._channel.recv(65536)
            if not data:
                raise AgentwrapError(
                    "internal",
                    "the tracer ended before the command stood",
                    hint="agentwrap doctor",
                    exit_status=EXIT_FAILED,
                )
            for messages in self._frames.feed(data):
                for message in messages:
                    if isinstance(message, wire.Standing):
                        return message
                    if isinstance(message, wire.Failed):
                        raise AgentwrapError(
                            "unsupported",
                            f"the command could not be started ({message.step})",
                            evidence=message.detail.decode("utf-8", "replace"),
                            hint="agentwrap doctor",
                            exit_status=EXIT_FAILED,
                        )

    def _begin(self, told: "wire.Standing") -> None:
        """Judge how the child stands; write the start, the coverage and its gaps; let it go."""
        from agentwrap.events import RunStart
        from agentwrap.launching import plan
        from agentwrap.session.recorder import is_written

        options = self.options
        debuggable = "not asked for (--debuggable)" if options.debuggable else errno_name(told.attach_errno)
        standing = plan.Standing(
            told.mode,
            debuggable,
            errno_name(told.notify_errno),
            errno_name(told.filter_errno),
            errno_name(told.memory_errno),
        )
        self.outcome.mode = told.mode
        missing = plan.missing(standing)
        if missing and not options.best_effort:
            raise AgentwrapError(
                "unsupported",
                f"this machine does not let agentwrap see: {', '.join(missing)}",
                evidence=plan.why(standing),
                hint=plan.fix(standing),
                exit_status=EXIT_FAILED,
            )
        self._guard_stands(told)
        statements = plan.coverage(standing, reads=options.reads)
        self._around.wait_until_ready(told.mode)
        statements = self._around.statements(statements, told.mode)
        gaps = [*plan.gaps(standing, reads=options.reads), *self._around.losses(told.mode)]
        reading = self._around.reading
        self._require(statements, gaps, told.mode)
        items: list[Item] = [
            RunStart(
                at_ns=0,
                command=options.command,
                cwd=options.cwd or working_directory(),
                environment=tuple(reading.environment(options.environment, reading.way(told.mode)).items()),
                uid=os.getuid(),
                gid=os.getgid(),
                tty=os.isatty(0),
                mode=told.mode,
                options=option_words(options, told.no_new_privs),
            ),
            *self._policy_told(),
            *statements,
            *gaps,
        ]
        self._pump.start()
        self._pump.put(items)
        if not is_written(self._pump):
            raise AgentwrapError(
                "output", "the recording cannot be written", evidence=self._pump.failure, exit_status=EXIT_FAILED
            )
        if told.mode == "none":
            self._spans.finish()
        if self._claims is not None:
            self._claims.start(self._put_claims, self._spans.of)
        self._attend()

    def _put_claims(self, items: "list[Item]") -> None:
        self._around.catch_up()
        self._pump.put(items)

    def _attend(self) -> None:
        """Hear relay and gateway: events are recorded, noted, and, where a human is asked, shown to the desk."""
        from agentwrap.session import asking

        around, pump, options = self._around, self._pump, self.options
        patient = functools.partial(pump.put, patient=True)
        mcp = self._mcp = McpTraffic(patient, self._now, options.layers, options.mcp_arguments)
        desk = self._desk = self._open_desk()

        def hear(items: "list[Item]") -> None:
            self._own.see(items)
            patient(asking.kept(items, options))
            mcp.see(items)
            if desk is not None:
                desk.hear(items)

        if around.relay is not None:
            around.relay.traffic = mcp
            around.relay.attend(hear, pump.flush, self._now)
        if around.gateway is not None:
            around.gateway.traffic = ModelTraffic(self._now, mcp)
            around.gateway.attend(hear, pump.flush, self._now)

    def _open_desk(self) -> "Desk | None":
        if not self.attended:
            return None
        from agentwrap.session import asking

        around = self._around
        return asking.open_desk(
            self.options, self._tracer_pid, self._pump, around.gateway, self._now, self._say, around.relay
        )

    def _guard_stands(self, told: "wire.Standing") -> None:
        """Raises AgentwrapError where nothing enforces: no namespace, no listener, no ptrace that takes sockets."""
        if self._around.tier != "guard" or not told.takes_errno:
            return
        if self.options.best_effort:
            self._around.tier = self.outcome.tier = ""
            return
        refusal = self._around.refusal
        raise AgentwrapError(
            "unsupported",
            "the network cannot be confined on this machine",
            evidence="\n".join(
                [
                    f"namespaces: {refusal.step}: {refusal.detail}" if refusal is not None else "",
                    f"seccomp notification: {errno_name(told.notify_errno)} (mode {told.mode})",
                    f"taking a program's sockets (pidfd_getfd): {errno_name(told.takes_errno)}",
                ]
            ).strip(),
            hint="agentwrap doctor; --network host leaves the network as it is",
            exit_status=EXIT_FAILED,
        )

    def _policy_told(self) -> "list[Item]":
        if not self.options.layers:
            return []
        from agentwrap.policy.loaded import loaded_event

        return [loaded_event(self.options.layers)]

    def _require(self, statements: "list[Coverage]", gaps: "list[Gap]", mode: str) -> None:
        if not self.options.require or self.options.best_effort:
            return
        from agentwrap.policy.coverage import Hole, Statement, judge, parse_requirements

        judgements = judge(
            parse_requirements(self.options.require),
            [Statement(s.what, s.tier, s.mechanism, s.note) for s in statements],
            [Hole(g.what, g.cause, g.could_hide, os.fsdecode(g.detail)) for g in gaps],
        )
        lacking = [judgement for judgement in judgements if not judgement.covered]
        if lacking:
            raise AgentwrapError(
                "not-covered",
                f"required coverage is not to be had: {', '.join(j.kind for j in lacking)}",
                evidence="\n".join(
                    [f"mode: {mode}", *(f"{j.kind}: {reason}" for j in lacking for reason in j.reasons)]
                ),
                hint="agentwrap doctor",
                exit_status=EXIT_NOT_COVERED,
            )

    def _abandon(self) -> None:
        """Nothing ran: end the tracer (and with it the standing child) and leave no file behind."""
        try:
            if self._tracer_pid:
                os.kill(self._tracer_pid, signal.SIGKILL)
                os.waitpid(self._tracer_pid, 0)
        except OSError:
            pass  # it ended by itself
        self._around.abandon()
        if self._claims is not None:
            self._claims.close()
        if self._desk is not None:
            self._desk.close()
        signal.pthread_sigmask(signal.SIG_UNBLOCK, WATCHED_SIGNALS)
        if self._made_file:
            for suffix in ("", "-wal", "-shm"):
                Path(f"{self.options.output}{suffix}").unlink(missing_ok=True)

    def run(self, *, started: Callable[[], None] = lambda: None) -> Outcome:
        """Let the child go and stay with it until nothing of the tree is left and the file is closed."""
        early = signal.sigpending() & {signal.SIGINT, signal.SIGTERM, signal.SIGQUIT, signal.SIGHUP}
        if early:
            # Ctrl-C before the command began: it would never see the signal, so it does not begin.
            self._abandon()
            die_of(min(early))
        threading.Thread(target=self._watch_signals, daemon=True).start()
        self._channel.send(b"G")
        self._around.go_on()
        started()
        ageing = threading.Thread(target=self._age_out, name="agentwrap-undo", daemon=True)
        ageing.start()
        self._read_frames()
        self._spans.finish()
        self._close()
        ageing.join()
        return self.outcome

    def _age_out(self) -> None:
        """What earlier runs kept for `undo` and is too old or too much: looked for while the command runs."""
        if self.options.undo is not None:
            from agentwrap.recording import undo_store

            undo_store.age_out(self.options.undo.parent, keep=self.options.run_id)

    def _read_frames(self) -> None:
        """Until the tracer says that everything ended, or is gone. Looks at the time in between."""
        self._channel.settimeout(_LOOK_S)
        while not self._over:
            try:
                data = self._channel.recv(1 << 20)
            except TimeoutError:
                data = None
            if data == b"":
                end_orphans(self._tracer_pid, self._around.pids())
                self.outcome.failure = self.outcome.failure or "the tracer died; the agent's processes died with it"
                self._pump.put([tracer_lost(self._now())])
                return
            for messages in self._frames.feed(data or b""):
                self._take(messages)
            self._watch_time()
            self._keep_both_going()

    def _keep_both_going(self) -> None:
        """An agent may stop its own tracer (SIGSTOP), and with it itself and every time-out: go on at once.

        The gateway and the relay, too: what they pass, and what is told of it, would wait.
        """
        self._around.keep_going()
        try:
            stopped = os.waitid(os.P_PID, self._tracer_pid, os.WSTOPPED | os.WNOHANG)
        except ChildProcessError:
            return  # it is gone: the end of its stream tells
        if stopped is not None:
            os.kill(self._tracer_pid, signal.SIGCONT)

    def _take(self, messages: "list[wire.Message]") -> None:
        from agentwrap.tracing import wire

        items: list[Item] = []
        wanted = 0
        for message in messages:
            match message:
                case wire.MainEnded(status):
                    self.outcome.status = status
                    self.outcome.elapsed_ns = self._now()
                case wire.Stopped(number):
                    self._stop_with_the_agent(number)
                case wire.AllEnded(ended):
                    self.outcome.ended_daemons = ended
                    self._over = True
                case wire.Failed():
                    told = message.detail.decode("utf-8", "replace").rstrip()
                    self.outcome.failure = f"{message.step}: {told.rpartition(chr(10))[2] or errno_name(message.errno)}"
                    self.outcome.trace = told if message.step == "tracer" else ""
                case wire.AckWanted(number):
                    wanted = number
                case _ if wire.is_item(message):
                    items.append(message)
                case _:
                    pass
        if items:
            self._own.see(items)
            self._spans.see(items)
            self._pump.put(items)
        if wanted:
            self._pump.flush()
            self._order(b"A%d" % wanted)

    def _stop_with_the_agent(self, number: int) -> None:
        """Ctrl-Z: the shell waits for us, so it must see us stop; it continues the whole process group.

        The agent's own stop signal, sent to this thread alone: like the agent it does nothing in an orphaned process
        group (setpgid(2)), where nobody would ever continue us. The agent is told to go on by the thread that
        receives our SIGCONT.
        """
        # Raised before it is let in: what the terminal sent us may be pending as well, and together they are one stop,
        # since SIGCONT takes back all that are pending (signal(7)). One after the other, `fg` would be needed twice.
        signal.raise_signal(number)
        signal.pthread_sigmask(signal.SIG_UNBLOCK, {number})
        signal.pthread_sigmask(signal.SIG_BLOCK, {number} & WATCHED_SIGNALS)

    def _watch_time(self) -> None:
        now = time.monotonic()
        limit = self.options.timeout_s
        if limit is not None and self.outcome.status is None and now >= self._start_ns / 1e9 + limit:
            self.outcome.timed_out = True
            if self._timeout_asked is None:
                self._timeout_asked = now
                self._order(b"S%d 0" % signal.SIGTERM)
            elif now >= self._timeout_asked + TIMEOUT_GRACE_S:
                self._order(b"E")
        if self._term_deadline is not None and now >= self._term_deadline:
            self._order(b"E")

    def _order(self, order: bytes) -> None:
        try:
            self._channel.send(order + b"\n")
        except OSError:
            pass  # the tracer is gone: its end of file is being handled

    def _watch_signals(self) -> None:
        """A thread that waits for signals with their origin: the terminal's reach the agent without us."""
        while True:
            info = signal.sigwaitinfo(WATCHED_SIGNALS)
            if info.si_signo == signal.SIGCONT:
                self._order(b"C")
                continue
            if info.si_code == _SI_KERNEL:
                continue
            if info.si_signo == signal.SIGTERM:
                self._term_count += 1
                if self._term_count > 1:
                    self._order(b"E")
                    continue
                self._term_deadline = time.monotonic() + TERM_GRACE_S
            self._order(b"S%d %d" % (info.si_signo, info.si_pid))

    def _close(self) -> None:
        from agentwrap.events import RunEnd

        os.waitpid(self._tracer_pid, 0)
        status, outcome = self.outcome.status, self.outcome
        lost = self._around.close()
        outcome.failure = outcome.failure or lost
        if self._mcp is not None:
            self._mcp.close()
        if self._desk is not None:
            self._desk.close()
        if self._claims is not None:
            self._claims.close()
        for item in attach(self.options.environment, self._started_unix_ns, self._own, at_ns=self._now()):
            self._pump.put([item])
        killed_by = os.WTERMSIG(status) if status is not None and os.WIFSIGNALED(status) else 0
        reason: Literal["timeout", "lost", "signal", "exit"] = "signal" if killed_by else "exit"
        if outcome.timed_out or status is None:
            reason = "timeout" if outcome.timed_out else "lost"
        now_ns, now_unix_ns = both_clocks()
        self._pump.put(
            [
                *clock_jump(self._started_unix_ns, now_unix_ns, now_ns - self._start_ns),
                RunEnd(
                    at_ns=self._now(),
                    status=os.WEXITSTATUS(status) if status is not None and not killed_by else None,
                    signal=killed_by,
                    reason=reason,
                    ended_daemons=outcome.ended_daemons,
                ),
            ]
        )
        outcome.sealed = self._pump.flush_and_close()
        pump = self._pump
        # A disk that was full for a while and cost nothing is no failure of the recording.
        if not outcome.sealed or pump.dropped or pump.failure.startswith("internal"):
            outcome.failure = outcome.failure or pump.failure

    def leave(self) -> int:
        """The exit status for our own process: the command's; a signal that killed it kills us, too."""
        outcome = self.outcome
        if outcome.timed_out:
            return EXIT_TIMEOUT
        if outcome.status is None:
            return EXIT_FAILED
        if os.WIFSIGNALED(outcome.status):
            die_of(os.WTERMSIG(outcome.status))
        return os.WEXITSTATUS(outcome.status)
