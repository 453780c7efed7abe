#!/usr/bin/env bash
# capi.sh install PREFIX: builds the C library and installs header, libraries and potluck.pc below
# PREFIX (/usr/local). LIBRARIES=folder installs libraries that are built already. DESTDIR is put
# before all paths, for packages.
set -euo pipefail
cd "$(dirname "$0")/.."
. scripts/machine.sh

[ "${1:-}" = install ] || { say "usage: scripts/capi.sh install [PREFIX]"; exit 2; }
prefix=${2:-/usr/local}
if [ -z "${LIBRARIES:-}" ]; then
    need_rust
    cargo build --release --locked -p potluck-capi
    LIBRARIES="$(target_dir)/release"
fi
to="${DESTDIR:-}$prefix"
version=$(sed -n 's/^version = "\(.*\)"$/\1/p' Cargo.toml | head -n 1)
install -d "$to/include" "$to/lib/pkgconfig"
install -m 644 capi/include/potluck.h "$to/include/"
install -m 644 "$LIBRARIES/libpotluck.a" "$to/lib/"
if [ -f "$LIBRARIES/libpotluck.dylib" ]; then
    install -m 755 "$LIBRARIES/libpotluck.dylib" "$to/lib/"
else
    # Programs ask for the name with the number of the interface.
    install -m 755 "$LIBRARIES/libpotluck.so" "$to/lib/libpotluck.so.$version"
    ln -sf "libpotluck.so.$version" "$to/lib/libpotluck.so.0"
    ln -sf libpotluck.so.0 "$to/lib/libpotluck.so"
fi
cat >"$to/lib/pkgconfig/potluck.pc" <<END
prefix=$prefix

Name: potluck
Description: the computers of a home or lab network as one all-reduce group
Version: $version
Cflags: -I\${prefix}/include
Libs: -L\${prefix}/lib -lpotluck
Libs.private: -lpthread -ldl -lm
END
say "potluck $version is installed below $prefix"
