#include "core/available_memory.h"

#include <sched.h>
#include <sys/mount.h>
#include <sys/wait.h>
#include <unistd.h>

#include <filesystem>

#include "tests/support/catch.h"
#include "tests/support/temp_dir.h"

using namespace stretto;

TEST_CASE("memory in use counts against the limit of a container", "[core]") {
  const testing::TempDir folder;
  std::filesystem::create_directory(folder.file("memory"));
  const auto write = [&](const std::string& name, const std::string& text) {
    testing::write_file(folder.file(name), text);
  };
  const auto left = [&] { return memory_left_in_cgroup(folder.str()); };
  CHECK(left() == INT64_MAX);
  write("memory.max", "max\n");
  CHECK(left() == INT64_MAX);
  write("memory.max", "8000\n");
  write("memory.current", "6000\n");
  CHECK(left() == 2000);
  write("memory.stat", "anon 4500\ninactive_file 1500\nactive_file 2\n");
  CHECK(left() == 3500);
  write("memory/memory.limit_in_bytes", "7000\n");  // version 1
  write("memory/memory.usage_in_bytes", "6900\n");
  write("memory/memory.stat", "cache 9\ntotal_inactive_file 100\n");
  CHECK(left() == 200);
  write("memory/memory.usage_in_bytes", "7500\n");
  CHECK(left() == 0);
  CHECK(available_memory() > 0);
}

// In a child whose /sys/fs/cgroup is another directory.
TEST_CASE("the limit of the container limits the available memory", "[core]") {
  const testing::TempDir folder;
  testing::write_file(folder.file("memory.max"), "8000\n");
  testing::write_file(folder.file("memory.current"), "6000\n");
  const pid_t child = ::fork();
  REQUIRE(child >= 0);
  if (child == 0) {
    if (::unshare(CLONE_NEWNS) != 0 && ::unshare(CLONE_NEWUSER | CLONE_NEWNS) != 0) ::_exit(2);
    if (::mount("none", "/", nullptr, MS_REC | MS_PRIVATE, nullptr) != 0 ||
        ::mount(folder.str().c_str(), "/sys/fs/cgroup", nullptr, MS_BIND, nullptr) != 0)
      ::_exit(2);
    ::_exit(available_memory() == 2000 ? 0 : 1);
  }
  int status = -1;
  ::waitpid(child, &status, 0);
  REQUIRE(WIFEXITED(status));
  if (WEXITSTATUS(status) == 2) STRETTO_SKIP("this process may not mount directories");
  CHECK(WEXITSTATUS(status) == 0);
}
