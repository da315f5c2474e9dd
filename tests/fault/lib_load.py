"""Clients that lease, renew, execute, run and write records, and keep a ledger of every answer that
promised something. Standard library only."""

import datetime
import random
import threading
import time

from lib import Died


class Ledger:
    """What was promised, with the moment at which the client knew."""

    def __init__(self):
        self.lock, self.entries = threading.Lock(), []

    def add(self, kind, entity, detail=None):
        with self.lock:
            self.entries.append((time.monotonic_ns(), kind, entity, detail))

    def until(self, moment):
        return [e for e in self.entries if e[0] <= moment]


def milliseconds(iso):
    return int(datetime.datetime.fromisoformat(iso.replace("Z", "+00:00")).timestamp() * 1000)


class Load:
    """Works until it is stopped. Refusals and broken connections promise nothing."""

    def __init__(self, server, clients=4, seed=0):
        self.server, self.ledger = server, Ledger()
        self.ending = threading.Event()
        self.mark = {"CANARY": server.data}
        self.company, self.environments = None, []
        self.threads = [threading.Thread(target=self.work, args=(random.Random(seed * 100 + i),))
                        for i in range(clients)]

    def call(self, *args, **kw):
        """(status, answer), 0 when there was none."""
        try:
            return self.server.call(*args, **kw)
        except Died:
            return 0, None

    def prepare(self):
        self.company = self.server.call("POST", "/api/companies", {"name": "load"})[1]["id"]
        self.ledger.add("company", self.company)
        path = f"/api/companies/{self.company}/environments"
        status, fake = self.server.call("POST", path, {
            "name": "box", "driver": "sandbox", "config": {"provider": "fake", "image": "x"}})
        assert status == 201, fake
        found = self.server.call("GET", path)[1]
        for environment in found:
            status, lease = self.server.call(
                "POST", f"/api/environments/{environment['id']}/leases", {"ttlSeconds": 600})
            if status == 201:
                self.environments.append(environment["id"])
                self.server.call("POST", f"/api/environment-leases/{lease['id']}/release", {})
        self.local = next(e["id"] for e in found if e["driver"] == "local")
        assert len(self.environments) >= 2, found

    def start(self):
        for thread in self.threads:
            thread.start()

    def stop(self):
        self.ending.set()
        for thread in self.threads:
            thread.join()

    def work(self, chance):
        acts = (self.lease, self.lease, self.run, self.record)
        while not self.ending.is_set():
            if not self.server.alive():
                time.sleep(0.02)
            chance.choice(acts)(chance)

    def record(self, _):
        status, issue = self.call("POST", f"/api/companies/{self.company}/issues", {"title": "t"})
        if status == 201:
            self.ledger.add("issue", issue["id"])

    def lease(self, chance):
        status, lease = self.call(
            "POST", f"/api/environments/{chance.choice(self.environments)}/leases",
            {"ttlSeconds": 600})
        if status != 201:
            return
        self.ledger.add("lease", lease["id"])
        path = f"/api/environment-leases/{lease['id']}"
        if chance.random() < 0.4:
            status, renewed = self.call("POST", path + "/renew", {"ttlSeconds": 900})
            if status == 200:
                self.ledger.add("renewed", lease["id"], milliseconds(renewed["expiresAt"]))
        if chance.random() < 0.3:
            self.execute(path, lease["id"], chance)
        status, _ = self.call("POST", path + "/release", {})
        if status == 200:
            self.ledger.add("released", lease["id"])

    def execute(self, path, lease, chance):
        """Under a key: what it answers is kept."""
        size = chance.randrange(1, 20000)
        status, answer = self.call(
            "POST", path + "/exec?stream=0", {"command": output_of(size), "env": self.mark},
            {"Idempotency-Key": "k" + lease})
        if status == 200 and answer["exitCode"] == 0 and len(answer["stdout"]) == size:
            self.ledger.add("exec", answer["execId"], size)

    def run(self, chance):
        size = chance.randrange(1, 40000)
        status, run = self.call("POST", f"/api/companies/{self.company}/runs",
                                {"command": output_of(size), "environmentId": self.local,
                                 "env": self.mark})
        if status != 201:
            return
        self.ledger.add("run", run["id"])
        status, log = self.call("GET", f"/api/runs/{run['id']}/log?follow=1")
        if status == 200 and '"type":"end","status":"succeeded"' in log:
            self.ledger.add("ended", run["id"], size)


def output_of(size):
    return ["sh", "-c", f"head -c {size} /dev/zero | tr '\\0' x"]


def lookup(connection, entries, log_of, record_of):
    """What of the promises is not kept. log_of(kind, id): (data, index) or None; record_of(id): text
    or None."""
    leases = {i: (s, e) for i, s, e in connection.execute(
        "SELECT id, status, expires_at FROM leases")}
    runs = dict(connection.execute("SELECT id, status FROM runs"))
    known = {"company": {i for (i,) in connection.execute("SELECT id FROM companies")},
             "issue": {i for (i,) in connection.execute("SELECT id FROM issues")},
             "lease": leases, "run": runs}
    bad = []
    for _, kind, entity, detail in entries:
        if kind in known and entity not in known[kind]:
            bad.append(f"{kind} {entity} is gone")
        elif kind == "released" and leases.get(entity, ("gone",))[0] in ("active", "gone"):
            bad.append(f"lease {entity} was released and is {leases.get(entity)}")
        elif kind == "renewed" and leases.get(entity, (0, 0))[1] < detail:
            bad.append(f"lease {entity} was renewed, which is gone")
        elif kind == "ended":
            if runs.get(entity) != "succeeded":
                bad.append(f"run {entity} had succeeded and is {runs.get(entity)}")
            bad += short_log(f"run {entity}", log_of("logs/", entity), detail)
        elif kind == "exec":
            if '"ended"' not in (record_of(entity) or ""):
                bad.append(f"the record of exec {entity} is gone")
            bad += short_log(f"exec {entity}", log_of("execs/logs/", entity), detail)
    return bad


def short_log(what, log, size):
    if log is None:
        return [f"the log of {what} is gone"]
    data, index = log
    if data[:size] != b"x" * size:
        return [f"the log of {what} has {len(data)} bytes of {size}, or others"]
    whole = len(index) // 32 * 32
    end = int.from_bytes(index[whole - 32:whole - 24], "little") if whole else 0
    return [] if end == size else [f"the index of {what} ends at {end} of {size}"]
