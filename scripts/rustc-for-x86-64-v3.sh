#!/usr/bin/env bash
# For RUSTC_WORKSPACE_WRAPPER: builds our own packages for x86-64-v3, and the library with full
# optimization. The reference in the test node, with which tests compare, stays unoptimized.
case " $* " in
    *" --crate-name potluck "*" --crate-type lib "*)
        set -- "$@" -Copt-level=3 -Cdebug-assertions=off -Ccodegen-units=16
        ;;
    *) set -- "$@" -Copt-level=0 ;;
esac
exec "$@" -Cdebuginfo=0 -Ctarget-cpu=x86-64-v3
