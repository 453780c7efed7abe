"""Hostile connections in great numbers. Runs as a machine of the lab; each line it prints is JSON.

    storm.py HOST PORT RATE SLOW SECONDS SOURCES

RATE new connections a second, which say half a preamble and end 100 ms later, and SLOW connections
at a time that say a byte every 100 ms, from SOURCES addresses of this machine, of which all but the
first are added to eth0. It ends with the first line of its input, or after SECONDS.
"""

import collections
import ipaddress
import json
import select
import socket
import subprocess
import sys
import time

START = b"potl\x01\x10" + bytes(10)
LIVES = 0.1  # seconds of a connection, and between two bytes of a slow one


def say(**event):
    print(json.dumps(event), flush=True)


def sources(host, count):
    """Addresses of this machine in the network of `host`. Those that are missing are added."""
    if ":" in host:
        scope = socket.if_nametoindex("eth0")
        added = [f"fe80::5:{number:x}" for number in range(1, count)]
        lines = [f"addr add {address}/64 dev eth0 nodad" for address in added]
        every = [None] + [(address, 0, 0, scope) for address in added]
    else:
        network = ipaddress.ip_network(f"{host}/24", strict=False)
        added = [str(network[number]) for number in range(50, 49 + count)]
        lines = [f"addr add {address}/24 dev eth0" for address in added]
        every = [None] + [(address, 0) for address in added]
    subprocess.run(["ip", "-force", "-batch", "-"], input="\n".join(lines), text=True,
                   stderr=subprocess.DEVNULL)
    return every


class Storm:
    def __init__(self, host, port, every):
        info = socket.getaddrinfo(host, int(port), type=socket.SOCK_STREAM)[0]
        self.family, self.to, self.every = info[0], info[4], every
        self.made = self.failed = self.received = 0

    def connect(self):
        sock = socket.socket(self.family, socket.SOCK_STREAM)
        sock.setblocking(False)
        source = self.every[self.made % len(self.every)]
        self.made += 1
        try:
            if source:
                sock.bind(source)
            sock.connect_ex(self.to)
        except OSError:
            self.failed += 1
        return sock

    def hear(self, sock):
        """Whether the connection goes on."""
        try:
            got = sock.recv(4096)
            self.received += len(got)
            return bool(got)
        except BlockingIOError:
            return True
        except OSError:
            return False

    def say(self, sock, data):
        try:
            sock.send(data)
            return True
        except BlockingIOError:
            return True
        except OSError:
            return False


def main(host, port, rate, slow, seconds, count):
    storm = Storm(host, port, sources(host, int(count)))
    rate, slow = int(rate), int(slow)
    begin = time.monotonic()
    short, slow_ones, next_slow = collections.deque(), [], begin
    say(event="storming")
    while (now := time.monotonic()) < begin + float(seconds):
        while len(short) and now >= short[0][0]:
            _, sock = short.popleft()
            storm.say(sock, START[:6])
            storm.hear(sock)
            sock.close()
        due = int(rate * (now - begin)) - (storm.made - len(slow_ones))
        for _ in range(max(0, min(due, 100))):
            short.append((now + LIVES, storm.connect()))
        if now >= next_slow:
            next_slow = now + LIVES
            slow_ones = [(sock, at + 1) for sock, at in slow_ones
                         if storm.hear(sock) and storm.say(sock, START[at % 16:at % 16 + 1])
                         or sock.close()]
            slow_ones += [(storm.connect(), 0) for _ in range(min(50, slow - len(slow_ones)))]
        if select.select([sys.stdin], [], [], 0.005)[0]:
            break
    say(event="stormed", made=storm.made, failed=storm.failed, received=storm.received,
        seconds=time.monotonic() - begin)


if __name__ == "__main__":
    main(*sys.argv[1:])
