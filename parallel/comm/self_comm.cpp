#include "parallel/comm/self_comm.h"

#include <algorithm>
#include <cstring>
#include <deque>

#include "core/base/error.h"

namespace ashlar::comm {

namespace {

void copy(const ConstView& from, const MutView& to) {
  if (from.data == to.data || from.size() == 0) return;
  std::memcpy(to.data, from.data, static_cast<size_t>(from.size() * size_of(from.dtype)));
}

}  // namespace

/// Messages whose other side has not been issued yet, in order of issue. At any time at least one of the queues is
/// empty.
struct SelfComm::Mailbox {
  template <AnyView View>
  struct Side {
    View data;
    std::shared_ptr<bool> copied;
  };
  std::deque<Side<ConstView>> sent;
  std::deque<Side<MutView>> received;

  void match() {
    while (!sent.empty() && !received.empty()) {
      const auto from = sent.front();
      const auto to = received.front();
      sent.pop_front();
      received.pop_front();
      ASHLAR_CHECK(from.data.dtype == to.data.dtype && from.data.size() == to.data.size(), "rank 0 sends itself ",
                   name_of(from.data.dtype), "[", from.data.size(), "] and receives ", name_of(to.data.dtype), "[",
                   to.data.size(), "]");
      copy(from.data, to.data);
      *from.copied = *to.copied = true;
    }
  }
};

class SelfComm::Message final : public Operation {
 public:
  explicit Message(std::vector<std::shared_ptr<bool>> copied) : copied_(std::move(copied)) {}
  bool advance() override {
    return std::all_of(copied_.begin(), copied_.end(), [](const auto& side) { return *side; });
  }
  bool stuck() const override { return true; }  // if pending, a side is missing that only this rank can issue

 private:
  std::vector<std::shared_ptr<bool>> copied_;
};

SelfComm::SelfComm(std::string name, std::shared_ptr<ProgressEngine> engine)
    : Communicator(0, 1, std::move(name), std::move(engine)), mailbox_(std::make_shared<Mailbox>()) {}

Communicator::OperationPtr SelfComm::post(const ConstView* sent, const MutView* received) {
  std::vector<std::shared_ptr<bool>> copied;
  if (sent != nullptr) {
    copied.push_back(std::make_shared<bool>(false));
    mailbox_->sent.push_back({*sent, copied.back()});
  }
  if (received != nullptr) {
    copied.push_back(std::make_shared<bool>(false));
    mailbox_->received.push_back({*received, copied.back()});
  }
  mailbox_->match();
  return std::make_shared<Message>(std::move(copied));
}

Communicator::OperationPtr SelfComm::make(const DeviceOperation& args, Stream& stream) {
  check_on_host(stream);
  OperationPtr message;
  std::visit(Cases{[&](const AllReduce& a) { copy(a.in, a.out); },
                   [&](const ReduceScatter& a) { copy(part_of(a.in, a.parts[0]), a.out); },
                   [&](const AllGather& a) { copy(a.in, part_of(a.out, a.parts[0])); },
                   [&](const AllToAll& a) { copy(part_of(a.send, a.send_parts[0]), part_of(a.recv, a.recv_parts[0])); },
                   [&](const Send& a) { message = post(&a.data, nullptr); },
                   [&](const Recv& a) { message = post(nullptr, &a.data); },
                   [&](const SendRecv& a) { message = post(&a.send, &a.recv); }, [](const Broadcast&) {},
                   [](const Barrier&) {}},
             args);
  return message;
}

std::unique_ptr<Communicator> SelfComm::make_split(const Split& args) {
  if (args.color < 0) return nullptr;
  return std::make_unique<SelfComm>(args.name, engine());
}

}  // namespace ashlar::comm
