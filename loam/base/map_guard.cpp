#include "loam/base/map_guard.h"

#include <setjmp.h>
#include <signal.h>
#include <unistd.h>

#include <atomic>
#include <cstdint>
#include <memory>
#include <mutex>
#include <string_view>

#include "loam/base/error.h"
#include "loam/base/utf8.h"

namespace loam {
namespace {

// A map that lives, or a place for one. Entries form a list that only grows, so that the handler can walk it at any
// moment; `begin` is set last and cleared first.
struct Entry {
  std::atomic<uintptr_t> begin = 0;  // 0: free
  uintptr_t size = 0;
  std::string message, line;  // of errors; as the handler writes it
  Entry* next = nullptr;
};
std::atomic<Entry*> entries = nullptr;
static_assert(std::atomic<Entry*>::is_always_lock_free && std::atomic<uintptr_t>::is_always_lock_free,
              "used in a signal handler");
std::mutex mutex;  // of those who change the list
struct sigaction earlier_action;

// Where a guarded read of this thread goes on after a fault, and the map that faulted.
thread_local sigjmp_buf* landing = nullptr;
thread_local const Entry* faulted = nullptr;

const Entry* entry_of(uintptr_t address) {
  for (const Entry* entry = entries.load(std::memory_order_acquire); entry; entry = entry->next) {
    const uintptr_t begin = entry->begin.load(std::memory_order_acquire);
    if (begin != 0 && address >= begin && address - begin < entry->size) return entry;
  }
  return nullptr;
}

void write_error(std::string_view text) {
  while (!text.empty()) {
    const ssize_t written = ::write(STDERR_FILENO, text.data(), text.size());
    if (written <= 0) return;
    text.remove_prefix(static_cast<size_t>(written));
  }
}

void on_bus_error(int signal, siginfo_t* info, void* context) {
  const bool sent = info->si_code <= 0;  // by a process: it has no address
  if (const Entry* entry = sent ? nullptr : entry_of(reinterpret_cast<uintptr_t>(info->si_addr))) {
    if (landing != nullptr) {
      faulted = entry;
      siglongjmp(*landing, 1);
    }
    write_error(entry->line);
    ::_exit(1);
  }
  if (earlier_action.sa_flags & SA_SIGINFO) return earlier_action.sa_sigaction(signal, info, context);
  if (earlier_action.sa_handler != SIG_DFL && earlier_action.sa_handler != SIG_IGN) {
    return earlier_action.sa_handler(signal);
  }
  // The read is tried again, and ends the process as if there were no handler.
  sigaction(SIGBUS, &earlier_action, nullptr);
  if (sent) ::raise(signal);
}

void install_handler() {
  struct sigaction action = {};
  action.sa_sigaction = on_bus_error;
  action.sa_flags = SA_SIGINFO | SA_ONSTACK;
  sigemptyset(&action.sa_mask);
  sigaction(SIGBUS, &action, &earlier_action);
}

// Stands while a guarded read runs.
class Landing {
 public:
  explicit Landing(sigjmp_buf& place) { landing = &place; }
  ~Landing() { landing = nullptr; }
  Landing(const Landing&) = delete;
  Landing& operator=(const Landing&) = delete;
};

}  // namespace

void call_guarded(void (*read)(void*), void* argument) {
  sigjmp_buf place;
  const Landing standing(place);
  constexpr int kWithMask = 1;  // in the handler the signal is blocked
  if (sigsetjmp(place, kWithMask) != 0) fail(ErrorCode::kIo, "{}", faulted->message);
  read(argument);
}

void guard_map(const void* begin, size_t size, const std::string& file) {
  const std::lock_guard lock(mutex);
  if (entries.load() == nullptr) install_handler();
  Entry* entry = entries.load();
  while (entry && entry->begin.load() != 0) entry = entry->next;
  const bool is_new = entry == nullptr;
  if (is_new) entry = std::make_unique<Entry>().release();  // never freed: the handler may be looking at it
  // On a terminal a progress bar may stand on the line.
  entry->message = file + ": it was cut, or could not be read, while in use";
  entry->line = (::isatty(STDERR_FILENO) ? "\r\x1b[K" : "") + std::string("error: ") + printable(entry->message) + "\n";
  entry->size = size;
  entry->begin.store(reinterpret_cast<uintptr_t>(begin), std::memory_order_release);
  if (!is_new) return;
  entry->next = entries.load();
  entries.store(entry, std::memory_order_release);
}

void release_map(const void* begin) {
  const std::lock_guard lock(mutex);
  for (Entry* entry = entries.load(); entry; entry = entry->next) {
    if (entry->begin.load() == reinterpret_cast<uintptr_t>(begin)) entry->begin.store(0, std::memory_order_release);
  }
}

}  // namespace loam
