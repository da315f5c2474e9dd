"""What the kill loop plays: short scenes that together lead the server past every fault point it
can get to. A scene is given a server that may die or fail anywhere, so it asserts nothing; whether
all came to rest is looked at afterwards.

    before    played without the fault under test, then the server is killed: what a crash leaves
    offline   while the server is down
    act       played with the fault

Names of points in a scene's own faults lead it into the ways back, which a sound server never goes.
"""

import json
import os
import subprocess
import time

from lib import Died, unrest


AS_SOMEBODY = ["-c", "user.name=somebody", "-c", "user.email=somebody@example.org"]


def write(path, file, text):
    with open(os.path.join(path, file), "w", encoding="ascii") as out:
        out.write(text)


class World:
    """One server and what was made in it."""

    def __init__(self, server):
        self.server = server
        self.mark = "CANARY=" + server.data
        self.patience = 8
        self.company = None
        self.environments = {}  # name: id
        self.trees = 0

    def call(self, method, path, body=None, headers=None):
        """Scenes go on after a refusal (the fault may have made it), not after a death."""
        return self.server.call(method, path, body, headers)

    def until(self, done):
        """False when it did not come about: with a fault in the way that is no surprise."""
        end = time.monotonic() + self.patience
        while not done():
            if not self.server.alive():
                raise Died("while waiting")
            if time.monotonic() > end:
                return False
            time.sleep(0.02)
        return True

    def at_rest(self):
        return not unrest(self.server, self.mark)

    def make(self, path, body, listing=None):
        """The thing, also if the fault came after the commit and denied it."""
        for _ in range(3):
            status, answer = self.call("POST", path, body)
            if status in (200, 201):
                return answer
            status, every = self.call("GET", listing or path)
            for thing in every if status == 200 else []:
                if thing["name"] == body["name"]:
                    return thing
        raise AssertionError(f"POST {path} {body} keeps failing: {answer}")

    def ensure_company(self):
        if not self.company:
            self.company = self.make("/api/companies", {"name": "world"})["id"]

    def of_company(self, what):
        return f"/api/companies/{self.company}/{what}"

    def environment(self, name, metadata=None, **config):
        if name in self.environments:
            return self.environments[name]
        body = {"name": name, "driver": "sandbox",
                "config": dict({"provider": "fake", "image": "x"}, **config)}
        if metadata:
            body["metadata"] = metadata
        self.environments[name] = self.make(self.of_company("environments"), body)["id"]
        return self.environments[name]

    def local(self):
        return next(e["id"] for e in self.call("GET", self.of_company("environments"))[1]
                    if e["driver"] == "local")

    def run(self, *command, **more):
        body = dict({"command": command, "env": {"CANARY": self.server.data}}, **more)
        status, answer = self.call("POST", self.of_company("runs"), body)
        return answer["id"] if status == 201 else None

    def await_run(self, run):
        return run and self.until(lambda: self.server.query(
            "SELECT 1 FROM runs r WHERE id = ? AND finished_at IS NOT NULL AND NOT EXISTS"
            " (SELECT 1 FROM leases WHERE run_id = r.id AND status = 'active')", run))

    def await_running(self, count):
        return self.until(lambda: len(self.server.query(
            "SELECT id FROM runs WHERE process_pid IS NOT NULL AND status = 'running'")) >= count)

    def lease(self, environment, key=None, **body):
        status, answer = self.call("POST", f"/api/environments/{environment}/leases", body,
                                   {"Idempotency-Key": key} if key else None)
        return answer if status in (200, 201) else None

    def exec(self, lease, *command, key=None):
        if lease:
            self.call("POST", f"/api/environment-leases/{lease['id']}/exec?stream=0",
                      {"command": command, "generation": lease["generation"],
                       "env": {"CANARY": self.server.data}},
                      {"Idempotency-Key": key} if key else None)

    def renew(self, lease):
        if lease:
            self.call("POST", f"/api/environment-leases/{lease['id']}/renew",
                      {"generation": lease["generation"], "ttlSeconds": 60})

    def release(self, lease, **body):
        if lease:
            self.call("POST", f"/api/environment-leases/{lease['id']}/release", body)

    def give_back(self):
        """What is still held or running, so that rest is possible."""
        for (run,) in self.server.query("SELECT id FROM runs WHERE finished_at IS NULL"):
            self.call("POST", f"/api/runs/{run}/cancel", {})
        for (lease,) in self.server.query(
                "SELECT id FROM leases WHERE status = 'active' AND run_id IS NULL"):
            self.call("POST", f"/api/environment-leases/{lease}/release", {})
        for (run,) in self.server.query("SELECT id FROM runs WHERE place_kept_until IS NOT NULL"):
            self.call("POST", f"/api/runs/{run}/collect", {})

    def tree(self, git=False):
        """A directory to bring along. Each time another: in the last one a run may still be at work."""
        self.trees += 1
        path = f"{self.server.data}-tree/{self.trees}"
        os.makedirs(os.path.join(path, "sub"))
        for file in ("kept", "changed", "gone", "runs", "sub/more"):
            write(path, file, file)
        if git:
            for words in (["init", "-q"], ["add", "."], ["commit", "-q", "-m", "first"]):
                subprocess.run(["git", *AS_SOMEBODY, *words], cwd=path, check=True)
        return path

    def bring(self, path, command, environment=None, **more):
        return self.run("sh", "-c", command, workspace=dict({"path": path}, **more),
                        environmentId=environment or self.environment("plain"))


def records(w):
    for path, body in (("agents", {"name": "a"}), ("projects", {"name": "p"})):
        w.make(w.of_company(path), body)
    w.call("POST", w.of_company("issues"), {"title": "i"})
    spare = w.environment("spare")
    w.call("PATCH", f"/api/environments/{spare}", {"description": "changed"})
    w.call("POST", f"/api/environments/{spare}/probe", {})
    w.call("DELETE", f"/api/environments/{spare}")


def change_records(w):
    w.call("PATCH", f"/api/companies/{w.company}", {"name": "changed world"})
    agent = w.make(w.of_company("agents"), {"name": "a"})["id"]
    project = w.make(w.of_company("projects"), {"name": "p"})["id"]
    w.until(lambda: w.call("POST", w.of_company("issues"), {"title": "i"})[0] == 201)
    issue = w.call("GET", w.of_company("issues"))[1][0]["id"]
    workspace = w.make(w.of_company("execution-workspaces"),
                       {"name": "w", "projectId": project, "sourceIssueId": issue})["id"]
    w.call("PATCH", f"/api/issues/{issue}", {
        "assigneeAgentId": agent, "executionWorkspacePreference": "reuse_existing",
        "executionWorkspaceSettings": {"workspaceStrategy": {"provisionCommand": "true"}}})
    run = w.run("true", issueId=issue)
    w.await_run(run)
    if run:
        w.call("POST", f"/api/issues/{issue}/checkout", {"runId": run})
    for path in (f"agents/{agent}", f"projects/{project}", f"execution-workspaces/{workspace}"):
        w.call("PATCH", f"/api/{path}", {"name": "changed"})
    w.call("POST", f"/api/execution-workspaces/{workspace}/close", {})
    for path in (f"issues/{issue}", f"execution-workspaces/{workspace}", f"projects/{project}",
                 f"agents/{agent}"):
        # A lease that is being given back still needs its issue.
        w.until(lambda path=path: w.call("DELETE", f"/api/{path}")[0] in (200, 404))


def people(w):
    """A person with a membership and a token that is used, and all of it taken back."""
    user = w.make("/api/users", {"name": "ada"})
    member = f"/api/companies/{w.company}/members/user/{user['id']}"
    w.call("PUT", member, {"role": "operator"})
    _, token = w.call("POST", "/api/tokens", {"name": "t", "userId": user["id"]})
    if "token" in token:
        w.call("GET", "/api/me", headers={"Authorization": "Bearer " + token["token"]})
        w.call("DELETE", "/api/tokens/" + token["id"])
    w.call("DELETE", member)
    w.call("PATCH", f"/api/users/{user['id']}", {"disabled": True})


def beats(w):
    w.until(lambda: w.server.query("SELECT 1 FROM nodes WHERE heartbeat_at > started_at"))


def run_here(w):
    w.await_run(w.run("sh", "-c", "echo out; echo err >&2"))


def run_much(w):
    """More than the relay may send without being told that it was taken."""
    w.await_run(w.run("head", "-c", "4000000", "/dev/zero"))


def run_in_place(w):
    agent = w.make(w.of_company("agents"), {"name": "a"})
    w.await_run(w.run("sh", "-c", "echo in place", environmentId=w.environment("plain"),
                      agentId=agent["id"]))


def run_bare(w):
    """A place without a relay, twice the same: a run, then a command and a file by hand."""
    bare = w.environment("bare", relay=False, reuseLease=True)
    w.await_run(w.run("sh", "-c", "echo bare", environmentId=bare))
    held = w.lease(bare)
    w.exec(held, "sh", "-c", "echo x >file", key="e2")
    if held:
        w.call("GET", f"/api/environment-leases/{held['id']}/files/list?path=.")
    w.release(held)


def bring_files(w):
    """Every kind of change comes home by itself."""
    w.await_run(w.bring(w.tree(), "echo new >changed; echo a >added; rm gone; chmod 755 runs;"
                        " rm -r sub; mkdir -p made/here; ln -s kept link"))


def bring_and_collect(w):
    """Kept, met by a person's own changes, tried, collected, dropped; and forgotten in the end."""
    path = w.tree()
    kept = w.bring(path, "echo place >changed; rm gone", collect="manual")
    if not w.await_run(kept):
        return
    write(path, "changed", "person")
    write(path, "gone", "person")
    w.call("POST", f"/api/runs/{kept}/collect", {"dryRun": True})
    w.call("POST", f"/api/runs/{kept}/collect", {})
    w.call("DELETE", f"/api/runs/{kept}/workspace")


def bring_many(w):
    """So many that it is told how far they are."""
    path = w.tree()
    for i in range(1100):
        write(path, f"sub/{i}", str(i))
    w.await_run(w.bring(path, "true"))


def bring_repository(w):
    path = w.tree(git=True)
    git = " ".join(["git", *AS_SOMEBODY])
    w.await_run(w.bring(path, f"echo new >changed; {git} commit -qam second; echo later >added"))


def bring_worktree(w):
    path = w.tree(git=True)
    w.await_run(w.bring(path, "echo new >changed", environment=w.local(), mode="worktree"))


def stage_by_hand(w):
    held = w.lease(w.environment("again", reuseLease=True))
    if held:
        stage = f"/api/environment-leases/{held['id']}/stage"
        w.call("POST", stage, {"path": w.tree()})
        w.exec(held, "sh", "-c", "echo new >workspace/changed")
        w.call("POST", f"/api/environment-leases/{held['id']}/collect", {})
    w.release(held)


def fail_and_retry(w):
    failed = w.run("false")
    w.await_run(failed)
    if failed:
        status, retry = w.call("POST", f"/api/runs/{failed}/retry", {})
        if status in (200, 201):
            w.await_run(retry["id"])


def cancel_and_time_out(w):
    late = w.run("sleep", "600", timeoutMs=50)
    cancelled = w.run("sleep", "600", environmentId=w.environment("plain"))
    if cancelled:
        w.await_running(1)
        w.call("POST", f"/api/runs/{cancelled}/cancel", {})
    w.await_run(cancelled)
    w.await_run(late)


def wait_in_queue(w):
    single = w.environment("single", metadata={"maxLeases": 1})
    first, second = (w.run("sleep", "0.1", environmentId=single) for _ in range(2))
    w.await_run(first)
    w.await_run(second)


def without_local_environment(w):
    w.server.edit("DELETE FROM environments WHERE driver = 'local'")


DEFAULT_SANDBOX = ["--default-environment", "Sandbox"]


def without_sandbox(w):
    """Of a company that is older than its Sandbox, at a server whose default that is."""
    w.server.edit("DELETE FROM environments WHERE name = 'Sandbox'")
    w.server.flags = w.server.flags + DEFAULT_SANDBOX


def ask_for_default(w):
    w.call("GET", w.of_company("environments/default"))


def in_workspace_before(w):
    project = w.make(w.of_company("projects"), {"name": "p"})["id"]
    w.server.edit(
        "INSERT INTO execution_workspaces (id, company_id, project_id, mode, strategy_type, name,"
        " cwd, last_used_at, opened_at, created_at, updated_at) VALUES"
        f" ('00000000-0000-4000-8000-000000000001', '{w.company}', '{project}', 'shared_workspace',"
        f" 'project_primary', 'w', '{w.server.data}', 1, 1, 1, 1)")


def in_workspace(w):
    w.await_run(w.run("true", executionWorkspaceId="00000000-0000-4000-8000-000000000001"))


def lease_by_hand(w):
    plain = w.environment("plain")
    held = w.lease(plain, key="k1")
    w.lease(plain, key="k1")
    w.renew(held)
    w.exec(held, "sh", "-c", "echo x", key="e1")
    w.release(held)


def lease_with_command(w):
    """The command starts while the lease is written down: each may fail while the other goes on."""
    status, answer = w.call("POST", f"/api/environments/{w.environment('plain')}/leases", {
        "exec": {"command": ["sh", "-c", "echo x; sleep 0.05"], "env": {"CANARY": w.server.data}}})
    if status == 201:
        w.release(json.loads(answer.splitlines()[0])["lease"])


def pause(w):
    """A command stands still, twice asked for, goes on, and ends while it stands still."""
    held = w.lease(w.environment("plain"))
    if not held:
        return
    lease = f"/api/environment-leases/{held['id']}"
    w.call("POST", lease + "/exec?detach=1", {"command": ["sleep", "600"],
                                              "env": {"CANARY": w.server.data}})
    for verb in ("pause", "pause", "resume", "pause"):
        w.call("POST", f"{lease}/{verb}", {"generation": held["generation"]})
    w.release(held)


def refused_with_key(w):
    refusing = w.environment("refusing", faults={"acquire": {"fail": 1}})
    w.lease(refusing, key="k")
    w.release(w.lease(refusing, key="k"))


def expire(w):
    w.lease(w.environment("plain"), ttlSeconds=1)
    w.until(w.at_rest)


def idle(w):
    """A busy place is touched by the sweep, then nobody uses it any more."""
    held = w.lease(w.environment("plain"), idleSeconds=1)
    w.exec(held, "sleep", "0.5")
    w.until(w.at_rest)


def destroy(w):
    """What is held, and what is free since."""
    for held in (True, False):
        lease = w.lease(w.environment("pool", reuseLease=True))
        if lease and not held:
            w.release(lease)
        if lease:
            w.call("POST", f"/api/environment-leases/{lease['id']}/destroy", {})


def retain(w):
    kept = w.lease(w.environment("plain"), policy="retain_on_failure", retainSeconds=1)
    w.exec(kept, "sleep", "0.01")
    w.release(kept, status="failed")
    w.until(lambda: not w.server.query("SELECT 1 FROM places WHERE state = 'retained'"))
    w.until(w.at_rest)


def reuse(w):
    again = w.environment("again", reuseLease=True)
    for _ in range(2):
        w.release(w.lease(again))
    # A changed config does not fit the free place any more: it is replaced.
    w.call("PATCH", f"/api/environments/{again}", {"config": {"image": "y"}})
    w.release(w.lease(again))


def resume_in_vain(w):
    lost = w.environment("lost", reuseLease=True, faults={"resume": {"fail": 1}})
    for _ in range(2):
        w.release(w.lease(lost))


def stubborn_release(w):
    w.release(w.lease(w.environment("stubborn", faults={"release": {"fail": 2}})))
    w.until(w.at_rest)


def archive(w):
    """The free place of an environment that is archived goes."""
    again = w.environment("again", reuseLease=True)
    w.release(w.lease(again))
    w.call("PATCH", f"/api/environments/{again}", {"status": "archived"})
    w.until(lambda: not w.server.query("SELECT 1 FROM places WHERE state = 'free'"))
    w.until(w.at_rest)


def vanish(w):
    """The provider loses what somebody holds."""
    w.lease(w.environment("vanishing", faults={"acquire": {"lose": 1}}))
    w.until(w.at_rest)


def forget_rows(w):
    w.server.edit("DELETE FROM leases", "DELETE FROM places")


def unexplained(w):
    """An object that no row explains, seen twice by a server that runs."""
    held = w.lease(w.environment("plain"))
    if held:
        forget_rows(w)
    w.until(w.at_rest)


def grant_fails(w):
    w.lease(w.environment("clinging", faults={"destroy": {"fail": 1}}))
    w.until(w.at_rest)


def hold(w):
    w.lease(w.environment("plain"))


def hold_here(w):
    w.lease(w.local())


def hold_and_release(w):
    w.release(w.lease(w.environment("again", reuseLease=True)))


def resume_again(w):
    for _ in range(2):
        hold_and_release(w)


def begin_unknown(w):
    """The server dies between the start of a command and its record."""
    w.exec(w.lease(w.environment("plain")), "sleep", "600")


def find_unknown(w):
    w.until(lambda: w.server.query("SELECT 1 FROM activity WHERE action = 'environment.exec_found'"))
    rest(w)


def rest(w):
    def given_back():
        w.give_back()
        return w.at_rest()
    w.until(given_back)


def leave_work(w):
    w.run("sleep", "600", environmentId=w.environment("plain"))
    w.run("sleep", "600")
    w.lease(w.environment("again", reuseLease=True))
    w.await_running(2)


def leave_bare(w):
    """Commands that no relay holds: they outlive their server, and nobody will hear of them."""
    bare = w.environment("bare", relay=False)
    w.run("sleep", "600", environmentId=bare)
    held = w.lease(bare)
    if held:
        w.call("POST", f"/api/environment-leases/{held['id']}/exec?detach=1",
               {"command": ["sleep", "600"], "generation": held["generation"],
                "env": {"CANARY": w.server.data}})
    w.await_running(1)


def leave_queue(w):
    """Beside it a run that waits for what an operator holds."""
    leave_work(w)
    waiting = w.run("true", environmentId=w.environment("again", reuseLease=True))
    w.until(lambda: w.server.query(
        "SELECT 1 FROM runs WHERE id = ? AND status_reason IS NOT NULL", waiting))


def take_up(w):
    """Runs whose relays live go on, lost ones are tried once more."""
    w.until(lambda: len(w.server.query(
        "SELECT 1 FROM runs r WHERE status = 'running' AND process_pid IS NOT NULL AND boot_epoch ="
        " (SELECT boot_epoch FROM nodes WHERE id = r.node_id)")) >= 2)
    rest(w)


def without_relays(w):
    w.server.end_keeper()


def end_while_down(w):
    """One command ends with nobody to tell."""
    w.run("sh", "-c", "while [ ! -e go ]; do sleep 0.05; done; seq 1000",
          cwd=w.server.data)
    held = w.lease(w.environment("plain"))
    if held:
        w.call("POST", f"/api/environment-leases/{held['id']}/exec?detach=1",
               {"command": ["sleep", "600"], "generation": held["generation"],
                "env": {"CANARY": w.server.data}})
    w.await_running(1)


def say_go(w):
    with open(os.path.join(w.server.data, "go"), "w", encoding="ascii"):
        pass


def reboot(w):
    w.server.edit("UPDATE places SET boot_id = 'before the reboot'")


def other_node(w):
    for table in ("places", "leases", "runs"):
        w.server.edit(f"UPDATE {table} SET node_id = '00000000-0000-4000-8000-00000000dead'")


def compress(w):
    """The log of a run that has ended is compressed behind it, and says the same."""
    run = w.run("seq", "1", "5000")
    # With a fault in the way it may have printed nothing.
    if not w.await_run(run) or w.server.query("SELECT 1 FROM runs WHERE id = ? AND status <> 'succeeded'",
                                              run):
        return
    packed = os.path.join(w.server.data, "logs", run[-2:], f"{run}.data.zst")
    w.until(lambda: os.path.exists(packed))
    w.until(lambda: w.server.query("SELECT 1 FROM counters WHERE name LIKE 'logs.packed.%'"))
    status, page = w.call("GET", f"/api/heartbeat-runs/{run}/log")
    assert status == 200 and page["endOffset"] == 23893, page


def upkeep(w):
    w.await_run(w.run("true", environmentId=w.environment("plain")))
    w.release(w.lease(w.environment("plain"), key="k"))
    w.await_run(w.run("false", environmentId=w.environment("plain")))
    # Values of a run that failed a day ago go before the run does.
    w.server.edit("UPDATE runs SET finished_at = 1 WHERE status = 'failed'")
    w.call("POST", "/api/backup", {})
    w.call("POST", "/api/prune", {"olderThanSeconds": 0})


class Scene:
    def __init__(self, act, before=None, offline=None, faults="", before_faults="", name=None):
        self.act, self.before, self.offline = act, before, offline
        self.faults, self.before_faults = faults, before_faults
        self.recovers = act in (rest, take_up)
        # Of these points not only the quickest scene is tried: here they come in another order.
        self.own = (("db.lease.grant.", "channel.exec_start.", "driver.acquire.", "keeper.make.")
                    if act is lease_with_command else ())
        self.name = name or act.__name__

    def prepare(self, w):
        if not self.before:
            return
        assert w.server.start(self.before_faults), w.server.tail()
        w.ensure_company()
        try:
            self.before(w)
        except Died:
            w.server.await_end(5)
        w.server.kill()
        if self.offline:
            self.offline(w)

    def play(self, w):
        w.ensure_company()
        self.act(w)


SCENES = [Scene(act) for act in (
    records, change_records, people, beats, run_here, run_much, run_in_place, run_bare, fail_and_retry,
    bring_files, bring_and_collect, bring_many, bring_repository, bring_worktree, stage_by_hand,
    cancel_and_time_out,
    wait_in_queue, lease_by_hand, lease_with_command, pause, refused_with_key, expire, idle, destroy, retain, reuse, resume_in_vain,
    stubborn_release, archive, vanish, unexplained, compress, upkeep)] + [
    Scene(run_here, hold, without_local_environment, name="run_without_local"),
    Scene(ask_for_default, beats, without_sandbox),
    Scene(in_workspace, in_workspace_before),
    Scene(grant_fails, faults="db.lease.grant.before@1:error"),
    Scene(grant_fails, faults="db.lease.grant.before@1:error,db.lease.orphan.before@1:error",
          name="grant_and_orphan_fail"),
    Scene(stubborn_release, faults="db.lease.cleaned.before@1:error", name="cleaned_in_vain"),
    Scene(hold_and_release, faults="db.lease.released.before@1:error", name="released_in_vain"),
    Scene(rest, grant_fails, name="spool_at_start",
          before_faults="db.lease.grant.before@1:error,db.lease.orphan.before:error,"
          "db.lease.unspool.before:kill"),
    Scene(rest, hold, name="acquire_interrupted", before_faults="driver.acquire.after:kill"),
    Scene(rest, resume_again, name="resume_interrupted", before_faults="driver.resume.after:kill"),
    Scene(rest, hold_and_release, name="release_interrupted",
          before_faults="driver.release.before:kill"),
    Scene(rest, hold, forget_rows, name="unexplained_at_start"),
    Scene(rest, hold_here, reboot, name="rebooted"),
    Scene(rest, leave_queue, other_node, name="dead_node"),
    Scene(take_up, leave_work, name="crash"),
    Scene(take_up, leave_work, name="reconnect", faults="channel.attach.before@1:error"),
    Scene(rest, leave_bare, name="crash_without_relays"),
    Scene(take_up, leave_work, without_relays, name="crash_with_relays"),
    Scene(rest, run_here, name="begin_interrupted", before_faults="channel.exec_start.before:kill"),
    Scene(rest, end_while_down, say_go, name="ended_while_down"),
    Scene(find_unknown, begin_unknown, before_faults="driver.start.after:kill"),
    Scene(rest, bring_files, name="collect_interrupted", before_faults="workspace.apply.swap:kill"),
]
