#!/usr/bin/env python3
"""G2 for native places: lease cycles while server, keeper and relays are killed at random. Then all
must come to rest: audit is empty, and the machine has no more mounts, cgroups, namespaces,
processes, descriptors, uid ranges or directories than before.

    native_loop.py [CYCLES]      default: 500; BERTH_LONG=1: 10,000
"""

import concurrent.futures
import hashlib
import json
import os
import random
import signal
import sys
import threading
import time

from lib import SHORT_PERIODS, Died, Server, pids, unrest, wait_until

WORKERS = 4
SETTLE = 30
CYCLES_PER_KILL = 6
REGISTRY = "/run/berth-uids"
# Kernel objects that no process shows are counted for the whole machine, where others work too.
NOISE = 64
# A keeper keeps some that are free until it ends, and then none.
RANGES_KEPT = 32
# Network namespaces that a keeper keeps for places to come, and its own.
NETS_KEPT = 17


class Machine:
    """What there is on this machine of one data directory, and of what has no name."""

    def __init__(self, server):
        self.server = server
        digest = hashlib.sha256(server.keeper_dir.encode()).hexdigest()
        self.cgroup = "berth-" + digest[:8]

    def cgroups(self):
        found = []
        for top in ("/sys/fs/cgroup", "/sys/fs/cgroup/unified", "/sys/fs/cgroup/memory",
                    "/sys/fs/cgroup/pids", "/sys/fs/cgroup/cpu"):
            for folder, names, _ in os.walk(top):
                if self.cgroup in folder:
                    found.append(folder)
                # Only a few levels: that is where ours are.
                if folder.count("/") > top.count("/") + 4:
                    names.clear()
        return sorted(set(found) - {f for f in found if f.endswith(self.cgroup)})

    def mounts(self):
        with open("/proc/self/mountinfo", encoding="utf-8") as f:
            return [line for line in f if self.server.data in line]

    def processes(self):
        found = []
        for pid in pids():
            try:
                with open(f"/proc/{pid}/cgroup", encoding="ascii") as f:
                    if self.cgroup in f.read() and state(pid) != "Z":
                        found.append(pid)
            except OSError:
                continue
        return found

    def ranges(self):
        try:
            return [name for name in os.listdir(REGISTRY)
                    if os.readlink(os.path.join(REGISTRY, name)) == self.server.keeper_dir]
        except OSError:
            return []

    def directories(self):
        return [f"{name}/{entry}" for name in ("places", "stores", "trash")
                if os.path.isdir(os.path.join(self.server.keeper_dir, name))
                for entry in os.listdir(os.path.join(self.server.keeper_dir, name))]

    def left(self):
        """Of what is ours nothing may be left when nobody holds a place."""
        return ([f"cgroup {c}" for c in self.cgroups()] + [f"mount {m}" for m in self.mounts()] +
                [f"process {p}" for p in self.processes()] +
                [f"{len(self.ranges())} uid ranges"] * (len(self.ranges()) > RANGES_KEPT) +
                [f"directory {d}" for d in self.directories()])

    def descriptors(self):
        """Of server and keeper, without the database's: its pool of readers grows to what was read
        at once, and has a bound of its own. So have the network namespaces that are kept."""
        return {name: counted(links(pid))
                for name, pid in [("server", self.server.process.pid)] +
                [("keeper", p) for p in self.server.keeper()]}

    def more_descriptors(self, before):
        """Who has more than it had, and of what."""
        now = self.descriptors()
        return [f"{who} has {len(now[who])} descriptors, had {len(before[who])}: {sorted(now[who])}"
                f" were {sorted(before[who])}"
                for who in now if who in before and len(now[who]) > len(before[who]) + 4]


def counted(found):
    """Those of these descriptors that should be as many as before."""
    nets = [link for link in found if link.startswith("net:[")]
    rest = [link for link in found if "/berth.db" not in link and link not in nets]
    return rest + nets[NETS_KEPT:]


def links(pid):
    """What the descriptors of a process are of."""
    found = []
    for name in os.listdir(f"/proc/{pid}/fd"):
        try:
            found.append(os.readlink(f"/proc/{pid}/fd/{name}"))
        except OSError:
            continue
    return found


def namespaces():
    """In the whole machine: those that processes are in, and network namespaces that are not freed
    yet."""
    seen = set()
    for pid in pids():
        for kind in ("user", "mnt", "pid", "net", "ipc", "uts", "cgroup"):
            try:
                seen.add(os.readlink(f"/proc/{pid}/ns/{kind}"))
            except OSError:
                continue
    slabs = 0
    with open("/proc/slabinfo", encoding="ascii") as f:
        for line in f:
            if line.startswith("net_namespace"):
                slabs = int(line.split()[1])
    return len(seen) + slabs


def state(pid):
    with open(f"/proc/{pid}/stat", encoding="ascii", errors="replace") as f:
        return f.read().rsplit(")", 1)[1].split()[0]


class Loop:
    def __init__(self, server, cycles, seed):
        self.server, self.cycles = server, cycles
        self.random = random.Random(seed)
        self.lock = threading.Lock()
        self.up = threading.Event()
        self.up.set()
        self.next = 0
        self.done = self.spoiled = 0
        self.kills = {"server": 0, "keeper": 0, "relay": 0}
        self.wrong = []
        self.environments = []

    def prepare(self, pool):
        status, answer = self.server.call("POST", "/api/companies", {"name": "loop"})
        assert status == 201, answer
        company = answer["id"]
        for name, config in (("plain", {}), ("limited", {"limits": {"memoryMb": 64, "pids": 32}}),
                             ("tmpfs", {"writable": "tmpfs"})):
            status, answer = self.server.call(
                "POST", f"/api/companies/{company}/environments",
                {"name": name, "driver": "sandbox",
                 "config": {"provider": "native", "warmPool": {"size": pool}, **config}})
            assert status == 201, answer
            self.environments.append(answer["id"])

    def cycle(self, number):
        environment = self.environments[number % len(self.environments)]
        path = f"/api/environments/{environment}/leases"
        command = {"command": ["echo", f"c{number}"]}
        # In turn: a lease and then a command, and both at once.
        lease, ran, said = (self.both if number % 2 else self.one_by_one)(path, command)
        if not lease:
            return False
        if ran and said != f"c{number}\n":
            self.wrong.append(f"cycle {number} answered {said}")
        status, _ = self.server.call("POST", f"/api/environment-leases/{lease}/release", {})
        return ran and status == 200

    def one_by_one(self, path, command):
        status, lease = self.server.call("POST", path, {})
        if status != 201:
            return None, False, None
        status, answer = self.server.call(
            "POST", f"/api/environment-leases/{lease['id']}/exec?stream=0", command)
        ran = status == 200 and answer["exitCode"] == 0
        return lease["id"], ran, ran and answer["stdout"]

    def both(self, path, command):
        status, answer = self.server.call("POST", path, {"exec": command})
        if status != 201:
            return None, False, None
        events = [json.loads(line) for line in answer.splitlines()]
        ran = events[-1]["type"] == "exit" and events[-1]["exitCode"] == 0
        return events[0]["lease"]["id"], ran, "".join(
            e["data"] for e in events if e["type"] == "stdout")

    def worker(self):
        while True:
            with self.lock:
                number = self.next
                if number >= self.cycles:
                    return
                self.next += 1
            self.up.wait(30)
            try:
                whole = self.cycle(number)
            except Died:
                whole = False
            with self.lock:
                self.done += whole
                self.spoiled += not whole

    def kill_one(self):
        who = self.random.choice(["server", "keeper", "relay", "relay"])
        if who == "server":
            self.up.clear()
            self.server.kill()
            assert self.server.start(), "the server does not start again: " + self.server.tail()
            self.up.set()
        else:
            found = self.server.keeper() if who == "keeper" else list(self.server.relays().values())
            if not found:
                return
            try:
                os.kill(self.random.choice(found), signal.SIGKILL)
            except ProcessLookupError:
                return
        self.kills[who] += 1

    def run(self):
        with concurrent.futures.ThreadPoolExecutor(WORKERS) as pool:
            going = [pool.submit(self.worker) for _ in range(WORKERS)]
            try:
                self.kill_often(going)
            except BaseException:
                # The pool waits for all of them: they must not wait for a server in turn.
                self.next = self.cycles
                self.up.set()
                raise
            for g in going:
                g.result()

    def kill_often(self, going):
        at = 0
        while not all(g.done() for g in going):
            at += self.random.randint(1, 2 * CYCLES_PER_KILL)
            while self.next < min(at, self.cycles) and not all(g.done() for g in going):
                time.sleep(0.002)
            if self.next < self.cycles:
                self.kill_one()

    def give_back(self):
        """Leases whose holder met a dead server."""
        for (lease,) in self.server.query("SELECT id FROM leases WHERE status = 'active'"):
            self.server.call("POST", f"/api/environment-leases/{lease}/release", {})


def kept_ready(cycles, seed):
    """Again with places that are kept ready: those go with the keeper."""
    server = Server()
    server.flags = SHORT_PERIODS
    failures = []
    try:
        assert server.start(), server.tail()
        machine, loop = Machine(server), Loop(server, cycles, seed)
        loop.prepare(pool=2)
        loop.run()

        def complaints():
            loop.give_back()
            return [bad for bad in unrest(server, "no mark") if not bad.startswith("relay ")]
        wait_until(complaints, SETTLE, "not at rest")
        failures += loop.wrong
        print(f"kept ready: {cycles} cycles, {loop.done} whole, killed: {loop.kills}")
        server.stop()
        for pid in server.keeper():
            os.kill(pid, signal.SIGTERM)
        wait_until(machine.left, SETTLE, "left of what was kept ready")
    except (AssertionError, Died) as error:
        failures.append(f"{error}{server.tail(30)}")
    finally:
        server.remove()
    return failures


def main():
    cycles = int(sys.argv[1]) if len(sys.argv) > 1 else \
        10000 if os.environ.get("BERTH_LONG") else 500
    seed = int(os.environ.get("BERTH_SEED", random.randrange(1 << 30)))
    begin = time.monotonic()
    server = Server()
    server.flags = SHORT_PERIODS
    failures = []
    try:
        assert server.start(), server.tail()
        machine, loop = Machine(server), Loop(server, cycles, seed)
        loop.prepare(pool=0)
        for number in range(6):
            assert loop.cycle(number), "a cycle without a fault fails: " + server.tail()
        wait_until(machine.left, SETTLE, "left before anything was killed")
        before, spaces = machine.descriptors(), namespaces()
        loop.run()

        def complaints():
            loop.give_back()
            bad = unrest(server, "no mark") or machine.left()
            if not bad:
                bad = machine.more_descriptors(before)
                bad += [f"{namespaces()} namespaces, were {spaces}"] \
                    if namespaces() > spaces + NOISE else []
            return bad
        wait_until(complaints, SETTLE, "not at rest")
        failures += loop.wrong
        if loop.done < cycles // 3:
            failures.append(f"only {loop.done} of {cycles} cycles were whole")
        kills = ", ".join(f"{who} {n} times" for who, n in loop.kills.items())
        print(f"{cycles} cycles, {loop.done} whole, {loop.spoiled} met a kill; killed: {kills}")
        server.stop()
        server.end_keeper()
        failures += [f"uid range {r} is left without a keeper" for r in machine.ranges()]
    except (AssertionError, Died) as error:
        failures.append(f"{error}{server.tail(30)}")
    finally:
        server.remove()
    failures += kept_ready(max(cycles // 10, 10), seed)
    for failure in failures:
        print(failure)
    print(f"native loop (BERTH_SEED={seed}): {len(failures)} failures"
          f" in {time.monotonic() - begin:.0f} s")
    sys.exit(1 if failures else 0)


main()
