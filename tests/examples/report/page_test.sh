#!/usr/bin/env bash
# page_test.py, where there is a Python for it.
if ! command -v python3 >/dev/null; then
  echo "No python3 is here: pages were not looked at"
  exit 77
fi
exec python3 "$(dirname "${BASH_SOURCE[0]}")/page_test.py" "$@"
