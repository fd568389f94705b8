// Progress of a long job on stderr: a bar with rate and time left on a terminal, a plain line now and then in a pipe.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>

namespace loam {

class Progress {
 public:
  // `unit` is what is counted ("tokens", "bytes"); `total` 0 means unknown. Nothing is shown when the log level is
  // above info.
  Progress(std::string label, int64_t total, std::string unit);
  ~Progress();  // clears the bar
  Progress(const Progress&) = delete;
  Progress& operator=(const Progress&) = delete;

  // Adds `count`; draws at most ten times a second (a pipe: one line every ten seconds).
  // Thread safety: may be called from any thread.
  void advance(int64_t count);
  // Text shown after the bar, for example "loss 2.31".
  void note(std::string_view text);
  // Draws the final state and one closing line with the total and the mean rate.
  void finish();

 private:
  struct State;
  std::unique_ptr<State> state_;
};

// "1.2 GB", "3.4 k", "12m 03s".
std::string format_bytes(double bytes);
std::string format_count(double count);
std::string format_duration(double seconds);

}  // namespace loam
