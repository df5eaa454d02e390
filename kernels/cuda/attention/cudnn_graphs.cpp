// cuDNN's attention through its C++ frontend (header-only, nvidia-cudnn-frontend). Only this file includes the
// frontend.
//
// A plan is one graph of one operation, scaled dot-product attention or its backward, of fixed shapes and strides:
//   1. tensors are [B, heads, T, D] with the strides of our packed rows (a head's stride is D); lse is [B, H, T, 1]
//   2. the operation has our scale, a causal mask aligned to the upper left, and lse (natural logarithm) as an output;
//      its backward is deterministic
//   3. cuDNN proposes engines, best first (its heuristics mode A); the first that cuDNN can build is taken
// Memory traffic: each array is read or written about once. A deterministic backward needs a workspace for the
// gradients of scores, B * H * T * T in bf16 (frontend 1.32, node/scaled_dot_product_flash_attention.h).

// These macros leave out logging and the conversion of graphs to text, which are a third of the frontend's headers.
#define CUDNN_FRONTEND_SKIP_JSON_LIB
#define NV_CUDNN_FRONTEND_DISABLE_LOGGING
#include <cudnn_frontend.h>

#include <algorithm>
#include <string>

#include "core/base/error.h"
#include "kernels/cuda/attention/cudnn_attention.h"
#include "kernels/cuda/attention/cudnn_functions.h"

namespace ashlar::cudnn {

namespace {

namespace fe = cudnn_frontend;
using Tensor = std::shared_ptr<fe::graph::Tensor_attributes>;

/// Identifiers of a graph's tensors.
enum Uid : int64_t { kQ = 1, kK, kV, kOut, kLse, kDOut, kDQ, kDK, kDV };

/// Returns cuDNN's error message on one line: cuDNN writes one line for each engine that it tried.
std::string words(fe::error_t error) {
  std::string text = error.get_message();
  std::replace(text.begin(), text.end(), '\n', ' ');
  if (text.size() > 400) text = text.substr(0, 400) + "...";
  return text;
}

/// True for an error that our own attention would have too: memory is exhausted or the device failed.
bool is_resource(cudnnStatus_t status) {
  return status == CUDNN_STATUS_INTERNAL_ERROR_HOST_ALLOCATION_FAILED ||
         status == CUDNN_STATUS_INTERNAL_ERROR_DEVICE_ALLOCATION_FAILED || status >= CUDNN_STATUS_EXECUTION_FAILED;
}
bool is_resource(fe::error_code_t code) {
  return code == fe::error_code_t::CUDA_API_FAILED || code == fe::error_code_t::GRAPH_EXECUTION_FAILED ||
         code == fe::error_code_t::HANDLE_ERROR;
}

void check(fe::error_t error, const AttentionCase& c, const char* doing, bool resource = false) {
  if (error.is_good()) return;
  const std::string text = str_cat(
      "expected attention of batch ", c.B, ", sequence_length ", c.T, ", ", c.H, " heads, ", c.G,
      " kv heads, head_dim ", c.D, c.backward ? " (backward)" : " (forward)",
      " to be supported by cuDNN, got an error while ", doing, ": ", words(error), "; set train.attention = \"own\"");
  if (resource || is_resource(error.get_code())) throw resource_error("cuDNN", text);
  throw input_error("cuDNN", text);
}

void check(cudnnStatus_t status, const char* doing) {
  if (status == CUDNN_STATUS_SUCCESS) return;
  const std::string text =
      str_cat("expected ", doing, " to succeed, got ", cudnnGetErrorString(status), "; set train.attention = \"own\"");
  if (is_resource(status)) throw resource_error("cuDNN", text);
  throw input_error("cuDNN", text);
}

/// The device for which plans are made: the current device, with a cuDNN handle, or only a description of a device.
class Device {
 public:
  explicit Device(int sm) : sm_(sm) { check(cudnnCreate(&handle_), "cudnnCreate"); }
  Device(int sm, std::shared_ptr<const fe::DeviceProperties> properties)
      : properties_(std::move(properties)), sm_(sm) {}
  ~Device() {
    if (handle_ != nullptr) cudnnDestroy(handle_);
  }
  Device(const Device&) = delete;
  Device& operator=(const Device&) = delete;

  cudnnHandle_t handle() const { return handle_; }  ///< null if the device is only described
  const std::shared_ptr<const fe::DeviceProperties>& properties() const { return properties_; }
  int sm() const { return sm_; }

 private:
  cudnnHandle_t handle_ = nullptr;
  std::shared_ptr<const fe::DeviceProperties> properties_;
  int sm_;
};

Tensor heads(fe::graph::Graph& graph, Uid uid, const Rows& rows, int64_t num_heads, const AttentionCase& c) {
  return graph.tensor(fe::graph::Tensor_attributes()
                          .set_uid(uid)
                          .set_data_type(fe::DataType_t::BFLOAT16)
                          .set_dim({c.B, num_heads, c.T, c.D})
                          .set_stride({rows.batch, c.D, rows.row, 1}));
}

void write_heads(const Tensor& result, Uid uid, const Rows& rows, int64_t num_heads, const AttentionCase& c) {
  result->set_output(true)
      .set_uid(uid)
      .set_data_type(fe::DataType_t::BFLOAT16)
      .set_dim({c.B, num_heads, c.T, c.D})
      .set_stride({rows.batch, c.D, rows.row, 1});
}

void describe_lse(fe::graph::Tensor_attributes& lse, const AttentionCase& c) {
  lse.set_uid(kLse).set_data_type(fe::DataType_t::FLOAT).set_dim({c.B, c.H, c.T, 1}).set_stride({c.H * c.T, c.T, 1, 1});
}

void add_forward(fe::graph::Graph& graph, const AttentionCase& c) {
  const auto [out, lse] =
      graph.sdpa(heads(graph, kQ, c.q, c.H, c), heads(graph, kK, c.k, c.G, c), heads(graph, kV, c.v, c.G, c),
                 fe::graph::SDPA_attributes()
                     .set_name("attention")
                     .set_generate_stats(true)
                     .set_diagonal_alignment(fe::DiagonalAlignment_t::TOP_LEFT)
                     .set_diagonal_band_right_bound(0)
                     .set_attn_scale(static_cast<float>(c.scale)));
  write_heads(out, kOut, c.out, c.H, c);
  lse->set_output(true);
  describe_lse(*lse, c);
}

void add_backward(fe::graph::Graph& graph, const AttentionCase& c) {
  fe::graph::Tensor_attributes lse;
  describe_lse(lse, c);
  const auto [dq, dk, dv] =
      graph.sdpa_backward(heads(graph, kQ, c.q, c.H, c), heads(graph, kK, c.k, c.G, c), heads(graph, kV, c.v, c.G, c),
                          heads(graph, kOut, c.out, c.H, c), heads(graph, kDOut, c.dout, c.H, c), graph.tensor(lse),
                          fe::graph::SDPA_backward_attributes()
                              .set_name("attention_backward")
                              .set_diagonal_alignment(fe::DiagonalAlignment_t::TOP_LEFT)
                              .set_diagonal_band_right_bound(0)
                              .set_deterministic_algorithm(true)
                              .set_attn_scale(static_cast<float>(c.scale)));
  write_heads(dq, kDQ, c.dq, c.H, c);
  write_heads(dk, kDK, c.dk, c.G, c);
  write_heads(dv, kDV, c.dv, c.G, c);
}

class Plan final : public AttentionPlan {
 public:
  Plan(const AttentionCase& wanted, std::shared_ptr<const Device> device) : case_(wanted), device_(std::move(device)) {
    graph_.set_io_data_type(fe::DataType_t::BFLOAT16)
        .set_intermediate_data_type(fe::DataType_t::FLOAT)
        .set_compute_data_type(fe::DataType_t::FLOAT)
        .set_sm_version(device_->sm());
    if (device_->properties() != nullptr) graph_.set_device_properties(device_->properties());
    wanted.backward ? add_backward(graph_, wanted) : add_forward(graph_, wanted);
    check(graph_.validate(), wanted, "checking it");
    check(
        device_->handle() != nullptr ? graph_.build_operation_graph(device_->handle()) : graph_.build_operation_graph(),
        wanted, "describing it");
    check(graph_.create_execution_plans({fe::HeurMode_t::A}), wanted, "choosing an engine");
    check(graph_.check_support(), wanted, "choosing an engine");
    check(graph_.build_plans(), wanted, "compiling it");
    check(graph_.get_workspace_size(workspace_bytes_), wanted, "asking for its workspace");
  }

  int64_t workspace_bytes() const override { return workspace_bytes_; }

  void run(const AttentionArrays& a, void* workspace, Stream& stream) override {
    ASHLAR_CHECK(device_->handle() != nullptr,
                 "expected a plan for the current device, got a plan for a device that is only described");
    check(cudnnSetStream(device_->handle(), static_cast<cudaStream_t>(stream.native())), "cudnnSetStream");
    std::unordered_map<int64_t, void*> arrays{{kQ, a.q}, {kK, a.k}, {kV, a.v}, {kOut, a.out}, {kLse, a.lse}};
    if (case_.backward) arrays.insert({{kDOut, a.dout}, {kDQ, a.dq}, {kDK, a.dk}, {kDV, a.dv}});
    check(graph_.execute(device_->handle(), arrays, workspace), case_, "running it", true);
  }

 private:
  AttentionCase case_;
  std::shared_ptr<const Device> device_;
  fe::graph::Graph graph_;
  int64_t workspace_bytes_ = 0;
};

class Planner final : public AttentionPlanner {
 public:
  explicit Planner(std::shared_ptr<const Device> device) : device_(std::move(device)) {}

  Library library() const override { return {.version = library_version(), .sm = device_->sm()}; }
  std::unique_ptr<AttentionPlan> make(const AttentionCase& wanted) override {
    return std::make_unique<Plan>(wanted, device_);
  }

 private:
  std::shared_ptr<const Device> device_;
};

}  // namespace

std::unique_ptr<AttentionPlanner> make_planner(int sm) {
  load_library();
  return std::make_unique<Planner>(std::make_shared<const Device>(sm));
}

std::unique_ptr<AttentionPlanner> make_planner(std::string_view properties, int sm) {
  load_library();
  auto described = std::make_shared<fe::DeviceProperties>();
  fe::error_t error = described->deserialize({properties.begin(), properties.end()});
  if (error.is_bad())
    throw input_error("cuDNN", "expected a description of a device, got one that cuDNN ",
                      version_text(library_version()), " refuses: ", words(error));
  return std::make_unique<Planner>(std::make_shared<const Device>(sm, std::move(described)));
}

}  // namespace ashlar::cudnn
