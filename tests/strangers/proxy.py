"""A neighbour without the key. It announces itself with copies of the adverts that it hears, and
forwards every connection that arrives to the genuine node. Runs as a machine of the lab; each line
it prints is JSON.

    proxy.py ADDRESS     the address of this machine; each line of its input asks for the counters
"""

import json
import random
import select
import socket
import struct
import sys
import threading
import time

GROUP, PORT = "224.0.0.251", 5353
SERVICE = "_potluck._tcp.local"
PTR, TXT, A, SRV, ANY, IN, FLUSH = 12, 16, 1, 33, 255, 1, 0x8001
AGAIN = 0.5  # seconds between announcements


class Proxy:
    """Copies of nodes, by boot."""

    def __init__(self, address):
        self.address, self.copies, self.lock = address, {}, threading.Lock()
        self.connections = self.bytes = 0

    def copy(self, boot, txt, target):
        """Forwards to `target` under the boot and the tag of another node."""
        if boot in self.copies:
            self.copies[boot]["target"] = target
            return
        listener = socket.create_server((self.address, 0), backlog=128)
        self.copies[boot] = {
            "port": listener.getsockname()[1],
            "txt": txt,
            "target": target,
            "name": "".join(random.choices("abcdefghijklmnopqrstuvwxyz234567", k=16)),
        }
        threading.Thread(target=self.accept, args=(listener, boot), daemon=True).start()
        say(event="copied", target=f"{target[0]}:{target[1]}", port=self.copies[boot]["port"])

    def accept(self, listener, boot):
        while True:
            outer, _ = listener.accept()
            with self.lock:
                self.connections += 1
            try:
                inner = socket.create_connection(self.copies[boot]["target"], timeout=5)
            except OSError:
                outer.close()
                continue
            inner.settimeout(None)
            for one, other in [(outer, inner), (inner, outer)]:
                one.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                threading.Thread(target=self.forward, args=(one, other), daemon=True).start()

    def forward(self, one, other):
        try:
            while got := one.recv(1 << 18):
                other.sendall(got)
                with self.lock:
                    self.bytes += len(got)
        except OSError:
            pass
        for end in one, other:
            try:
                end.shutdown(socket.SHUT_RDWR)
            except OSError:
                pass

    def announcements(self):
        for copy in list(self.copies.values()):
            name, host = f"{copy['name']}.{SERVICE}", f"{copy['name']}.local"
            yield packet([
                record(SERVICE, PTR, IN, encoded(name)),
                record(name, SRV, FLUSH, struct.pack("!HHH", 0, 0, copy["port"]) + encoded(host)),
                record(name, TXT, FLUSH, copy["txt"]),
                record(host, A, FLUSH, socket.inet_aton(self.address)),
            ])


def say(**event):
    print(json.dumps(event), flush=True)


def encoded(name):
    labels = name.rstrip(".").split(".")
    return b"".join(bytes([len(label)]) + label.encode() for label in labels) + b"\0"


def record(name, kind, klass, data):
    return encoded(name) + struct.pack("!HHIH", kind, klass, 120, len(data)) + data


def packet(answers):
    return struct.pack("!6H", 0, 0x8400, 0, len(answers), 0, 0) + b"".join(answers)


def question():
    return struct.pack("!6H", 0, 0, 1, 0, 0, 0) + encoded(SERVICE) + struct.pack("!HH", PTR, IN)


def name_at(data, at):
    """The name there, and the place behind it."""
    labels, end, hops = [], None, 0
    while (length := data[at]) and hops < 32:
        if length >= 0xC0:
            end, at, hops = end or at + 2, (length & 0x3F) << 8 | data[at + 1], hops + 1
            continue
        labels.append(data[at + 1:at + 1 + length].decode("latin-1"))
        at += 1 + length
    return ".".join(labels).lower(), end or at + 1


def records(data):
    _, _, questions, *others = struct.unpack("!6H", data[:12])
    at = 12
    for _ in range(questions):
        at = name_at(data, at)[1] + 4
    for _ in range(sum(others)):
        name, at = name_at(data, at)
        kind, _, _, length = struct.unpack("!HHIH", data[at:at + 10])
        yield name, kind, at + 10, data[at + 10:at + 10 + length]
        at += 10 + length


def fields(txt):
    at, found = 0, {}
    while at < len(txt):
        key, _, value = txt[at + 1:at + 1 + txt[at]].partition(b"=")
        found[key.decode("latin-1")] = value.decode("latin-1")
        at += 1 + txt[at]
    return found


def hear(proxy, data, known):
    """Learns nodes from a packet; `known` keeps the records of earlier ones."""
    for name, kind, at, value in records(data):
        if kind == SRV and name.endswith(SERVICE):
            known[name, SRV] = (struct.unpack("!H", value[4:6])[0], name_at(data, at + 6)[0])
        elif kind == TXT and name.endswith(SERVICE) or kind == A:
            known[name, kind] = value
    for (name, kind), value in list(known.items()):
        if kind != SRV:
            continue
        port, host = value
        txt, ip = known.get((name, TXT)), known.get((host, A))
        if txt and ip and (ip := socket.inet_ntoa(ip)) != proxy.address and "t" in fields(txt):
            proxy.copy(fields(txt)["b"], txt, (ip, port))


def main(address):
    proxy, known, next_at = Proxy(address), {}, 0.0
    sock = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
    sock.bind(("", PORT))
    own = socket.inet_aton(address)
    sock.setsockopt(socket.IPPROTO_IP, socket.IP_ADD_MEMBERSHIP, socket.inet_aton(GROUP) + own)
    sock.setsockopt(socket.IPPROTO_IP, socket.IP_MULTICAST_IF, own)
    say(event="listening")
    while True:
        patience = max(0.0, next_at - time.monotonic())
        readable, _, _ = select.select([sock, sys.stdin], [], [], patience)
        if sock in readable:
            try:
                hear(proxy, sock.recv(9000), known)
            except (IndexError, struct.error):
                pass  # not DNS
        if sys.stdin in readable:
            if not sys.stdin.readline():
                return
            say(event="counted", connections=proxy.connections, bytes=proxy.bytes)
        if time.monotonic() >= next_at:
            next_at = time.monotonic() + AGAIN
            for message in [question(), *proxy.announcements()]:
                sock.sendto(message, (GROUP, PORT))


if __name__ == "__main__":
    main(*sys.argv[1:])
