"""Requests that no HTTP library would send: raw.py WHERE < BYTES, raw.py WHERE --endless MIB

WHERE is the path of a unix socket or a TCP port on loopback. Prints what came back, then a line
`sent N` with the bytes the server took before it answered or closed.
"""

import select
import socket
import sys
import time

DEADLINE = time.monotonic() + 30


def connect(where):
    if where.isdigit():
        return socket.create_connection(("127.0.0.1", int(where)), timeout=10)
    s = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    s.settimeout(10)
    s.connect(where)
    return s


def endless(mib):
    """A chunked body that never says it is over, up to so many MiB."""
    yield (b"POST /api/companies HTTP/1.1\r\nHost: localhost\r\n"
           b"Content-Type: application/json\r\nTransfer-Encoding: chunked\r\n\r\n")
    yield b"9\r\n{\"name\":\"\r\n"
    chunk = b"10000\r\n" + b"a" * 0x10000 + b"\r\n"
    for _ in range(mib * 16):
        yield chunk


def answered(s, seconds):
    return select.select([s], [], [], seconds)[0]


s = connect(sys.argv[1])
pieces = endless(int(sys.argv[3])) if "--endless" in sys.argv else [sys.stdin.buffer.read()]
sent = 0
try:
    for piece in pieces:
        if answered(s, 0) or time.monotonic() > DEADLINE:
            break
        s.sendall(piece)
        sent += len(piece)
except (BrokenPipeError, ConnectionResetError, socket.timeout):
    pass
got = b""
try:
    while answered(s, 2 if got else 10):
        data = s.recv(65536)
        if not data:
            break
        got += data
except ConnectionResetError:
    pass
sys.stdout.write(got.decode("utf-8", "replace") + "\nsent %d\n" % sent)
