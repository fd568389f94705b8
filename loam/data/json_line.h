// One line of JSONL as a document.
#pragma once

#include <memory>
#include <string>

#include "loam/data/document.h"

namespace loam {

class JsonLineParser {
 public:
  JsonLineParser();
  ~JsonLineParser();
  // Sets text, metadata and, if the line has one, id; returns "", or what is wrong with the line. `line` may be grown
  // by spare capacity.
  std::string parse(std::string& line, const std::string& text_key, Document& document);

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace loam
