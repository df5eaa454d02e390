#pragma once

#include <exception>
#include <filesystem>
#include <optional>

#include "parallel/comm/host.h"
#include "tests/support/scratch_dir.h"

namespace ashlar::testing {

/// A fresh directory that all ranks share; removed when all of them have left its scope.
class SharedDir {
 public:
  explicit SharedDir(comm::ControlPlane& ranks) : ranks_(ranks) {
    if (ranks.rank() == 0) dir_.emplace();
    path_ = comm::broadcast_text(ranks, dir_ ? dir_->path().string() : "", 0);
  }
  ~SharedDir() {
    if (std::uncaught_exceptions() == 0) comm::barrier(ranks_);
  }
  SharedDir(const SharedDir&) = delete;
  SharedDir& operator=(const SharedDir&) = delete;

  const std::filesystem::path& path() const { return path_; }

 private:
  comm::ControlPlane& ranks_;
  std::optional<ScratchDir> dir_;  // rank 0's
  std::filesystem::path path_;
};

}  // namespace ashlar::testing
