#!/usr/bin/env python3
"""Hogs of every kind in places with limits: contained, reported with the right reason, and a
neighbour answers meanwhile. No times are asserted: bench/run native-neighbour measures them.

Every hog is bounded by itself, in case nothing else bounds it."""

import concurrent.futures
import sys

from yard import Host, Yard

LIMITS = {"memoryMb": 96, "pids": 64, "openFiles": 128, "diskMb": 32}


def fork_bomb(place):
    """ends with its time, with fewer processes than its limit"""
    answer = place.ask(["bash", "-c", "b() { b | b & }; ulimit -u 5000; b; sleep 20"], timeoutMs=2000)
    yield "reason", answer["reason"], "timeout"
    yield "told of its limit", "Resource temporarily unavailable" in answer["stderr"], True
    yield "the tree", place.count_processes(), 1


def memory_hog(place):
    """ended by the limit, and said so"""
    answer = place.ask(["python3", "-c", "x = bytearray(400 << 20)"])
    yield "reason", answer["reason"], "oom"
    # A hog beside an innocent: what is reported of the place stays right afterwards.
    yield "the next", place.ask(["true"])["reason"], "exited"


def disk_filler(place):
    """gets ENOSPC, and space is there again afterwards"""
    answer = place.ask(["sh", "-c", "head -c 100m /dev/zero >f; rm f; head -c 1m /dev/zero >g;"
                        "wc -c <g"])
    yield "error", "No space left" in answer["stderr"], True
    yield "afterwards", answer["stdout"].strip(), str(1 << 20)


def descriptor_hog(place):
    """gets EMFILE at its limit"""
    answer = place.ask(["python3", "-c", "import os\ntry:\n for i in range(1000): os.dup(0)\n"
                        "except OSError as e: print(e.errno, i < 128)"])
    yield "errno", answer["stdout"].strip(), "24 True"


def inotify_hog(place):
    """uses up its own instances, not the neighbour's"""
    script = ("import ctypes\nl = ctypes.CDLL(None)\nn = 0\n"
              "while n < 100 and l.inotify_init() >= 0: n += 1\nprint(n)\n"
              "if {hold}:\n import time\n time.sleep(600)")
    detached = place.yard.acquire(limits={"openFiles": 4096})
    for _ in range(2):
        detached.yard.cli("exec", "-q", "-d", detached.lease, "--", "python3", "-c",
                          script.format(hold=True))
    answer = place.ask(["python3", "-c", script.format(hold=False)])
    detached.release()
    yield "instances", answer["stdout"].strip(), "100"


def keyring_hog(place):
    """keys are not to be had at all"""
    answer = place.ask(["python3", "-c", "import ctypes\nl = ctypes.CDLL(None, use_errno=True)\n"
                        "r = l.syscall(248, b'user', b'k', b'x', 1, -2)\n"
                        "print(r, ctypes.get_errno())"])
    yield "add_key", answer["stdout"].strip(), "-1 1"


def output_flood(place):
    """every byte arrives, or the writer waits"""
    done = place.run("sh", "-c", "head -c 64m /dev/zero | tr '\\0' x")
    yield "bytes", len(done.stdout), 64 << 20
    answer = place.ask(["yes"], timeoutMs=1500)
    yield "reason", answer["reason"], "timeout"


def thread_hog(place):
    """threads count as processes do"""
    answer = place.ask(["python3", "-c", "import threading, time\nn = 0\ntry:\n while n < 500:\n"
                        "  threading.Thread(target=time.sleep, args=(2,), daemon=True).start()\n"
                        "  n += 1\nexcept RuntimeError: pass\nprint(n < 64, flush=True)\n"
                        "import os; os._exit(0)"])
    yield "below the limit", answer["stdout"].strip(), "True"


HOGS = [fork_bomb, memory_hog, disk_filler, descriptor_hog, inotify_hog, keyring_hog, output_flood,
        thread_hog]


class Asked:
    """A place over HTTP, where an exec's reason is told."""

    def __init__(self, place):
        self.place, self.yard, self.lease, self.run = place, place.yard, place.lease, place.run

    def ask(self, command, **more):
        status, answer = self.yard.call(
            "POST", f"/api/environment-leases/{self.lease}/exec?stream=0",
            {"command": command, **more}, timeout=60)
        assert status == 200, answer
        return answer

    def count_processes(self):
        """In the place, beside the one that counts."""
        return int(self.ask(["python3", "-c", "import os; print(sum(e.isdigit() for e in"
                             " os.listdir('/proc')))"])["stdout"])


def neighbour_answers(place, until):
    """How often it was asked, and what was wrong."""
    asked, wrong = 0, []
    while not until.done() or asked < 3:
        answer = place.ask(["sh", "-c", f"echo n{asked} | cat"])
        if answer["stdout"] != f"n{asked}\n" or answer["exitCode"] != 0:
            wrong.append(f"the neighbour answers {answer}")
            break
        asked += 1
    return asked, wrong


def try_hog(yard, pool, hog):
    place = Asked(yard.acquire(writable="tmpfs", limits=LIMITS))
    neighbour = Asked(yard.acquire())
    going = pool.submit(lambda: list(hog(place)))
    asked, bad = neighbour_answers(neighbour, going)
    bad += [f"{hog.__name__}: {what} is {got!r} instead of {want!r}"
            for what, got, want in going.result() if got != want]
    place.place.release()
    neighbour.place.release()
    print(f"{hog.__name__:15} {'FAILS' if bad else 'contained':10} {hog.__doc__};"
          f" the neighbour answered {asked} times")
    return bad


def main():
    bad, host = [], Host()
    try:
        yard = Yard(host)
        try:
            with concurrent.futures.ThreadPoolExecutor(1) as pool:
                for hog in HOGS:
                    bad += try_hog(yard, pool, hog)
            audit = yard.cli("audit", check=False)
            bad += [f"audit: {audit.stdout}"] if audit.returncode else []
        finally:
            yard.remove()
    finally:
        host.remove()
    for complaint in bad:
        print(complaint)
    print(f"hogs: {len(bad)} complaints")
    sys.exit(1 if bad else 0)


main()
