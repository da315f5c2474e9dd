#!/usr/bin/env python3
"""G2, G9: server, keeper and relays are killed at random and in every combination while clients
lease, renew, execute, run and write records in places of every kind. Whatever was answered is there
afterwards, the audit is empty at once, and nothing is left behind. The same ledger is looked up in an
older copy of the database, where it has to find losses.

    kills.py [KILLS] [SEED]      default: 12; BERTH_LONG=1: 200
"""

import itertools
import os
import random
import signal
import sqlite3
import sys
import time

from lib import SHORT_PERIODS, Died, Server, marked_processes, unrest, wait_until
from lib_load import Load, lookup

LONG = os.environ.get("BERTH_LONG") == "1"
SETTLE = 60
COMBINATIONS = [c for n in (1, 2, 3) for c in itertools.combinations(("server", "keeper", "relays"), n)]


def kill(pid):
    try:
        os.kill(pid, signal.SIGKILL)
    except ProcessLookupError:
        pass


def strike(server, combination, chance):
    """In an order of chance: which of them is missed by the others first differs."""
    for what in chance.sample(combination, len(combination)):
        if what == "server":
            server.kill()
        elif what == "keeper":
            for pid in server.keeper():
                kill(pid)
        else:
            relays = list(server.relays().values())
            for pid in chance.sample(relays, (len(relays) + 1) // 2):
                kill(pid)


def ledger_in(path, entries):
    connection = sqlite3.connect(f"file:{path}?mode=ro", uri=True, timeout=10)
    try:
        return lookup(connection, entries, lambda *_: None, lambda _: None)
    finally:
        connection.close()


def rows_only(entries):
    """Output is asked of the server, which may have compressed it."""
    return [e for e in entries if e[1] not in ("exec",)]


def check_output(server, entries):
    bad = []
    for _, kind, run, size in entries:
        if kind != "ended":
            continue
        status, log = server.call("GET", f"/api/runs/{run}/log",
                                  headers={"Accept": "application/octet-stream"})
        if status != 200 or log != "x" * size:
            bad.append(f"the log of run {run} has {len(log)} bytes of {size} ({status})")
    return bad


def give_back(server):
    for (run,) in server.query("SELECT id FROM runs WHERE finished_at IS NULL"):
        server.call("POST", f"/api/runs/{run}/cancel", {})
    for (lease,) in server.query("SELECT id FROM leases WHERE status = 'active' AND run_id IS NULL"):
        server.call("POST", f"/api/environment-leases/{lease}/release", {})


def come_to_rest(server):
    def complaints():
        give_back(server)
        # Relays that are kept ready for places to come go with the keeper.
        return [bad for bad in unrest(server, "CANARY=" + server.data) if not bad.startswith("relay ")]
    wait_until(complaints, SETTLE, "not at rest")


def leave_nothing(server):
    server.stop()
    for pid in server.keeper():
        os.kill(pid, signal.SIGTERM)
    wait_until(lambda: server.keeper() + server.relays_by_name() +
               marked_processes("CANARY=" + server.data), SETTLE, "processes are left")


def go(kills, seed):
    chance, server = random.Random(seed), Server()
    server.flags = SHORT_PERIODS
    load = Load(server, seed=seed)
    try:
        assert server.start(), server.tail()
        load.prepare()
        copy = os.path.join(server.data, "older.db")
        with sqlite3.connect(f"file:{server.data}/berth.db?mode=ro", uri=True) as source:
            with sqlite3.connect(copy) as target:
                source.backup(target)
        load.start()
        for i in range(kills):
            time.sleep(chance.uniform(0.2, 1.0))
            strike(server, COMBINATIONS[i % len(COMBINATIONS)], chance)
            if not server.alive():
                assert server.start(deadline=60), "does not start again: " + server.tail()
        load.stop()
        entries = load.ledger.entries
        bad = [b for b in ledger_in(f"{server.data}/berth.db", rows_only(entries)) if " log of " not in b]
        bad += check_output(server, entries)
        assert not bad, f"{len(bad)} losses: " + "\n".join(bad[:10])
        come_to_rest(server)
        blind = not ledger_in(copy, rows_only(entries))
        assert not blind, "the checker is blind: an older database has everything"
        leave_nothing(server)
        return len(entries)
    except Died as died:
        raise AssertionError(f"{died}{server.tail()}") from died
    finally:
        load.ending.set()
        server.remove()


count = int(sys.argv[1]) if len(sys.argv) > 1 else 200 if LONG else 12
seed = int(sys.argv[2]) if len(sys.argv) > 2 else random.randrange(1 << 30)
try:
    answers = go(count, seed)
except AssertionError as error:
    sys.exit(f"seed {seed}: {error}")
print(f"{count} kills of server, keeper and relays in {len(COMBINATIONS)} combinations: all of {answers} answers "
      "were there, and nothing was left behind")
