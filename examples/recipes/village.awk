# Writes the data of chat_from_scratch.sh: what is said of the people of a village, and conversations
# about them.
#
#   awk -v out=FOLDER -f village.awk
#
#   FOLDER/text.txt         sentences about the people
#   FOLDER/chats.jsonl      questions about them, and about guests of whom the question tells something
#   FOLDER/village.txt      a question of each kind about each of the people, one per line
#   FOLDER/guests.txt       questions about guests, with facts drawn anew
#   FOLDER/{village,guests}-answers.txt    the answers

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

# Question `kind` about person p, in one of two wordings.
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

# Gives person p a home, work and animal.
function settle(p) {
  town[p] = some("Altbach Birkenau Dornfeld Eichtal Haselbach Lindau Moosburg Seefeld")
  work[p] = some("baker carpenter doctor farmer gardener painter sailor teacher")
  animal[p] = some("cat cow dog duck goat horse sheep turtle")
}

# A sentence about a new guest g with everything, and a question.
function told(g, kind, wording) {
  settle(g)
  return name[g] ", a " work[g] ", lives in " town[g] " and has a " animal[g] ". " question(g, kind, wording)
}

function message(role, content) { return "{\"role\": \"" role "\", \"content\": \"" content "\"}" }

BEGIN {
  seed = 1
  people = split("Ada Bela Cora Dario Edda Fritz Gesa Hugo Ilse Jonas Kira Levin Mira Nora Otto Pia Quin Rosa " \
                 "Sven Tilda", name, " ")
  guests = split("Alma Boris Carla Dora Emil Frida Gero Hanna Ivo Jule Karl Lena", guest, " ")
  for (g = 1; g <= guests; ++g) name[people + g] = guest[g]
  for (p = 1; p <= people; ++p) settle(p)
  for (i = 0; i < 12000; ++i) print sentence(1 + random(people)) > (out "/text.txt")
  for (i = 0; i < 8000; ++i) {
    kind = random(3)
    p = i % 2 ? 1 + random(people) : people + 1 + random(guests)
    asked = p > people ? told(p, kind, random(2)) : question(p, kind, random(2))
    print "{\"messages\": [" message("user", asked) ", " message("assistant", answer(p, kind)) "]}" > (out "/chats.jsonl")
  }
  for (p = 1; p <= people + guests; ++p)
    for (kind = 0; kind < 3; ++kind) {
      file = out (p > people ? "/guests" : "/village")
      print(p > people ? told(p, kind, 1) : question(p, kind, 1)) > (file ".txt")
      print answer(p, kind) > (file "-answers.txt")
    }
}
