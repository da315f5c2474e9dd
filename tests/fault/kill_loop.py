#!/usr/bin/env python3
"""G2: at every fault point the program contains, the server is killed (then: an error is injected),
and all must come to rest: inventory, places, leases and audit agree, no lease is active without an
owner, no run stays running, no process is left. Killed servers are started again, failing ones have
to manage without.

    kill_loop.py [kill|error] [POINT|SCENE...]      default: both actions, every point

The scenes are played once without a fault to learn which points each one passes; every point is
then tried in the two shortest of its scenes and the shortest that recovers from a crash
(BERTH_LONG=1: in all of them, and at its second hit).
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
SCENES_PER_POINT = 2

# Points that nothing outside the program can lead to. One that is reached, or one more that is not,
# fails the loop.
UNREACHABLE = {
    "keeper.store-remove": "only native places that keep their files have stores; no scene here makes one",
    "db.lease.destroying": "no route destroys a held place yet",
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

    def scenes_of(self, point, thorough):
        scenes = sorted(self.passed[point], key=self.seconds.get)
        if thorough:
            return scenes
        recovering = [s for s in scenes if s.recovers]
        return [s for s in scenes if not s.recovers][:SCENES_PER_POINT] + recovering[:1]


def check_reach(points, rehearsal):
    """Every point is reached or excused, never both."""
    for point in points:
        excuse = UNREACHABLE.get(point) or UNREACHABLE.get(point.rsplit(".", 1)[0])
        if rehearsal.passed[point] and excuse:
            yield f"{point} is reached, although: {excuse}"
        if not rehearsal.passed[point] and not excuse:
            yield f"{point} is passed by no scene"


def walks_of(point, rehearsal, thorough):
    for scene in rehearsal.scenes_of(point, thorough):
        yield scene, 1
        if thorough and rehearsal.passed[point][scene] > 1:
            yield scene, 2


def walk(action, point, scene, nth):
    begin = time.monotonic()
    hits, wrong = play(scene, f"{point}@{nth}:{action}")
    return wrong, hits.count(point) >= nth, time.monotonic() - begin


def try_points(pool, action, points, rehearsal, thorough):
    """Failures; a walk that misses its point (timing) is no failure as long as another does not."""
    walks = [(point, scene, nth) for point in points
             for scene, nth in walks_of(point, rehearsal, thorough)]
    results = list(pool.map(lambda w: walk(action, *w), walks))
    reached, failures = set(), []
    for (point, scene, nth), (wrong, hit, _) in zip(walks, results):
        if hit:
            reached.add(point)
        if wrong:
            failures.append(f"{action} at {point} (hit {nth}) in {scene.name}: {wrong}")
    failures += [f"{action} at {point}: no walk met it" for point in points
                 if rehearsal.passed[point] and point not in reached]
    print(f"{action}: {len(points)} points, {len(reached)} met in {len(walks)} walks,"
          f" {len(failures)} failures", flush=True)
    (_, _, seconds), (point, scene, _) = max(zip(results, walks), key=lambda walk: walk[0][2])
    print(f"    the slowest came to rest after {seconds:.1f} s: {point} in {scene.name}")
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
        for action in actions:
            failures += try_points(pool, action, chosen, rehearsal,
                                   bool(os.environ.get("BERTH_LONG")))
        if around:
            failures += around.result()
            print(f"with all points refusing, {len(around.result())} changes got past them")
    for failure in failures:
        print(failure)
    print(f"kill loop: {len(failures)} failures in {time.monotonic() - begin:.0f} s")
    sys.exit(1 if failures else 0)


main()
