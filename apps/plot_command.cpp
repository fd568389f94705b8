// `loam plot`: the curves of several runs in one picture.
#include <memory>

#include "apps/commands.h"
#include "apps/options.h"
#include "loam/base/plot.h"
#include "loam/train/run_summary.h"

namespace loam {
namespace {

struct Options {
  std::vector<std::string> runs;
  std::string x = "step", y = "loss", out = "plot.png";
  int64_t smooth = 1;
  bool log_x = false, log_y = false, force = false;
};

std::string label_of(const std::string& y) {
  if (y == "loss") return "loss (nats a token)";
  if (y == "val") return "validation loss (nats a token)";
  return y;
}

int plot(const Options& o, const CommonFlags& flags) {
  const Path out = o.out;
  if (out.extension() != ".png" && out.extension() != ".svg")
    throw UsageError("--out " + o.out + ": a name in .png or .svg");
  if (!o.force && std::filesystem::exists(out))
    fail(ErrorCode::kAlreadyExists, "{} is there already: --force replaces it", o.out);
  const PlotAxis axis = o.x == "step" ? PlotAxis::step : o.x == "tokens" ? PlotAxis::tokens : PlotAxis::time;
  Plot picture{"", o.x == "time" ? "seconds of training" : o.x, label_of(o.y), {}, o.log_x, o.log_y};
  Json series = Json::array();
  for (const std::string& name : o.runs) {
    auto points = curve_of(read_run(name), axis, o.y, o.smooth);
    series.push_back(Json::Object{{"run", name}, {"points", static_cast<int64_t>(points.size())}});
    picture.series.push_back({name, std::move(points)});
  }
  write_plot(picture, out);
  if (flags.json) print(Json(Json::Object{{"out", o.out}, {"series", series}}).dump());
  return 0;
}

}  // namespace

void add_plot_command(Command& program) {
  auto o = std::make_shared<Options>();
  Command c = program.add_command("plot", "Draw a number of the metrics of one or several runs (needs gnuplot)",
                                  "loam plot runs/first runs/second --x tokens --y val --out val.png",
                                  [o](const CommonFlags& flags) { return plot(*o, flags); });
  c.add_option("RUN", o->runs, "directories of runs").required();
  c.add_option("--x", o->x, "what the curves run over").one_of({"step", "tokens", "time"});
  c.add_option("--y", o->y, "loss, val, lr, grad_norm, tokens_per_second, or another number of metrics.jsonl");
  add_integer(c, "--smooth", o->smooth, "draw the mean of so many points up to each", 1, 1 << 20);
  c.add_flag("--log-x", o->log_x, "logarithmic x axis");
  c.add_flag("--log-y", o->log_y, "logarithmic y axis");
  c.add_option("--out", o->out, "picture, in .png or .svg");
  c.add_flag("--force", o->force, "replace the picture");
}

}  // namespace loam
