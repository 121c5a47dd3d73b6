# The report of mutations.sh: `kernels` was written by the interpreter, `planted` has list, file, text,
# replacement and verdict, separated by tabs, `reasons` is mutations/without_effect.txt. Prints Markdown; exit status 1
# if a mutation was not detected.

# "out of bounds: a load of …" is reported as "out of bounds".
function short(verdict) {
  if (verdict == "the test fails") return "wrong values"
  sub(/:.*/, "", verdict)
  return verdict
}
function source_line(place,    file, line, n, text) {
  if (place in source) return source[place]
  file = place; sub(/:.*/, "", file)
  line = place; sub(/.*:/, "", line)
  if (!(file in read)) {
    read[file] = 1
    for (n = 1; (getline text < paths[file]) > 0; ++n) {
      gsub(/^ +/, "", text)
      gsub(/\|/, "\\|", text)
      source[file ":" n] = text
    }
  }
  return source[place]
}
function counted(list,    part, n, i, many, order, text) {
  n = split(list, part, ";")
  for (i = 1; i <= n; ++i) {
    if (part[i] == "") continue
    if (!(part[i] in many)) order[++many["", 0]] = part[i]
    ++many[part[i]]
  }
  for (i = 1; i <= many["", 0]; ++i)
    text = text (i > 1 ? ", " : "") order[i] (many[order[i]] > 1 ? " (" many[order[i]] ")" : "")
  return text
}
function reason_of(kernel, where, text, op, way, tries,    i) {
  for (i = 1; i <= reason_count; ++i)
    if (index(where, r_file[i]) && index(text, r_text[i]) && (r_kernel[i] == "*" || r_kernel[i] == kernel) &&
        (r_op[i] == "*" || index(op, r_op[i])) && (r_way[i] == "*" || r_way[i] == way || (r_way[i] == "not met" && tries == 0))) {
      ++used[i]
      return i
    }
  return 0
}
BEGIN {
  FS = "\t"
  while (("find core ops cuda tests/cuda -name '*.h' -o -name '*.cuh' -o -name '*.cu'" | getline path) > 0) {
    n = split(path, part, "/")
    paths[(part[n - 2] == "cuda" ? "cuda/" : "") part[n - 1] "/" part[n]] = path
  }
  while ((getline line < reasons) > 0) {
    if (line ~ /^(#|$)/) continue
    n = split(line, part, / \| /)
    if (n != 6) { print "not 6 fields: " line > "/dev/stderr"; exit 2 }
    ++reason_count
    r_file[reason_count] = part[1]; r_text[reason_count] = part[2]; r_kernel[reason_count] = part[3]
    r_op[reason_count] = part[4]; r_way[reason_count] = part[5]; r_reason[reason_count] = part[6]
  }
  astray = "^(out of bounds|misaligned|race|two blocks|barrier|diverged|does not end)"
  while ((getline < kernels) > 0)
    if ($6 ~ astray) opposite[$1 FS $2 FS $3] = 1
  close(kernels)
  while ((getline < kernels) > 0) {
    kernel = $1; where = $2; op = $3; way = $4; tries = $5; verdict = $6
    place = where; sub(/ < .*/, "", place)
    text = source_line(place)
    ++total
    if (verdict != "") {
      ++detected
      row = place
      if (!(row in rows)) { rows[row] = ++row_count; row_place[row_count] = place }
      i = rows[row]
      verdicts[i] = verdicts[i] short(verdict) ";"
      if (!((i, kernel) in seen)) { seen[i, kernel] = 1; in_kernels[i] = in_kernels[i] kernel ";" }
      continue
    }
    # One of a test's two outcomes is its mutation: if that one failed, this is the other.
    if (opposite[$1 FS $2 FS $3]) { ++opposites; --total; continue }
    i = reason_of(kernel, where, text, op, way, tries)
    if (i) { ++excused; ++excused_by[i]; continue }
    missing[++missing_count] = "| `" kernel "` | " where " | `" text "` | " op " | " way " | " \
      (tries > 0 ? tries " test cases, none detected it" : "no test case where it matters") " |"
  }
  while ((getline < planted) > 0) {
    ++total
    text = "`" $3 "`" ($4 == "" ? "" : " → `" $4 "`")
    gsub(/\|/, "\\|", text)
    if ($5 != "" && $5 !~ /^!/) {
      planted_rows[$1] = planted_rows[$1] "| " $2 " | " text " | " short($5) " |\n"
      ++detected
      continue
    }
    i = $5 == "" ? reason_of($1, $2, $3, "source", "removed", 1) : 0
    if (i) { ++excused; ++excused_by[i]; continue }
    missing[++missing_count] = "| – | " $2 " | " text " | in the source | replaced | " ($5 == "" ? "not detected" : $5) " |"
  }
  print "# Test results when a barrier or a test of a kernel is removed\n"
  print "Made by `tests/cuda/ptx/scripts/mutations.sh`, " made "."
  print "A mutation is a barrier that does nothing, or a comparison of integers (of an index with a bound, of a"
  print "flag) that is always true or always false, in all copies that the compiler made of a source line in a kernel."
  print "If one of the two fails (out of bounds, misaligned, a race) and the other has no effect, the latter is no mutation:"
  print opposites + 0 " of them are not counted."
  print "\nOf " total " mutations " detected " are detected, " excused + 0 " are without effect (below), " missing_count + 0 " are not detected."
  if (missing_count) {
    print "\n## Not detected\n\n| kernel | line | source | instruction | mutation | |\n| --- | --- | --- | --- | --- | --- |"
    for (i = 1; i <= missing_count; ++i) print missing[i]
  }
  if (reason_count) {
    print "\n## Without effect\n\n| line of | source | kernel | mutation | how many | why |\n| --- | --- | --- | --- | --- | --- |"
    for (i = 1; i <= reason_count; ++i) {
      text = r_text[i]; gsub(/\|/, "\\|", text)
      print "| " r_file[i] " | `" text "` | " r_kernel[i] " | " r_way[i] " | " excused_by[i] + 0 " | " r_reason[i] " |"
    }
  }
  heading = "\n\n| file | replaced | message |\n| --- | --- | --- |\n"
  if ("host" in planted_rows) print "\n## Detected: launchers on the host" heading planted_rows["host"]
  if ("kernels" in planted_rows) print "\n## Detected: planted faults" heading planted_rows["kernels"]
  print "\n## Detected: barriers and comparisons of kernels\n\n| line | source | kernels | message |\n| --- | --- | --- | --- |"
  for (i = 1; i <= row_count; ++i)
    print "| " row_place[i] " | `" source_line(row_place[i]) "` | " counted(in_kernels[i]) " | " counted(verdicts[i]) " |"
  exit missing_count > 0
}
