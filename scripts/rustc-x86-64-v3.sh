#!/bin/sh
# For RUSTC_WORKSPACE_WRAPPER: builds the workspace's packages for x86-64-v3, and the library with all optimisation. What tests
# compare it with, the reference in the command line, stays without.
case " $* " in
    *" --crate-name potluck "*" --crate-type lib "*) set -- "$@" -Copt-level=3 -Cdebuginfo=0 ;;
esac
exec "$@" -Ctarget-cpu=x86-64-v3
