#include "examples/groove/groove_generator.h"

namespace stretto::examples {
namespace {

GrooveFamily rock() {
  return {.name = "rock",
          .kick = {"x.......x.......", "x.......x.x.....", "x..x....x.......", "x.x.....x..x...."},
          .snare = {"....x.......x...", "....x.......x..x"},
          .cymbal = {"x.x.x.x.x.x.x.x.", "x...x...x...x..."},
          .color = {"................", "..........x....."},
          .cymbal_pitch = 42,
          .color_pitch = 46,
          .bass = {"r-r-r-r-r-r-r-a-", "r---..r-f---..r-", "r-----r-r---f-a-", "r-r---r-..r-f-o-"},
          .piano = {"x-------x-------", "x---..x-..x-..x-", "x---------------"},
          .guitar = {"x-..x-..x-..x-..", "x-x-x-x-x-x-x-x-", "..x-..x-..x-..x-"},
          .piano_program = 0,
          .guitar_program = 29,
          .bass_program = 34,
          .tempo = 120};
}

GrooveFamily funk() {
  return {.name = "funk",
          .kick = {"x.....x...x.....", "x..x......x..x..", "x.x.......xx...."},
          .snare = {"....x..x.x..x...", "....x.......x..x", "....x..x....x..."},
          .cymbal = {"xxxxxxxxxxxxxxxx", "x.xxx.xxx.xxx.xx"},
          .color = {"..............x.", "......x........."},
          .cymbal_pitch = 42,
          .color_pitch = 46,
          .bass = {"r..r..o.r..r..f.", "rr..o..r..f.r.a.", "r..o..r...rf..a."},
          .piano = {"..x..x....x..x..", "x-..x..x..x-.x..", "....x..x....x..x"},
          .guitar = {"x.xx.xx.x.xx.xx.", "..xx..x...xx..x.", "x..x..x..x..x.x."},
          .piano_program = 4,
          .guitar_program = 27,
          .bass_program = 36,
          .tempo = 100};
}

GrooveFamily disco() {
  return {.name = "disco",
          .kick = {"x...x...x...x..."},
          .snare = {"....x.......x...", "....x.......x.xx"},
          .cymbal = {"..x...x...x...x."},
          .color = {"xx.xxx.xxx.xxx.x", "................", "....x.......x..."},
          .cymbal_pitch = 46,
          .color_pitch = 42,
          .bass = {"r-o-r-o-r-o-r-o-", "r-o-r-o-f-o-f-o-", "r...r-o-r...r-o-"},
          .piano = {"..x-..x-..x-..x-", "x-..x-..x-x-..x-"},
          .guitar = {"x.x.x.x.x.x.x.x.", "..x...x...x...x.", "n-n-n-n-n-n-n-n-"},
          .piano_program = 0,
          .guitar_program = 27,
          .bass_program = 38,
          .tempo = 118};
}

GrooveFamily bossa() {
  return {.name = "bossa",
          .kick = {"x..x...xx..x...x", "x..x....x..x...."},
          .snare = {"x..x..x...x..x..", "..x..x..x..x...x"},
          .cymbal = {"x.x.x.x.x.x.x.x.", "xxxxxxxxxxxxxxxx"},
          .color = {"................", "....x.......x..."},
          .cymbal_pitch = 42,
          .color_pitch = 44,
          .bass = {"r-----r-f-----f-", "r-----f-f-----r-", "r-----r-f-----a-"},
          .piano = {"x---------------", "x-----x---x-----"},
          .guitar = {"x-..x--x-.x--.x-", "..x--x--..x--x--", "n-n-n-n-n-n-n-n-"},
          .piano_program = 0,
          .guitar_program = 24,
          .bass_program = 32,
          .tempo = 130};
}

GrooveFamily swing() {
  return {.name = "swing",
          .kick = {"x..x..x..x..", "x...........", "x.....x....."},
          .snare = {"............", "..x.....x...", ".....x......"},
          .cymbal = {"x..x.xx..x.x", "x.xx.xx.xx.x"},
          .color = {"...x.....x.."},
          .cymbal_pitch = 51,
          .color_pitch = 44,
          .bass = {"r--t--f--a--", "r--f--o--a--", "r--r--f--f--", "r--t--f--o--"},
          .piano = {"x-...x......", "...x.....x-.", "..x-....x-.."},
          .guitar = {"x..x..x..x..", "...x.....x.."},
          .piano_program = 0,
          .guitar_program = 26,
          .bass_program = 32,
          .tempo = 140};
}

GrooveFamily shuffle() {
  return {.name = "shuffle",
          .kick = {"x.....x.....", "x.....x.x...", "x....xx....."},
          .snare = {"...x.....x..", "...x.....x.x"},
          .cymbal = {"x.xx.xx.xx.x", "x..x..x..x.."},
          .color = {"............"},
          .cymbal_pitch = 42,
          .color_pitch = 51,
          .bass = {"r.rt.tf.fo.o", "r-.r-.f-.f-.", "r-rr-rf-fa-a"},
          .piano = {"..x..x..x..x", "x-x...x-x...", "x-----------"},
          .guitar = {"x.xx.xx.xx.x", "...x-....x-.", "n-nn-nn-nn-n"},
          .piano_program = 0,
          .guitar_program = 27,
          .bass_program = 33,
          .tempo = 110};
}

GrooveFamily ballad() {
  return {.name = "ballad",
          .kick = {"x.......x.......", "x......xx......."},
          .snare = {"........x.......", "....x.......x..."},
          .cymbal = {"x.x.x.x.x.x.x.x.", "x...x...x...x..."},
          .color = {"................", "x..............."},
          .cymbal_pitch = 42,
          .color_pitch = 51,
          .bass = {"r-----------f---", "r-------f-------", "r---------r-f---"},
          .piano = {"n-n-n-n-n-n-n-n-", "x-------x-------", "n---n---n---n---"},
          .guitar = {"n-n-n-n-n-n-n-n-", "x---------------", "..n-n-n-..n-n-n-"},
          .piano_program = 0,
          .guitar_program = 25,
          .bass_program = 35,
          .tempo = 76};
}

}  // namespace

const std::vector<GrooveFamily>& groove_families() {
  static const std::vector<GrooveFamily> all{rock(),  funk(),    disco(), bossa(),
                                             swing(), shuffle(), ballad()};
  return all;
}

}  // namespace stretto::examples
