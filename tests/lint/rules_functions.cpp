#include <algorithm>
#include <regex>

#include "core/base/strings.h"
#include "tests/lint/rules.h"

namespace ashlar::lint {

namespace {

constexpr int kMaxFunctionLines = 60;

// A function is a brace outside every other function whose declaration has parameters and assigns nothing, so that
// tables are none.
bool opens_function(const std::string& head) {
  static const std::regex other(
      R"(^\s*(template\s*<[^;{]*>\s*)?(inline\s+)?(namespace|class|struct|union|enum|extern)\b)");
  if (std::regex_search(head, other) && head.find(')') == std::string::npos) return false;
  const size_t parameters = head.find('(');
  if (parameters == std::string::npos) return false;
  const bool excepted = head.find("operator") != std::string::npos || head.find("template") != std::string::npos;
  return excepted || head.find('=') > parameters;
}

}  // namespace

std::vector<Finding> function_length(const SourceFile& file) {
  if (!file.path.starts_with("launch/") || !is_code(file.path)) return {};
  const std::string code = blank_non_code(file.text);
  std::vector<Finding> findings;
  std::string head;  // of the declaration so far
  int line = 1, begin = 1;
  int depth = 0;  // of braces inside a function or a table; 0: at the scope of a namespace or a class
  bool function = false;
  for (const char c : code) {
    line += c == '\n';
    if (depth > 0) {
      depth += c == '{' ? 1 : c == '}' ? -1 : 0;
      const int lines = line - begin + 1;
      if (depth == 0 && function && lines > kMaxFunctionLines) {
        findings.push_back(
            {file.path, begin,
             str_cat("a function of ", lines, " lines, at most ", kMaxFunctionLines, ": give its parts names")});
      }
    } else if (c == ';' || c == '}') {
      head.clear();
    } else if (c != '{') {
      if (head.empty() && std::isspace(static_cast<unsigned char>(c)) != 0) continue;
      if (head.empty()) begin = line;
      head += c;
    } else {
      function = opens_function(head);
      const bool type = !function && head.find('=') == std::string::npos && head.find('(') == std::string::npos;
      if (!type) depth = 1;
      head.clear();
    }
  }
  return findings;
}

}  // namespace ashlar::lint
