#pragma once

#include <gtest/gtest.h>

#include <cstdlib>
#include <functional>
#include <memory>
#include <string>

#include "core/base/error.h"
#include "kernels/make_backend.h"
#include "tests/mpi/communicators.h"
#include "tests/mpi/operands.h"

namespace ashlar::testing {

/// Sets a variable of the environment for a scope.
class Variable {
 public:
  Variable(const char* name, const std::string& value) : name_(name) { setenv(name, value.c_str(), 1); }
  ~Variable() { unsetenv(name_); }
  Variable(const Variable&) = delete;
  Variable& operator=(const Variable&) = delete;

 private:
  const char* name_;
};

class NcclFixture : public ::testing::Test {
 protected:
  void SetUp() override {
    if (ranks_ == 1) GTEST_SKIP() << "one rank needs no NCCL";
    if (stand_in_nccl().empty()) GTEST_SKIP() << "no nccl.h to build the stand-in against";
  }
  std::unique_ptr<comm::NcclComm> make(const comm::NcclOptions& options = {.setup_seconds = 30}) {
    return make_nccl(*host_, device_, options);
  }
  comm::Work sum(comm::Communicator& on, Buffer<float>& x) {
    return on.all_reduce({.in = x.view(), .out = x.view(), .op = comm::ReduceOp::kSum}, *stream_);
  }
  static Error error_of(const std::function<void()>& call) {
    try {
      call();
    } catch (const Error& error) {
      return error;
    }
    return {ExitCode::kDone, "", "no error"};
  }

  DeferredBackend device_{kernels::make_backend({.threads = 1}), 7};
  std::unique_ptr<Stream> stream_ = device_.make_stream();
  std::unique_ptr<comm::Communicator> host_ = make_communicator(Kind::kWorld);
  const int rank_ = host_->rank(), ranks_ = host_->size();
};

}  // namespace ashlar::testing
