#!/bin/sh
# Two nodes in two network namespaces with two cables between them, of which only the first is listed.
# Shows how soon they see each other over IPv4, IPv6 and both, and everything that was sent on either cable.
# Needs root, iproute2 and python3; nothing leaves the namespaces.  Usage: scripts/mdns-namespaces.sh [both|v4|v6] [seconds between the starts]
set -eu
cd "$(dirname "$0")/.."
family=${1:-both}
offset=${2:-0}
a=potluck-mdns-a$$
b=potluck-mdns-b$$
out=$(mktemp -d)
trap 'ip netns del $a; ip netns del $b; rm -rf "$out"' EXIT
tests=$(cargo test -p potluck --lib --no-run 2>&1 | grep -o 'target/debug/deps/potluck-[0-9a-f]*')

ip netns add "$a"
ip netns add "$b"
n=0
for ns in "$a" "$b"; do
    n=$((n + 1))
    ip netns exec "$ns" sysctl -qw net.ipv6.conf.default.accept_dad=0 net.ipv6.conf.default.dad_transmits=0
    [ "$family" != v4 ] || ip netns exec "$ns" sysctl -qw net.ipv6.conf.default.disable_ipv6=1
done
for cable in listed other; do ip link add $cable netns "$a" type veth peer name $cable netns "$b"; done
n=0
for ns in "$a" "$b"; do
    n=$((n + 1))
    ip -n "$ns" link set lo up
    for cable in listed other; do ip -n "$ns" link set $cable up; done
    [ "$family" = v6 ] || ip -n "$ns" addr add 10.77.0.$n/24 dev listed
    [ "$family" = v6 ] || ip -n "$ns" addr add 10.78.0.$n/24 dev other
done
sleep 3 # the kernel's own messages about new links and addresses

cat >"$out/sniff.py" <<'PY'
import collections, select, signal, socket, struct, sys
signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
names = {2: "IGMP", 6: "TCP", 17: "UDP", 58: "ICMPv6"}
seen = collections.Counter()
socks = {}
for cable in ("listed", "other"):
    s = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, socket.htons(3))
    s.bind((cable, 0))
    socks[s] = cable
try:
    while True:
        for s in select.select(list(socks), [], [])[0]:
            f = s.recv(9000)
            kind, = struct.unpack("!H", f[12:14])
            what = hex(kind)
            if kind == 0x0800:
                what = "IPv4 " + names.get(f[23], str(f[23]))
                if f[23] == 17: what += " to port %d" % struct.unpack("!H", f[36:38])
            elif kind == 0x86dd:
                nxt, at = f[20], 54
                if nxt == 0: nxt, at = f[54], 62
                what = "IPv6 " + names.get(nxt, str(nxt))
                if nxt == 17: what += " to port %d" % struct.unpack("!H", f[56:58])
                if nxt == 58: what += " type %d" % f[at]
            elif kind == 0x0806: what = "ARP"
            if b"potluck" in f: what += ", names potluck"
            seen[socks[s], what] += 1
finally:
    for (cable, what), count in sorted(seen.items()): print("SENT on %s: %d x %s" % (cable, count, what))
    sys.stdout.flush()
PY
ip netns exec "$a" python3 "$out/sniff.py" >"$out/sniffed" &
sniffer=$!
sleep 0.5
node() { POTLUCK_MDNS_PROBE="listed $2 $3" ip netns exec "$1" "$tests" --ignored --exact discovery::mdns::tests::probe --nocapture 2>/dev/null | grep PROBE; }
node "$a" 1 6000 & first=$!
sleep "$offset"
node "$b" 2 4000 & second=$!
wait $first $second
kill $sniffer
wait $sniffer || true
cat "$out/sniffed"
