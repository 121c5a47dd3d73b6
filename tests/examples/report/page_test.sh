#!/usr/bin/env bash
# Runs browser_test.py and page_test.py; skipped without Python.
if ! command -v python3 >/dev/null; then
  echo "python3 is not installed: pages were not tested"
  exit 77
fi
folder=$(dirname "${BASH_SOURCE[0]}")
python3 "$folder/browser_test.py" || exit 1
exec python3 "$folder/page_test.py" "$@"
