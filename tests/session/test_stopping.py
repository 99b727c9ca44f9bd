"""How the supervisor stops with its agent: once for each time that somebody asks for it."""

import os
import signal

import pytest

from agentwrap.session.conductor import Session


@pytest.mark.parametrize("number", [signal.SIGTSTP, signal.SIGTTIN])
@pytest.mark.parametrize("terminal", [True, False])
def test_one_stop_though_the_terminal_has_sent_its_own_signal(number: int, terminal: bool) -> None:
    child = os.fork()
    if not child:
        os.setpgid(0, 0)  # a job of ours: nothing stops in an orphaned process group (setpgid(2))
        signal.pthread_sigmask(signal.SIG_BLOCK, {number})
        if terminal:
            os.kill(os.getpid(), number)
        Session._stop_with_the_agent(None, number)  # type: ignore[arg-type]
        os._exit(7)
    _, status = os.waitpid(child, os.WUNTRACED)
    assert os.WIFSTOPPED(status)
    os.kill(child, signal.SIGCONT)
    _, status = os.waitpid(child, os.WUNTRACED)
    stopped_again = os.WIFSTOPPED(status)
    if stopped_again:
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)
    assert not stopped_again
    assert os.waitstatus_to_exitcode(status) == 7
