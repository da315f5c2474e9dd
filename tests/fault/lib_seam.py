"""Does anything get around the seam? With an error armed at every point before a database write, no
request and no sweep may change a row; with one at every point before a call of a driver, what the
fake provider has must stay as it is. Whatever changes went past the wrappers, and past the points
that the kill loop knows."""

import os
import sqlite3

from lib import SHORT_PERIODS, Died, Server
from lib_scenes import SCENES, World

# A server that may not do the first three does not start; ending processes changes no file, and
# while it is refused no place gets as far as its release.
ALLOWED = {"db.migrate.before", "db.node.register.before", "db.lease.take_over.before",
           "driver.stop.before"}


def rows(server):
    connection = sqlite3.connect(f"file:{server.data}/berth.db?mode=ro", uri=True, timeout=10)
    try:
        return set(connection.iterdump())
    finally:
        connection.close()


def provider_files(server):
    found = set()
    for path, _, names in os.walk(os.path.join(server.data, "providers")):
        found |= {f"{os.path.join(path, name)}: {os.stat(os.path.join(path, name)).st_size} bytes"
                  for name in names} | {path}
    return found


def play_everything(w):
    for scene in SCENES:
        if scene.before:
            continue
        try:
            scene.play(w)
        except (AssertionError, KeyError, TypeError):
            pass  # refused, as it should be


def changes_past(w, points, content):
    """What changes although these points refuse."""
    server = w.server
    assert server.start(), server.tail()
    w.patience = 2
    # Something to change, find and forget; and something held, to be given back in vain.
    play_everything(w)
    held = w.lease(w.environment("plain"))
    assert held, server.tail()
    server.stop()
    assert server.start(",".join(f"{p}:error" for p in points)), server.tail()
    before = content(server)
    w.patience = 0.1
    w.renew(held)
    w.exec(held, "true")
    w.give_back()
    play_everything(w)
    after = content(server)
    server.kill()
    return [f"changed past the fault points: {line[:300]}" for line in before ^ after]


def bypasses(points):
    """Complaints."""
    complaints = []
    for room, content in (("db.", rows), ("driver.", provider_files)):
        server = Server()
        server.flags = SHORT_PERIODS
        try:
            complaints += changes_past(World(server), [
                p for p in points if p.startswith(room) and p.endswith(".before")
                and p not in ALLOWED], content)
        except (AssertionError, Died) as error:
            complaints.append(f"looking for ways around the seam: {error}{server.tail()}")
        finally:
            server.remove()
    return complaints
