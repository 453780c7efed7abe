#!/bin/sh
# For RUSTDOC: also checks with which error code a program does not compile that must not. A stable
# rustdoc reads the code and leaves the check out.
RUSTC_BOOTSTRAP=1 exec rustdoc "$@"
