# Summarizes ctest's LastTest.log: counts test cases if the program prints a "tally:" line, else one
# test per ctest entry. Prints the reasons for skipped tests, each with its count, and the totals.

/^[0-9]+\/[0-9]+ Test: / { counted = 0; failures_counted = 0 }
/^SKIPPED: / {
  skipped_test = substr($0, length("SKIPPED: ") + 1)  # "NAME: REASON"
  ++reasons[substr(skipped_test, index(skipped_test, ": ") + 2)]
}
/^tally: / { passed += $2; failed += $4; skipped += $6; counted = 1; failures_counted = $4 }
/^Test Passed\./ { if (!counted) ++passed }
/^Test Failed\./ { if (!failures_counted) ++failed }

END {
  for (reason in reasons) printf "skipped %d: %s\n", reasons[reason], reason
  printf "%d passed, %d failed, %d skipped\n", passed, failed, skipped
}
