# What Doxygen reads of a header: its opening comment documents the file, and everything in it belongs
# to the group of its directory (docs/reference_groups.h).
function group(path) {
  if (path ~ /^core\// || path ~ /^ops\/(create|view|indexing|implementation)\.h/) return "tensors"
  if (path ~ /^autograd\// || path ~ /^ops\/gradcheck/) return "autograd"
  if (path ~ /^ops\/attention\// || path ~ /^nn\/attention\//) return "attention"
  if (path ~ /^nn\/positions\// || path ~ /^ops\/spe\//) return "positions"
  if (path ~ /^ops\//) return "ops"
  if (path ~ /^nn\/models\//) return "models"
  if (path ~ /^nn\/data\//) return "data"
  if (path ~ /^music\//) return "music"
  if (path ~ /^nn\/distributed\//) return "distributed"
  if (path ~ /^(nn|pretrained)\/files\//) return "files"
  if (path ~ /^pretrained\//) return "pretrained"
  if (path ~ /^nn\/(training|optim)\//) return "training"
  return "modules"
}
# Comment lines wait for the line after them: if that line is dropped, so are they.
function flush() { printf "%s", held; held = "" }
# Markdown quotes a line that begins with ">", as in "///< > 0: …", and drops the sign.
match($0, /\/\/\/<? >/) { $0 = substr($0, 1, RSTART + RLENGTH - 2) "\\" substr($0, RSTART + RLENGTH - 1) }
/\/\/\// { gsub(/et al\. /, "et al.\\ ") }  # no end of the summary
FNR == 1 {
  flush()
  path = FILENAME
  sub(/^.*\/(core|autograd|ops|nn|music|pretrained)\//, "&", path)
  match(path, /(core|autograd|ops|nn|music|pretrained)\/[^ ]*$/)
  path = substr(path, RSTART)
  top = 1
  if ($0 ~ /^\/\/ /) printf "/// @file\n"
}
top && /^\/\/( |$)/ { sub(/^\/\//, "///"); print; next }
/^#pragma once/ { top = 0; next }
# The group opens inside the namespace, since a group around it would hold the namespace, not its members, and
# after forward declarations.
/^namespace stretto(::(nn|music))? \{$/ { flush(); print; waiting = 1; next }
waiting && /^\}/ { waiting = 0 }
waiting && NF > 0 && !/^(struct|class) [A-Za-z]+;/ { printf "/** @addtogroup %s\n@{ */\n", group(path); waiting = 0; opened = 1 }
opened && /^\}  \/\/ namespace stretto(::(nn|music))?$/ { print "/** @} */"; opened = 0 }
/= (default|delete);$/ { top = 0; gsub(/[^\n]/, "", held); flush(); print ""; next }  # copies and moves need no sentence
/^ *\/\/\// { top = 0; held = held $0 "\n"; next }
{ top = 0; flush(); print }
END { flush() }
