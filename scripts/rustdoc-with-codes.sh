#!/bin/sh
# For RUSTDOC: also checks the error codes of `compile_fail` examples. A stable rustdoc parses the
# codes, but skips the check.
RUSTC_BOOTSTRAP=1 exec rustdoc "$@"
