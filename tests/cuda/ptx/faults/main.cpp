// ptx_faults [NAME | --list]: runs all cases, each in a process of its own, or one case; or prints
// a line for each fault with its verdict and its name.
#include <sys/wait.h>

#include "faults.h"

std::vector<Case>& cases() {
  static std::vector<Case> all;
  return all;
}

int main(int argc, char** argv) {
  if (argc == 2 && std::string(argv[1]) == "--list") {
    for (const Case& c : cases())
      if (!c.verdict.empty()) std::printf("%s\t%s\n", c.verdict.c_str(), c.name.c_str());
    return 0;
  }
  if (argc == 2) {
    for (const Case& c : cases())
      if (c.name == argv[1]) {
        c.run();
        cudaDeviceSynchronize();
        return 0;
      }
    std::fprintf(stderr, "no such case\n");
    return 2;
  }
  setenv("PTX_STREAMS", "lazy", 1);
  int wrong = 0, faults = 0;
  for (const Case& c : cases()) {
    std::fflush(nullptr);
    FILE* out = popen((std::string(argv[0]) + " '" + c.name + "' 2>&1").c_str(), "r");
    std::string said;
    for (int ch; (ch = std::fgetc(out)) != EOF;) said += char(ch);
    const int status = pclose(out);
    const int code = WIFEXITED(status) ? WEXITSTATUS(status) : -1;
    const bool silent = said.find("ptx: ") == std::string::npos;
    const bool right = c.verdict.empty() ? silent && code == 0
                                         : said.rfind("ptx: " + c.verdict, 0) == 0 && code == 86;
    faults += !c.verdict.empty();
    if (right) continue;
    ++wrong;
    std::printf("%s: expected %s, got status %d and: %s\n", c.name.c_str(),
                c.verdict.empty() ? "silence" : c.verdict.c_str(), code, said.c_str());
  }
  std::printf("%d faults and %d right neighbors, %d wrong\n", faults, int(cases().size()) - faults,
              wrong);
  return wrong != 0;
}
