#!/usr/bin/env python3
"""A WebSocket client for tests: ws.py SOCKET PATH [STEP...]

Prints text messages and the close as lines of JSON on stdout, bytes to the file named by --bytes.
Steps run in order: `wait:TEXT` until TEXT has been in the bytes, `type:TEXT` sends bytes (\\n is
understood), `say:JSON` sends a control message, `drop` ends without a word. Afterwards it reads to
the end.
"""
import base64, json, os, socket, struct, sys, time

DEADLINE = time.monotonic() + 30


def main():
    path, url, steps, out = sys.argv[1], sys.argv[2], sys.argv[3:], None
    if steps[:1] == ["--bytes"]:
        out, steps = open(steps[1], "wb"), steps[2:]
    s = socket.socket(socket.AF_UNIX)
    s.connect(path)
    s.settimeout(30)
    key = base64.b64encode(os.urandom(16)).decode()
    s.sendall((f"GET {url} HTTP/1.1\r\nHost: x\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
               f"Sec-WebSocket-Key: {key}\r\nSec-WebSocket-Version: 13\r\n\r\n").encode())
    got = b""
    while b"\r\n\r\n" not in got:
        part = s.recv(4096)
        if not part:
            break
        got += part
    head, _, got = got.partition(b"\r\n\r\n")
    if b" 101 " not in head.split(b"\r\n")[0]:
        print(json.dumps({"refused": head.split(b"\r\n")[0].decode()}))
        return 1
    seen = b""

    def send(op, data):
        mask = os.urandom(4)
        n = len(data)
        size = bytes([0x80 | n]) if n < 126 else bytes([0x80 | 126]) + struct.pack(">H", n)
        s.sendall(bytes([0x80 | op]) + size + mask + bytes(b ^ mask[i % 4] for i, b in enumerate(data)))

    def need(n):
        nonlocal got
        while len(got) < n:
            part = s.recv(65536)
            if not part:
                return False
            got += part
        return True

    def take():
        """One message; False at the end."""
        nonlocal got, seen
        if not need(2):
            print(json.dumps({"type": "gone"}), flush=True)
            return False
        op, n, at = got[0] & 15, got[1] & 127, 2
        if n == 126:
            need(4)
            n, at = struct.unpack(">H", got[2:4])[0], 4
        elif n == 127:
            need(10)
            n, at = struct.unpack(">Q", got[2:10])[0], 10
        if not need(at + n):
            return False
        data, got = got[at:at + n], got[at + n:]
        if op == 2:
            seen += data
            if out:
                out.write(data)
                out.flush()
        elif op == 1:
            print(data.decode(), flush=True)
        elif op == 9:
            send(10, data)
        elif op == 8:
            code = struct.unpack(">H", data[:2])[0] if len(data) > 1 else 1005
            print(json.dumps({"type": "close", "code": code, "reason": data[2:].decode()}), flush=True)
            send(8, data)
            return False
        return True

    for step in steps:
        kind, _, rest = step.partition(":")
        if kind == "wait":
            while rest.encode() not in seen:
                if time.monotonic() > DEADLINE or not take():
                    print(json.dumps({"never": rest}), flush=True)
                    return 1
        elif kind == "type":
            send(2, rest.replace("\\n", "\n").encode())
        elif kind == "say":
            send(1, rest.encode())
        elif kind == "drop":
            return 0
    while take():
        pass
    return 0


sys.exit(main())
