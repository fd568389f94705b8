#include <signal.h>

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <iostream>

#include "apps/command.h"

namespace loam {
namespace {

[[noreturn]] void fail_output(int error) {
  if (error == EPIPE) throw ClosedOutput();
  fail(ErrorCode::kIo, "standard output: cannot write: {}", std::strerror(error));
}

}  // namespace

void write_output(std::string_view bytes) {
  if (std::fwrite(bytes.data(), 1, bytes.size(), stdout) != bytes.size()) fail_output(errno);
}

void flush_output() {
  if (std::fflush(stdout) != 0 || !std::cout) fail_output(errno);  // --help and --version go through std::cout
}

int end_by_closed_pipe() {
  signal(SIGPIPE, SIG_DFL);
  raise(SIGPIPE);
  return 1;
}

void print(const std::string& text) { write_output(text + "\n"); }

}  // namespace loam
