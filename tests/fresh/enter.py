#!/usr/bin/env python3
"""Runs a command with another directory as its root: enter.py ROOT CACHE COMMAND...

To be started by `unshare --mount --pid --fork --ipc --uts`. The root is left by pivot_root and not by
chroot, in which the kernel makes no user namespaces. Everything is done with system calls: the new
root need not have a program for any of it.
"""
import ctypes
import os
import platform
import socket
import sys

MS_NOSUID, MS_NODEV, MS_BIND, MS_REC, MS_PRIVATE = 2, 4, 4096, 16384, 1 << 18
MNT_DETACH = 2
PIVOT_ROOT = {"x86_64": 155, "aarch64": 41}

libc = ctypes.CDLL(None, use_errno=True)


def check(result, what):
    if result != 0:
        sys.exit(f"{what}: {os.strerror(ctypes.get_errno())}")


def mount(source, target, kind, flags, options=None):
    args = [text.encode() if text else None for text in (source, target, kind)]
    options = options.encode() if options else None
    check(libc.mount(*args, ctypes.c_ulong(flags), options), f"mounting {target}")


def furnish(root, cache):
    mount(None, "/", None, MS_REC | MS_PRIVATE)
    mount(root, root, None, MS_BIND)
    mount("proc", root + "/proc", "proc", MS_NOSUID | MS_NODEV)
    mount("/sys", root + "/sys", None, MS_BIND | MS_REC)
    mount("/dev", root + "/dev", None, MS_BIND | MS_REC)
    mount("run", root + "/run", "tmpfs", MS_NOSUID | MS_NODEV, "mode=755")
    mount("tmp", root + "/tmp", "tmpfs", MS_NOSUID | MS_NODEV, "mode=1777,size=50%")
    mount(cache + "/archives", root + "/var/cache/apt/archives", None, MS_BIND)
    mount(cache + "/npm", root + "/var/cache/npm", None, MS_BIND)


def move_to(root):
    os.chdir(root)
    # Both at one place: the old root lies over the new one until it is taken away.
    check(libc.syscall(PIVOT_ROOT[platform.machine()], b".", b"."), "pivot_root")
    check(libc.umount2(b".", MNT_DETACH), "leaving the old root")
    os.chdir("/")


def run(command):
    child = os.fork()
    if child == 0:
        os.execvp(command[0], command)
    # This is the namespace's first process: it collects all of them, and they end with it.
    while True:
        pid, status = os.wait()
        if pid == child:
            return os.waitstatus_to_exitcode(status) & 255


root, cache = os.path.realpath(sys.argv[1]), os.path.realpath(sys.argv[2])
socket.sethostname("fresh")
furnish(root, cache)
move_to(root)
sys.exit(run(sys.argv[3:]))
