#!/usr/bin/env python3
"""G2: for every fault point the program contains, the server is killed there (then: fails there),
started again, and must come to rest: inventory, places, leases and audit agree, no lease is active
without an owner, no run stays running, no process is left.

    kill_loop.py [kill|error] [POINT...]      default: both actions, every point
"""

import concurrent.futures
import os
import subprocess
import sys
import time

from lib import BERTH, Died, Server, complaints_after_crash, wait_until

SETTLE = 30


class World:
    """One server and what the scenario made in it."""

    def __init__(self, server):
        self.server = server
        self.mark = "CANARY=" + server.data
        self.company = None
        self.made = {}

    def try_call(self, method, path, body=None, headers=None):
        """Steps go on after a refusal (the point may have made it), not after a death."""
        return self.server.call(method, path, body, headers)

    def make(self, what, path, body):
        status, answer = self.try_call("POST", path, body)
        if status in (200, 201):
            self.made[what] = answer["id"]
            return answer
        # A fault after the commit: the thing may be there although we were told it is not.
        return None

    def ensure_company(self):
        if self.company:
            return
        for _ in range(3):
            answer = self.make("company", "/api/companies", {"name": "world"})
            if answer:
                self.company = answer["id"]
                return
            status, companies = self.try_call("GET", "/api/companies")
            named = [c for c in companies if c["name"] == "world"] if status == 200 else []
            if named:
                self.company = named[0]["id"]
                return
        raise AssertionError("no company could be made")

    def environment(self, name, config=None, metadata=None, driver="sandbox"):
        body = {"name": name, "driver": driver,
                "config": dict({"provider": "fake", "image": "x"}, **(config or {}))
                if driver == "sandbox" else {}}
        if metadata:
            body["metadata"] = metadata
        for _ in range(3):
            answer = self.make(name, f"/api/companies/{self.company}/environments", body)
            if answer:
                return answer["id"]
            status, every = self.try_call("GET", f"/api/companies/{self.company}/environments")
            named = [e for e in every if e["name"] == name] if status == 200 else []
            if named:
                self.made[name] = named[0]["id"]
                return named[0]["id"]
        raise AssertionError(f"no environment {name} could be made")

    def run(self, command, **more):
        body = dict({"command": command, "env": {"CANARY": self.server.data}}, **more)
        status, answer = self.try_call("POST", f"/api/companies/{self.company}/runs", body)
        return answer["id"] if status == 201 else None

    def await_run(self, run, deadline=20):
        end = time.monotonic() + deadline
        while run and time.monotonic() < end:
            status, answer = self.try_call("GET", f"/api/runs/{run}")
            if status == 200 and answer["finishedAt"] and answer["timings"]:
                return answer
            time.sleep(0.01)
        return None

    def lease(self, environment, headers=None, **body):
        status, answer = self.try_call("POST", f"/api/environments/{environment}/leases", body, headers)
        return answer if status in (200, 201) else None

    def release(self, lease, **body):
        if lease:
            return self.try_call("POST", f"/api/environment-leases/{lease['id']}/release", body)
        return None


def records(w):
    agent = w.make("agent", f"/api/companies/{w.company}/agents", {"name": "a"})
    w.make("project", f"/api/companies/{w.company}/projects", {"name": "p"})
    w.make("issue", f"/api/companies/{w.company}/issues", {"title": "i"})
    if agent:
        w.await_run(w.run(["true"], agentId=agent["id"]))
    spare = w.environment("spare")
    w.try_call("PATCH", f"/api/environments/{spare}", {"description": "changed"})
    w.try_call("POST", f"/api/environments/{spare}/probe", {})
    w.try_call("DELETE", f"/api/environments/{spare}")


def runs(w):
    plain = w.environment("plain")
    w.await_run(w.run(["sh", "-c", "echo out; echo err >&2"]))
    w.await_run(w.run(["sh", "-c", "echo in place"], environmentId=plain))
    failed = w.run(["false"])
    w.await_run(failed)
    if failed:
        status, retry = w.try_call("POST", f"/api/runs/{failed}/retry", {})
        if status == 201 or status == 200:
            w.await_run(retry["id"])
    long = w.run(["sleep", "600"], environmentId=plain)
    if long:
        w.try_call("POST", f"/api/runs/{long}/cancel", {})
        w.await_run(long)
    w.await_run(w.run(["sleep", "600"], timeoutMs=100))


def queue(w):
    single = w.environment("single", metadata={"maxLeases": 1})
    first = w.run(["sleep", "0.2"], environmentId=single)
    second = w.run(["true"], environmentId=single)
    w.await_run(first)
    w.await_run(second)


def leases(w):
    plain = w.environment("plain") if "plain" not in w.made else w.made["plain"]
    held = w.lease(plain, headers={"Idempotency-Key": "k1"})
    w.lease(plain, headers={"Idempotency-Key": "k1"})
    if held:
        base, generation = f"/api/environment-leases/{held['id']}", held["generation"]
        w.try_call("POST", base + "/renew", {"generation": generation, "ttlSeconds": 60})
        w.try_call("POST", base + "/exec?stream=0",
                   {"command": ["sh", "-c", "echo x"], "generation": generation,
                    "env": {"CANARY": w.server.data}},
                   {"Idempotency-Key": "e1"})
    w.release(held)
    refused = w.environment("refusing", {"faults": {"acquire": {"fail": 1}}})
    w.lease(refused)
    w.release(w.lease(refused))
    w.lease(plain, ttlSeconds=1)                       # left to the expiry sweep
    kept = w.lease(plain, policy="retain_on_failure", retainSeconds=1)
    w.release(kept, status="failed")                   # retained, then destroyed by the sweep


def reuse(w):
    again = w.environment("again", {"reuseLease": True})
    for _ in range(2):
        w.release(w.lease(again))
    # A changed config does not fit the free place any more: it is replaced.
    w.try_call("PATCH", f"/api/environments/{again}", {"config": {"image": "y"}})
    w.release(w.lease(again))
    lost = w.environment("lost", {"reuseLease": True, "faults": {"resume": {"fail": 1}}})
    for _ in range(2):
        w.release(w.lease(lost))


def cleanup(w):
    stubborn = w.environment("stubborn", {"faults": {"release": {"fail": 1}}})
    w.release(w.lease(stubborn))
    settle(w, "cleanup")


def upkeep(w):
    w.try_call("POST", "/api/backup", {})
    w.try_call("POST", "/api/prune", {"olderThanSeconds": 0})


def settle(w, what):
    """Gives back what is still held, then waits for rest."""
    def complaints():
        for (lease,) in w.server.query("SELECT id FROM leases WHERE status = 'active'"
                                       " AND run_id IS NULL"):
            w.server.call("POST", f"/api/environment-leases/{lease}/release", {})
        return complaints_after_crash(w.server, w.mark)
    wait_until(complaints, SETTLE, what)


def crash_then_start(w):
    """Leaves work for recovery: a running run, a held lease, then a dead server. The next start,
    with the fault, is what the recovery points meet."""
    fault, w.server.fault = w.server.fault, None
    w.server.stop()
    assert w.server.start(None), w.server.tail()
    plain = w.made.get("plain") or w.environment("plain")
    again = w.environment("again2", {"reuseLease": True})
    w.run(["sleep", "600"], environmentId=plain)
    w.run(["sleep", "600"])
    w.lease(again)
    end = time.monotonic() + 10
    while time.monotonic() < end and len(w.server.query(
            "SELECT id FROM runs WHERE process_pid IS NOT NULL AND status = 'running'")) < 2:
        time.sleep(0.01)
    w.server.kill()
    if not w.server.start(fault):
        raise Died("at start")
    end = time.monotonic() + 10
    while time.monotonic() < end and w.server.query(
            "SELECT id FROM runs WHERE status = 'queued'"):
        time.sleep(0.02)
    # The retries of the two lost runs would sleep on.
    for (run,) in w.server.query("SELECT id FROM runs WHERE finished_at IS NULL"):
        w.try_call("POST", f"/api/runs/{run}/cancel", {})
    settle(w, "recovery")


STEPS = [records, runs, queue, leases, reuse, cleanup, crash_then_start, upkeep]


def walk(point, action):
    """Returns None when all is well, "unreached", or what is wrong."""
    server = Server()
    server.fault = f"{point}:kill" if action == "kill" else f"{point}@1:error"
    w = World(server)
    reached = False
    try:
        try:
            if not server.start(server.fault):
                raise Died("at start")
            w.ensure_company()
            for step in STEPS:
                step(w)
        except Died:
            reached = True
            # The connection breaks a moment before the process is gone.
            server.await_end(5)
        if action == "error":
            with open(server.log, "rb") as f:
                reached = f"fault {point}".encode() in f.read()
        if not server.alive() and not server.start(None):
            return "does not start again: " + server.tail()
        for (run,) in server.query("SELECT id FROM runs WHERE finished_at IS NULL"):
            server.call("POST", f"/api/runs/{run}/cancel", {})
        settle(w, "after the fault")
        server.stop()
        return None if reached else "unreached"
    except (AssertionError, Died, KeyError) as error:
        return f"{error}{server.tail()}"
    finally:
        server.remove()


def main():
    points = subprocess.run([BERTH, "faults"], check=True, capture_output=True,
                            text=True).stdout.split()
    points = [p for p in points if not p.endswith("fence")]
    actions = [a for a in sys.argv[1:] if a in ("kill", "error")] or ["kill", "error"]
    chosen = [p for p in sys.argv[1:] if p in points] or points
    workers = int(os.environ.get("BERTH_WORKERS", "4"))
    failures = 0
    for action in actions:
        with concurrent.futures.ThreadPoolExecutor(workers) as pool:
            results = list(pool.map(lambda p, a=action: walk(p, a), chosen))
        for point, result in zip(chosen, results):
            if result:
                failures += 1
                print(f"{action} at {point}: {result}")
        print(f"{action}: {len(chosen)} points, {sum(r is None for r in results)} came to rest")
    sys.exit(1 if failures else 0)


main()
