#include "parallel/comm/mpi_comm.h"

#include <utility>

#include "core/base/error.h"
#include "parallel/comm/mpi_collectives.h"
#include "parallel/comm/mpi_messages.h"
#include "parallel/comm/mpi_small.h"
#include "parallel/comm/self_comm.h"

namespace ashlar::comm {

/// A send, a recv, or both. The receiving side is posted first.
class MpiComm::Message final : public Operation {
 public:
  Message(std::shared_ptr<MpiGroup> group, const SendRecv& args) : group_(std::move(group)), args_(args) {
    if (args_.to >= 0) send_number_ = group_->sent[static_cast<size_t>(args_.to)]++;
    if (args_.from >= 0) recv_number_ = group_->received[static_cast<size_t>(args_.from)]++;
  }

  bool advance() override {
    if (!started_) {
      started_ = true;
      if (args_.from >= 0) {
        messages_.receive(*group_, args_.recv.data, args_.recv.size() * size_of(args_.recv.dtype), args_.from,
                          group_->message_tag(recv_number_));
      }
      if (args_.to >= 0) {
        messages_.send(*group_, args_.send.data, args_.send.size() * size_of(args_.send.dtype), args_.to,
                       group_->message_tag(send_number_));
      }
    }
    return messages_.test();
  }

 private:
  std::shared_ptr<MpiGroup> group_;
  SendRecv args_;
  uint64_t send_number_ = 0, recv_number_ = 0;
  bool started_ = false;
  MpiMessages messages_;
};

MpiComm::MpiComm(std::string name, std::shared_ptr<MpiGroup> group)
    : Communicator(group->rank, group->size, std::move(name), group->engine), group_(std::move(group)) {}

std::unique_ptr<Communicator> MpiComm::make(MPI_Comm comm, std::string name, const Tuning& tuning,
                                            std::shared_ptr<ProgressEngine> engine,
                                            std::shared_ptr<StagingPool> staging) {
  auto group = std::make_shared<MpiGroup>(comm, tuning, std::move(engine), std::move(staging));
  return std::unique_ptr<Communicator>(new MpiComm(std::move(name), std::move(group)));
}

Communicator::OperationPtr MpiComm::make_all_reduce(const AllReduce& args) { return mpi_all_reduce(group_, args); }
Communicator::OperationPtr MpiComm::make_reduce_scatter(const ReduceScatter& args) {
  return mpi_reduce_scatter(group_, args);
}
Communicator::OperationPtr MpiComm::make_all_gather(const AllGather& args) { return mpi_all_gather(group_, args); }
Communicator::OperationPtr MpiComm::make_broadcast(const Broadcast& args) { return mpi_broadcast(group_, args); }
Communicator::OperationPtr MpiComm::make_send(const Send& args) {
  return std::make_shared<Message>(group_, SendRecv{.send = args.data, .to = args.to});
}
Communicator::OperationPtr MpiComm::make_recv(const Recv& args) {
  return std::make_shared<Message>(group_, SendRecv{.recv = args.data, .from = args.from});
}
Communicator::OperationPtr MpiComm::make_send_recv(const SendRecv& args) {
  return std::make_shared<Message>(group_, args);
}
Communicator::OperationPtr MpiComm::make_barrier() { return mpi_barrier(group_); }

std::unique_ptr<Communicator> MpiComm::make_split(const Split& args) {
  MPI_Comm part = MPI_COMM_NULL;
  ASHLAR_MPI(MPI_Comm_split(group_->comm, args.color < 0 ? MPI_UNDEFINED : args.color, args.key, &part));
  if (part == MPI_COMM_NULL) return nullptr;
  int ranks = 0;
  ASHLAR_MPI(MPI_Comm_size(part, &ranks));
  if (ranks == 1) {
    ASHLAR_MPI(MPI_Comm_free(&part));
    return std::make_unique<SelfComm>(args.name, group_->engine);
  }
  auto group = std::make_shared<MpiGroup>(part, group_->tuning, group_->engine, group_->staging);
  if (args.control) group->traffic = &group_->engine->control_traffic();
  return std::unique_ptr<Communicator>(new MpiComm(args.name, std::move(group)));
}

}  // namespace ashlar::comm
