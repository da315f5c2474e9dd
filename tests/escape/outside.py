"""Cases that are looked at from the host: what attacks left behind, what the relay is like, and
what hostile names, roots and mounts lead to. One entry of CASES each; a function returns how it got
through, or nothing."""

import glob
import os
import signal
import subprocess
import tempfile

from yard import status_of, wait_until

RELAY_CAPS = 1 << 5 | 1 << 6 | 1 << 7 | 1 << 8  # KILL, SETGID, SETUID, SETPCAP
ODD_USERS = ["0x0", "+0", "-1", "4294967295", "4294967296", " 0", "0 ", "1000:0", "0:1000", ":", "0:", "",
             "root\n", "../root", "agent:root", "999999"]


def file_of(yard, place):
    """Path on the host of a file that another place wrote."""
    ids = yard.query("SELECT id FROM places WHERE holder_lease = ?", place.lease)
    return f"{yard.keeper_dir}/places/{ids[0][0]}/files/tmp/neighbour"


def relay_caps(_host, yard, place):
    """not more than starting and ending commands needs"""
    status = status_of(place.relay())
    allowed = 0 if yard.user else RELAY_CAPS
    for name in ("CapInh", "CapPrm", "CapEff", "CapBnd", "CapAmb"):
        if int(status[name], 16) & ~allowed:
            return f"{name} {status[name]}"
    return None if status["NoNewPrivs"] == "1" else "the relay could gain privileges"


def relay_fds(host, _yard, place):
    """no descriptor of the host in the relay (CVE-2024-21626)"""
    folder = f"/proc/{place.relay()}/fd"
    for fd in os.listdir(folder):
        target = os.readlink(f"{folder}/{fd}")
        if target.startswith(host.open_dir) or target in ("/root", "/home"):
            return f"{fd} -> {target}"
    return None


def relay_dumpable(_host, yard, place):
    """with one user for all, the relay's memory is not the payload's"""
    # Files of a process that may not be dumped belong to the root of its user namespace, and where
    # there is none, to the host's. With a range of ids the relay is that root anyway.
    owner = os.stat(f"/proc/{place.relay()}/mem").st_uid
    return f"the relay's memory belongs to {owner}" if yard.user and owner != 0 else None


def payload_seccomp(_host, yard, place):
    """what runs has a filter, and the recorded boundary says so"""
    done = place.run("grep", "-E", "^(Seccomp|NoNewPrivs):", "/proc/self/status")
    if done.stdout.split() != ["NoNewPrivs:", "1", "Seccomp:", "2"]:
        return done.stdout.replace("\n", " ")
    _, lease = yard.call("GET", f"/api/environment-leases/{place.lease}")
    standing = lease["metadata"]["boundary"]["walls"]
    return None if "seccomp" in standing else "it is not recorded"


def tree_cgroup(_host, yard, place):
    """everything is in the cgroup that is killed at the end (as root)"""
    with open(f"/proc/{place.relay()}/cgroup", encoding="ascii") as f:
        own = [line.strip() for line in f if line.startswith("0::")]
    return str(own) if own and not yard.user and "/berth-" not in own[0] else None


def kill_all(host, _yard, place):
    """kill(-1): neither relay nor host feel it"""
    place.run("sh", "-c", "kill -9 -1", check=False)
    if host.process.poll() is not None:
        return "the host's process died"
    return None if place.run("echo", "alive").stdout == "alive\n" else "the relay is gone"


def daemon(_host, _yard, place):
    """setsid and a double fork do not outlive the lease"""
    mark = "outlived-" + place.lease
    place.run("sh", "-c", f"(setsid setsid sh -c 'sleep 1000; : {mark}' >/dev/null 2>&1 &) &",
              check=False)
    place.run("true")
    place.release()
    return wait_gone(mark)


def wait_gone(mark):
    def left():
        words = subprocess.run(["grep", "-las", mark, *cmdlines()], capture_output=True,
                               text=True, check=False).stdout.split()
        return [w for w in words if not w.startswith(f"/proc/{os.getpid()}/")]
    try:
        wait_until(left, 10, "left")
    except AssertionError as error:
        return str(error)
    return None


def cmdlines():
    return [f"/proc/{p}/cmdline" for p in os.listdir("/proc") if p.isdigit()]


def relay_death(_host, yard, _place):
    """PDEATHSIG reset: nothing outlives its relay"""
    place = yard.acquire()
    mark = "orphan-" + place.lease
    yard.cli("exec", "-q", "-d", place.lease, "--", "python3", "-c",
             "import ctypes,time; ctypes.CDLL(None).prctl(1, 0); time.sleep(1000)", mark)
    os.kill(place.relay(), signal.SIGKILL)
    return wait_gone(mark)


def exec_user(_host, _yard, place):
    """odd users of exec -u (CVE-2026-30892)"""
    for user in ODD_USERS:
        done = place.run("id", "-u", flags=["--user=" + user], check=False)
        # A number, or number:number, is what it says; everything else is a name, or refused.
        if done.returncode == 0 and done.stdout.strip() != user.split(":")[0]:
            return f"{user!r} became {done.stdout.strip()}"
    return None


def hostile_root(host, yard, _place):
    """links in an unpacked root where mounts go (CVE-2019-19921, CVE-2024-45310, CVE-2026-47766)"""
    for name in ("proc", "dev", "tmp", "workspace", "home", "var", "etc"):
        root = tempfile.mkdtemp(prefix="root-", dir=host.dir)
        os.chmod(root, 0o755)
        for part in ("usr", "bin", "lib", "lib64"):
            os.symlink("/nowhere" if part == "usr" else f"usr/{part}", f"{root}/{part}")
        os.symlink(host.open_dir, f"{root}/{name}")
        try:
            yard.acquire(root=root).release()
        except AssertionError:
            pass
        if host.wounds():
            return f"{name}: {host.wounds()}"
    return None


def hostile_mounts(host, yard, _place):
    """mounts to and from where they must not be"""
    outer = {"source": host.open_dir, "readOnly": True}
    for mount in ({**outer, "target": "/proc"}, {**outer, "target": "/proc/1"},
                  {**outer, "target": "/dev"}, {**outer, "target": "/"},
                  {**outer, "target": "/workspace/../../etc"},
                  # The operator may mount what is theirs, but never these.
                  *({"source": source, "target": "/mnt/x"}
                    for source in ("/", "/proc", "/proc/self", "/sys", "/dev", "/run", yard.data,
                                   os.path.dirname(yard.data), yard.keeper_dir,
                                   host.open_dir + "/../d"))):
        try:
            place = yard.acquire(mounts=[mount])
        except AssertionError:
            continue
        inside = place.run("ls", "-a", mount["target"], check=False).stdout
        place.release()
        if mount["source"] != host.open_dir or mount["target"] in ("/", "/proc", "/dev"):
            return f"{mount} was given: {inside[:80]!r}"
    return None


def residue(host, yard, _place):
    """what an earlier place left, in directories that are used again"""
    leave = (f"for d in /tmp /var/tmp /workspace $HOME /dev/shm; do cd $d; echo {host.token} >t;"
             " ln -s /etc l; mkfifo f; mkdir -p a/b/c .hidden locked; echo x >locked/x;"
             " chmod 000 locked t; touch $(printf %0255d 0); chmod 1733 . 2>/dev/null; done; true")
    look = ("find /tmp /var/tmp /workspace $HOME /dev/shm -mindepth 1; find /tmp /var/tmp"
            " /workspace $HOME -maxdepth 0 ! -user $(id -un) ! -user root;"
            " stat -c '%a %n' /tmp /var/tmp /workspace")
    clean = None
    for _ in range(5):
        place = yard.acquire()
        seen = place.run("sh", "-c", look).stdout
        clean = clean or seen
        place.run("sh", "-c", leave)
        place.release()
        if seen != clean or host.token in seen or len(seen.splitlines()) != 3:
            return f"{seen[:200]!r} instead of {clean[:200]!r}"
    return None


def hostile_copy(host, yard, _place):
    """links, fifos, sockets, set-user-id, long names and holes in a tree that is copied out"""
    place = yard.acquire()
    place.run("sh", "-c", f"mkdir -p t/sub && cd t && ln -s {host.canary} link && ln -s "
              f"{host.open_dir} dirlink && ln -s ../../../../../etc up && mkfifo fifo;"
              "echo x >suid; chmod 4755 suid; n=$(printf %0255d 0); echo long >$n;"
              "truncate -s 64m holes; python3 -c 'import socket as s;"
              " s.socket(s.AF_UNIX).bind(\"sock\")'; mknod node c 1 3; true")
    out = tempfile.mkdtemp(prefix="out-", dir=host.dir)
    yard.cli("cp", f"{place.lease}:/workspace/t", out, check=False, timeout=30)
    place.release()
    if not os.path.exists(os.path.join(out, "t", "holes")):
        return "nothing came out, so nothing was tried"
    return brought(host, out)


def swap_race(host, yard, _place):
    """a directory and a link that change places while they are copied out"""
    place = yard.acquire()
    place.run("sh", "-c", f"mkdir -p t/d t/up && echo mine >t/d/canary && ln -s {host.open_dir} t/l"
              f" && ln -s ../../../../../..{host.canary} t/up/c")
    yard.cli("exec", "-q", "-d", place.lease, "--", "python3", "-c", "import ctypes, os\n"
             "l = ctypes.CDLL(None)\nwhile True:\n l.renameat2(-100, b't/d', -100, b't/l', 2)\n"
             " l.renameat2(-100, b't/d', -100, b't/up', 2)")
    how = None
    for _ in range(4):
        out = tempfile.mkdtemp(prefix="out-", dir=host.dir)
        yard.cli("cp", f"{place.lease}:/workspace/t", out, check=False, timeout=30)
        how = how or brought(host, out)
    place.release()
    return how


def brought(host, out):
    """What a copy took out that it must not have."""
    for folder, _, names in os.walk(out):
        for name in names:
            path = os.path.join(folder, name)
            if os.path.islink(path):
                continue
            if os.lstat(path).st_mode & 0o6000:
                return f"{name} came out set-user-id"
            if os.lstat(path).st_blocks > 4096:
                return f"{name} came out without its holes"
            if not os.path.isfile(path):
                return f"{name} is no file"
            if host.token in open(path, errors="replace").read():
                return f"{name} brought the host's file"
    return f"{host.wounds()}" if host.wounds() else None


def wounds(host, _yard, _place):
    """what all of it left on the host"""
    return "; ".join(host.wounds()) or None


def fork_bomb(_host, _yard, place):
    """pids: no more processes than the limit"""
    # Bounded by itself, in case nothing else does it.
    done = place.run("python3", "-c", "import os,time\nn=0\ntry:\n while n<300:\n"
                     "  if os.fork()==0: time.sleep(3); os._exit(0)\n  n+=1\n"
                     "except OSError: pass\nprint(n)", check=False)
    return None if int(done.stdout or 300) < 64 else f"{done.stdout.strip()} processes"


def memory_hog(_host, _yard, place):
    """memory: not more than the limit"""
    done = place.run("python3", "-c", "x=bytearray(200<<20); print(len(x))", check=False)
    return f"{done.stdout.strip()} bytes" if done.stdout.strip() else None


def disk_filler(_host, _yard, place):
    """disk: not more than the limit"""
    done = place.run("sh", "-c", "head -c 40m /dev/zero >/workspace/f; wc -c </workspace/f;"
                     " rm -f /workspace/f", check=False)
    return None if int(done.stdout.split()[0] or 0) <= 16 << 20 else done.stdout


def cpu_hog(_host, yard, _place):
    """processors: held back when it has had its share"""
    place = yard.acquire(limits={"cpus": 0.1})
    place.run("sh", "-c", "for i in 1 2 3 4 5 6; do timeout 1 sh -c 'while :; do :; done' & done;"
              " wait", check=False)
    name = yard.query("SELECT id FROM places WHERE holder_lease = ?", place.lease)[0][0]
    stats = [line.split() for top in ("cpu/**", "") for path in
             glob.glob(f"/sys/fs/cgroup/{top}/berth-*/{name}/cpu.stat", recursive=True)
             for line in open(path, encoding="ascii")]
    place.release()
    return None if any(k == "nr_throttled" and int(v) > 0 for k, v in stats) else f"{stats}"


def descriptor_hog(_host, _yard, place):
    """open files: not more than the limit"""
    done = place.run("python3", "-c", "import os\nn=0\ntry:\n while n<200:\n  os.dup(0); n+=1\n"
                     "except OSError: pass\nprint(n)", check=False)
    return None if int(done.stdout or 0) < 64 else f"{done.stdout.strip()} descriptors"


# In this order: the first are about walls, the last end the place.
WALL_CASES = [relay_caps, relay_fds, relay_dumpable, payload_seccomp, tree_cgroup]
CASES = WALL_CASES + [exec_user, hostile_root, hostile_mounts, hostile_copy, swap_race, residue,
                      kill_all, relay_death]
LIMIT_CASES = [fork_bomb, memory_hog, cpu_hog, disk_filler, descriptor_hog]
LAST = [daemon, wounds]
LIMITED_ONLY = {case.__name__ for case in LIMIT_CASES}
ABOUT = {case.__name__: case.__doc__ for case in CASES + LIMIT_CASES + LAST}


def cases(host, yard, place, limited, brief):
    """Briefly: only those that walls can make a difference to."""
    found = {}
    chosen = WALL_CASES if brief else CASES
    for case in chosen + (LIMIT_CASES if limited else []) + ([] if brief else LAST):
        how = case(host, yard, place)
        found[case.__name__] = ("open", how) if how else ("held", "")
    return found
