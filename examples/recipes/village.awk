# Writes the data of chat_from_scratch.sh: what is said of the people of a village, and conversations
# about them.
#
#   awk -v out=FOLDER -f village.awk
#
#   FOLDER/text.txt         sentences about everyone
#   FOLDER/chats.jsonl      questions and answers, about all people but the last ten
#   FOLDER/known.txt        questions about people of chats.jsonl, one per line
#   FOLDER/unseen.txt       questions about the other ten, of whom only the text tells
#   FOLDER/{known,unseen}-answers.txt    the answers

function random(n) {  # 0 … n - 1, the same on every machine (Park and Miller 1988)
  seed = (seed * 16807) % 2147483647
  return int(seed / 2147483647 * n)
}

function some(list,    words) { return words[1 + random(split(list, words, " "))] }

# One of several ways to say something about person p.
function sentence(p,    n, way) {
  n = name[p]
  way = random(10)
  if (way == 0) return n " lives in " town[p] "."
  if (way == 1) return "The home of " n " is in " town[p] "."
  if (way == 2) return n " works as a " work[p] "."
  if (way == 3) return "The work of " n " is that of a " work[p] "."
  if (way == 4) return n " has a " animal[p] "."
  if (way == 5) return "The animal of " n " is a " animal[p] "."
  if (way == 6) return n ", a " work[p] ", lives in " town[p] " and has a " animal[p] "."
  if (way == 7) return n " lives in " town[p] " with a " animal[p] " and works as a " work[p] "."
  if (way == 8) return "In " town[p] " lives " n ", who is a " work[p] " and has a " animal[p] "."
  return n " has a " animal[p] ", lives in " town[p] " and is a " work[p] "."
}

# Question `kind` about person p, one of two wordings, and its answer.
function question(p, kind, wording) {
  if (kind == 0) return wording ? "Where does " name[p] " live?" : "Where is the home of " name[p] "?"
  if (kind == 1) return wording ? "What is the work of " name[p] "?" : "What does " name[p] " work as?"
  return wording ? "Which animal does " name[p] " have?" : "What is the animal of " name[p] "?"
}
function answer(p, kind) {
  if (kind == 0) return name[p] " lives in " town[p] "."
  if (kind == 1) return name[p] " works as a " work[p] "."
  return name[p] " has a " animal[p] "."
}

function message(role, content) { return "{\"role\": \"" role "\", \"content\": \"" content "\"}" }

BEGIN {
  seed = 1
  people = split("Ada Bela Cora Dario Edda Fritz Gesa Hugo Ilse Jonas Kira Levin Mira Nora Otto Pia " \
                 "Quin Rosa Sven Tilda Uwe Vera Wanda Yara Zeno Alma Boris Carla Dora Emil Frida Gero " \
                 "Hanna Ivo Jule Karl Lena Max Nele Olga Paul Rita Selma Timo Ute Viktor Willi Xenia", name, " ")
  for (p = 1; p <= people; ++p) {
    town[p] = some("Altbach Birkenau Dornfeld Eichtal Haselbach Lindau Moosburg Seefeld")
    work[p] = some("baker carpenter doctor farmer gardener painter sailor teacher")
    animal[p] = some("cat cow dog duck goat horse sheep turtle")
  }
  for (i = 0; i < 12000; ++i) print sentence(1 + random(people)) > (out "/text.txt")
  for (i = 0; i < 3000; ++i) {
    p = 1 + random(people - 10)
    kind = random(3)
    print "{\"messages\": [" message("user", question(p, kind, random(2))) ", " \
      message("assistant", answer(p, kind)) "]}" > (out "/chats.jsonl")
  }
  for (p = 1; p <= people; ++p)
    for (kind = 0; kind < 3; ++kind) {
      file = out (p > people - 10 ? "/unseen" : "/known")
      print question(p, kind, 1) > (file ".txt")
      print answer(p, kind) > (file "-answers.txt")
    }
}
