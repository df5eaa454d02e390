#include "core/autograd/tape.h"

namespace ashlar {

void WeightWork::run(const std::function<void()>& after) {
  for (auto& work : work_) {
    work();
    work = nullptr;
    if (after) after();
  }
  work_.clear();
}

Tape::Slot& Tape::slot_of(const Var& v) {
  ASHLAR_CHECK(v.slot >= 0 && v.slot < static_cast<int>(slots_.size()), "the value belongs to another tape");
  return slots_[v.slot];
}

Tensor Tape::allocate_like(const Slot& slot) {
  return Tensor::allocate(backend_.allocator(MemoryKind::kActivations), slot.dtype, slot.shape);
}

Var Tape::output(Tensor value, const ValueInfo& info) {
  ASHLAR_CHECK(!done_, "a tape runs backward only once; record on a new one");
  slots_.push_back(
      {.shape = value.shape(), .dtype = value.dtype(), .grad = {}, .written = false, .parent = -1, .column = 0});
  return {
      .value = std::move(value), .slot = static_cast<int>(slots_.size()) - 1, .rematerialize = nullptr, .info = info};
}

void Tape::record(const Var& result, Backward backward) {
  nodes_.push_back({result.info.op, result.slot, std::move(backward)});
}

void Tape::record_exchange(const Var& result, Exchange exchange) {
  const auto backward = [exchange = std::move(exchange)](Tape& tape, Tensor dy) {
    const std::function<void(Tape&)> end = exchange(std::move(dy));
    tape.held_.run();
    end(tape);
  };
  nodes_.push_back({result.info.op, result.slot, backward, true});
}

Var result(const Ctx& ctx, Tensor value, const ValueInfo& info) {
  if (ctx.tape != nullptr) return ctx.tape->output(std::move(value), info);
  return {.value = std::move(value), .slot = -1, .rematerialize = nullptr, .info = info};
}

Var result_in_place(const Ctx& ctx, Var x, const ValueInfo& info) {
  ASHLAR_CHECK(x.value.unique(), info.op, " overwrote the result of ", x.info.op,
               ", which is still referenced elsewhere");
  if (ctx.tape != nullptr) return ctx.tape->output_in_place(std::move(x), info);
  return {.value = std::move(x.value), .slot = -1, .rematerialize = nullptr, .info = info};
}

Var Tape::output_in_place(Var x, const ValueInfo& info) {
  Var out = output(std::move(x.value), info);
  if (x.requires_grad()) slots_.back().parent = x.slot;
  return out;
}

namespace {

/// Returns column slices of a value. If `value` has no other reference, each slice owns its columns exclusively.
std::vector<Tensor> slices_of(Tensor value, const std::vector<int64_t>& widths) {
  if (value.unique()) return Tensor::split_columns(std::move(value), widths);
  std::vector<Tensor> slices;
  int64_t column = 0;
  for (const int64_t width : widths) {
    slices.push_back(value.column_range(column, width));
    column += width;
  }
  ASHLAR_CHECK(column == value.cols(), "widths add up to ", column, ", the row has ", value.cols());
  return slices;
}

}  // namespace

std::vector<Var> Tape::split_columns(Var x, const std::vector<int64_t>& widths) {
  std::vector<Var> parts;
  int64_t column = 0;
  for (Tensor& slice : slices_of(std::move(x.value), widths)) {
    const int64_t width = slice.cols();
    parts.push_back(output(std::move(slice), x.info));
    if (x.requires_grad()) {
      slots_.back().parent = x.slot;
      slots_.back().column = column;
    }
    column += width;
  }
  if (!x.requires_grad()) {
    for (Var& part : parts) part.slot = -1;
    return parts;
  }
  // The gradients of the slices are columns of x's gradient. Columns that no node has written are set to zero.
  std::vector<Var> slices;
  for (const Var& part : parts) slices.push_back(part.without_value());
  nodes_.push_back({"split_columns", -1, [x = x.without_value(), slices](Tape& tape, const Tensor&) {
                      bool any = false;
                      for (const Var& slice : slices) any = any || tape.slots_[slice.slot].written;
                      if (!any) return;
                      for (const Var& slice : slices) {
                        if (tape.slots_[slice.slot].written) continue;
                        const GradTarget t = tape.target(slice);
                        tape.backend_.fill({.dst = t.view(), .value = 0}, tape.stream_);
                      }
                      for (const Var& slice : slices)
                        tape.slots_[slice.slot].grad = {};  // now only x's slot refers to the gradient
                      tape.slots_[x.slot].written = true;
                    }});
  return parts;
}

std::vector<Var> split_columns(const Ctx& ctx, Var x, const std::vector<int64_t>& widths) {
  if (ctx.tape != nullptr) return ctx.tape->split_columns(std::move(x), widths);
  std::vector<Var> parts;
  for (Tensor& slice : slices_of(std::move(x.value), widths))
    parts.push_back({.value = std::move(slice), .slot = -1, .rematerialize = nullptr, .info = x.info});
  return parts;
}

void Tape::seed(const Var& v, Tensor grad) {
  Slot& slot = slot_of(v);
  ASHLAR_CHECK(grad.shape() == slot.shape && grad.dtype() == slot.dtype, "gradient has shape ", grad.shape().str(),
               ", value has ", slot.shape.str());
  if (slot.parent >= 0) return add_grad(v, grad);  // this gradient is part of the parent slot's gradient
  slot.grad = std::move(grad);
  slot.written = true;
}

void Tape::backward(WeightWork* deferred, const std::function<void()>& after_node) {
  ASHLAR_CHECK(!done_, "a tape runs backward only once");
  done_ = true;
  deferred_ = deferred;
  while (!nodes_.empty()) {
    Node node = std::move(nodes_.back());
    nodes_.pop_back();
    Tensor dy;
    if (node.slot >= 0) {
      Slot& slot = slots_[node.slot];
      if (!slot.written) continue;
      ASHLAR_CHECK(slot.grad, "no gradient reached the result of ", node.op);
      dy = std::move(slot.grad);
    }
    node.backward(*this, std::move(dy));
    if (!exchange_is_next()) held_.run();
    if (after_node) after_node();
  }
  deferred_ = nullptr;
}

bool Tape::exchange_is_next() const {
  return !nodes_.empty() && nodes_.back().exchanges && slots_[nodes_.back().slot].written;
}

void Tape::add_weight_work(std::function<void()> work) {
  (deferred_ != nullptr ? *deferred_ : held_).push(std::move(work));
}

Tensor Tape::leaf_grad(const Var& leaf) const {
  ASHLAR_CHECK(done_ && leaf.slot >= 0, "expected leaf_grad to be called after backward, for a leaf of this tape");
  return slots_[leaf.slot].grad;
}

void Tape::allocate_in_parent(Slot& slot) {
  if (slot.grad) return;
  Slot& parent = slots_[slot.parent];
  ASHLAR_CHECK(!parent.written, "expected no other consumer of a value that was split or overwritten in place");
  if (parent.parent >= 0) allocate_in_parent(parent);
  if (!parent.grad) parent.grad = allocate_like(parent);
  slot.grad = parent.grad.column_range(slot.column, slot.shape.cols());
}

void Tape::pass_in_place(const Var& input) {
  Slot& slot = slot_of(input);
  ASHLAR_CHECK(slot.grad && !slot.written, "expected no other consumer of a value that was overwritten in place");
  slot.written = true;
}

GradTarget Tape::target(const Var& input) {
  if (!input.requires_grad()) return {};
  Slot& slot = slot_of(input);
  if (slot.parent >= 0) allocate_in_parent(slot);
  if (!slot.grad) slot.grad = allocate_like(slot);
  if (!slot.written) {
    slot.written = true;
    return {slot.grad, GradMode::kOverwrite};
  }
  // If a gradient is shared with another slot or with deferred weight work, it is copied before it is changed.
  if (slot.parent < 0 && !slot.grad.unique()) {
    const Tensor own = allocate_like(slot);
    backend_.copy({.src = slot.grad.view(), .dst = own.mut_view()}, stream_);
    slot.grad = own;
  }
  return {slot.grad, GradMode::kAccumulate};
}

void Tape::reuse_values(std::vector<Var>& inputs) {
  for (const Var& input : inputs) {
    if (!input.requires_grad() || slot_of(input).grad || slot_of(input).written) return;
  }
  const int parent = slot_of(inputs.front()).parent;
  if (parent < 0) {
    for (Var& input : inputs) {
      if (slot_of(input).parent < 0 && input.value.unique() && input.value.contiguous())
        slot_of(input).grad = std::move(input.value);
    }
    return;
  }
  Slot& whole = slots_[parent];
  if (whole.grad || whole.written || whole.parent >= 0) return;
  std::vector<Tensor> columns;
  for (Var& input : inputs) columns.push_back(std::move(input.value));
  whole.grad = Tensor::join_columns(columns);
  if (whole.grad) return;
  for (size_t i = 0; i < inputs.size(); ++i) inputs[i].value = std::move(columns[i]);
}

void Tape::add_grad(const Var& input, const Tensor& grad) {
  if (!input.requires_grad()) return;
  Slot& slot = slot_of(input);
  ASHLAR_CHECK(grad.shape() == slot.shape && grad.dtype() == slot.dtype, "gradient has shape ", grad.shape().str(),
               ", value has ", slot.shape.str());
  if (!slot.written && slot.parent < 0) {
    slot.grad = grad;
    slot.written = true;
    return;
  }
  const GradTarget t = target(input);
  backend_.copy({.src = grad.view(), .dst = t.view(), .mode = t.mode}, stream_);
}

}  // namespace ashlar
