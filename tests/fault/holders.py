#!/usr/bin/env python3
"""G1: 32 clients acquire, renew, execute in and release one reusable place. Their holdings never
overlap, generations strictly rise, and a stale exec, renew or release always gets 409. The same
checker must fail when the fence is switched off."""

import random
import sys
import threading

from lib import Server

CLIENTS = 32
ROUNDS = 4


def setup(server):
    company = server.call("POST", "/api/companies", {"name": "holders"})[1]["id"]
    status, environment = server.call(
        "POST", f"/api/companies/{company}/environments",
        {"name": "one", "driver": "sandbox",
         "config": {"provider": "fake", "image": "x", "reuseLease": True}})
    assert status == 201, environment
    return environment["id"]


# Inside the place: whoever finds another's mark has met a second holder.
COMMAND = ["sh", "-c", 'mkdir holder || { echo overlap; exit 9; }; echo "$ID" > holder/id;'
           ' test "$(cat holder/id)" = "$ID" || echo overlap; rm -r holder']


def use_stale(server, lease, complain):
    """Every door must be shut to a generation that is over."""
    lease_id, old = lease["id"], lease["generation"]
    for verb, body in (("exec", {"command": ["true"]}), ("renew", {"ttlSeconds": 60})):
        status, answer = server.call("POST", f"/api/environment-leases/{lease_id}/{verb}?stream=0"
                                     if verb == "exec" else
                                     f"/api/environment-leases/{lease_id}/{verb}",
                                     dict(body, generation=old))
        if status != 409:
            complain(f"stale {verb} got {status}: {answer}")


def client(server, environment, index, rounds, held, complain):
    chance = random.Random(index)
    for _ in range(rounds):
        status, lease = server.call("POST", f"/api/environments/{environment}/leases",
                                    {"waitSeconds": 120, "ttlSeconds": 300}, timeout=150)
        if status != 201:
            complain(f"acquire got {status}: {lease}")
            continue
        lease_id, generation = lease["id"], lease["generation"]
        # A generation that is not ours, older and newer, must be refused while we hold.
        wrong = generation + chance.choice([-1, 1])
        for verb in ("exec?stream=0", "renew", "release"):
            body = {"generation": wrong}
            if verb.startswith("exec"):
                body["command"] = ["true"]
            status, answer = server.call(
                "POST", f"/api/environment-leases/{lease_id}/{verb}", body)
            if status != 409:
                complain(f"{verb} with generation {wrong} instead of {generation} got {status}")
        status, answer = server.call(
            "POST", f"/api/environment-leases/{lease_id}/exec?stream=0",
            {"command": COMMAND, "env": {"ID": lease_id}, "generation": generation})
        if status != 200:
            complain(f"exec got {status}: {answer}")
        elif "overlap" in answer["stdout"] or answer["exitCode"] != 0:
            complain(f"two holders inside: {answer}")
        if chance.random() < 0.5:
            status, answer = server.call("POST", f"/api/environment-leases/{lease_id}/renew",
                                         {"generation": generation, "ttlSeconds": 300})
            if status != 200:
                complain(f"renew got {status}: {answer}")
        status, answer = server.call("POST", f"/api/environment-leases/{lease_id}/release",
                                     {"generation": generation})
        if status != 200:
            complain(f"release got {status}: {answer}")
        held.append(lease)
        use_stale(server, lease, complain)


def intervals(server, complain):
    rows = server.query("SELECT place_id, generation, acquired_at, released_at, id FROM leases"
                        " ORDER BY place_id, generation")
    for one, two in zip(rows, rows[1:]):
        if one[0] != two[0]:
            continue
        if two[1] <= one[1]:
            complain(f"generation {two[1]} after {one[1]}")
        if one[3] is None or two[2] < one[3]:
            complain(f"lease {two[4]} began at {two[2]} before {one[4]} ended at {one[3]}")
    return len(rows)


def check(fault, clients=CLIENTS, rounds=ROUNDS):
    server, complaints, held = Server(), [], []
    try:
        assert server.start(fault), server.tail()
        environment = setup(server)
        threads = [threading.Thread(target=client,
                                    args=(server, environment, i, rounds, held,
                                          complaints.append))
                   for i in range(clients)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        count = intervals(server, complaints.append)
        if not fault and count != CLIENTS * ROUNDS:
            complaints.append(f"{count} leases instead of {CLIENTS * ROUNDS}")
        return count, complaints
    finally:
        server.remove()


count, complaints = check(None)
if complaints:
    sys.exit(f"{len(complaints)} complaints: " + "\n".join(complaints[:10]))
_, without_fence = check("lease.fence:skip", clients=8, rounds=2)
if not without_fence:
    sys.exit("the checker is blind: with the fence switched off it found nothing")
print(f"{count} holdings by {CLIENTS} clients never overlapped; "
      f"without the fence the checker found {len(without_fence)} violations")
