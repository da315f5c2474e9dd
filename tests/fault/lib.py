"""A server of one's own, an HTTP client over its unix socket, and the invariants that must hold
after any crash. Standard library only."""

import hashlib
import http.client
import json
import os
import resource
import shutil
import signal
import socket
import sqlite3
import subprocess
import tempfile
import time

BERTH = os.environ.get("BERTH_BIN", "build/berth")
KEEPER_LOCKED = 3  # exit status of a keeper that finds another
KEEPER = os.path.join(os.path.dirname(BERTH), "berth-keeper")
# What would take seconds to come round comes round at once.
SHORT_PERIODS = ["--sweep-every", "50ms", "--reconcile-every", "100ms", "--retry-after", "50ms",
                 "--beat-every", "100ms", "--compress-after", "100ms"]


class Died(Exception):
    """The server went away while it was being asked."""


class UnixConnection(http.client.HTTPConnection):
    def __init__(self, path, timeout):
        super().__init__("localhost", timeout=timeout)
        self.path = path

    def connect(self):
        self.sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self.sock.settimeout(self.timeout)
        self.sock.connect(self.path)


class Server:
    """`berth serve` in a temporary data directory."""

    def __init__(self, data=None):
        self.data = data or tempfile.mkdtemp(prefix="berth-fault-")
        self.socket = os.path.join(self.data, "berth.sock")
        self.log = os.path.join(self.data, "server.log")
        self.trace = os.path.join(self.data, "trace")
        self.keeper_dir = os.path.join(self.data, "keeper")
        self.flags = []
        self.env = {}
        self.open_files = None  # limits of descriptors, soft and hard
        self.process = None

    def start(self, fault=None, deadline=15, trace=False):
        """True when healthy, False when the program ended by itself (a fault at start)."""
        env = {k: v for k, v in os.environ.items() if not k.startswith("BERTH_")}
        env.update(self.env)
        if fault:
            env["BERTH_FAULT"] = fault
        if trace:
            env["BERTH_FAULT_TRACE"] = self.trace
        # A native place would leave others of its kind ready, which look like leaks.
        default = [] if "--default-environment" in self.flags else ["--default-environment", "Local"]
        with open(self.log, "ab") as log:
            self.process = subprocess.Popen(
                [BERTH, "serve", "--data", self.data, "--allow-fake", *default, *self.flags],
                env=env, stdin=subprocess.DEVNULL, stdout=log, stderr=log,
                preexec_fn=self.limit if self.open_files else None)
        end = time.monotonic() + deadline
        while time.monotonic() < end:
            if self.process.poll() is not None:
                return False
            try:
                if self.call("GET", "/api/health", timeout=2)[0] == 200:
                    return True
            except Died:
                time.sleep(0.01)
        raise AssertionError("server neither came up nor ended: " + self.tail())

    def limit(self):
        resource.setrlimit(resource.RLIMIT_NOFILE, self.open_files)

    def alive(self):
        return self.process is not None and self.process.poll() is None

    def await_end(self, deadline):
        try:
            self.process.wait(deadline)
        except subprocess.TimeoutExpired:
            pass

    def kill(self):
        if self.alive():
            self.process.send_signal(signal.SIGKILL)
        if self.process:
            self.process.wait()

    def stop(self, deadline=20):
        if self.alive():
            self.process.send_signal(signal.SIGTERM)
            try:
                self.process.wait(deadline)
            except subprocess.TimeoutExpired:
                self.kill()
                raise AssertionError("server did not stop: " + self.tail())

    def keeper(self):
        """Pids of the keeper of this data directory: one or none."""
        return [pid for pid in pids() if self.keeper_dir.encode() in words_of(pid)]

    def relays(self):
        """{place: pid} of what the keeper's directory names and is alive."""
        found = {}
        places = os.path.join(self.keeper_dir, "places")
        for place in os.listdir(places) if os.path.isdir(places) else []:
            try:
                with open(os.path.join(places, place, "relay"), encoding="ascii") as f:
                    pid = int(f.read().split()[0])
            except (OSError, IndexError, ValueError):
                continue
            if words_of(pid)[:2] == [b"berth-relay", place.encode()]:
                found[place] = pid
        return found

    def end_keeper(self):
        """A keeper that finds places without their relays removes what is left of them; one that
        has nothing to keep ends."""
        if not os.path.isdir(self.keeper_dir):
            return
        # A relay that was being made when its keeper was killed is in no file yet, and the next keeper
        # rightly keeps it: so they are looked for by name, and once more if the keeper stays.
        for _ in range(4):
            for pid in self.keeper() + list(self.relays().values()) + self.relays_by_name():
                try:
                    os.kill(pid, signal.SIGKILL)
                except ProcessLookupError:
                    pass
            self.drop_exits()
            try:
                done = subprocess.run([KEEPER, "--dir", self.keeper_dir, "--idle-seconds", "0"],
                                      timeout=10, check=False, env={}, stdin=subprocess.DEVNULL,
                                      stderr=subprocess.DEVNULL)
                # One that is being killed has its lock until it is gone.
                if done.returncode != KEEPER_LOCKED:
                    return
                time.sleep(0.05)
            except subprocess.TimeoutExpired:
                continue
        raise AssertionError("the keeper does not come to rest: " + self.keeper_dir)

    def drop_exits(self):
        """What dead relays wrote down would be kept for a server, which will not come."""
        places = os.path.join(self.keeper_dir, "places")
        for place in os.listdir(places) if os.path.isdir(places) else []:
            try:
                os.unlink(os.path.join(places, place, "spool", "exits"))
            except OSError:
                pass

    def relays_by_name(self):
        """Pids of relays of this directory's places, also of those that no file names yet."""
        places = os.path.join(self.keeper_dir, "places")
        known = {p.encode() for p in os.listdir(places)} if os.path.isdir(places) else set()
        return [pid for pid in pids()
                if words_of(pid)[:1] == [b"berth-relay"] and set(words_of(pid)[1:2]) & known]

    def remove(self):
        self.kill()
        self.end_keeper()
        shutil.rmtree(self.data, ignore_errors=True)
        shutil.rmtree(self.data + "-tree", ignore_errors=True)  # what scenes bring along

    def tail(self, lines=15):
        try:
            with open(self.log, "rb") as f:
                last = f.read().decode(errors="replace").splitlines()[-lines:]
            code = self.process.returncode if self.process else None
            return f"\n(exit {code})\n" + "\n".join(last)
        except OSError:
            return ""

    def call(self, method, path, body=None, headers=None, timeout=60):
        """(status, decoded JSON or text). Raises Died when the connection breaks."""
        connection = UnixConnection(self.socket, timeout)
        sent = dict(headers or {})
        data = None
        if body is not None:
            data = json.dumps(body)
            sent["Content-Type"] = "application/json"
        try:
            connection.request(method, path, data, sent)
            answer = connection.getresponse()
            text = answer.read()
        except (OSError, http.client.HTTPException) as error:
            raise Died(f"{method} {path}: {error}") from error
        finally:
            connection.close()
        if answer.getheader("Content-Type", "").startswith("application/json"):
            return answer.status, json.loads(text)
        return answer.status, text.decode(errors="replace")

    def query(self, sql, *args):
        """Rows straight from the database file."""
        connection = sqlite3.connect(f"file:{self.data}/berth.db?mode=ro", uri=True, timeout=10)
        try:
            return connection.execute(sql, args).fetchall()
        finally:
            connection.close()

    def edit(self, *statements):
        """Behind the server's back."""
        connection = sqlite3.connect(f"file:{self.data}/berth.db?mode=rw", uri=True, timeout=10)
        try:
            with connection:
                for sql in statements:
                    connection.execute(sql)
        finally:
            connection.close()

    def hits(self):
        """Names of the points that were hit, one for each hit, in order."""
        try:
            with open(self.trace, encoding="ascii") as f:
                return f.read().split()
        except FileNotFoundError:
            return []


def pids():
    return [int(entry) for entry in os.listdir("/proc") if entry.isdigit()]


def words_of(pid):
    try:
        with open(f"/proc/{pid}/cmdline", "rb") as f:
            return f.read().split(b"\0")
    except OSError:
        return []


def marked_processes(mark):
    """Pids of living processes whose environment carries the mark."""
    found = []
    for entry in pids():
        try:
            with open(f"/proc/{entry}/environ", "rb") as f:
                if mark.encode() not in f.read():
                    continue
            with open(f"/proc/{entry}/stat", "rb") as f:
                if f.read().rsplit(b")", 1)[1].split()[0] != b"Z":
                    found.append(entry)
        except OSError:
            continue
    return found


def wait_until(check, deadline, what):
    """check() returns a list of complaints; waits until it is empty."""
    end = time.monotonic() + deadline
    while True:
        complaints = check()
        if not complaints:
            return
        if time.monotonic() > end:
            raise AssertionError(f"{what}: " + "; ".join(map(str, complaints))[:2000])
        time.sleep(0.05)


def fake_inventory(server):
    """What the fake provider has, from its own journal."""
    listed = set()
    try:
        with open(os.path.join(server.data, "providers", "fake", "journal.jsonl")) as journal:
            for line in journal:
                change = json.loads(line)
                if change["op"] == "acquire":
                    listed.add(change["ref"])
                elif change["op"] == "destroy":
                    listed.discard(change["ref"])
    except FileNotFoundError:
        pass
    return listed


def disagreement_of_places(server):
    """Places on record, against the fake provider's inventory and its directories."""
    recorded = {ref for (ref,) in server.query(
        "SELECT provider_ref FROM places WHERE provider = 'fake' AND state <> 'gone'")}
    listed = fake_inventory(server)
    hashes = [hashlib.sha256(ref.encode()).hexdigest() for ref in recorded]
    try:
        there = os.listdir(os.path.join(server.data, "providers", "fake", "places"))
    except FileNotFoundError:
        there = []
    return ([f"{ref} is in the inventory and of no place" for ref in listed - recorded] +
            [f"place {ref} is not in the inventory" for ref in recorded - listed] +
            [f"directory {name} is of no place" for name in there
             if not any(h.startswith(name) for h in hashes)])


def unrest(server, mark):
    """What is not as it must be once nobody holds a lease any more. The cheap looks come first."""
    bad = [f"run {i} is {s}" for i, s in server.query(
        "SELECT id, status FROM runs WHERE status IN ('queued','running','scheduled_retry')")]
    bad += [f"lease {i} is {s}" for i, s in server.query(
        "SELECT id, status FROM leases WHERE status IN ('active','pending_cleanup')")]
    bad += [f"intent {i}" for (i,) in server.query("SELECT id FROM intents")]
    bad += [f"place {i} is {s}" for i, s in server.query(
        "SELECT id, state FROM places WHERE state NOT IN ('free','retained','gone')")]
    if bad:
        return bad
    bad = disagreement_of_places(server)
    status, audit = server.call("GET", "/api/audit")
    if status != 200:
        return bad + [f"audit answers {status}: {audit}"]
    bad += [f"audit: {item}" for item in (audit["items"] if isinstance(audit, dict) else audit)]
    bad += [f"relay {pid} is left of place {place}" for place, pid in server.relays().items()]
    return bad or [f"process {pid} is left" for pid in marked_processes(mark)]
