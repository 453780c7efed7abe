#!/usr/bin/env bash
# For RUSTC_WORKSPACE_WRAPPER: builds our own packages without the feature `gloo`, without a full
# rebuild: cargo still believes that the feature is on, so all other crates are shared with the
# usual build.
for argument; do
    shift
    [ "$argument" != 'feature="gloo"' ] || argument='feature="no_gloo"'
    set -- "$@" "$argument"
done
exec "$@" -Copt-level=0 -Cdebuginfo=0
