# Adds up ctest's LastTest.log: single test cases where the program says how many (its "tally:"
# line), else one per ctest entry. Then the reasons of the skipped ones, each with its count.

/^[0-9]+\/[0-9]+ Test: / { counted = 0; failures_told = 0 }
/^SKIPPED: / {
  named = substr($0, length("SKIPPED: ") + 1)
  ++reasons[substr(named, index(named, ": ") + 2)]
}
/^tally: / { passed += $2; failed += $4; skipped += $6; counted = 1; failures_told = $4 }
/^Test Passed\./ { if (!counted) ++passed }
/^Test Failed\./ { if (!failures_told) ++failed }

END {
  for (reason in reasons) printf "skipped %d: %s\n", reasons[reason], reason
  printf "%d passed, %d failed, %d skipped\n", passed, failed, skipped
}
