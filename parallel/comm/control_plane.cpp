// An operation passes through the tree of ranks twice. Up: a rank receives the partial results of its children, adds
// its own, and sends the result to its parent. Down: the root's result, the total, is sent to all ranks. A message is a
// frame of fixed size, so that it can be received and compared even if ranks have issued different operations. A
// payload that does not fit into the frame follows in a second message. A failure (ranks that do not match, overflow of
// a sum) is sent like a result: up to the root, then down to all.
#include "parallel/comm/control_plane.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>
#include <deque>
#include <optional>
#include <utility>

#include "core/base/error.h"

namespace ashlar::comm {

namespace {

/// Properties of a message on which sender and receiver must agree.
struct Signature {
  uint64_t number = 0;
  OperationKind kind = OperationKind::kNone;
  OperationInfo::Label label{};
  int32_t root = -1;
  int64_t size = 0;
  uint64_t layout = 0;  ///< hash of the counts of sums, maxima and minima of a reduce; else 0

  bool operator==(const Signature&) const = default;
};

struct Header {
  Signature signature;
  bool failed = false;  ///< true if the payload is the text of a Bug
  int64_t payload = 0;  ///< bytes of the payload
};

struct Frame {
  static constexpr size_t kBytes = 512;
  Header header;
  std::array<char, kBytes - sizeof(Header)> payload{};  ///< the payload, if it fits
};
static_assert(sizeof(Frame) == Frame::kBytes);

template <typename T>
void append(std::string& text, const T& value) {
  text.append(reinterpret_cast<const char*>(&value), sizeof(T));
}

template <typename T>
T read_at(std::string_view text, size_t at) {
  T value;
  std::memcpy(&value, text.data() + at, sizeof(T));
  return value;
}

/// Appends a text, preceded by its length. split_texts splits the result.
void append_text(std::string& all, std::string_view text) {
  append(all, static_cast<uint64_t>(text.size()));
  all += text;
}
std::vector<std::string> split_texts(std::string_view all) {
  std::vector<std::string> texts;
  for (size_t at = 0; at < all.size(); at += sizeof(uint64_t) + texts.back().size()) {
    texts.emplace_back(all.substr(at + sizeof(uint64_t), read_at<uint64_t>(all, at)));
  }
  return texts;
}

}  // namespace

struct ControlPlane::Shared {
  std::shared_ptr<ProgressEngine> engine;
  std::unique_ptr<Communicator> transport;
  std::shared_ptr<const std::string> name;
  RankTree tree;
  uint64_t issued = 0;
  std::deque<const TreeOperation*> waiting;  ///< pending operations in order of issue; the first is running
  mutable SynchronousStream host;            ///< stream of the messages, whose buffers are host memory

  std::shared_ptr<Operation> send(const void* data, size_t bytes, int to) const {
    const auto size = static_cast<int64_t>(bytes);
    return transport->make(Send{.data = {data, DType::kUInt8, 1, size, size}, .to = to}, host);
  }
  std::shared_ptr<Operation> receive(void* data, size_t bytes, int from) const {
    const auto size = static_cast<int64_t>(bytes);
    return transport->make(Recv{.data = {data, DType::kUInt8, 1, size, size}, .from = from}, host);
  }
};

/// The data of an operation. sum_ begins as this rank's contribution, and `add` adds the contributions of a child's
/// subtree to it. `deliver` receives the total over all ranks.
class ControlPlane::Content {
 public:
  virtual ~Content() = default;
  const std::string& sum() const { return sum_; }
  virtual void add(std::string_view of_child) = 0;  ///< called in ascending order of children
  virtual void deliver(std::string total) = 0;
  /// True if the ranks of `child`'s subtree need the total.
  virtual bool wanted_by(const RankTree& tree, int child) const {
    static_cast<void>(tree), static_cast<void>(child);
    return true;
  }

 protected:
  std::string sum_;
};

class ControlPlane::ReduceContent final : public Content {
 public:
  explicit ReduceContent(const HostReduce& args) : args_(args) {
    each([&](auto values, auto) { sum_.append(reinterpret_cast<const char*>(values.data()), values.size_bytes()); });
  }
  void add(std::string_view of_child) override {
    size_t at = 0;
    each([&](auto values, auto combine) {
      using T = typename decltype(values)::value_type;
      for (size_t i = 0; i < values.size(); ++i, at += sizeof(T)) {
        const T value = combine(read_at<T>(sum_, at), read_at<T>(of_child, at));
        std::memcpy(sum_.data() + at, &value, sizeof(T));
      }
    });
  }
  void deliver(std::string total) override {
    size_t at = 0;
    each([&](auto values, auto) {
      std::memcpy(values.data(), total.data() + at, values.size_bytes());
      at += values.size_bytes();
    });
  }

 private:
  template <typename Visit>
  void each(const Visit& visit) {
    const auto visit_any = [&](auto values, auto combine) {
      if (!values.empty()) visit(values, combine);
    };
    visit_any(args_.sums, [](double a, double b) { return a + b; });
    visit_any(args_.maxima, [](double a, double b) { return a >= b || std::isnan(a) ? a : b; });
    visit_any(args_.minima, [](double a, double b) { return a <= b || std::isnan(a) ? a : b; });
    visit_any(args_.int_sums, [](int64_t a, int64_t b) {
      int64_t sum = 0;
      ASHLAR_CHECK(!__builtin_add_overflow(a, b, &sum), "the sum of ", a, " and ", b, " overflows 64 bits");
      return sum;
    });
    visit_any(args_.int_maxima, [](int64_t a, int64_t b) { return std::max(a, b); });
    visit_any(args_.int_minima, [](int64_t a, int64_t b) { return std::min(a, b); });
  }

  HostReduce args_;
};

class ControlPlane::BroadcastContent final : public Content {
 public:
  BroadcastContent(const HostBroadcast& args, bool is_root) : text_(args.text) {
    if (is_root) sum_ = args.text;
  }
  void add(std::string_view of_child) override {
    if (!of_child.empty()) sum_ = of_child;
  }
  void deliver(std::string total) override { text_ = std::move(total); }

 private:
  std::string& text_;
};

class ControlPlane::GatherContent final : public Content {
 public:
  GatherContent(const HostGather& args, int rank) : all_(args.all), root_(args.root), rank_(rank) {
    append_text(sum_, args.mine);
  }
  void add(std::string_view of_child) override { sum_ += of_child; }
  void deliver(std::string total) override {
    if (root_ < 0 || root_ == rank_) all_ = split_texts(total);
  }
  bool wanted_by(const RankTree& tree, int child) const override { return root_ < 0 || tree.below(child, root_); }

 private:
  std::vector<std::string>& all_;
  int root_, rank_;
};

class ControlPlane::UniteContent final : public Content {
 public:
  explicit UniteContent(const HostUnite& args) : texts_(args.texts) {
    std::sort(texts_.begin(), texts_.end());
    texts_.erase(std::unique(texts_.begin(), texts_.end()), texts_.end());
    pack();
  }
  void add(std::string_view of_child) override {
    std::vector<std::string> both;
    std::vector<std::string> theirs = split_texts(of_child);
    std::set_union(texts_.begin(), texts_.end(), theirs.begin(), theirs.end(), std::back_inserter(both));
    texts_ = std::move(both);
    pack();
  }
  void deliver(std::string total) override { texts_ = split_texts(total); }

 private:
  void pack() {
    sum_.clear();
    for (const std::string& text : texts_) append_text(sum_, text);
  }
  std::vector<std::string>& texts_;
};

class ControlPlane::TreeOperation final : public Operation {
 public:
  TreeOperation(std::shared_ptr<Shared> shared, const Signature& signature, std::unique_ptr<Content> content)
      : shared_(std::move(shared)),
        signature_(signature),
        content_(std::move(content)),
        from_children_(shared_->tree.children.size()) {
    shared_->waiting.push_back(this);
  }
  ~TreeOperation() override { leave(); }

  bool advance() override {
    if (shared_->waiting.front() != this) return false;
    while (settled()) {
      if (step()) return true;
    }
    return false;
  }

 private:
  enum class Step : uint8_t { kBegin, kFrames, kPayloads, kAnswer, kLongAnswer, kSpread };
  struct Incoming {
    Frame frame;
    std::string payload;
  };

  /// Does one step. Called when all messages of the previous step are complete. Returns true at the end of the
  /// operation.
  bool step() {
    const RankTree& tree = shared_->tree;
    switch (step_) {
      case Step::kBegin:
        for (size_t i = 0; i < tree.children.size(); ++i) receive(from_children_[i], tree.children[i]);
        step_ = Step::kFrames;
        return false;
      case Step::kFrames:
        for (size_t i = 0; i < tree.children.size(); ++i) receive_rest(from_children_[i], tree.children[i]);
        step_ = Step::kPayloads;
        return false;
      case Step::kPayloads:
        for (size_t i = 0; i < tree.children.size(); ++i) handle_child(tree.children[i], from_children_[i]);
        total_ = failure_.value_or(content_->sum());
        if (tree.parent < 0) {
          step_ = Step::kLongAnswer;
          return false;
        }
        send(to_parent_, total_, tree.parent);
        receive(from_parent_, tree.parent);
        step_ = Step::kAnswer;
        return false;
      case Step::kAnswer:
        receive_rest(from_parent_, tree.parent);
        step_ = Step::kLongAnswer;
        return false;
      case Step::kLongAnswer:
        if (tree.parent >= 0) handle_answer();
        to_children_.resize(tree.children.size());
        for (size_t i = 0; i < tree.children.size(); ++i) {
          const bool wanted = failure_.has_value() || content_->wanted_by(tree, tree.children[i]);
          send(to_children_[i], wanted ? std::string_view(total_) : std::string_view(), tree.children[i]);
        }
        step_ = Step::kSpread;
        return false;
      case Step::kSpread:
        leave();
        if (failure_) throw Bug(*failure_);
        content_->deliver(std::move(total_));
        return true;
    }
    return false;
  }

  bool settled() {
    std::erase_if(under_way_, [](const std::shared_ptr<Operation>& message) { return message->advance(); });
    return under_way_.empty();
  }

  void receive(Incoming& incoming, int from) {
    under_way_.push_back(shared_->receive(&incoming.frame, Frame::kBytes, from));
  }
  void receive_rest(Incoming& incoming, int from) {
    const auto size = static_cast<size_t>(incoming.frame.header.payload);
    if (size <= incoming.frame.payload.size()) {
      incoming.payload.assign(incoming.frame.payload.data(), size);
      return;
    }
    incoming.payload.resize(size);
    under_way_.push_back(shared_->receive(incoming.payload.data(), size, from));
  }
  /// `payload` must stay valid until the message is complete.
  void send(Frame& frame, std::string_view payload, int to) {
    frame.header = {
        .signature = signature_, .failed = failure_.has_value(), .payload = static_cast<int64_t>(payload.size())};
    const bool fits = payload.size() <= frame.payload.size();
    if (fits) std::copy(payload.begin(), payload.end(), frame.payload.begin());
    under_way_.push_back(shared_->send(&frame, Frame::kBytes, to));
    if (!fits) under_way_.push_back(shared_->send(payload.data(), payload.size(), to));
  }

  void handle_child(int child, Incoming& incoming) {
    if (failure_) return;
    const Header& header = incoming.frame.header;
    if (header.failed) {
      failure_ = incoming.payload;
    } else if (header.signature != signature_) {
      failure_ = str_cat("[comm] rank ", child, " issued ", text_of(header.signature), "; rank ",
                         shared_->transport->rank(), " issued ", text_of(signature_),
                         same_but_layout(header.signature) ? " with other counts of sums, maxima or minima" : "",
                         ": the operations do not match");
    } else {
      try {
        content_->add(incoming.payload);
      } catch (const Bug& bug) {
        failure_ = str_cat(bug.what(), ", in ", text_of(signature_));
      }
    }
    incoming.payload.clear();
  }
  void handle_answer() {
    if (from_parent_.frame.header.failed) {
      failure_ = from_parent_.payload;
    } else {
      ASHLAR_CHECK(from_parent_.frame.header.signature == signature_, "expected an answer to ", text_of(signature_),
                   ", got an answer to ", text_of(from_parent_.frame.header.signature));
    }
    total_ = std::move(from_parent_.payload);
  }

  bool same_but_layout(Signature other) const {
    other.layout = signature_.layout;
    return other == signature_;
  }
  std::string text_of(const Signature& s) const {
    return describe({.kind = s.kind, .size = s.size, .peer = s.root, .number = s.number, .label = s.label},
                    *shared_->name);
  }
  void leave() { std::erase(shared_->waiting, this); }

  std::shared_ptr<Shared> shared_;
  Signature signature_;
  std::unique_ptr<Content> content_;
  Step step_ = Step::kBegin;
  std::vector<std::shared_ptr<Operation>> under_way_;
  std::vector<Incoming> from_children_;
  Incoming from_parent_;
  Frame to_parent_;
  std::vector<Frame> to_children_;
  std::string total_;
  std::optional<std::string> failure_;
};

ControlPlane::ControlPlane(Communicator& ranks, std::string name) : shared_(std::make_shared<Shared>()) {
  shared_->engine = ranks.engine();
  shared_->transport = ranks.host().split({.color = 0, .key = ranks.rank(), .name = name, .control = true});
  shared_->name = std::make_shared<const std::string>(std::move(name));
  shared_->tree = RankTree::of(shared_->transport->rank(), shared_->transport->size());
}

ControlPlane::~ControlPlane() = default;

int ControlPlane::rank() const { return shared_->transport->rank(); }
int ControlPlane::size() const { return shared_->transport->size(); }
const std::string& ControlPlane::name() const { return *shared_->name; }
const std::shared_ptr<ProgressEngine>& ControlPlane::engine() const { return shared_->engine; }

Work ControlPlane::launch(OperationInfo info, uint64_t layout, std::string_view label,
                          std::unique_ptr<Content> content) {
  ASHLAR_CHECK(label.size() < info.label.size(), "the label ", label, " has more than ", info.label.size() - 1,
               " characters");
  std::copy(label.begin(), label.end(), info.label.begin());
  info.number = shared_->issued++;
  shared_->engine->note(info, shared_->name);
  const Signature signature{.number = info.number,
                            .kind = info.kind,
                            .label = info.label,
                            .root = info.peer,
                            .size = info.size,
                            .layout = layout};
  auto operation = std::make_shared<TreeOperation>(shared_, signature, std::move(content));
  shared_->engine->submit(operation, info, shared_->name);
  return {shared_->engine, std::move(operation)};
}

Work ControlPlane::reduce(const HostReduce& args) {
  uint64_t layout = 0;
  size_t values = 0;
  for (const size_t count : {args.sums.size(), args.maxima.size(), args.minima.size(), args.int_sums.size(),
                             args.int_maxima.size(), args.int_minima.size()}) {
    layout = (layout ^ count) * 0x9E3779B97F4A7C15ULL;
    values += count;
  }
  return launch({.kind = OperationKind::kHostReduce, .size = static_cast<int64_t>(values * sizeof(double))}, layout,
                args.label, std::make_unique<ReduceContent>(args));
}

Work ControlPlane::broadcast(const HostBroadcast& args) {
  check_root(args.root);
  ASHLAR_CHECK(args.size < 0 || args.root != rank() || args.size == static_cast<int64_t>(args.text.size()),
               "the root's text has ", args.text.size(), " bytes, expected ", args.size);
  return launch({.kind = OperationKind::kHostBroadcast, .size = std::max<int64_t>(args.size, 0), .peer = args.root}, 0,
                args.label, std::make_unique<BroadcastContent>(args, args.root == rank()));
}

Work ControlPlane::gather(const HostGather& args) {
  if (args.root != -1) check_root(args.root);
  return launch({.kind = OperationKind::kHostGather, .peer = args.root}, 0, args.label,
                std::make_unique<GatherContent>(args, rank()));
}

Work ControlPlane::unite(const HostUnite& args) {
  return launch({.kind = OperationKind::kHostUnite}, 0, args.label, std::make_unique<UniteContent>(args));
}

void ControlPlane::check_root(int root) const {
  ASHLAR_CHECK(root >= 0 && root < size(), "root ", root, " is not in ", name(), ", which has ", size(), " ranks");
}

}  // namespace ashlar::comm
