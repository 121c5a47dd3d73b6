// How the programs print names and values, and parse options.
#include "examples/common/command_line.h"

#include <fcntl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <iostream>

#include "examples/common/error.h"
#include "tests/examples/temp_dir.h"
#include "tests/examples/tiny_run.h"

namespace stretto::examples::testing {
namespace {

/// Runs `body` as the work of a program. Returns its standard output and standard error.
template <class Body>
std::pair<std::string, std::string> output_of(const Body& body) {
  const TempDir folder;
  std::cout << std::flush;  // else the child would write the buffer again
  const pid_t child = ::fork();
  if (child == 0) {
    for (const int stream : {1, 2})
      ::dup2(::open(folder.file(std::to_string(stream)).c_str(), O_WRONLY | O_CREAT, 0600), stream);
    char name[] = "name";
    char* words[] = {name, nullptr};
    const int code = run_program(
        1, words, name, "", [](CLI::App&) {}, body);
    if (code == 0)
      for (const int signal : {SIGINT, SIGTERM, SIGHUP}) ::raise(signal);
    ::_exit(code);
  }
  int status = 0;
  ::waitpid(child, &status, 0);
  CHECK(WIFEXITED(status));
  return {read_file(folder.file("1")), read_file(folder.file("2"))};
}

}  // namespace

TEST_CASE("printed names have no control characters", "[examples]") {
  CHECK(printable("a\x1b[31mb\x7f\r\n\t") == "a [31mb    ");
  CHECK(printable("a\nb\tc\x1b", true) == "a\nb\tc ");
  CHECK(printable("h\u00f6r \u2013 \U0001d11e") == "h\u00f6r \u2013 \U0001d11e");
  // CSI (ISO 6429) as one character: in UTF-8, and as a byte.
  CHECK(printable("\u009b31m \x9b") == "  31m  ");
  CHECK(printable("\xc2") == "\xc2");
  CHECK(printable("\xe2\x1b\xc3\x9b") == "\xe2 \xc3\x9b");

  const auto [out, err] = output_of([] {
    const std::string name = "a\x1b[2Jb.mid";
    std::cout << name << ' ' << '\x1b' << 1.5 << std::endl;
    throw UsageError(name + "\n");
    return 0;
  });
  CHECK(out == "a [2Jb.mid  1.5\n");
  CHECK(err == "name: a [2Jb.mid \n");
}

TEST_CASE("a message that quotes a long value is short", "[examples]") {
  const auto messages_for = [](size_t n) {
    return output_of([n]() -> int {
             std::string value;
             while (value.size() < n) value += "\u00e4";
             throw UsageError("--data " + value + ": is not there");
           })
        .second;
  };
  CHECK(messages_for(1800).size() > 1800);
  const std::string cut = messages_for(100'000);
  CHECK(cut.size() < 2100);
  CHECK(cut.starts_with("name: --data \u00e4"));
  CHECK(cut.ends_with("\u00e4: is not there\n"));
  CHECK_THAT(cut, Containing("\u00e4 \u2026 \u00e4"));
}

TEST_CASE("arguments are quoted for a shell", "[examples]") {
  CHECK(quoted("out/checkpoint.safetensors") == "out/checkpoint.safetensors");
  CHECK(quoted("two words/it's") == "'two words/it'\\''s'");
  CHECK(quoted("") == "''");
}

TEST_CASE("a program that has finished ignores later signals", "[examples]") {
  const auto [out, err] = output_of([] {
    for (const int signal : {SIGINT, SIGTERM, SIGHUP}) ::signal(signal, SIG_DFL);
    nn::end_on_signal("Stopped.");
    std::cout << "done" << std::endl;
    return 0;
  });
  CHECK(out == "done\n");
}

TEST_CASE("options without effect are rejected", "[examples]") {
  NEEDS_PROGRAM("train_lm");
  const TempDir folder;
  const auto complaint_of = [&](const std::string& program, Arguments arguments) {
    arguments.insert(arguments.end(), {"--out", folder.file("out")});
    const Ended ended = run(find_program(program), arguments);
    CHECK(ended.status == 2);
    CHECK(ended.one_line());
    CHECK(!std::filesystem::exists(folder.file("out")));
    return ended.complaint();
  };
  for (const char* program :
       {"train_lm", "train_chorales", "harmonize", "train_music", "groove", "lra"}) {
    const std::string name = program;
    CHECK(complaint_of(name, {"--overwrite="}) == name + ": --overwrite: its value is empty");
  }
  CHECK(complaint_of("train_lm", {"--cuda-graph", "--held-out", "0.001"}) ==
        "train_lm: --cuda-graph: needs --device cuda");
  CHECK(complaint_of("train_lm", {"--prompt", "a"}) ==
        "train_lm: --prompt: needs --generate above 0");
  CHECK(complaint_of("groove", {"--prompt", "a.mid", "--continuations", "0"}) ==
        "groove: --prompt: needs --continuations above 0");
}

TEST_CASE("--help shows the output directory and the supported positions", "[examples]") {
  NEEDS_PROGRAM("train_lm");
  const auto help = [](const std::string& program) {
    const std::string text = run(find_program(program), {"--help"}).out;
    std::string words;  // without line breaks and spaces
    for (const char c : text)
      if (c != ' ' && c != '\n') words += c;
    return words;
  };
  const std::string lm = help("train_lm"), chorales = help("train_chorales"),
                    harmonize = help("harmonize"), lra = help("lra");
  CHECK_THAT(lm, Containing("--outDIR=out/lmFolder"));
  CHECK_THAT(chorales, Containing("--outDIR=out/choralesFolder"));
  CHECK_THAT(help("stretto-report"), Containing("--outFILE=comparison.html"));
  for (const std::string& text : {lm, chorales, harmonize}) CHECK(text.find("window") == text.npos);
  CHECK_THAT(lm, Containing("music-local,"));
  for (const std::string& text : {harmonize, lra})
    for (const char* causal : {"music-local,", "xpos,"}) CHECK(text.find(causal) == text.npos);
  CHECK_THAT(lra, Containing("swin,grid,"));
}

}  // namespace stretto::examples::testing
