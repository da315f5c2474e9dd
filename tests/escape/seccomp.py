#!/usr/bin/env python3
"""The system call filter, asked from inside about every call that the kernel's headers name, about
the x32 and i386 ways into the kernel, and about the arguments in seccomp.table."""

import collections
import os
import sys

from yard import HERE, Host, Yard


def read_table():
    """[(verdict, call with arguments)]"""
    rows = []
    with open(os.path.join(HERE, "seccomp.table"), encoding="ascii") as f:
        for line in f:
            words = line.split()
            if words and not line.startswith("#"):
                call = [words[1]]
                for word in words[2:]:
                    if not word[0].isdigit():
                        break
                    call.append(word)
                rows.append((words[0], ",".join(call)))
    return rows


def verdicts(place, rows):
    probes = "\n".join(call.replace(",", " ") for _, call in rows if "," in call) + "\n"
    place.put(os.path.join(place.yard.host.bin, "verdicts"))
    done = place.run("sh", "-c", f"printf '%s' '{probes}' | /tmp/verdicts")
    return [line.split(" ") for line in done.stdout.splitlines()]


def judge(where, found, rows):
    wanted = {call: verdict for verdict, call in rows}
    seen, bad = set(), []
    for abi, call, verdict in found:
        want = wanted.get(call, "allow") if abi == "64" else "kill"
        seen.add(call)
        if verdict != want:
            bad.append(f"{where}: {abi} {call}: {verdict} instead of {want}")
    # What the headers of this machine do not know yet cannot be asked about.
    unknown = [call for call in wanted if call not in seen]
    bad += [f"{where}: {call} was not asked about" for call in unknown if "," in call]
    counts = collections.Counter((abi, verdict) for abi, _, verdict in found)
    print(f"{where}: " + ", ".join(f"{abi} {verdict} {n}" for (abi, verdict), n in
                                   sorted(counts.items())) +
          (f"; not in the headers here: {' '.join(unknown)}" if unknown else ""))
    return bad


def main():
    rows, bad = read_table(), []
    host = Host()
    try:
        for user in (False, True):
            yard = Yard(host, user=user)
            try:
                bad += judge("ordinary user" if user else "root",
                             verdicts(yard.acquire(), rows), rows)
            finally:
                yard.remove()
    finally:
        host.remove()
    for complaint in bad:
        print(complaint)
    print(f"seccomp: {len(rows)} lines, {len(bad)} complaints")
    sys.exit(1 if bad else 0)


main()
