#include "loam/base/interrupt.h"

#include <signal.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <cstring>
#include <iterator>

#include "loam/base/error.h"

namespace loam {
namespace {

std::atomic<bool> flag = false;
static_assert(std::atomic<bool>::is_always_lock_free, "used in a signal handler");

int scopes = 0;  // scopes nest; the outermost one installs and restores
// Besides Ctrl-C and the polite end: a terminal that has gone away, and what a batch system sends before its time
// limit.
constexpr int kSignals[] = {SIGINT, SIGTERM, SIGHUP, SIGUSR1};
struct sigaction old_actions[std::size(kSignals)], old_file_size;

std::atomic<const char*> notice = nullptr;

void on_signal(int signal) {
  if (flag.exchange(true)) _exit(128 + signal);
  const int error = errno;
  if (const char* line = notice.load()) (void)!::write(STDERR_FILENO, line, std::strlen(line));
  errno = error;
}

}  // namespace

InterruptScope::InterruptScope() {
  if (scopes++ > 0) return;
  struct sigaction action = {};
  action.sa_handler = on_signal;
  sigemptyset(&action.sa_mask);
  action.sa_flags = 0;  // no SA_RESTART: a read of standard input must end when the user presses Ctrl-C
  for (size_t i = 0; i < std::size(kSignals); ++i) {
    sigaction(kSignals[i], &action, &old_actions[i]);
    // nohup has it ignored, and it stays so.
    if (kSignals[i] == SIGHUP && old_actions[i].sa_handler == SIG_IGN) sigaction(SIGHUP, &old_actions[i], nullptr);
  }
  // A file that grows over a limit then is a failed write, like a full disk.
  action.sa_handler = SIG_IGN;
  sigaction(SIGXFSZ, &action, &old_file_size);
}

InterruptScope::~InterruptScope() {
  if (--scopes > 0) return;
  for (size_t i = 0; i < std::size(kSignals); ++i) sigaction(kSignals[i], &old_actions[i], nullptr);
  sigaction(SIGXFSZ, &old_file_size, nullptr);
}

// On a terminal a progress bar may stand on the line.
InterruptNotice::InterruptNotice(const std::string& text)
    : line_((::isatty(STDERR_FILENO) ? "\r\x1b[K" : "") + text + "\n") {
  notice = line_.c_str();
}

InterruptNotice::~InterruptNotice() { notice = nullptr; }

bool interrupted() { return flag.load(std::memory_order_relaxed); }
void request_interrupt() { flag.store(true); }
void clear_interrupt() { flag.store(false); }

void check_interrupt() {
  if (interrupted()) fail(ErrorCode::kInterrupted, "interrupted");
}

}  // namespace loam
