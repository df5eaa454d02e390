// gpu_conformance --device: names the first GPU and its driver. gpu_conformance DIR: runs the small kernels of
// ../conformance on the first GPU and compares what they write with the emulator, which is in the program. Each
// kernel's words go to DIR/NAME.bin, one line a kernel to standard output, and a last line that counts. Exit codes: 0
// all equal, 1 some differ, 3 there is no GPU, 70 CUDA failed.
#include <cuda_runtime.h>

#include <cstdio>
#include <filesystem>
#include <fstream>
#include <iostream>
#include <vector>

#include "core/base/error.h"
#include "core/base/strings.h"
#include "tests/gpu/conformance/words.h"
#include "tests/gpu_emulator/emulator.h"

// The same tables from two compilers (conformance/cases.h): kernels of the GPU, and of the emulator.
namespace ashlar::cuda::conformance {
std::span<const ::ashlar::conformance::Case> arithmetic_cases();
std::span<const ::ashlar::conformance::Case> function_cases();
std::span<const ::ashlar::conformance::Case> warp_cases();
std::span<const ::ashlar::conformance::Case> memory_cases();
}  // namespace ashlar::cuda::conformance
namespace ashlar::emulated::conformance {
std::span<const ::ashlar::conformance::Case> arithmetic_cases();
std::span<const ::ashlar::conformance::Case> function_cases();
std::span<const ::ashlar::conformance::Case> warp_cases();
std::span<const ::ashlar::conformance::Case> memory_cases();
}  // namespace ashlar::emulated::conformance

namespace ashlar::conformance {
namespace {

void check(cudaError_t status, const char* what) {
  if (status != cudaSuccess) throw Bug(str_cat("[cuda] ", what, ": ", cudaGetErrorString(status)));
}

/// Device memory for words.
class DeviceWords {
 public:
  explicit DeviceWords(size_t count) : bytes_(count * sizeof(uint32_t)) { check(cudaMalloc(&data_, bytes_), "malloc"); }
  ~DeviceWords() { cudaFree(data_); }
  DeviceWords(const DeviceWords&) = delete;
  DeviceWords& operator=(const DeviceWords&) = delete;

  void write(const std::vector<uint32_t>& words) {
    check(cudaMemcpy(data_, words.data(), bytes_, cudaMemcpyHostToDevice), "copy to the device");
  }
  std::vector<uint32_t> read() const {
    std::vector<uint32_t> words(bytes_ / sizeof(uint32_t));
    check(cudaMemcpy(words.data(), data_, bytes_, cudaMemcpyDeviceToHost), "copy to the host");
    return words;
  }
  uint32_t* data() const { return data_; }

 private:
  size_t bytes_;
  uint32_t* data_ = nullptr;
};

std::vector<uint32_t> on_gpu(const Case& c) {
  DeviceWords in(inputs_of(c).size()), out(static_cast<size_t>(output_words(c)));
  in.write(inputs_of(c));
  out.write(std::vector<uint32_t>(static_cast<size_t>(output_words(c)), 0xdeadbeefU));
  const uint32_t* from = in.data();
  uint32_t* to = out.data();
  void* arguments[] = {&from, &to};
  check(cudaLaunchKernel(reinterpret_cast<const void*>(c.kernel), dim3(kBlocks), dim3(kThreads), arguments,
                         static_cast<size_t>(c.shared_bytes), nullptr),
        c.name);
  check(cudaDeviceSynchronize(), c.name);
  return out.read();
}

std::vector<uint32_t> on_emulator(const Case& c) {
  const std::vector<uint32_t> in = inputs_of(c);
  std::vector<uint32_t> out(static_cast<size_t>(output_words(c)), 0xdeadbeefU);
  emulator::run({.name = c.name,
                 .grid = {kBlocks},
                 .block = {kThreads},
                 .shared_bytes = c.shared_bytes,
                 .thread = emulator::bind(c.kernel, in.data(), out.data())});
  return out;
}

/// Whether there is a GPU; `said` becomes its name, or why there is none.
bool find_device(std::string& said) {
  int devices = 0;
  if (const cudaError_t status = cudaGetDeviceCount(&devices); status != cudaSuccess || devices == 0) {
    said = str_cat("no GPU: ", status == cudaSuccess ? "the driver sees no device" : cudaGetErrorString(status));
    return false;
  }
  cudaDeviceProp device{};
  check(cudaGetDeviceProperties(&device, 0), "properties of the device");
  int driver = 0;
  check(cudaDriverGetVersion(&driver), "version of the driver");
  said = str_cat(device.name, ", compute capability ", device.major, ".", device.minor, ", driver for CUDA ",
                 driver / 1000, ".", driver % 1000 / 10);
  return true;
}

int run(const std::string& argument) {
  std::string said;
  const bool found = find_device(said);
  std::cout << said << "\n";
  if (!found) return 3;
  if (argument == "--device") return 0;
  const std::filesystem::path folder = argument;
  std::filesystem::create_directories(folder);
  const std::vector<std::pair<std::span<const Case>, std::span<const Case>>> tables = {
      {cuda::conformance::arithmetic_cases(), emulated::conformance::arithmetic_cases()},
      {cuda::conformance::function_cases(), emulated::conformance::function_cases()},
      {cuda::conformance::warp_cases(), emulated::conformance::warp_cases()},
      {cuda::conformance::memory_cases(), emulated::conformance::memory_cases()}};
  int passed = 0, failed = 0;
  for (const auto& [gpu, emulated] : tables) {
    for (size_t i = 0; i < gpu.size(); ++i) {
      const std::vector<uint32_t> got = on_gpu(gpu[i]);
      const std::string wrong = difference(gpu[i], on_emulator(emulated[i]), got, false);
      std::ofstream(folder / (std::string(gpu[i].name) + ".bin"), std::ios::binary)
          .write(reinterpret_cast<const char*>(got.data()), static_cast<std::streamsize>(got.size() * sizeof(got[0])));
      std::cout << (wrong.empty() ? "equal " + std::string(gpu[i].name) + " " + digest(got) : "DIFFERS " + wrong)
                << "\n";
      ++(wrong.empty() ? passed : failed);
    }
  }
  std::cout << passed << " kernels equal, " << failed << " differ\n";
  return failed == 0 ? 0 : 1;
}

}  // namespace
}  // namespace ashlar::conformance

int main(int argc, char** argv) {
  if (argc != 2) {
    std::cerr << "usage: gpu_conformance DIR | --device\n";
    return 2;
  }
  try {
    return ashlar::conformance::run(argv[1]);
  } catch (const std::exception& error) {
    std::cerr << error.what() << "\n";
    return 70;
  }
}
