#!/usr/bin/env python3
"""Cannot be reached is not lost. A server is killed while two runs and a detached exec are under
way. The next one takes them up: with an error at every point it passes on the way, with relays that
hang, with a cancel it cannot deliver. No command may begin twice, none may be forgotten, and what
they print and change is complete.

    adoption_loop.py [POINT|WALK...]      default: every point, every walk
"""

import concurrent.futures
import glob
import os
import resource
import signal
import sqlite3
import sys
import time

from lib import SHORT_PERIODS, Died, Server, marked_processes, wait_until, words_of
from lib_scenes import World

PATIENCE = 60
# Without these a server does not begin at all.
AT_START = ("db.migrate.", "db.node.register.", "store.")


class Work:
    """A server with commands that wait for a word, each of which notes that it began."""

    def __init__(self, *flags):
        self.server = Server()
        self.server.flags = SHORT_PERIODS + list(flags)
        self.w = World(self.server)
        self.go = os.path.join(self.server.data, "go")

    def command(self, name, then):
        begun = os.path.join(self.server.data, f"begun-{name}")
        return ["sh", "-c", f"echo x >>{begun}; while [ ! -e {self.go} ]; do sleep 0.05; done; {then}"]

    def begin(self):
        w = self.w
        assert self.server.start(), self.server.tail()
        w.ensure_company()
        self.run = w.run(*self.command("run", "seq 200"), environmentId=w.local())
        self.tree = w.tree()
        self.files = w.bring(self.tree, self.command("files", "echo new >changed")[2])
        self.lease = w.lease(w.local())
        status, answer = w.call(
            "POST", f"/api/environment-leases/{self.lease['id']}/exec?detach=1",
            {"command": self.command("exec", "seq 300"), "env": {"CANARY": self.server.data}})
        assert status in (200, 201, 202), answer
        self.exec = answer.get("execId") or answer["id"]
        assert w.await_running(2), self.server.tail()
        wait_until(lambda: [n for n in ("run", "files", "exec") if self.begun(n) != 1], PATIENCE,
                   "not begun")
        # A relay that is stopped says nothing, so it has to have written the exec down: it does when
        # the exec has run for a moment. Runs are known from their rows.
        wait_until(lambda: [] if self.has_journal() else ["the exec"], PATIENCE, "not written down")

    def has_journal(self):
        found = glob.glob(os.path.join(self.server.keeper_dir, "**", "exits"), recursive=True)
        return any(os.path.getsize(path) > 0 for path in found)

    def begun(self, name):
        try:
            with open(os.path.join(self.server.data, f"begun-{name}"), encoding="ascii") as f:
                return len(f.readlines())
        except FileNotFoundError:
            return 0

    def status_of_run(self, run):
        status, row = self.w.call("GET", f"/api/runs/{run}")
        assert status == 200, row
        return row

    def status_of_exec(self):
        status, record = self.w.call("GET", f"/api/execs/{self.exec}")
        assert status == 200, record
        return record

    def say_go(self):
        with open(self.go, "w", encoding="ascii"):
            pass

    def unadopted(self):
        attached = [p for p in self.server.hits() if p == "channel.attach.after"]
        return self.server.query(
            "SELECT id FROM runs r WHERE boot_epoch < (SELECT boot_epoch FROM nodes"
            " WHERE id = r.node_id)") or ([] if len(attached) >= 3 else ["the exec"])

    def unfinished(self):
        left = [f"run {run} is {row['status']} ({row['statusReason']}, {row['error']})"
                for run in (self.run, self.files)
                for row in [self.status_of_run(run)] if row["status"] != "succeeded"]
        # What its relay wrote down may be unreadable: then it is known when the relay has answered.
        _, record = self.w.call("GET", f"/api/execs/{self.exec}")
        if record.get("status") != "ended":
            left.append(f"exec is {record}")
        return left

    def check_end(self):
        """Each has ended well, began once, and nothing of what it did is missing."""
        self.say_go()
        wait_until(self.unfinished, PATIENCE, "not ended")
        for name in ("run", "files", "exec"):
            assert self.begun(name) == 1, f"{name} began {self.begun(name)} times"
        rows = self.server.query("SELECT status FROM runs")
        assert rows == [("succeeded",)] * 2, f"runs: {rows}"
        record = self.status_of_exec()
        assert record["exitCode"] == 0 and record["reason"] == "exited", record
        for path, lines in ((f"/api/runs/{self.run}/log", 200), (f"/api/execs/{self.exec}/output", 300)):
            _, text = self.w.call("GET", path, headers={"Accept": "application/octet-stream"})
            assert text == "".join(f"{n + 1}\n" for n in range(lines)), f"{path}: {text[-200:]!r}"
        with open(os.path.join(self.tree, "changed"), encoding="ascii") as f:
            assert f.read() == "new\n", "the work did not come home"

    def signal_relays(self, number):
        for pid in self.server.relays().values():
            os.kill(pid, number)

    def await_reasons(self):
        """All are running, and say why nobody follows them."""
        def silent():
            rows = [self.status_of_run(r) for r in (self.run, self.files)] + [self.status_of_exec()]
            return [r for r in rows if r["status"] != "running"
                    or not (r.get("statusReason") or "").startswith("reconnecting")]
        wait_until(silent, PATIENCE, "no reason is given")


# ---- an error at every point ----

def rehearse():
    work = Work()
    try:
        work.begin()
        work.server.kill()
        assert work.server.start(trace=True), work.server.tail()
        wait_until(work.unadopted, PATIENCE, "not taken up")
        passed = work.server.hits()
        work.check_end()
        # What brings the work home is not of this way.
        passed += [p for p in work.server.hits() if p.startswith("run.recover.")]
        return list(dict.fromkeys(p for p in passed if not p.startswith(AT_START)))
    finally:
        work.server.remove()


def fail_at(point):
    work = Work()
    try:
        work.begin()
        work.server.kill()
        # One that refuses to start has given nothing up.
        if not work.server.start(f"{point}@1:error"):
            assert work.server.start(), work.server.tail()
        work.check_end()
    finally:
        work.server.remove()


# ---- relays that hang ----

def hang():
    """Serving begins at once, and what hung goes on when it can."""
    work = Work()
    try:
        work.begin()
        work.server.kill()
        work.signal_relays(signal.SIGSTOP)
        assert work.server.start(deadline=10), work.server.tail()
        work.await_reasons()
        # It is there by its id all the time, and hears a signal when its relay does.
        with concurrent.futures.ThreadPoolExecutor(1) as caller:
            call = caller.submit(work.w.call, "POST", f"/api/execs/{work.exec}/signal",
                                 {"signal": "CONT"})
            time.sleep(0.2)
            work.signal_relays(signal.SIGCONT)
            assert call.result()[0] == 200, call.result()
        work.check_end()
        for row in (work.status_of_run(work.run), work.status_of_exec()):
            assert not row.get("statusReason"), row
    finally:
        work.signal_relays(signal.SIGCONT)
        work.server.remove()


def hang_through_two_servers():
    work = Work()
    try:
        work.begin()
        work.server.kill()
        work.signal_relays(signal.SIGSTOP)
        for _ in range(2):
            assert work.server.start(deadline=10), work.server.tail()
            work.await_reasons()
            work.server.stop()
        assert work.server.start(deadline=10), work.server.tail()
        work.signal_relays(signal.SIGCONT)
        work.check_end()
    finally:
        work.signal_relays(signal.SIGCONT)
        work.server.remove()


def cancel_what_hangs():
    """A cancelled run ends, with its command, although its relay never hears of it."""
    work = Work()
    try:
        work.begin()
        work.server.kill()
        work.signal_relays(signal.SIGSTOP)
        assert work.server.start(deadline=10), work.server.tail()
        work.await_reasons()
        status, answer = work.w.call("POST", f"/api/runs/{work.run}/cancel", {})
        assert status == 200, answer

        def going():
            row = work.status_of_run(work.run)
            return [row["status"]] if row["status"] != "cancelled" else []
        wait_until(going, PATIENCE, "not cancelled")
        assert work.begun("run") == 1
        assert len(work.server.query("SELECT 1 FROM runs")) == 2, "a cancelled run was repeated"
    finally:
        work.signal_relays(signal.SIGCONT)
        work.server.remove()


def absence_decides():
    """What no server could speak to for all of its absence is lost: ended, then repeated once."""
    work = Work("--absence", "3s")
    try:
        work.begin()
        work.server.kill()
        work.signal_relays(signal.SIGSTOP)
        assert work.server.start(deadline=10), work.server.tail()

        def undecided():
            row = work.status_of_run(work.run)
            return [row] if row["errorCode"] != "process_lost" else []
        wait_until(undecided, PATIENCE, "not given up")
        wait_until(lambda: [] if work.begun("run") == 2 else ["not repeated"], PATIENCE, "lost")
        # The first has ended before the second began.
        def twice():
            # A shell that is about to run something looks like itself twice, for a moment.
            alive = [p for p in marked_processes(work.w.mark)
                     if b"begun-run" in b" ".join(words_of(p))]
            return alive if len(alive) > 1 else []
        wait_until(twice, 5, "it runs twice")
    finally:
        work.signal_relays(signal.SIGCONT)
        work.server.remove()


def unknown_command():
    """A server dies right after a start, before it could answer: the next one lists the command with
    all its relay was told of it, keeps what it prints, and can end it."""
    for point in ("channel.exec_start.after", "driver.start.after"):
        unknown_after(point)


def unknown_after(point):
    command = ["sh", "-c", "echo printed; exec sleep 7777"]
    server = Server()
    server.flags = SHORT_PERIODS
    w = World(server)
    try:
        assert server.start(f"{point}:kill"), server.tail()
        w.ensure_company()
        lease = w.lease(w.local())
        try:
            w.exec(lease, *command)
            raise AssertionError("not killed")
        except Died:
            server.await_end(5)
        assert server.start(), server.tail()
        path = f"/api/environment-leases/{lease['id']}/execs"
        wait_until(lambda: [] if w.call("GET", path)[1] else ["nothing is listed"], PATIENCE,
                   "unknown")
        found = w.call("GET", path)[1][0]
        assert found["status"] == "running" and found["found"], found
        assert found["command"] == command and found["leaseId"] == lease["id"], found
        wait_until(lambda: [] if server.query(
            "SELECT 1 FROM activity WHERE action = 'environment.exec_found' AND entity_id = ?",
            lease["id"]) else ["no activity"], PATIENCE, "not reported")
        status, answer = w.call("POST", f"/api/execs/{found['id']}/signal",
                                {"signal": "KILL", "target": "tree"})
        assert status == 200, answer
        wait_until(lambda: [] if w.call("GET", f"/api/execs/{found['id']}")[1]["status"] == "ended"
                   else ["runs on"], PATIENCE, "not ended")
        _, text = w.call("GET", f"/api/execs/{found['id']}/output",
                         headers={"Accept": "application/octet-stream"})
        assert text == "printed\n", text
        assert not marked_processes(w.mark)
    finally:
        server.remove()


def few_descriptors():
    """A server that may open little runs fewer at a time; none of its runs fails for that."""
    server = Server()
    server.flags = SHORT_PERIODS
    server.open_files = (160, 160)
    w = World(server)
    try:
        assert server.start(), server.tail()
        _, health = w.call("GET", "/api/health")
        assert any("open files" in warning for warning in health["warnings"]), health
        w.ensure_company()
        local = w.local()
        runs = [w.run("sleep", "0.5", environmentId=local) for _ in range(30)]
        assert all(runs), server.tail()

        def unfinished():
            rows = dict(server.query("SELECT id, status FROM runs"))
            assert "failed" not in rows.values(), server.query("SELECT error FROM runs")
            return [r for r, status in rows.items() if status != "succeeded"]
        wait_until(unfinished, PATIENCE, "not ended")
    finally:
        server.remove()


def raised_descriptors():
    """A server takes all descriptors it may have; its commands get what it was started with."""
    server = Server()
    server.flags = SHORT_PERIODS
    server.open_files = (300, 4096)
    w = World(server)
    try:
        assert server.start(), server.tail()
        assert resource.prlimit(server.process.pid, resource.RLIMIT_NOFILE) == (4096, 4096)
        w.ensure_company()
        run = w.run("sh", "-c", "ulimit -Sn", environmentId=w.local())
        assert w.await_run(run), server.tail()
        _, text = w.call("GET", f"/api/runs/{run}/log",
                         headers={"Accept": "application/octet-stream"})
        assert text == "300\n", text
    finally:
        server.remove()


WALKS = {f.__name__: f for f in (hang, hang_through_two_servers, cancel_what_hangs, absence_decides,
                                unknown_command, few_descriptors, raised_descriptors)}


def attempt(name, walk):
    begin = time.monotonic()
    try:
        walk()
        wrong = None
    except (AssertionError, Died, KeyError, TypeError, OSError, sqlite3.Error) as error:
        wrong = f"{name}: {type(error).__name__} {error}"
    return name, wrong, time.monotonic() - begin


def main():
    begin = time.monotonic()
    wanted = sys.argv[1:]
    points = [p for p in rehearse() if not wanted or p in wanted]
    walks = [(n, f) for n, f in WALKS.items() if not wanted or n in wanted]
    walks += [(p, lambda p=p: fail_at(p)) for p in points]
    with concurrent.futures.ThreadPoolExecutor(int(os.environ.get("BERTH_WORKERS", "6"))) as pool:
        results = list(pool.map(lambda w: attempt(*w), walks))
    failures = [wrong for _, wrong, _ in results if wrong]
    for failure in failures:
        print(failure)
    slowest = max(results, key=lambda r: r[2])
    print(f"{len(points)} points, {len(walks) - len(points)} walks; the slowest, {slowest[0]},"
          f" took {slowest[2]:.1f} s")
    print(f"adoption loop: {len(failures)} failures in {time.monotonic() - begin:.0f} s")
    sys.exit(1 if failures else 0)


main()
