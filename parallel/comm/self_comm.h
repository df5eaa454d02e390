#pragma once

#include <memory>
#include <string>

#include "parallel/comm/communicator.h"

namespace ashlar::comm {

/// The communicator of a single rank. Every operation costs at most a copy. A message of the rank to itself is copied
/// when both its send and its recv have been issued. Waiting for one side before the other was issued is a Bug.
class SelfComm final : public Communicator {
 public:
  explicit SelfComm(std::string name) : SelfComm(std::move(name), std::make_shared<ProgressEngine>()) {}
  SelfComm(std::string name, std::shared_ptr<ProgressEngine> engine);

 private:
  class Message;
  struct Mailbox;

  OperationPtr make(const DeviceOperation& args, Stream& stream) override;
  std::unique_ptr<Communicator> make_split(const Split& args) override;

  OperationPtr post(const ConstView* sent, const MutView* received);
  std::shared_ptr<Mailbox> mailbox_;
};

}  // namespace ashlar::comm
