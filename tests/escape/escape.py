#!/usr/bin/env python3
"""Every way out of a native place that cases.h and outside.py know is tried, as root, as root of the
place, and in places of an ordinary user; bubblewrap is attacked beside it for comparison. Then each
wall is left out in turn, and somebody must notice.

    escape.py [table|walls]      default: both
"""

import concurrent.futures
import os
import re
import subprocess
import sys

import outside
from yard import HERE, Host, Yard, bwrap, now

# Where a wall stands, and where its absence must be noticed. In a place of root of the place the
# payload has the relay's user id; an ordinary user has only one.
DEFAULT, AS_ROOT, USER, NET, LIMITED = "root", "user root", "ordinary user", "network host", "limits"
CONFIGS = {
    DEFAULT: {},
    AS_ROOT: {"user": "root"},
    USER: {},
    NET: {"network": "host"},
    LIMITED: {"writable": "tmpfs",
              "limits": {"memoryMb": 64, "pids": 64, "openFiles": 64, "diskMb": 16}},
}
WALLS = [  # fault point, where
    ("sandbox.wall.pivot", DEFAULT), ("sandbox.wall.pivot", USER),
    ("sandbox.wall.pid_ns", DEFAULT), ("sandbox.wall.pid_ns", USER),
    ("sandbox.wall.ipc_ns", DEFAULT), ("sandbox.wall.ipc_ns", USER),
    ("sandbox.wall.uts_ns", DEFAULT), ("sandbox.wall.uts_ns", USER),
    ("sandbox.wall.net_ns", DEFAULT), ("sandbox.wall.net_ns", USER),
    ("sandbox.wall.cgroup_ns", DEFAULT), ("sandbox.wall.tree_cgroup", DEFAULT),
    ("sandbox.wall.uid_range", DEFAULT),
    ("sandbox.wall.etc", DEFAULT), ("sandbox.wall.etc", USER),
    ("sandbox.wall.mount_flags", DEFAULT), ("sandbox.wall.mount_flags", USER),
    ("sandbox.wall.proc_masked", DEFAULT), ("sandbox.wall.proc_masked", USER),
    ("sandbox.wall.hidepid", DEFAULT),
    ("sandbox.wall.sockets", DEFAULT), ("sandbox.wall.sockets", USER),
    ("sandbox.wall.caps", DEFAULT), ("sandbox.wall.caps", USER),
    ("sandbox.wall.no_new_privs", DEFAULT), ("sandbox.wall.no_new_privs", USER),
    ("sandbox.wall.landlock", NET),
    ("sandbox.wall.close_fds", DEFAULT), ("sandbox.wall.close_fds", USER),
    ("sandbox.wall.limits", LIMITED), ("sandbox.wall.disk", LIMITED),
    ("relay.wall.limits", LIMITED), ("relay.wall.open_files", LIMITED),
    ("relay.wall.confine", AS_ROOT),
    ("relay.wall.payload_uid", DEFAULT),
    # Two parts, and each is missed.
    ("sandbox.wall.seccomp", DEFAULT), ("sandbox.wall.seccomp", USER),
    ("relay.wall.seccomp", DEFAULT), ("relay.wall.seccomp", USER),
    ("relay.wall.dumpable", USER),
    # Either one suffices.
    ("sandbox.wall.close_fds+relay.wall.close_fds", DEFAULT),
]
# Every wall that a place records, and the point that leaves it out.
POINT_OF = {
    "user_namespace": "sandbox.wall.uid_range", "mount_namespace": "sandbox.wall.pivot",
    "pid_namespace": "sandbox.wall.pid_ns", "ipc_namespace": "sandbox.wall.ipc_ns",
    "uts_namespace": "sandbox.wall.uts_ns", "cgroup_namespace": "sandbox.wall.cgroup_ns",
    "network_none": "sandbox.wall.net_ns", "uid_range": "sandbox.wall.uid_range",
    "payload_uid": "relay.wall.payload_uid", "system_read_only": "sandbox.wall.mount_flags",
    "no_new_privs": "sandbox.wall.no_new_privs", "no_capabilities": "sandbox.wall.caps",
    "seccomp": "relay.wall.seccomp", "landlock_scope": "sandbox.wall.landlock",
    "proc_masked": "sandbox.wall.proc_masked", "cgroup_kill": "sandbox.wall.tree_cgroup",
    "limit_memory": "sandbox.wall.limits", "limit_pids": "sandbox.wall.limits",
    "limit_cpu": "sandbox.wall.limits", "limit_disk": "sandbox.wall.disk",
    "limit_open_files": "relay.wall.open_files",
}
# Without these nothing works inside, and that is how it shows.
MAY_REFUSE = {"sandbox.wall.uid_range", "relay.wall.payload_uid", "sandbox.wall.tree_cgroup"}
# One point for several walls: each of them must be missed.
ALL_OF = {"sandbox.wall.limits": {"fork_bomb", "memory_hog", "cpu_hog"},
          "relay.wall.limits": {"fork_bomb", "memory_hog", "cpu_hog"}}
# What the host's network is by definition, and is said on the place.
OPEN_BY_NETWORK = {"loopback", "interfaces"}


def expected_uid(where):
    return 0 if where == AS_ROOT else 1000


def assault(host, where, wall=None):
    """{case: (verdict, how)}, every case of every kind, in one place."""
    yard = Yard(host, user=where == USER, wall=wall)
    try:
        neighbour = yard.acquire()
        neighbour.run("sh", "-c", "for d in /tmp /dev/shm /workspace; do"
                      f" echo {host.token} >$d/neighbour; done")
        place = yard.acquire(**CONFIGS[where])
        found = place.attack(uid=expected_uid(where), neighbour=outside.file_of(yard, neighbour))
        found.update(outside.cases(host, yard, place, where == LIMITED, brief=wall is not None))
        if where == NET:
            found = {k: v for k, v in found.items() if k not in OPEN_BY_NETWORK}
        return found
    finally:
        yard.remove()


def breaches(found):
    return {name: how for name, (verdict, how) in found.items() if verdict != "held"}


def table(host):
    """Prints case | native ... | bwrap ... and returns complaints."""
    listed = subprocess.run([f"{host.bin}/attack", "list"], capture_output=True, text=True,
                            check=True).stdout
    about = dict(line.split(" ", 1) for line in listed.splitlines()) | outside.ABOUT
    with concurrent.futures.ThreadPoolExecutor(3) as pool:
        columns = list(zip(CONFIGS, pool.map(lambda where: assault(host, where), CONFIGS)))
    columns += [("bwrap", bwrap(host, False)), ("bwrap, user", bwrap(host, True))]
    print("  ".join([f"{'case':14}"] + [f"{name:13}" for name, _ in columns]))
    for name, what in about.items():
        cells = [f"{found.get(name, ('-', ''))[0]:13}" for _, found in columns]
        print("  ".join([f"{name:14}", *cells, what]))
    bad = [f"{where}: {name} is {found[name][0]}: {how}" for where, found in columns[:-2]
           for name, how in breaches(found).items()]
    bad += [f"{where}: {name} was not tried" for where, found in columns[:-2] for name in about
            if name not in found and not (where == NET and name in OPEN_BY_NETWORK)
            and not (name in outside.LIMITED_ONLY and where != LIMITED)]
    wounds = host.wounds()
    print(f"{len(about)} cases in {len(CONFIGS)} kinds of places: {len(bad)} got through;"
          f" bubblewrap let {len(breaches(columns[-2][1]))} through as root and"
          f" {len(breaches(columns[-1][1]))} as an ordinary user")
    return bad + wounds


def without(host, wall, where):
    """What was noticed of the missing wall: a list of words."""
    try:
        return sorted(breaches(assault(host, where, wall)))
    except AssertionError as error:
        if wall in MAY_REFUSE:
            return ["refused"]
        raise AssertionError(f"without {wall} ({where}): {error}") from error


def all_walls(host):
    """Names of the fences in the programs themselves: none may be forgotten here."""
    names = set()
    for program in ("berth-keeper", "berth-relay"):
        with open(os.path.join(host.bin, program), "rb") as f:
            names.update(re.findall(rb"(?:sandbox|relay)\.wall\.[a-z_]+", f.read()))
    return {name.decode() for name in names}


def recorded_walls():
    with open(os.path.join(HERE, "../../src/wire/walls.h"), encoding="ascii") as f:
        return set(re.findall(r'X\(WALL_\w+, "(\w+)"', f.read()))


def walls(host):
    tried = {part for wall, _ in WALLS for part in wall.split("+")}
    bad = [f"{name} is left out by no test" for name in all_walls(host) ^ tried]
    bad += [f"no point leaves out {name}" for name in recorded_walls() ^ set(POINT_OF)]
    bad += [f"{point} is not tried" for point in set(POINT_OF.values()) - tried]
    with concurrent.futures.ThreadPoolExecutor(3) as pool:
        found = list(pool.map(lambda w: (w, without(host, *w)), WALLS))
    for (wall, where), noticed in found:
        print(f"without {wall:44} {where:14} {', '.join(noticed) or 'NOBODY NOTICED'}")
        if not noticed:
            bad.append(f"nobody noticed that {wall} was missing ({where})")
        bad += [f"{case} does not miss {wall}" for case in ALL_OF.get(wall, set()) - set(noticed)]
    return bad


def main():
    wanted = sys.argv[1:] or ["table", "walls"]
    begin = now()
    bad = []
    for name, part in (("table", table), ("walls", walls)):
        if name not in wanted:
            continue
        # A missing wall leaves wounds; each part has a host of its own.
        host = Host()
        try:
            bad += part(host)
        finally:
            host.remove()
    for complaint in bad:
        print(complaint)
    print(f"escape: {len(bad)} complaints in {now() - begin:.0f} s")
    sys.exit(1 if bad else 0)


main()
