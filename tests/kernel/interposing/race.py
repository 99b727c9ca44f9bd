"""`race.py STARTS ABREAST SERVER...`: starts servers and kills each at some moment, the client's ends at others.

Prints how many were killed before, and after they said something. Hangs if one does not end, or an end does not come.
"""

import os
import random
import signal
import subprocess
import sys
import threading
import time

STARTS, ABREAST, WORDS = int(sys.argv[1]), int(sys.argv[2]), sys.argv[3:]
chance = random.Random(7)
left = iter(range(STARTS))
lock = threading.Lock()
early = late = 0


def one(moment_s: float, how: int, *, hears: bool) -> None:
    global early, late
    sockets = how % 3 == 0
    process = subprocess.Popen(WORDS, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    assert process.stdin is not None
    assert process.stdout is not None
    if sockets:
        os.kill(process.pid, signal.SIGSTOP)
        os.kill(process.pid, signal.SIGCONT)
    heard = b""
    try:
        process.stdin.write(b"hello\n")
        process.stdin.flush()
        time.sleep(moment_s)
        if hears:
            heard = process.stdout.readline()
        process.kill()
        process.stdin.close()
    except BrokenPipeError:
        pass
    said = heard + process.stdout.read()
    process.stdout.close()
    assert process.wait() in (-signal.SIGKILL, 0), process.returncode
    assert said in (b"", b"hello\n"), said
    with lock:
        early, late = early + (not said), late + bool(said)


def work() -> None:
    while True:
        with lock:
            number = next(left, None)
            if number is None:
                return
            moment_s, how = chance.random() ** 2 * 0.01, chance.randrange(3)
        one(moment_s, how, hears=number % 10 == 0)  # however slow the machine is: some come to say something


threads = [threading.Thread(target=work) for _ in range(ABREAST)]
for thread in threads:
    thread.start()
for thread in threads:
    thread.join()
print(early, late)
