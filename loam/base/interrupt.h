// Ctrl-C, SIGTERM and the like as a flag that long loops look at.
#pragma once

#include <string>

namespace loam {

// Installs handlers for SIGINT, SIGTERM, SIGHUP (unless it is ignored) and SIGUSR1 while it lives. The first signal
// sets the flag; a second one ends the process at once with the usual status (128 + signal). SIGXFSZ is ignored: a file
// over the size limit then is a failed write.
class InterruptScope {
 public:
  InterruptScope();
  ~InterruptScope();
  InterruptScope(const InterruptScope&) = delete;
  InterruptScope& operator=(const InterruptScope&) = delete;
};

// While it lives, the first signal is answered at once with this line on stderr.
class InterruptNotice {
 public:
  explicit InterruptNotice(const std::string& text);
  ~InterruptNotice();
  InterruptNotice(const InterruptNotice&) = delete;
  InterruptNotice& operator=(const InterruptNotice&) = delete;

 private:
  std::string line_;
};

bool interrupted();
// For tests and for programs that embed loam: the same as a first signal.
void request_interrupt();
void clear_interrupt();
// Throws Error{kInterrupted} if the flag is set.
void check_interrupt();

}  // namespace loam
