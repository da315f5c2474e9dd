#!/usr/bin/env python3
"""What a server does for its own house, killed in the middle: pruning, compressing logs, a backup,
a migration. Nothing that should stay is lost, what was begun is finished by the next server, and no
half of it is ever taken for the whole.

    upkeep_loop.py [prune|rotation|backup|migration...]
"""

import concurrent.futures
import os
import shutil
import sqlite3
import subprocess
import sys
import threading
import time
import uuid

from lib import BERTH, Died, Server, wait_until
from lib_scenes import World

OLD, RECENT = 1100, 300  # rows of each kind: old ones are more than two steps of every prune
DAY = 86400000
KEPT = {  # what must be there after anything
    "runs": "finished_at", "leases": "released_at", "places": "updated_at",
    "activity": "created_at", "events": "created_at"}
LINES = 20000


def rows_to_insert(company, environment, node, now):
    """A history, the oldest first: (table, row) with the times of all its rows the same."""
    for i in range(OLD + RECENT):
        when = now - 60 * DAY + i if i < OLD else now - 1000 * (OLD + RECENT - i)
        run, lease, place = (str(uuid.uuid4()) for _ in range(3))
        yield "runs", {"id": run, "company_id": company, "status": "succeeded",
                       "command": '["true"]', "node_id": node, "boot_epoch": 1,
                       "created_at": when, "finished_at": when, "updated_at": when}
        yield "places", {"id": place, "company_id": company, "environment_id": environment,
                         "driver": "sandbox", "provider": "fake", "provider_ref": f"x:{place}",
                         "state": "gone", "node_id": node, "boot_epoch": 1, "fencing": "server",
                         "discoverable": 1, "created_at": when, "updated_at": when}
        yield "leases", {"id": lease, "company_id": company, "environment_id": environment,
                         "place_id": place, "generation": 1, "status": "released",
                         "lease_policy": "ephemeral", "acquired_at": when, "last_used_at": when,
                         "released_at": when, "run_id": run, "node_id": node, "boot_epoch": 1,
                         "created_at": when, "updated_at": when}
        yield "activity", {"id": str(uuid.uuid4()), "seq": 1000 + 2 * i, "company_id": company,
                           "actor_id": "local", "action": "run.ended", "entity_type": "run",
                           "entity_id": run, "created_at": when}
        yield "events", {"seq": 1001 + 2 * i, "company_id": company, "type": "heartbeat.run.status",
                         "run_id": run, "payload": "{}", "created_at": when}


def write_history(server, company, environment):
    now = int(time.time() * 1000)
    connection = sqlite3.connect(f"{server.data}/berth.db")
    with connection:
        # What making the world left is old, too; pruning looks at the oldest end.
        for table in ("activity", "events"):
            connection.execute(f"UPDATE {table} SET created_at = {now - 90 * DAY}")
        (node,), = connection.execute("SELECT id FROM nodes")
        for table, row in rows_to_insert(company, environment, node, now):
            names = ", ".join(row)
            marks = ", ".join("?" * len(row))
            connection.execute(f"INSERT INTO {table} ({names}) VALUES ({marks})",
                               list(row.values()))
        connection.execute("UPDATE counters SET value = 100000 WHERE name = 'activity'")
    connection.close()


class House:
    """A data directory with a history, at rest, to be copied for every walk."""

    def __init__(self):
        self.server = Server()
        assert self.server.start(), self.server.tail()
        w = World(self.server)
        w.ensure_company()
        environment = w.environment("plain")
        self.logs = {w.run("seq", str(LINES + i)): LINES + i for i in range(3)}
        assert all(w.await_run(run) for run in self.logs), self.server.tail()
        self.old_run = w.run("seq", "10")
        assert w.await_run(self.old_run)
        self.server.stop()
        write_history(self.server, w.company, environment)
        self.cutoff = int(time.time() * 1000) - 30 * DAY
        self.server.edit(f"UPDATE runs SET finished_at = 1, updated_at = 1 WHERE id = '{self.old_run}'")
        self.kept = kept_rows(self.server.data, self.cutoff)
        assert all(len(rows) >= RECENT for rows in self.kept.values())

    def copy(self):
        server = Server()
        shutil.rmtree(server.data)
        shutil.copytree(self.server.data, server.data, ignore=shutil.ignore_patterns("*.sock", "keeper"))
        return server

    def check(self, server):
        """Everything that should stay is there, as it was."""
        for table, rows in kept_rows(server.data, self.cutoff).items():
            lost = self.kept[table] - rows
            assert not lost, f"{len(lost)} rows of {table} are lost or changed"
        sound(f"{server.data}/berth.db")
        for run, count in self.logs.items():
            status, text = server.call("GET", f"/api/runs/{run}/log",
                                       headers={"Accept": "application/octet-stream"})
            assert status == 200 and text == "".join(f"{n + 1}\n" for n in range(count)), \
                f"log of {run}: {status}, {len(text)} bytes"


def kept_rows(data, cutoff):
    connection = sqlite3.connect(f"file:{data}/berth.db?mode=ro", uri=True, timeout=10)
    try:
        return {table: {tuple(map(str, row)) for row in connection.execute(
            f"SELECT {columns_of(connection, table)} FROM {table} WHERE {time_of} >= {cutoff}")}
            for table, time_of in KEPT.items()}
    finally:
        connection.close()


def columns_of(connection, table):
    """Those of the oldest schema that is tried."""
    names = [row[1] for row in connection.execute(f"PRAGMA table_info({table})")]
    return ", ".join(n for n in names
                     if n not in FILES_COLUMNS and (table, n) not in LATER_COLUMNS)


def sound(path):
    connection = sqlite3.connect(f"file:{path}?mode=ro", uri=True, timeout=10)
    try:
        found = connection.execute("PRAGMA integrity_check").fetchall()
        assert found == [("ok",)], f"{path}: {found[:3]}"
        assert not connection.execute("PRAGMA foreign_key_check").fetchall(), path
    finally:
        connection.close()


def killed(server, action):
    """The action ends in the server's death."""
    try:
        answer = action()
    except Died:
        answer = None
    server.await_end(10)
    assert not server.alive(), f"not killed: {answer}"


def again(server):
    assert server.start(), "does not start again" + server.tail()


# ---- pruning ----

def prune(server):
    return server.call("POST", "/api/prune", {"olderThanSeconds": 30 * DAY // 1000})


def killed_prune(house, server, fault):
    assert server.start(fault), server.tail()
    before = {seq for table in ("events", "activity")
              for (seq,) in server.query(f"SELECT seq FROM {table}")}
    killed(server, lambda: prune(server))
    again(server)
    house.check(server)
    # Whoever resumes behind what has gone is told so.
    after = {seq for table in ("events", "activity")
             for (seq,) in server.query(f"SELECT seq FROM {table}")}
    floor = max((seq for (seq,) in server.query("SELECT seq FROM event_floors")), default=0)
    assert max(before - after, default=0) <= floor, "events went and nobody is told"
    # A log that no run knows of would stay for ever.
    if not server.query("SELECT 1 FROM runs WHERE id = ?", house.old_run):
        assert not log_files(server, house.old_run)
    status, answer = prune(server)
    assert status == 200, answer
    house.check(server)
    left = {table: server.query(f"SELECT COUNT(*) FROM {table} WHERE {time_of} < ?", house.cutoff)
            for table, time_of in KEPT.items()}
    assert all(count == [(0,)] for count in left.values()), f"old rows stay: {left}"
    assert not log_files(server, house.old_run)


def log_files(server, run):
    return [name for _, _, names in os.walk(os.path.join(server.data, "logs")) for name in names
            if name.startswith(run)]


# ---- compressing logs ----

def killed_rotation(house, server, fault):
    server.flags = ["--compress-after", "50ms"]
    if server.start(fault):
        server.await_end(20)
    assert not server.alive(), "not killed"
    again(server)
    house.check(server)

    def plain():
        return [name for run in house.logs for name in log_files(server, run)
                if name.endswith(".data")]
    wait_until(plain, 20, "logs stay uncompressed")
    house.check(server)


# ---- backups ----

def restored(house, path, server):
    """A server on what the copy holds."""
    shutil.rmtree(server.data)
    done = subprocess.run([BERTH, "restore", path, "--data", server.data], capture_output=True,
                          text=True, check=False)
    assert done.returncode == 0, done.stderr
    for table, rows in kept_rows(server.data, house.cutoff).items():
        assert not house.kept[table] - rows, f"the copy lacks rows of {table}"


def killed_backup(house, server, fault):
    path = os.path.join(server.data, "copy.db")
    assert server.start(fault), server.tail()
    if fault:
        killed(server, lambda: server.call("POST", "/api/backup", {"path": path}))
    else:
        # Somewhere in the middle, wherever that is.
        killer = threading.Timer(0.003, server.kill)
        killer.start()
        try:
            server.call("POST", "/api/backup", {"path": path})
        except Died:
            pass
        killer.join()
    if os.path.exists(path):
        sound(path)
    again(server)
    assert not [name for name in os.listdir(server.data) if name.endswith(".tmp")]
    house.check(server)
    status, answer = server.call("POST", "/api/backup", {"path": path + ".second"})
    assert status == 201, answer
    other = Server()
    try:
        for copy in (path, path + ".second"):
            if os.path.exists(copy):
                restored(house, copy, other)
    finally:
        other.remove()


# ---- migrations ----

FILES_COLUMNS = ("workspace", "workspace_report", "place_kept_until")
OLD_SCHEMA = 4  # as before runs could bring files
LATER_INDEXES = ("places_gone_idx", "runs_issue_idx", "runs_project_idx", "runs_environment_idx",
                 "runs_secrets_idx")
LATER_COLUMNS = (("leases", "paused"), ("tokens", "permissions"), ("runs", "secrets"),
                 ("agents", "trust"), ("projects", "trust"), ("issues", "trust"),
                 ("execution_workspaces", "trust"), ("environments", "trust"),
                 ("nodes", "clock_offset_ms"))


def make_old(server):
    server.edit(*(f"DROP INDEX IF EXISTS {index}" for index in LATER_INDEXES),
                *(f"ALTER TABLE {table} DROP COLUMN {column}" for table, column in LATER_COLUMNS),
                *(f"ALTER TABLE runs DROP COLUMN {column}" for column in FILES_COLUMNS),
                f"DELETE FROM schema_migrations WHERE version > {OLD_SCHEMA}")


def killed_migration(house, server, fault):
    newest, = server.query("SELECT MAX(version) FROM schema_migrations")
    make_old(server)
    assert not server.start(fault), "not killed"
    sound(f"{server.data}/berth.db")
    again(server)
    assert server.query("SELECT MAX(version) FROM schema_migrations") == [newest]
    house.check(server)
    copies = [os.path.join(path, name) for path, _, names in os.walk(server.data)
              for name in names if name.endswith(".bak")]
    assert any(f".v{OLD_SCHEMA}." in copy for copy in copies), f"no copy was kept: {copies}"
    for copy in copies:
        sound(copy)


WALKS = {
    "prune": (killed_prune, [
        f"db.{kind}.prune.{when}@{nth}:kill"
        for kind, nth in (("run", 3), ("lease", 2), ("lease", 5), ("activity", 2), ("event", 2))
        for when in ("before", "after")]),
    "rotation": (killed_rotation, [f"runlog.{point}@2:kill" for point in (
        "pack.before", "turn.written", "turn.renamed", "turn.synced", "turn.removed")]),
    "backup": (killed_backup, ["store.backup.copied:kill", "store.backup.named:kill", None]),
    "migration": (killed_migration, [f"db.migrate.{when}@{nth}:kill"
                                     for when in ("before", "after") for nth in (1, 2)] +
                  ["store.backup.copied:kill", "store.backup.named:kill"]),
}


def walk(house, name, play, fault):
    server = house.copy()
    try:
        play(house, server, fault)
        return None
    except (AssertionError, Died, KeyError, sqlite3.Error) as error:
        return f"{name}, {fault}: {error}{server.tail()}"
    finally:
        server.remove()


def main():
    begin = time.monotonic()
    house = House()
    walks = [(name, play, fault) for name, (play, faults) in WALKS.items()
             if name in sys.argv[1:] or len(sys.argv) == 1 for fault in faults]
    try:
        with concurrent.futures.ThreadPoolExecutor(4) as pool:
            failures = [f for f in pool.map(lambda w: walk(house, *w), walks) if f]
    finally:
        house.server.remove()
    for failure in failures:
        print(failure)
    print(f"upkeep loop: {len(walks)} deaths, {len(failures)} failures in"
          f" {time.monotonic() - begin:.0f} s")
    sys.exit(1 if failures else 0)


main()
