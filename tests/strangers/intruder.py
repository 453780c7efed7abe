"""Somebody on the network who is not a member. Runs as a machine of the lab; each line it prints
is JSON.

    intruder.py send HOST PORT HEX          sends the bytes, then waits for the other side to close
    intruder.py drip HOST PORT HEX          the same, one byte every 100 ms
    intruder.py silent HOST PORT COUNT      that many connections without a word, until the other
                                            side closes them
    intruder.py flood HOST PORT COUNT SEED  that many connections of junk, as fast as they are taken
    intruder.py siege HOST PORT SECONDS     200 short connections a second for that long
    intruder.py capture HEX...              every frame on this machine until its input ends: how
                                            often is one of HEX in it?
    intruder.py record HOST PORT            what connections there begin with, until its input ends
"""

import collections
import json
import random
import select
import socket
import struct
import sys
import time

LIMIT = 10.0


def say(**event):
    print(json.dumps(event), flush=True)


def connect(host, port):
    return socket.create_connection((host, int(port)), timeout=LIMIT)


def until_closed(sock, limit=LIMIT):
    """Bytes received until the other side closes, and whether it did."""
    received, end = 0, time.monotonic() + limit
    while (left := end - time.monotonic()) > 0:
        sock.settimeout(left)
        try:
            got = sock.recv(65536)
        except TimeoutError:
            break
        except OSError:
            return received, True
        if not got:
            return received, True
        received += len(got)
    return received, False


def send(host, port, data):
    begin = time.monotonic()
    with connect(host, port) as sock:
        try:
            sock.sendall(bytes.fromhex(data))
        except OSError:
            pass  # closed in the middle of it: what was received still counts
        received, closed = until_closed(sock)
    say(event="sent", received=received, closed=closed, ms=1000 * (time.monotonic() - begin))


def drip(host, port, data):
    begin, sent, closed = time.monotonic(), 0, False
    with connect(host, port) as sock:
        for byte in bytes.fromhex(data):
            readable, _, _ = select.select([sock], [], [], 0.1)
            if readable:
                break
            try:
                sock.sendall(bytes([byte]))
            except OSError:
                break
            sent += 1
        received, closed = until_closed(sock)
    ms = 1000 * (time.monotonic() - begin)
    say(event="dripped", sent=sent, received=received, closed=closed, ms=ms)


def silent(host, port, count):
    begin = time.monotonic()
    socks = [connect(host, port) for _ in range(int(count))]
    say(event="connected")
    ends = [until_closed(sock, max(0.1, begin + LIMIT - time.monotonic())) for sock in socks]
    say(event="waited", closed=sum(closed for _, closed in ends),
        received=sum(got for got, _ in ends), ms=1000 * (time.monotonic() - begin))


def flood(host, port, count, seed):
    chance = random.Random(int(seed))
    begin, received, unconnected, open_still = time.monotonic(), 0, 0, 0
    for i in range(int(count)):
        start = [b"", b"potl", b"potl\x01\x10" + bytes(10), b"potl\x01\x11\x00\x01" + bytes(8),
                 b"potl\x02", b"GET / HTTP/1.1\r\n"]
        length = chance.choice([0, 1, 15, 48, 64, 1000, 20000])
        junk = start[i % len(start)] + chance.randbytes(length)
        try:
            with connect(host, port) as sock:
                try:
                    sock.sendall(junk)
                    # The node does not close a connection that sends too little yet, so this side
                    # closes it.
                    got, closed = until_closed(sock, 0.05)
                    received += got
                    open_still += not closed
                except OSError:
                    pass
        except OSError:
            unconnected += 1
    say(event="flooded", received=received, unconnected=unconnected, still_open=open_still,
        ms=1000 * (time.monotonic() - begin))


def siege(host, port, seconds):
    begin, made, received, held = time.monotonic(), 0, 0, collections.deque()
    while (now := time.monotonic()) < begin + float(seconds):
        try:
            sock = connect(host, port)
            sock.sendall(b"potl\x01\x10")
            held.append((now + 0.02, sock))
            made += 1
        except OSError:
            pass
        while held and held[0][0] < now:
            with held.popleft()[1] as sock:
                received += until_closed(sock, 0.001)[0]
        time.sleep(max(0.0, now + 0.005 - time.monotonic()))
    say(event="besieged", made=made, received=received)


def capture(*wanted):
    wanted = [bytes.fromhex(text) for text in wanted]
    every = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, socket.htons(3))
    # The nodes measure their links at full speed, and this process has to wait for a processor:
    # the kernel holds 2 GiB of frames for it, more than a test sends.
    every.setsockopt(socket.SOL_SOCKET, 33, (1 << 30) - 1)  # SO_RCVBUFFORCE, doubled by the kernel
    say(event="capturing")
    frames = size = hits = 0
    payload_from = {}
    frame = bytearray(1 << 18)
    while True:
        readable, _, _ = select.select([every, sys.stdin], [], [])
        if every in readable:
            length = every.recv_into(frame)
            frames, size = frames + 1, size + length
            hits += sum(frame.count(text, 0, length) for text in wanted)
            count_payload(frame[:length], payload_from)
        elif sys.stdin in readable:
            break
    _, drops = struct.unpack("II", every.getsockopt(263, 6, 8))  # SOL_PACKET, PACKET_STATISTICS
    say(event="captured", frames=frames, bytes=size, drops=drops, hits=hits,
        payload_from=payload_from)


def count_payload(frame, payload_from):
    """Adds up the TCP payload of each source, as address:port."""
    if len(frame) < 54 or frame[12:14] != b"\x08\x00" or frame[23] != 6:
        return
    header = 4 * (frame[14] & 15)
    total = struct.unpack("!H", frame[16:18])[0] or len(frame) - 14
    tcp = 14 + header
    payload = total - header - 4 * (frame[tcp + 12] >> 4)
    if payload > 0:
        source = f"{socket.inet_ntoa(frame[26:30])}:{struct.unpack('!H', frame[tcp:tcp + 2])[0]}"
        payload_from[source] = payload_from.get(source, 0) + payload


def record(host, port):
    """The first bytes of each TCP connection over IPv4 to there, as its client sends them."""
    every = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, socket.htons(3))
    every.setsockopt(socket.SOL_SOCKET, 33, 64 << 20)  # SO_RCVBUFFORCE
    say(event="recording")
    streams = {}
    while True:
        readable, _, _ = select.select([every, sys.stdin], [], [])
        if every not in readable:
            break
        frame = every.recv(1 << 18)
        if len(frame) < 54 or frame[12:14] != b"\x08\x00" or frame[23] != 6:
            continue
        tcp = 14 + 4 * (frame[14] & 15)
        source, to, number = struct.unpack("!HHI", frame[tcp:tcp + 8])
        if to != int(port) or frame[30:34] != socket.inet_aton(host):
            continue
        total = struct.unpack("!H", frame[16:18])[0] or len(frame) - 14
        data = frame[tcp + 4 * (frame[tcp + 12] >> 4):14 + total]
        stream = streams.setdefault((frame[26:30], source), {"next": None, "bytes": b""})
        if frame[tcp + 13] & 2:
            stream["next"] = (number + 1) % (1 << 32)
        elif data and number == stream["next"] and len(stream["bytes"]) < 2000:
            stream["bytes"] += data
            stream["next"] = (number + len(data)) % (1 << 32)
    taken = [stream["bytes"].hex() for stream in streams.values() if stream["bytes"]]
    say(event="recorded", streams=taken)


if __name__ == "__main__":
    {
        "record": record, "send": send, "drip": drip, "silent": silent, "flood": flood,
        "siege": siege, "capture": capture,
    }[sys.argv[1]](*sys.argv[2:])
