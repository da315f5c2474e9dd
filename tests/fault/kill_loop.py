#!/usr/bin/env python3
"""G2: at every fault point the program contains, the server is killed (then: an error is injected),
and all must come to rest: inventory, places, leases and audit agree, no lease is active without an
owner, no run stays running, no process is left. Killed servers are started again, failing ones have
to manage without.

    kill_loop.py [kill|error] [POINT|SCENE...]      default: both actions, every point

The scenes are played once without a fault to learn which points each one passes. Every point is
then killed in the shortest of its scenes and in the shortest that recovers from a crash, and fails in
the shortest; in the others only if it was not met there (BERTH_LONG=1: in all of them, and at its
second hit).
"""

import collections
import concurrent.futures
import os
import subprocess
import sys
import time

from lib import BERTH, SHORT_PERIODS, Died, Server, unrest, wait_until
from lib_scenes import SCENES, World
from lib_seam import bypasses

SETTLE = 30

# Points that nothing outside the program can lead to. One that is reached, or one more that is not,
# fails the loop.
UNREACHABLE = {
    "keeper.store-remove": "only native places that keep their files have stores; no scene here makes one",
    "workspace.apply.back": "a file would have to change in the instant of its exchange",
    "workspace.apply.again": "and once more in the instant of being put back",
}


def come_to_rest(w):
    def complaints():
        if not w.server.alive():
            raise Died("while coming to rest")
        w.give_back()
        return unrest(w.server, w.mark)
    if not w.server.alive():
        assert w.server.start(), "does not start again: "
    wait_until(complaints, SETTLE, "not at rest")


def play(scene, fault):
    """(points hit, what is wrong or None)."""
    server = Server()
    server.flags = SHORT_PERIODS
    w = World(server)
    try:
        scene.prepare(w)
        try:
            if not server.start(",".join(filter(None, [fault, scene.faults])), trace=True):
                raise Died("at start")
            scene.play(w)
        except Died:
            # The connection breaks a moment before the process is gone.
            server.await_end(5)
        try:
            come_to_rest(w)
        except Died:
            # Killed only now, by what goes on in the background.
            server.await_end(5)
            come_to_rest(w)
        server.stop()
        return server.hits(), None
    except (AssertionError, Died, KeyError, TypeError) as error:
        return server.hits(), f"{error}{server.tail(25)}"
    finally:
        server.remove()


class Rehearsal:
    """What each scene passes and how long it takes."""

    def __init__(self, pool, scenes):
        self.passed = collections.defaultdict(dict)  # point -> scene -> hits
        self.seconds, self.failures = {}, []
        for scene, seconds, hits, wrong in pool.map(self.play, scenes):
            self.seconds[scene] = seconds
            if wrong:
                self.failures.append(f"scene {scene.name} without a fault: {wrong}")
            for point, count in collections.Counter(hits).items():
                self.passed[point][scene] = count

    @staticmethod
    def play(scene):
        begin = time.monotonic()
        hits, wrong = play(scene, None)
        return scene, time.monotonic() - begin, hits, wrong

    def scenes_of(self, action, point):
        """(those to try, those to try if these do not meet the point)."""
        scenes = sorted(self.passed[point], key=lambda s: (s.recovers, self.seconds[s]))
        first = scenes[:1] + [s for s in scenes[1:] if point.startswith(s.own)]
        if action == "kill":
            first += [s for s in scenes[1:] if s.recovers and s not in first][:1]
        return first, [s for s in scenes if s not in first]


def check_reach(points, rehearsal):
    """Every point is reached or excused, never both."""
    for point in points:
        excuse = UNREACHABLE.get(point) or UNREACHABLE.get(point.rsplit(".", 1)[0])
        if rehearsal.passed[point] and excuse:
            yield f"{point} is reached, although: {excuse}"
        if not rehearsal.passed[point] and not excuse:
            yield f"{point} is passed by no scene"


class Walk:
    """A scene with a fault, and what became of it."""

    def __init__(self, action, point, scene, nth=1):
        self.action, self.point, self.scene, self.nth = action, point, scene, nth
        self.wrong, self.hit, self.seconds = None, False, 0

    def go(self):
        begin = time.monotonic()
        hits, self.wrong = play(self.scene, f"{self.point}@{self.nth}:{self.action}")
        self.hit = hits.count(self.point) >= self.nth
        self.seconds = time.monotonic() - begin
        return self


def walks_of(action, point, rehearsal, thorough):
    """(walks to go, walks to go if these miss the point)."""
    first, others = rehearsal.scenes_of(action, point)
    if not thorough:
        return [Walk(action, point, s) for s in first], [Walk(action, point, s) for s in others]
    return [Walk(action, point, s, nth) for s in first + others
            for nth in (1, 2) if nth <= rehearsal.passed[point][s]], []


def try_points(pool, actions, points, rehearsal, thorough):
    """Failures; a walk that misses its point (timing) is no failure as long as another does not."""
    walks, others = [], []
    for action in actions:
        for point in points:
            first, more = walks_of(action, point, rehearsal, thorough)
            walks += first
            others += more
    # The long ones begin, so that none of them is alone at the end.
    walks.sort(key=lambda w: -rehearsal.seconds[w.scene])
    list(pool.map(Walk.go, walks))
    met = {(w.action, w.point) for w in walks if w.hit}
    for w in others:
        if (w.action, w.point) not in met:
            walks.append(w.go())
            met |= {(w.action, w.point)} if w.hit else set()
    failures = [f"{w.action} at {w.point} (hit {w.nth}) in {w.scene.name}: {w.wrong}"
                for w in walks if w.wrong]
    failures += [f"{action} at {point}: no walk met it" for action in actions for point in points
                 if rehearsal.passed[point] and (action, point) not in met]
    for action in actions:
        print(f"{action}: {len(points)} points, {len([a for a, _ in met if a == action])} met in"
              f" {len([w for w in walks if w.action == action])} walks", flush=True)
    slowest = max(walks, key=lambda w: w.seconds)
    print(f"    the slowest came to rest after {slowest.seconds:.1f} s:"
          f" {slowest.action} at {slowest.point} in {slowest.scene.name}")
    return failures


def main():
    listed = subprocess.run([BERTH, "faults", "--points"], check=True, capture_output=True, text=True)
    points = listed.stdout.split()
    wanted = sys.argv[1:]
    actions = [a for a in ("kill", "error") if a in wanted] or ["kill", "error"]
    scenes = [s for s in SCENES if s.name in wanted] or SCENES
    chosen = [p for p in points if p in wanted] or points
    begin = time.monotonic()
    # The walks mostly wait: for a disk, a sweep, a process to end.
    with concurrent.futures.ThreadPoolExecutor(int(os.environ.get("BERTH_WORKERS", "6"))) as pool:
        around = pool.submit(bypasses, points) if not wanted else None
        rehearsal = Rehearsal(pool, scenes)
        failures = rehearsal.failures
        if scenes == SCENES:
            failures += check_reach(points, rehearsal)
        print(f"{len(points)} points, {len(scenes)} scenes pass"
              f" {len([p for p in points if rehearsal.passed[p]])} of them", flush=True)
        failures += try_points(pool, actions, chosen, rehearsal, bool(os.environ.get("BERTH_LONG")))
        if around:
            failures += around.result()
            print(f"with all points refusing, {len(around.result())} changes got past them")
    for failure in failures:
        print(failure)
    print(f"kill loop: {len(failures)} failures in {time.monotonic() - begin:.0f} s")
    sys.exit(1 if failures else 0)


main()
