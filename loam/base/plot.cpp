#include "loam/base/plot.h"

#include <fcntl.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cmath>
#include <cstdlib>
#include <sstream>
#include <string_view>

#include "loam/base/error.h"

namespace loam {
namespace {

namespace fs = std::filesystem;

// A directory of our own under the system's place for temporary files.
class ScratchDirectory {
 public:
  ScratchDirectory() {
    std::error_code error;
    std::string pattern = (fs::temp_directory_path(error) / "loam-plot-XXXXXX").string();
    if (error || ::mkdtemp(pattern.data()) == nullptr) fail(ErrorCode::kIo, "plot: no place for temporary files");
    path_ = pattern;
  }
  ~ScratchDirectory() {
    std::error_code ignored;
    fs::remove_all(path_, ignored);
  }
  ScratchDirectory(const ScratchDirectory&) = delete;
  ScratchDirectory& operator=(const ScratchDirectory&) = delete;
  const Path& path() const { return path_; }

 private:
  Path path_;
};

// A string of gnuplot's language: between single quotes only the quote itself is special.
std::string gnuplot_string(std::string_view text) {
  std::string out = "'";
  for (const char c : text) {
    if (c == '\'') out += "''";
    if (c != '\'') out += static_cast<unsigned char>(c) < 0x20 ? ' ' : c;
  }
  return out + "'";
}

bool can_be_drawn(const Plot& plot, double x, double y) {
  return std::isfinite(x) && std::isfinite(y) && !(plot.log_x && x <= 0) && !(plot.log_y && y <= 0);
}

std::string script_of(const Plot& plot, const Path& picture) {
  std::string data, lines;
  for (size_t i = 0; i < plot.series.size(); ++i) {
    const PlotSeries& series = plot.series[i];
    int64_t count = 0;
    for (const auto& [x, y] : series.points) {
      if (!can_be_drawn(plot, x, y)) continue;
      if (count++ == 0) data += fmt::format("$series{} << EOD\n", i);
      data += fmt::format("{} {}\n", x, y);
    }
    if (count == 0) continue;
    data += "EOD\n";
    const char* style = count < 40 ? "linespoints pt 7 ps 0.5" : "lines";
    lines += fmt::format("{}$series{} using 1:2 with {} lw 2 title {}", lines.empty() ? "plot " : ", ", i, style,
                         gnuplot_string(series.label));
  }
  // Without a point gnuplot draws nothing at all, not even the axes.
  if (lines.empty()) lines = "set xrange [0.1:1]\nset yrange [0.1:1]\nplot NaN notitle";
  return fmt::format(
      "set terminal {} size 1000,600 noenhanced\nset output {}\nset title {}\nset xlabel {}\nset ylabel {}\n"
      "set grid\nset key top right\n{}{}{}{}\n",
      picture.extension() == ".svg" ? "svg" : "pngcairo", gnuplot_string(picture.string()), gnuplot_string(plot.title),
      gnuplot_string(plot.x_label), gnuplot_string(plot.y_label), plot.log_x ? "set logscale x\n" : "",
      plot.log_y ? "set logscale y\n" : "", data, lines);
}

// Runs gnuplot on `script` without a shell; its messages go to `messages`. Returns its exit status, 127 if it could not
// be started.
int run_gnuplot(const Path& script, const Path& messages) {
  posix_spawn_file_actions_t actions;
  posix_spawn_file_actions_init(&actions);
  posix_spawn_file_actions_addopen(&actions, STDIN_FILENO, "/dev/null", O_RDONLY, 0);
  posix_spawn_file_actions_addopen(&actions, STDERR_FILENO, messages.c_str(), O_WRONLY | O_CREAT, 0600);
  posix_spawn_file_actions_adddup2(&actions, STDERR_FILENO, STDOUT_FILENO);
  std::string file = script.string();
  std::array<char*, 4> arguments = {const_cast<char*>("gnuplot"), const_cast<char*>("-d"), file.data(), nullptr};
  pid_t child = 0;
  // In a process group of its own: Ctrl-C on the terminal is not meant for it.
  posix_spawnattr_t attributes;
  posix_spawnattr_init(&attributes);
  posix_spawnattr_setflags(&attributes, POSIX_SPAWN_SETPGROUP);
  const int error = posix_spawnp(&child, "gnuplot", &actions, &attributes, arguments.data(), ::environ);
  posix_spawnattr_destroy(&attributes);
  posix_spawn_file_actions_destroy(&actions);
  if (error != 0) return 127;
  int status = 0;
  while (::waitpid(child, &status, 0) < 0 && errno == EINTR) {
  }
  return WIFEXITED(status) ? WEXITSTATUS(status) : 128;
}

}  // namespace

bool gnuplot_available() {
  const char* path = std::getenv("PATH");
  std::istringstream directories(path != nullptr ? path : "");
  for (std::string directory; std::getline(directories, directory, ':');) {
    if (!directory.empty() && ::access((directory + "/gnuplot").c_str(), X_OK) == 0) return true;
  }
  return false;
}

void write_plot(const Plot& plot, const Path& path) {
  if (!gnuplot_available()) {
    fail(ErrorCode::kUnavailable, "{}: gnuplot is not installed (Debian: gnuplot-nox)", path.string());
  }
  const ScratchDirectory scratch;
  const Path picture = scratch.path() / (path.extension() == ".svg" ? "plot.svg" : "plot.png");
  const Path script = scratch.path() / "plot.gp";
  const Path messages = scratch.path() / "messages";
  write_file_atomic(script, script_of(plot, picture));
  const int status = run_gnuplot(script, messages);
  if (status != 0 || !fs::exists(picture)) {
    const std::string said = fs::exists(messages) ? read_file(messages) : "";
    fail(ErrorCode::kIo, "{}: gnuplot failed with status {}: {}", path.string(), status, said.substr(0, 500));
  }
  write_file_atomic(path, read_file(picture));
}

}  // namespace loam
