#!/usr/bin/env python3
"""G9: whatever was answered survives a power loss. A server works under load while every write and
sync of its database, logs and kept records is recorded. For many moments a disk is made that has
only what was synced by then, and by chance some of the rest. Stock SQLite opens it: it must be
whole, and every answer before that moment must be there, output of ended commands included.

Then the same with one sync that fails at a random place: nothing that was answered later is lost.

Each part is repeated with its mechanism switched off, and has to find losses then: a disk that lies
about syncs of the database, and of the logs; a server that goes on after a failed sync.

    crash.py [SEED]      BERTH_LONG=1: longer, at more moments
"""

import os
import random
import sqlite3
import sys
import tempfile
import time

from lib import BERTH, Server
from lib_disk import FAILED, Disk, events_of
from lib_load import Load, lookup

LONG = os.environ.get("BERTH_LONG") == "1"
RECORDER = os.path.abspath(os.path.join(os.path.dirname(BERTH), "tests/fault/recorder.so"))
SECONDS = 20 if LONG else 4
MOMENTS = 400 if LONG else 30
FAILURES = 10 if LONG else 2
BLIND = 5  # tries without the mechanism before the checker is called blind


class Recording:
    """A server under load, and everything it wrote."""

    def __init__(self, seed, seconds, fail=None, fault=None):
        server = Server()
        try:
            record = os.path.join(server.data, "events")
            server.env = {"LD_PRELOAD": RECORDER, "RECORD_DIR": server.data, "RECORD_FILE": record}
            if fail:
                server.env["RECORD_FAIL"] = str(fail)
            assert server.start(fault), server.tail()
            load = Load(server, seed=seed)
            load.prepare()
            self.begun = time.monotonic_ns()
            load.start()
            time.sleep(seconds)
            load.stop()
            self.ledger = load.ledger
            self.events = list(events_of(record))
        finally:
            server.remove()

    def moments(self, chance, count):
        """Indices of events after which the power is lost."""
        first = next(i for i, e in enumerate(self.events) if e[4] >= self.begun)
        failed = [i for i, e in enumerate(self.events) if e[0] == FAILED]
        first = max([first] + failed)
        return set(chance.sample(range(first, len(self.events)),
                                 min(count, len(self.events) - first)))

    def losses(self, chance, count, ignores=lambda name: False):
        disk, bad, looked_up = Disk(chance, ignores), [], 0
        moments = self.moments(chance, count)
        for i, (kind, name, offset, data, moment) in enumerate(self.events):
            disk.take(kind, name, offset, data)
            if i in moments:
                entries = self.ledger.until(moment)
                looked_up += len(entries)
                bad += [f"after event {i}: {b}" for b in examine(disk, entries)]
                if bad and len(bad) > 20:
                    break
        return bad, looked_up


def examine(disk, entries):
    with tempfile.TemporaryDirectory(prefix="berth-crash-") as folder:
        for name in ("berth.db", "berth.db-wal"):
            content = disk.content(name)
            if content is not None:
                with open(os.path.join(folder, name), "wb") as f:
                    f.write(content)
        connection = sqlite3.connect(os.path.join(folder, "berth.db"))
        try:
            (verdict,) = connection.execute("PRAGMA integrity_check").fetchone()
            if verdict != "ok":
                return [f"the database is damaged: {verdict}"]
            return lookup(connection, entries, lambda kind, i: log_of(disk, kind, i),
                          lambda i: text_of(disk.content(f"execs/kept/{i}")))
        except sqlite3.Error as error:
            return [f"the database cannot be read: {error}"]
        finally:
            connection.close()


def text_of(content):
    return None if content is None else content.decode(errors="replace")


def log_of(disk, kind, name):
    for fan in (name[-2:], name[:2]):
        data = disk.content(f"{kind}{fan}/{name}.data")
        index = disk.content(f"{kind}{fan}/{name}.index")
        if data is not None and index is not None:
            return data, index
    return None


def power_losses(seed):
    chance = random.Random(seed)
    recording = Recording(seed, SECONDS)
    bad, looked_up = recording.losses(chance, MOMENTS)
    if bad:
        sys.exit(f"seed {seed}: {len(bad)} losses: " + "\n".join(bad[:10]))
    found = {}
    for what, prefix in (("WAL", "berth.db-wal"), ("logs", "logs/"), ("kept execs", "execs/")):
        found[what] = len(recording.losses(chance, 12, lambda name, p=prefix: name.startswith(p))[0])
        if not found[what]:
            sys.exit(f"the checker is blind: syncs of the {what} were ignored and it found nothing")
    print(f"{MOMENTS} power losses among {len(recording.events)} events: all of {looked_up} answers were "
          f"there; with lying disks the checker found " +
          ", ".join(f"{n} losses ({w})" for w, n in found.items()))


def failed_syncs(seed):
    chance, answers = random.Random(seed), 0
    for i in range(FAILURES):
        # Anywhere, and where commits stand on others that were not synced.
        recording = Recording(seed + i, 2.5, fail=f"+{chance.randrange(2, 12)}" if i % 2 else
                              chance.randrange(60, 120))
        assert any(e[0] == FAILED for e in recording.events), "no sync failed"
        bad, looked_up = recording.losses(chance, min(MOMENTS, 60))
        answers += looked_up
        if bad:
            sys.exit(f"seed {seed + i}, after a failed sync: {len(bad)} losses: " + "\n".join(bad[:10]))
    for i in range(BLIND):
        recording = Recording(seed + i, 2, fail=f"+{chance.randrange(2, 12)}", fault="store.mend:skip")
        bad, _ = recording.losses(chance, 12)
        if bad:
            print(f"{FAILURES} failed syncs: all of {answers} answers were there; without the checkpoint "
                  f"the checker found {len(bad)} losses in try {i + 1}")
            return
    sys.exit("the checker is blind: a server that goes on after a failed sync lost nothing")


seed = int(sys.argv[1]) if len(sys.argv) > 1 else random.randrange(1 << 30)
try:
    power_losses(seed)
    failed_syncs(seed)
except AssertionError as error:
    sys.exit(f"seed {seed}: {error}")
