"""A machine without the key that listens to multicast DNS. Each line it prints is JSON: one for
each advert that it hears first, with its fields.

    adverts.py ADDRESS     the address of this machine, until its input ends
"""

import json
import select
import socket
import struct
import sys

from proxy import GROUP, PORT, SERVICE, TXT, fields, question, records


def main(address):
    sock = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    for option in socket.SO_REUSEADDR, socket.SO_REUSEPORT:
        sock.setsockopt(socket.SOL_SOCKET, option, 1)
    sock.bind(("", PORT))
    own = socket.inet_aton(address)
    sock.setsockopt(socket.IPPROTO_IP, socket.IP_ADD_MEMBERSHIP, socket.inet_aton(GROUP) + own)
    sock.setsockopt(socket.IPPROTO_IP, socket.IP_MULTICAST_IF, own)
    sock.sendto(question(), (GROUP, PORT))
    print(json.dumps({"event": "listening"}), flush=True)
    known = set()
    while True:
        readable, _, _ = select.select([sock, sys.stdin], [], [])
        if sock not in readable:
            return
        try:
            found = list(records(sock.recv(9000)))
        except (IndexError, struct.error):
            continue
        for name, kind, _, value in found:
            if kind == TXT and name.endswith(SERVICE) and name not in known:
                known.add(name)
                print(json.dumps({"event": "advert", **fields(value)}), flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
