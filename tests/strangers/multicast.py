"""False multicast DNS from a machine without the key. Each line it prints is JSON.

    multicast.py ADDRESS SEED SECONDS PORT

ADDRESS is that of this machine. For SECONDS it announces made-up nodes, a thousand a second, and
copies of the adverts that it hears under its own address and PORT; says good-bye for genuine nodes
and gives false addresses for them; and sends broken packets. It listens at PORT and counts who
connects.
"""

import json
import random
import select
import socket
import struct
import sys
import time

from proxy import (
    A, FLUSH, GROUP, IN, PORT, PTR, SERVICE, SRV, TXT, encoded, fields, packet, question, record,
    records,
)

FAKES_AT_ONCE = 4


def say(**event):
    print(json.dumps(event), flush=True)


def node(chance, address, port, txt):
    name = "".join(chance.choices("abcdefghijklmnopqrstuvwxyz234567", k=16))
    full, host = f"{name}.{SERVICE}", f"{name}.local"
    return [
        record(SERVICE, PTR, IN, encoded(full)),
        record(full, SRV, FLUSH, struct.pack("!HHH", 0, 0, port) + encoded(host)),
        record(full, TXT, FLUSH, txt),
        record(host, A, FLUSH, socket.inet_aton(address)),
    ]


def text(**named):
    items = [f"{key}={value}".encode() for key, value in named.items()]
    return b"".join(bytes([len(item)]) + item for item in items)


def made_up(chance, address):
    """Made-up nodes, half of them at addresses of the network, the others anywhere."""
    answers = []
    for _ in range(FAKES_AT_ONCE):
        near = address.rsplit(".", 1)[0] + f".{chance.randrange(1, 255)}"
        far = ".".join(str(chance.randrange(1, 255)) for _ in range(4))
        boot, tag, job = (f"{chance.getrandbits(64):016x}" for _ in range(3))
        txt = text(v=1, b=boot, t=tag, j=job, s="01")
        answers += node(chance, chance.choice([near, far]), chance.randrange(1, 65536), txt)
    return packet(answers)


def false_words(chance, address, known):
    """Good-byes and false addresses for a genuine node."""
    full, (_, txt, host) = chance.choice(sorted(known.items()))
    bye = encoded(SERVICE) + struct.pack("!HHIH", PTR, IN, 0, len(encoded(full))) + encoded(full)
    false = record(full, SRV, FLUSH, struct.pack("!HHH", 0, 0, 9) + encoded(host))
    return packet([bye, false, record(host, A, FLUSH, socket.inet_aton(address)),
                   record(full, TXT, FLUSH, txt)])


def broken(chance, genuine):
    """A packet of which some bytes are wrong, or missing, or too many."""
    bent = bytearray(genuine or packet([]))
    for _ in range(chance.randrange(1, 20)):
        wrong = chance.choice([0, 0xC0, 0x1B, 0xFF, chance.randrange(256)])
        bent[chance.randrange(len(bent))] = wrong
    kept = bent[:chance.randrange(1, len(bent) + 1)]
    return bytes(kept + chance.randbytes(chance.choice([0, 3, 4000])))


def main(address, seed, seconds, port):
    chance, known, genuine = random.Random(int(seed)), {}, b""
    listener = socket.create_server((address, int(port)), backlog=512)
    sock = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    for option in socket.SO_REUSEADDR, socket.SO_REUSEPORT:
        sock.setsockopt(socket.SOL_SOCKET, option, 1)
    sock.bind(("", PORT))
    own = socket.inet_aton(address)
    sock.setsockopt(socket.IPPROTO_IP, socket.IP_ADD_MEMBERSHIP, socket.inet_aton(GROUP) + own)
    sock.setsockopt(socket.IPPROTO_IP, socket.IP_MULTICAST_IF, own)
    sock.setsockopt(socket.IPPROTO_IP, socket.IP_MULTICAST_LOOP, 0)
    begin, sent, fakes, connections = time.monotonic(), 0, 0, 0
    sock.sendto(question(), (GROUP, PORT))
    say(event="flooding")
    while (now := time.monotonic()) < begin + float(seconds):
        readable, _, _ = select.select([sock, listener], [], [], 0.002)
        if listener in readable:
            listener.accept()[0].close()
            connections += 1
        if sock in readable:
            data = sock.recv(9000)
            try:
                found = list(records(data))
                hosts = {name: at for name, kind, at, value in found if kind == SRV}
                for name, kind, _, value in found:
                    if (kind == TXT and name.endswith(SERVICE) and "t" in fields(value)
                            and name in hosts):
                        genuine = data
                        known[name] = (fields(value)["b"], value, f"{name.split('.')[0]}.local")
            except (IndexError, struct.error):
                pass
        due = int((now - begin) * 1000 / FAKES_AT_ONCE) - sent
        for _ in range(max(0, min(due, 20))):
            sent += 1
            fakes += FAKES_AT_ONCE
            sock.sendto(made_up(chance, address), (GROUP, PORT))
            if sent % 10 == 0 and known:
                copied = chance.choice(sorted(known.values()))[1]
                sock.sendto(packet(node(chance, address, int(port), copied)), (GROUP, PORT))
                sock.sendto(false_words(chance, address, known), (GROUP, PORT))
                sock.sendto(broken(chance, genuine), (GROUP, PORT))
    say(event="flooded", fakes=fakes, copied=len(known), connections=connections,
        seconds=time.monotonic() - begin)


if __name__ == "__main__":
    main(*sys.argv[1:])
