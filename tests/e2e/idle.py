"""idle.py PORT COUNT READY-FILE: so many connections that have asked once and now say nothing."""

import resource
import signal
import socket
import sys

port, count, ready = sys.argv[1], int(sys.argv[2]), sys.argv[3]
hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
resource.setrlimit(resource.RLIMIT_NOFILE, (min(count + 100, hard), hard))
connections = []
for _ in range(count):
    s = socket.create_connection(("127.0.0.1", int(port)), timeout=20)
    s.sendall(b"GET /api/health HTTP/1.1\r\nHost: localhost:%s\r\n\r\n" % port.encode())
    connections.append(s)
for s in connections:
    answer = s.recv(4096)
    if not answer.startswith(b"HTTP/1.1 200"):
        sys.exit("answered %r" % answer[:200])
with open(ready, "w") as f:
    f.write("yes")
signal.pause()
