"""A host with things that nobody in a place may get at, and servers to lease places from: as root,
or as an ordinary user. Keepers are started by hand, so that walls can be left out."""

import ctypes
import fcntl
import json
import os
import secrets
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time

HERE = os.path.dirname(os.path.realpath(__file__))
sys.path.insert(0, os.path.join(HERE, "..", "fault"))

from lib import BERTH, Server, wait_until  # noqa: E402

BUILD = os.path.dirname(os.path.realpath(BERTH))
TOOLS = os.path.join(BUILD, "tests", "escape")
BWRAP = ["bwrap", "--unshare-all", "--ro-bind", "/", "/", "--proc", "/proc", "--dev", "/dev"]


def unused_uid():
    with open("/etc/passwd", encoding="utf-8") as f:
        taken = {int(line.split(":")[2]) for line in f if line.count(":") > 3}
    return next(uid for uid in range(54321, 60000) if uid not in taken)


class Host:
    """Canaries of every kind. Everything that is not guarded by walls is open to everybody."""

    def __init__(self):
        self.token = "canary-" + secrets.token_hex(12)
        self.dir = tempfile.mkdtemp(prefix="berth-escape-", dir="/tmp")
        os.chmod(self.dir, 0o755)
        self.uid = unused_uid()
        self.open_dir = os.path.join(self.dir, "open")
        os.mkdir(self.open_dir)
        os.chmod(self.open_dir, 0o777)
        self.canary = os.path.join(self.open_dir, "canary")
        with open(self.canary, "w", encoding="ascii") as f:
            f.write(self.token + "\n")
        os.chmod(self.canary, 0o666)
        self.bin = os.path.join(self.dir, "bin")
        os.mkdir(self.bin)
        for name in ("berth", "berth-keeper", "berth-relay"):
            shutil.copy(os.path.join(BUILD, name), self.bin)
        for name in ("attack", "verdicts"):
            shutil.copy(os.path.join(TOOLS, name), self.bin)
        self.sockets = []
        self.abstract = self.token[:20]
        self.listen(socket.AF_UNIX, "\0" + self.abstract)
        self.listen(socket.AF_UNIX, os.path.join(self.open_dir, "sock"))
        os.chmod(os.path.join(self.open_dir, "sock"), 0o777)
        # Mounted into every place, read-only.
        self.shared = os.path.join(self.dir, "shared")
        os.mkdir(self.shared)
        self.listen(socket.AF_UNIX, os.path.join(self.shared, "service"))
        os.chmod(os.path.join(self.shared, "service"), 0o777)
        self.port = self.listen(socket.AF_INET, ("127.0.0.1", 0)).getsockname()[1]
        self.process = subprocess.Popen(["sleep", "100000"], stdin=subprocess.DEVNULL,
                                        preexec_fn=lambda: os.setresuid(*[self.uid] * 3))
        self.shm_key = 0x42000000 | secrets.randbits(20)
        self.libc = ctypes.CDLL(None)
        self.shm = self.libc.shmget(self.shm_key, 4096, 0o1666)

    def listen(self, family, address):
        s = socket.socket(family, socket.SOCK_STREAM)
        s.bind(address)
        s.listen(64)
        self.sockets.append(s)
        return s

    def facts(self, **more):
        facts = {"token": self.token, "canary": self.canary, "open_dir": self.open_dir,
                 "abstract": self.abstract, "host_pid": self.process.pid,
                 "shm_key": self.shm_key, "port": self.port, "hostname": socket.gethostname()}
        return [f"{k}={v}" for k, v in {**facts, **more}.items()]

    def wounds(self):
        """What an attack has left on the host."""
        found = []
        if self.process.poll() is not None:
            found.append("the host's process is dead")
        if sorted(os.listdir(self.open_dir)) != ["canary", "sock"]:
            found.append(f"{self.open_dir} has {os.listdir(self.open_dir)}")
        if os.path.exists("/usr/berth-planted"):
            found.append("/usr was written to")
        with open(self.canary, encoding="ascii") as f:
            if f.read() != self.token + "\n":
                found.append("the canary was changed")
        return found

    def remove(self):
        self.process.kill()
        self.process.wait()
        for s in self.sockets:
            s.close()
        self.libc.shmctl(self.shm, 0, None)
        shutil.rmtree(self.dir, ignore_errors=True)


class Yard(Server):
    """A server whose keeper may lack walls."""

    def __init__(self, host, user=False, wall=None):
        data = tempfile.mkdtemp(prefix="d-", dir=host.dir)
        super().__init__(data)
        self.host, self.user = host, user
        self.berth = os.path.join(host.bin, "berth")
        self.keeper_process = None
        if user:
            os.chown(data, host.uid, host.uid)
        os.chmod(data, 0o700)
        self.begin(wall)

    def become(self):
        uid = str(self.host.uid)
        return ["setpriv", "--reuid", uid, "--regid", uid, "--clear-groups", "--"] \
            if self.user else []

    def spawn(self, words, env, fds=()):
        env = {"PATH": os.environ["PATH"], "HOST_SECRET": self.host.token, **env}
        with open(os.path.join(self.host.dir, "log"), "ab") as log:
            return subprocess.Popen(self.become() + words, env=env, stdin=subprocess.DEVNULL,
                                    stdout=log, stderr=log, pass_fds=fds, cwd="/")

    def begin(self, wall):
        env = {}
        for part in wall.split("+") if wall else []:
            env["BERTH_RELAY_FAULT" if part.startswith("relay.") else "BERTH_FAULT"] = \
                part + ":skip"
        # One that somebody forgot to close on exec: a way out, if it got as far as a place.
        opened = os.open(self.host.open_dir, os.O_RDONLY | os.O_DIRECTORY)
        leak = fcntl.fcntl(opened, fcntl.F_DUPFD_CLOEXEC, 300)
        os.close(opened)
        keeper = [os.path.join(self.host.bin, "berth-keeper"), "--dir", self.keeper_dir,
                  "--idle-seconds", "20"]
        self.keeper_process = self.spawn(keeper, env, (leak,))
        os.close(leak)
        wait_until(lambda: [] if os.path.exists(os.path.join(self.keeper_dir, "keeper.sock"))
                   else ["no socket"], 10, "the keeper does not start")
        self.process = self.spawn([self.berth, "serve", "--data", self.data, "--allow-fake",
                                   *self.flags], {})
        wait_until(lambda: [] if self.healthy() else ["not healthy"], 15, "no server")

    def healthy(self):
        try:
            return self.call("GET", "/api/health", timeout=2)[0] == 200
        except Exception:  # pylint: disable=broad-except
            return False

    def cli(self, *words, check=True, timeout=60, **more):
        done = subprocess.run([self.berth, *words], env={"BERTH_DATA": self.data, "PATH":
                              os.environ["PATH"], "HOME": "/nonexistent"}, timeout=timeout,
                              capture_output=True, text=True, errors="replace", check=False,
                              stdin=subprocess.DEVNULL, cwd=self.host.bin, **more)
        if check and done.returncode:
            raise AssertionError(f"berth {' '.join(words)[:200]}: exit {done.returncode}\n"
                                 f"{done.stdout[-1500:]}{done.stderr[-1500:]}")
        return done

    def acquire(self, **config):
        name = "e" + secrets.token_hex(4)
        self.cli("env", "add", name, "--no-probe", "--driver", "sandbox", "--config",
                 json.dumps({"provider": "native", "warmPool": {"size": 0},
                             "mounts": [{"source": self.host.shared, "target": "/shared"}],
                             **config}))
        return Place(self, self.cli("lease", "acquire", name).stdout.split()[0])

    def remove(self):
        for process in (self.process, self.keeper_process):
            if process and process.poll() is None:
                process.send_signal(signal.SIGKILL)
            if process:
                process.wait()
        self.end_keeper()
        shutil.rmtree(self.data, ignore_errors=True)


class Place:
    def __init__(self, yard, lease):
        self.yard, self.lease = yard, lease

    def run(self, *words, flags=(), **more):
        return self.yard.cli("exec", "-q", *flags, self.lease, "--", *words, **more)

    def put(self, name, target=None):
        self.yard.cli("cp", name, f"{self.lease}:{target or '/tmp/' + os.path.basename(name)}")

    def attack(self, only=None, **facts):
        """{case: (verdict, how)}"""
        self.put(os.path.join(self.yard.host.bin, "attack"))
        words = self.yard.host.facts(data=self.yard.data, service="/shared/service", **facts)
        flags = ["-e", "SINGLE_UID=1"] if self.yard.user else []
        done = self.run("/tmp/attack", *words, *([f"only={only}"] if only else []), flags=flags)
        return verdicts(done.stdout)

    def relay(self):
        """Its pid, seen from the host."""
        status, lease = self.yard.call("GET", f"/api/environment-leases/{self.lease}")
        assert status == 200, lease
        places = self.yard.relays()
        assert len(places) >= 1, "no relay is named"
        ids = self.yard.query("SELECT p.id FROM places p WHERE p.holder_lease = ?", self.lease)
        return places[ids[0][0]]

    def release(self):
        self.yard.cli("lease", "release", self.lease)


def verdicts(text):
    found = {}
    for line in text.splitlines():
        name, verdict, *how = line.split(" ", 2)
        found[name] = (verdict, how[0] if how else "")
    return found


def bwrap(host, user):
    """The same attacks behind the walls of bubblewrap, for comparison."""
    become = ["setpriv", "--reuid", str(host.uid), "--regid", str(host.uid), "--clear-groups",
              "--"] if user else []
    done = subprocess.run([*become, *BWRAP, os.path.join(host.bin, "attack"),
                           *host.facts(data=host.dir, uid=host.uid if user else 0,
                                       service=os.path.join(host.shared, "service"))],
                          capture_output=True, text=True, errors="replace", timeout=120,
                          check=False, stdin=subprocess.DEVNULL, cwd="/",
                          env={"PATH": os.environ["PATH"], "HOST_SECRET": host.token})
    return verdicts(done.stdout)


def status_of(pid):
    with open(f"/proc/{pid}/status", encoding="ascii") as f:
        return dict(line.rstrip("\n").split(":\t", 1) for line in f if ":\t" in line)


def now():
    return time.monotonic()
