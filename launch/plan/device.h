#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "core/base/dtype.h"

/// Predictions of a run before it starts: pure functions from a configuration and a device to data.
namespace ashlar::plan {

enum class DeviceKind : uint8_t { kCpu, kCuda };
constexpr auto names_of(DeviceKind) { return enum_names<DeviceKind>("cpu", "cuda"); }
using ashlar::name_of;

/// Rates in one dtype. A matrix product that sums over k terms reaches k / (k + half_terms) of `sustained`.
struct DtypeRates {
  double peak = 0;       ///< flop/s by the data sheet, or measured on registers; shares of the peak refer to it
  double sustained = 0;  ///< flop/s of long products
  double half_terms = 0;
  double streaming = 0;  ///< bytes/s of kernels that read and write rows (norms, activations, loss)
  double seconds(double flops, double terms) const { return flops * (terms + half_terms) / terms / sustained; }
};

/// Rates of attention at one head width and length of samples, in causal flop/s: two products forward, five backward.
struct AttentionRates {
  int64_t head_dim = 0, tokens = 0;
  double forward = 0, backward = 0;
};

/// A link of one rank, in one direction: n bytes take latency + n / bandwidth seconds.
struct Link {
  double bandwidth = 0;  ///< bytes/s
  double latency = 0;    ///< s
  double seconds(double bytes) const { return latency + bytes / bandwidth; }
};

/// What one rank computes on, and how ranks are connected.
struct Device {
  std::string name;    ///< "h100-sxm", or the file it was read from
  std::string title;   ///< "NVIDIA H100 SXM 80GB"
  std::string source;  ///< where the figures come from
  DeviceKind kind = DeviceKind::kCuda;
  int64_t capacity = 0;  ///< bytes of memory that one rank may use
  int64_t threads = 1;   ///< cpu: threads of a rank with these rates; other numbers of threads scale the rates

  DtypeRates bf16, fp32;
  std::vector<AttentionRates> attention_bf16, attention_fp32;  ///< at least one row each
  double bandwidth = 0;   ///< bytes/s of memory, as the data sheet says or as a copy measures
  double optimizer = 0;   ///< bytes/s of the optimizer's update
  double launch_gap = 0;  ///< s between two kernels

  int64_t ranks_per_node = 1;
  Link intra;  ///< between two ranks of a machine; bandwidth 0: the device file does not say
  Link inter;  ///< of one rank to other machines; likewise

  const DtypeRates& rates(DType dtype) const { return dtype == DType::kBFloat16 ? bf16 : fp32; }
  const std::vector<AttentionRates>& attention(DType dtype) const {
    return dtype == DType::kBFloat16 ? attention_bf16 : attention_fp32;
  }
};

/// Returns the rates for this head width and number of tokens: of the row with the nearest head width, between two
/// lengths by interpolation over the logarithm, beyond them those of the nearest length.
AttentionRates attention_rates(std::span<const AttentionRates> rows, int64_t head_dim, int64_t tokens);

/// Parses the TOML text of a device; `name` is in errors and becomes Device::name. Throws an input error that names the
/// key, what was expected and what was found.
Device parse_device(const std::string& text, const std::string& name);
/// Returns the device as TOML, which parse_device() reads back.
std::string to_toml(const Device& device);

/// A file of configs/devices, which is compiled into the program.
struct DeviceText {
  std::string_view name;  ///< file name: "h100-sxm"
  std::string_view toml;
};
std::span<const DeviceText> device_texts();

/// Returns a built-in device ("h100-sxm"), or the device of a file if `name` has a slash or ends with .toml. Throws an
/// input error that lists the built-in devices.
Device device_named(const std::string& name);
/// Path to which `ashlar bench device` writes the rates of this machine: $XDG_CACHE_HOME/ashlar/device.toml, or
/// $HOME/.cache/ashlar/device.toml; empty without either variable.
std::string measured_device_path();
/// Returns device_named(*name), or the measured device of this machine if `name` is absent. Throws an input error that
/// says how to measure when there is none.
Device device_or_measured(const std::optional<std::string>& name);

}  // namespace ashlar::plan
