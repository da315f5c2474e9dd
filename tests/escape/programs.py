#!/usr/bin/env python3
"""Walls that nothing works behind are no walls: real programs in native places, as root and as an
ordinary user. One line of PROGRAMS each: name, script, what it must print."""

import concurrent.futures
import itertools
import os
import shutil
import sys

from yard import Host, Yard

SERVE = """python3 -u -m http.server --bind 127.0.0.1 0 >port 2>&1 &
for i in $(seq 100); do grep -q port port && break; sleep 0.05; done
curl -sf "http://127.0.0.1:$(grep -o 'port [0-9]*' port | cut -d' ' -f2)/hello"; kill %1"""
PROGRAMS = [
    ("python3", "python3 -c 'import ssl, threading, subprocess, multiprocessing as m; p = m.Pool(2);"
     " print(sum(p.map(abs, range(100))), subprocess.check_output([\"echo\", \"sub\"]))'",
     "4950 b'sub\\n'"),
    ("node", "node -e 'const w = require(\"worker_threads\"); const c = require(\"child_process\");"
     " new w.Worker(\"1\", {eval: true}).on(\"exit\", () =>"
     " console.log(c.execSync(\"echo child\").toString().trim()))'", "child"),
    ("git", "git init -q r && cd r && echo 1 >f && git add f && git -c user.name=a -c user.email=a@b"
     " commit -qm one && git clone -q . ../c && git -C ../c log --format=%s && git gc -q", "one"),
    ("gcc", "printf '#include <stdio.h>\\n#include <pthread.h>\\nstatic void *f(void *x){return x;}"
     "int main(){pthread_t t;pthread_create(&t,0,f,0);pthread_join(t,0);puts(\"built\");}' >m.c"
     " && gcc -O2 -o m m.c && ./m", "built"),
    ("make", "printf 'all: a b c d\\n\\t@cat $^\\n%%:\\n\\t@sleep 0.01; echo $@ >$@\\n' >Makefile &&"
     " make -s -j4 all | tr -d '\\n'", "abcd"),
    ("curl", "echo over-loopback >hello; " + SERVE, "over-loopback"),
    ("shell", "n=0; for i in $(seq 300); do n=$((n + $(echo 1 | cat | tr -d ' '))); done; echo $n",
     "300"),
    ("sqlite", "python3 -c 'import sqlite3; c = sqlite3.connect(\"x.db\");"
     " c.execute(\"pragma journal_mode=wal\"); c.execute(\"create table t(a)\"); c.commit();"
     " print(c.execute(\"select count(*) from t\").fetchone()[0])'", "0"),
    ("terminal", "script -qec 'test -t 0 && tty' /dev/null | tr -d '\\r'", "/dev/pts/0"),
    ("debugger", "python3 -c 'import ctypes, os, signal; l = ctypes.CDLL(None); p = os.fork();\n"
     "if p == 0:\n l.ptrace(0, 0, 0, 0); os.kill(os.getpid(), signal.SIGSTOP); os._exit(7)\n"
     "os.waitpid(p, 0); l.ptrace(7, p, 0, 0); print(os.WEXITSTATUS(os.waitpid(p, 0)[1]))'", "7"),
    ("java", "echo 'class H { public static void main(String[] a) { new Thread(() ->"
     " System.out.println(\"jvm\")).start(); } }' >H.java && java -XX:TieredStopAtLevel=1 H.java",
     "jvm"),
]


NO_PROGRAM = {"shell", "sqlite", "terminal", "debugger"}


def is_missing(name):
    return name not in NO_PROGRAM and not shutil.which(name, path="/usr/bin:/bin")


def try_one(yard, name, script, wanted):
    """(line, complaint or None)"""
    who = "ordinary user" if yard.user else "root"
    if is_missing(name):
        return f"{who:14} {name:10} MISSING", f"{name} is not installed: see scripts/packages.txt"
    if name == "java" and yard.user and not os.environ.get("BERTH_LONG"):
        return f"{who:14} {name:10} skipped: once is enough", None
    place = yard.acquire()
    done = place.run("bash", "-c", script, check=False, timeout=90)
    place.release()
    if done.returncode == 0 and done.stdout.strip() == wanted:
        return f"{who:14} {name:10} works", None
    return f"{who:14} {name:10} FAILS", (f"{who}: {name}: exit {done.returncode},"
                                         f" {done.stdout[-500:]!r}, {done.stderr[-1000:]!r}")


def main():
    bad, host, yards = [], Host(), []
    try:
        yards = [Yard(host), Yard(host, user=True)]
        with concurrent.futures.ThreadPoolExecutor(4) as pool:
            for line, complaint in pool.map(lambda w: try_one(w[0], *w[1]),
                                            itertools.product(yards, PROGRAMS)):
                print(line)
                bad += [complaint] if complaint else []
    finally:
        for yard in yards:
            yard.remove()
        host.remove()
    for complaint in bad:
        print(complaint)
    print(f"programs: {len(bad)} complaints")
    sys.exit(1 if bad else 0)


main()
