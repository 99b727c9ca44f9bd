"""What the thread that is notified does for the one that traces, with a program that stands in a call of ours.

While a reported call waits, the listener may put descriptors into the program (SECCOMP_IOCTL_NOTIF_ADDFD). So a program
under injection is made to ask for something that is always reported and that nobody would ask for; it is not made.
"""

import socket
from collections.abc import Callable

from agentwrap.tracing.guard.answers import Answers
from agentwrap.tracing.interposing.injection import Injection, InjectionError

_MKDIR = 83  # asm/unistd_64.h; with no path it could only fail


class _Errand:
    """`do` gets the request; whether it has answered it."""

    def __init__(self, do: Callable[[int], bool]) -> None:
        self.do = do
        self.begun = False
        self.error: Exception | None = None


class Errands:
    """`listener`: its descriptor, -1 where there is none: then none can be run."""

    def __init__(self, listener: int) -> None:
        self.possible = listener >= 0
        self._answers = Answers(listener)
        self._errands: dict[int, _Errand] = {}

    def run(self, inject: Injection, do: Callable[[int], bool]) -> int:
        """For the thread that traces: what the program's call returned. Raises what `do` raised, InjectionError."""
        errand = self._errands[inject.tid] = _Errand(do)
        try:
            returned = inject.call(_MKDIR, 0, 0)
        finally:
            self._errands.pop(inject.tid, None)
        if errand.error is not None:
            raise errand.error
        if not errand.begun:
            raise InjectionError("a filter of its own answers its calls")
        return returned

    def lend(self, inject: Injection, ours: socket.socket) -> int:
        """Let the program have a descriptor of our socket: its number there. Raises InjectionError."""
        number = self.run(inject, lambda request: self._answers.descriptor(request, ours.fileno(), close_on_exec=True))
        if number < 0:
            raise InjectionError("it takes no descriptor")
        return number

    def answer(self, request: int, tid: int, number: int) -> bool:
        """For the thread that is notified: whether this reported call was one of ours, and is answered."""
        errand = self._errands.get(tid) if number == _MKDIR else None
        if errand is None:
            return False
        errand.begun = True  # before it is answered, which ends the other thread's wait
        try:
            answered = errand.do(request)
        except Exception as error:
            errand.error, answered = error, False
        if not answered:
            self._answers.value(request, 0)
        return True
