#include <algorithm>
#include <array>
#include <map>
#include <regex>
#include <set>
#include <sstream>
#include <string_view>

#include "core/base/strings.h"
#include "tests/lint/rules.h"

namespace ashlar::lint {

namespace {

struct Include {
  int line;
  bool quoted;
  std::string header;
};

std::vector<Include> includes_of(const SourceFile& file) {
  static const std::regex pattern(R"(^\s*#\s*include\s*([<"])([^>"]+)[>"])");
  std::vector<Include> found;
  std::istringstream stream(file.text);
  std::smatch match;
  int number = 0;
  for (std::string line; std::getline(stream, line);) {
    ++number;
    if (std::regex_search(line, match, pattern)) {
      found.push_back({.line = number, .quoted = match[1] == "\"", .header = match[2]});
    }
  }
  return found;
}

// "core/io/x.h" -> "core", and with depth 1 -> "io"; empty when the path has no such folder.
std::string folder_at(const std::string& path, int depth) {
  size_t begin = 0;
  for (int d = 0;; ++d) {
    const size_t end = path.find('/', begin);
    if (end == std::string::npos) return "";
    if (d == depth) return path.substr(begin, end - begin);
    begin = end + 1;
  }
}

std::string join(const std::set<std::string>& names) {
  std::string text;
  for (const std::string& name : names) text += (text.empty() ? "" : ", ") + name;
  return text;
}

// A vendor's headers and the path prefixes that may include them.
struct Vendor {
  const char* name;
  const char* pattern;
  std::vector<std::string> homes;
};

const std::vector<Vendor>& vendors() {
  static const std::vector<Vendor> table = {
      {"HDF5", R"(^(hdf5\.h|hdf5/.*|H5[A-Za-z]*\.h)$)", {"data/shards/hdf5_"}},
      {"zstd",
       R"(^zstd.*\.h$)",
       {"data/parquet/codec.cpp", "data/sources/unpacker.cpp", "tests/data/input_fixture.cpp"}},
      {"Snappy", R"(^snappy.*\.h$)", {"data/parquet/codec.cpp"}},
      {"LZ4", R"(^lz4.*\.h$)", {"data/parquet/codec.cpp"}},
      {"Brotli", R"(^brotli/.*$)", {"data/parquet/codec.cpp"}},
      {"PCRE2", R"(^pcre2.*\.h$)", {"data/tokenizer/regex.cpp", "data/tokenizer/pattern_translation.cpp"}},
      {"utf8proc", R"(^utf8proc\.h$)", {"data/tokenizer/unicode.cpp"}},
      {"SentencePiece", R"(^sentencepiece_(processor|trainer)\.h$)", {"data/tokenizer/sentencepiece_library.cpp"}},
      {"oneDNN", R"(^(dnnl.*|oneapi/dnnl/.*)$)", {"kernels/cpu/", "tests/kernels/"}},
      {"Highway", R"(^hwy/.*$)", {"kernels/cpu/", "tests/kernels/"}},
      {"OpenMP", R"(^omp\.h$)", {}},
      // The headers that bring it along are as far off limits as MPI's own.
      {"MPI",
       R"(^(mpi\.h|parallel/comm/mpi_.*)$)",
       {"parallel/comm/mpi_", "parallel/comm/bootstrap.cpp", "tests/stand_ins/nccl/"}},
      {"CUDA",
       R"(^(cuda[A-Za-z_]*(\.h|\.hpp)|cublas.*|cuda/.*)$)",
       {"kernels/cuda/", "parallel/comm/nccl_", "tests/stand_ins/", "tests/device/runtime_", "tests/cublaslt/",
        "tests/gpu/"}},
      {"NCCL", R"(^nccl.*$)", {"tests/stand_ins/nccl/", "tests/mpi/nccl_"}},
      {"toml++", R"(^toml\+\+/.*$)", {"launch/config/", "launch/plan/"}},
      {"GoogleTest", R"(^(gtest|gmock)/.*$)", {"tests/"}},
  };
  return table;
}

bool lives_in(const std::string& path, const std::vector<std::string>& homes) {
  return std::any_of(homes.begin(), homes.end(), [&](const std::string& home) { return path.starts_with(home); });
}

std::string homes_text(const Vendor& vendor) {
  return str_cat(vendor.name, " stays in ", join({vendor.homes.begin(), vendor.homes.end()}),
                 "*; declare what you need there and call it");
}

// What a sub-folder may include of its own top folder, besides itself. (core has a ladder, below.)
const std::map<std::string, std::set<std::string>>& within() {
  static const std::map<std::string, std::set<std::string>> table = {
      {"kernels/cpu", {"kernels/cpu/gemm"}},
      {"kernels/cpu/attention", {"kernels/cpu"}},
      {"kernels/cpu/gemm", {"kernels/cpu"}},
      {"kernels/cuda", {"kernels/cuda/attention", "kernels/cuda/dev", "kernels/cuda/gemm", "kernels/cuda/host"}},
      {"kernels/cuda/attention", {"kernels/cuda", "kernels/cuda/dev", "kernels/cuda/host"}},
      {"kernels/cuda/dev", {}},
      {"kernels/cuda/gemm", {"kernels/cuda/dev", "kernels/cuda/host"}},
      {"kernels/cuda/host", {"kernels/cuda/dev"}},
      {"tests/gpu_emulator", {}},
      {"tests/gpu_emulator/backend", {"tests/gpu_emulator"}},
      {"parallel/comm", {}},
      {"parallel/mesh", {"parallel/comm"}},
      {"parallel/tensor", {"parallel/comm", "parallel/mesh"}},
      {"parallel/model", {"parallel/tensor"}},
      {"parallel/pipeline", {"parallel/comm", "parallel/model"}},
      {"parallel/zero", {"parallel/comm", "parallel/mesh"}},
      {"parallel/checkpoint", {"parallel/comm"}},
      {"data", {}},
      {"data/tokenizer", {"data"}},
      {"data/shards", {"data", "data/tokenizer"}},
      {"data/parquet", {"data"}},
      {"data/sources", {"data", "data/parquet", "data/tokenizer"}},
      {"data/build", {"data", "data/parquet", "data/shards", "data/sources", "data/tokenizer"}},
      {"data/read", {"data", "data/shards", "data/tokenizer"}},
      {"launch/config", {}},
      {"launch/version", {}},
      {"launch/terminal", {}},
      {"launch/watch", {}},
      {"launch/trace", {}},
      {"launch/hf", {"launch/config", "launch/hf/shared"}},
      {"launch/hf/families", {"launch/hf", "launch/hf/shared"}},
      {"launch/hf/shared", {"launch/hf"}},
      {"launch/zoo", {"launch/config"}},
      {"launch/training", {"launch/config", "launch/terminal", "launch/trace", "launch/version", "launch/watch"}},
      {"launch/inference", {"launch/config", "launch/training"}},
      {"launch/tasks", {"launch/training"}},
      {"launch/layout_check", {"launch/config", "launch/training"}},
      {"launch/manual", {"launch/config", "launch/version"}},
      {"launch/packaging", {}},
      {"launch/gguf", {"launch/hf"}},
      {"launch/runs", {"launch/config", "launch/training"}},
      {"launch/plan", {"launch/config", "launch/training"}},
      {"launch/new_config", {"launch/config", "launch/plan", "launch/training", "launch/zoo"}},
      {"launch/commands",
       {"launch", "launch/config", "launch/gguf", "launch/hf", "launch/inference", "launch/layout_check",
        "launch/manual", "launch/new_config", "launch/packaging", "launch/plan", "launch/runs", "launch/tasks",
        "launch/terminal", "launch/trace", "launch/training", "launch/version", "launch/watch", "launch/zoo"}},
  };
  return table;
}

}  // namespace

std::vector<Finding> kernel_calls(const SourceFile& file) {
  static const std::regex call(R"(\bbackend(\.|->)\s*\w+\s*\()");
  if (!is_code(file.path) || !file.path.starts_with("parallel/model/")) return {};
  std::vector<Finding> findings;
  std::istringstream stream(blank_non_code(file.text));
  int number = 0;
  for (std::string line; std::getline(stream, line);) {
    ++number;
    if (std::regex_search(line, call)) {
      findings.push_back({file.path, number, "a model calls ops, which alone call a backend: write an op for it"});
    }
  }
  return findings;
}

std::vector<Finding> include_arrows(const SourceFile& file) {
  static const std::map<std::string, std::set<std::string>> allowed = {
      {"core", {"core"}},
      {"kernels", {"core", "kernels"}},
      {"parallel", {"core", "parallel"}},
      {"data", {"core", "data"}},
      {"launch", {"core", "kernels", "parallel", "data", "launch"}},
      {"tests", {"core", "kernels", "parallel", "data", "launch", "tests"}},
  };
  static const std::array<std::string, 8> ladder = {"base",     "device", "tensor", "backend",
                                                    "autograd", "ops",    "nn",     "optim"};
  if (!is_code(file.path)) return {};
  std::vector<Finding> findings;
  const std::string from = folder_at(file.path, 0);
  const auto rule = allowed.find(from);
  if (rule == allowed.end()) {
    return {{file.path, 0, "code lives in core, kernels, parallel, data, launch or tests"}};
  }
  const auto rung = [&](const std::string& name) { return std::find(ladder.begin(), ladder.end(), name); };
  for (const Include& include : includes_of(file)) {
    const std::string to = folder_at(include.header, 0);
    if (!allowed.contains(to)) {
      const bool relative = include.quoted && (to.empty() || to[0] == '.') && !include.header.ends_with(".hpp");
      if (relative) {
        findings.push_back(
            {file.path, include.line, str_cat("include \"", include.header, "\" by its path from the project's root")});
      }
      continue;
    }
    if (!include.quoted) {
      findings.push_back({file.path, include.line, str_cat("own header <", include.header, ">: use quotes")});
    }
    if (!rule->second.contains(to)) {
      findings.push_back({file.path, include.line,
                          str_cat(from, " may include only ", join(rule->second), "; it includes ", include.header)});
      continue;
    }
    if (from == "launch" && to == "kernels" && include.header != "kernels/make_backend.h" &&
        include.header != "kernels/memory_bandwidth.h") {
      findings.push_back({file.path, include.line,
                          str_cat("launch includes kernels/make_backend.h and kernels/memory_bandwidth.h only; it "
                                  "includes ",
                                  include.header)});
    }
    if (const auto below = within().find(folder_of(file.path)); from == to && below != within().end()) {
      const std::string theirs = folder_of(include.header);
      if (theirs != below->first && !below->second.contains(theirs)) {
        findings.push_back({file.path, include.line,
                            str_cat(below->first, " may include only itself",
                                    below->second.empty() ? "" : " and " + join(below->second), " of ", from,
                                    "; it includes ", include.header)});
      }
    } else if (from == to && from != "core" && from != "tests" && folder_of(file.path) != from) {
      findings.push_back({file.path, include.line,
                          str_cat(folder_of(file.path),
                                  " has no row in the table of rules_includes.cpp that says what "
                                  "it may include")});
    }
    if (from != "core") continue;
    const std::string mine = folder_at(file.path, 1), theirs = folder_at(include.header, 1);
    if (mine == theirs) continue;
    const auto beside = [](const std::string& name) { return name == "io" || name == "tuning"; };
    const bool allowed_step =
        beside(mine) || beside(theirs)
            ? (beside(mine) && theirs == "base") || (mine == "tuning" && theirs == "io")
            : (rung(mine) != ladder.end() && rung(theirs) != ladder.end() && rung(theirs) < rung(mine));
    if (!allowed_step) {
      findings.push_back({file.path, include.line,
                          str_cat("core/", mine, " may not include ", include.header,
                                  "; order: base <- device <- tensor <- backend <- autograd <- ops <- nn <- optim, "
                                  "base <- io <- tuning")});
    }
  }
  return findings;
}

std::vector<Finding> vendor_headers(const SourceFile& file) {
  if (!is_code(file.path)) return {};
  std::vector<Finding> findings;
  for (const Include& include : includes_of(file)) {
    for (const Vendor& vendor : vendors()) {
      if (std::regex_match(include.header, std::regex(vendor.pattern)) && !lives_in(file.path, vendor.homes)) {
        findings.push_back({file.path, include.line, homes_text(vendor)});
      }
    }
    const bool heavy = include.header.starts_with("nlohmann/json.hpp") || include.header.starts_with("toml++/");
    if (heavy && is_header(file.path)) {
      findings.push_back({file.path, include.line, str_cat("include ", include.header, " in a .cpp: it is slow")});
    }
  }
  static const std::regex omp(R"(^\s*#\s*pragma\s+omp\b)");
  static const std::regex device_code(R"(__global__|__device__|ifdef\s+ASHLAR_CUDA)");
  const bool rules_themselves = file.path.starts_with("tests/lint/");
  std::istringstream stream(file.text);
  int number = 0;
  for (std::string line; std::getline(stream, line);) {
    ++number;
    if (std::regex_search(line, omp)) {
      findings.push_back({file.path, number, "no OpenMP, whose barriers spin: use kernels/cpu/parallel_for.h"});
    }
    if (std::regex_search(line, device_code) && !rules_themselves &&
        !lives_in(file.path, {"kernels/cuda/", "tests/gpu_emulator/", "parallel/comm/nccl_", "tests/gpu/"})) {
      findings.push_back({file.path, number, "CUDA code stays in kernels/cuda/* and tests/gpu/*"});
    }
  }
  return findings;
}

}  // namespace ashlar::lint
