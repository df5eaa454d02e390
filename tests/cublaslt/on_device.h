#pragma once

#include <gtest/gtest.h>

#include <cstdlib>
#include <memory>
#include <optional>
#include <utility>

#include "kernels/cuda/gemm/cublaslt_plans.h"
#include "kernels/cuda/gemm/gemm.h"
#include "tests/stand_ins/cublaslt/descriptors.h"
#include "tests/stand_ins/cudart/enqueue.h"
#include "tests/support/kernel_grid.h"

namespace ashlar::cuda {

/// A matrix of the host, and its copy on the device, which starts `offset` elements behind an address divisible by 256.
class DeviceMatrix {
 public:
  DeviceMatrix(Device& device, Stream& stream, const test::HostMatrix& host, int64_t offset = 0)
      : device_(&device),
        stream_(&stream),
        host_(host),
        bytes_(host.rows() * host.view().stride * size_of(host.dtype())) {
    block_ = static_cast<char*>(memory().allocate(bytes_ + 256));
    at_ = block_ + offset * size_of(host.dtype());
    if (host.present()) device.copy(at_, host.view().data, bytes_, stream);
  }
  ~DeviceMatrix() {
    if (block_ != nullptr) memory().release(block_);
  }
  DeviceMatrix(DeviceMatrix&& other) noexcept
      : device_(other.device_),
        stream_(other.stream_),
        host_(std::move(other.host_)),
        bytes_(other.bytes_),
        block_(std::exchange(other.block_, nullptr)),
        at_(other.at_) {}
  DeviceMatrix& operator=(DeviceMatrix&&) = delete;

  MutView mut() const {
    const ConstView v = host_.view();
    return {at_, v.dtype, v.rows, v.cols, v.stride};
  }
  operator ConstView() const { return mut(); }  // NOLINT: as MutView
  /// What the device has now; the host waits.
  test::HostMatrix read() const {
    test::HostMatrix out = host_;
    device_->copy(out.mut().data, at_, bytes_, *stream_);
    stream_->synchronize();
    return out;
  }

 private:
  Allocator& memory() const { return device_->allocator(MemoryKind::kActivations); }

  Device* device_;
  Stream* stream_;
  test::HostMatrix host_;
  int64_t bytes_;
  char *block_ = nullptr, *at_ = nullptr;
};

/// A device on the stand-ins, fresh for each test.
class CublasLtTest : public ::testing::Test {
 protected:
  void SetUp() override { start("", ""); }
  void TearDown() override {
    EXPECT_STREQ(ashlar_stand_in_fault(), "");
    stream_.reset();
    device_.reset();
  }
  /// A new device: options of the stand-ins.
  void start(const char* runtime_options, const std::string& library_options) {
    stream_.reset();
    device_.reset();
    ashlar_stand_in_reset(runtime_options);
    reset_library(library_options);
    device_.emplace(DeviceOptions{});
    stream_ = device_->make_stream();
  }
  static void reset_library(const std::string& options);
  static long library_calls(const char* name);

  DeviceMatrix on_device(const test::HostMatrix& m, int64_t offset = 0) { return {*device_, *stream_, m, offset}; }
  void run(const Gemm& args) {
    gemm(*device_, args, *stream_);
    stream_->synchronize();
  }

  std::optional<Device> device_;
  std::unique_ptr<Stream> stream_;
};

}  // namespace ashlar::cuda
