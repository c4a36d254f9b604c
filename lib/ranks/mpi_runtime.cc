#include "ranks/mpi_runtime.h"

#include <cstdlib>

#include "core/error.h"
#include "core/process.h"

#if KVCAL_HAS_MPI

// Disables MPI's old C++ interface, which needs a library of its own.
#ifndef OMPI_SKIP_MPICXX
#define OMPI_SKIP_MPICXX 1
#endif
#ifndef MPICH_SKIP_MPICXX
#define MPICH_SKIP_MPICXX 1
#endif
#include <mpi.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <mutex>
#include <string>
#include <thread>
#include <utility>

namespace kvcal {

struct MpiRuntime::State {
  explicit State(CallWatch& watched) : calls(watched) {}

  CallWatch& calls;
  std::timed_mutex mutex;  ///< of every call
  std::atomic<bool> is_broken = false;
  bool is_finalized = false;
};

namespace {

/// The right to call MPI, and a call that is watched.
class MpiCall {
 public:
  explicit MpiCall(MpiRuntime::State& state) : lock_(state.mutex), call_(state.calls) {}

 private:
  std::lock_guard<std::timed_mutex> lock_;
  CallWatch::Call call_;
};

/// Limit of one message, so that a slow network delivers it long before the timeout; counts of MPI
/// are ints.
constexpr size_t kMaxMessage = size_t{4} << 20;
constexpr int kTag = 1;

void check(int code, const char* call) {
  if (code == MPI_SUCCESS) return;
  char text[MPI_MAX_ERROR_STRING] = "";
  int length = 0;
  MPI_Error_string(code, text, &length);
  throw LostRank(std::string(call) + ": " + std::string(text, static_cast<size_t>(length)));
}

class MpiCommunicator : public Communicator {
 public:
  /// Owns handle.
  MpiCommunicator(MPI_Comm handle, int rank, std::vector<std::string> hosts, Watch& watch,
                  MpiRuntime::State& state)
      : Communicator(rank, std::move(hosts), watch), handle_(handle), state_(state) {}
  ~MpiCommunicator() override {
    const MpiCall call(state_);
    if (!state_.is_broken && !state_.is_finalized && handle_ != MPI_COMM_WORLD)
      MPI_Comm_free(&handle_);
  }

  std::unique_ptr<Communicator> split(bool member) override {
    const auto flags = all_gather(std::as_bytes(std::span(&member, 1)));
    std::vector<std::string> hosts;
    int own = 0;
    for (int i = 0; i < size(); ++i) {
      if (flags[static_cast<size_t>(i)].at(0) == std::byte{0}) continue;
      if (i < rank()) ++own;
      hosts.push_back(this->hosts()[static_cast<size_t>(i)]);
    }
    MPI_Comm handle = MPI_COMM_NULL;
    {
      const MpiCall call(state_);
      check(MPI_Comm_split(handle_, member ? 0 : MPI_UNDEFINED, rank(), &handle), "MPI_Comm_split");
      if (member) MPI_Comm_set_errhandler(handle, MPI_ERRORS_RETURN);
    }
    if (!member) return nullptr;
    return std::make_unique<MpiCommunicator>(handle, own, std::move(hosts), watch(), state_);
  }

 protected:
  void transfer(std::span<const std::span<const std::byte>> to,
                std::span<const std::span<std::byte>> from) override {
    std::vector<Message> messages;
    try {
      begin(messages, to, from);
      finish(messages);
    } catch (...) {
      state_.is_broken = true;
      throw;
    }
  }

 private:
  struct Message {
    MPI_Request request = MPI_REQUEST_NULL;
    int peer = 0;
    bool is_received = false;
  };

  void begin(std::vector<Message>& messages, std::span<const std::span<const std::byte>> to,
             std::span<const std::span<std::byte>> from) {
    const MpiCall call(state_);
    for (int i = 0; i < size(); ++i) {
      if (i == rank()) continue;
      const auto into = from[static_cast<size_t>(i)];
      for (size_t at = 0; at < into.size(); at += kMaxMessage) {
        Message& message = messages.emplace_back(Message{.peer = i, .is_received = true});
        check(MPI_Irecv(into.data() + at, count(into.size() - at), MPI_BYTE, i, kTag, handle_,
                        &message.request),
              "MPI_Irecv");
      }
    }
    for (int step = 1; step < size(); ++step) {
      const int i = (rank() + step) % size();  // not all to the same one at a time
      const auto bytes = to[static_cast<size_t>(i)];
      for (size_t at = 0; at < bytes.size(); at += kMaxMessage) {
        Message& message = messages.emplace_back(Message{.peer = i});
        check(MPI_Isend(bytes.data() + at, count(bytes.size() - at), MPI_BYTE, i, kTag, handle_,
                        &message.request),
              "MPI_Isend");
      }
    }
  }

  void finish(std::vector<Message>& messages) {
    Wait wait(*this);
    while (true) {
      std::vector<int> missing;
      {
        const MpiCall call(state_);
        std::erase_if(messages, [&](Message& message) {
          int is_done = 0;
          check(MPI_Test(&message.request, &is_done, MPI_STATUS_IGNORE), "MPI_Test");
          if (is_done != 0) wait.heard(message.peer);
          return is_done != 0;
        });
      }
      if (messages.empty()) return;
      // A rank that does not receive ours is missing once all have sent.
      const bool receives = std::ranges::any_of(messages, &Message::is_received);
      for (const Message& message : messages)
        if (message.is_received == receives && (missing.empty() || missing.back() != message.peer))
          missing.push_back(message.peer);
      wait.pause(missing);
    }
  }

  static int count(size_t bytes) { return static_cast<int>(std::min(bytes, kMaxMessage)); }

  MPI_Comm handle_;
  MpiRuntime::State& state_;
};

}  // namespace

MpiRuntime::MpiRuntime(CallWatch& calls) : state_(std::make_unique<State>(calls)) {
  const MpiCall call(*state_);
  int provided = 0;
  if (MPI_Init_thread(nullptr, nullptr, MPI_THREAD_SERIALIZED, &provided) != MPI_SUCCESS)
    fail("MPI cannot be started");
  if (provided < MPI_THREAD_SERIALIZED) {
    MPI_Finalize();
    fail("this MPI allows calls from one thread only, expected MPI_THREAD_SERIALIZED");
  }
  MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);
}

MpiRuntime::~MpiRuntime() = default;

bool MpiRuntime::is_built_in() {
  return true;
}

bool MpiRuntime::is_broken() const {
  return state_->is_broken;
}

std::unique_ptr<Communicator> MpiRuntime::world(Watch& watch) {
  int rank = 0, size = 0;
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  MPI_Comm_size(MPI_COMM_WORLD, &size);
  // Ranks have placeholder names until their hosts are known.
  std::vector<std::string> hosts(static_cast<size_t>(size), "?");
  MpiCommunicator unnamed(MPI_COMM_WORLD, rank, hosts, watch, *state_);
  const std::string own = host_name();
  const auto names = unnamed.all_gather(std::as_bytes(std::span(own)));
  for (size_t i = 0; i < names.size(); ++i)
    hosts[i].assign(reinterpret_cast<const char*>(names[i].data()), names[i].size());
  return std::make_unique<MpiCommunicator>(MPI_COMM_WORLD, rank, std::move(hosts), watch, *state_);
}

void MpiRuntime::finalize() {
  const MpiCall call(*state_);
  if (!std::exchange(state_->is_finalized, true)) MPI_Finalize();
}

void MpiRuntime::abort(int code) {
  // Another thread may be inside a call that never returns.
  const bool is_locked = state_->mutex.try_lock_for(std::chrono::milliseconds(300));
  // Which then never lets this one return either.
  std::thread([code] {
    std::this_thread::sleep_for(std::chrono::seconds(5));
    std::_Exit(code);
  }).detach();
  MPI_Abort(MPI_COMM_WORLD, code);
  if (is_locked) state_->mutex.unlock();
  std::_Exit(code);
}

}  // namespace kvcal

#else

namespace kvcal {

struct MpiRuntime::State {};

MpiRuntime::MpiRuntime(CallWatch&) {
  fail(
      "kvcal was built without MPI, as the wheel is; to run on several ranks take the Debian "
      "package or build it with -DKVCAL_MPI=ON");
}
MpiRuntime::~MpiRuntime() = default;
bool MpiRuntime::is_built_in() {
  return false;
}
bool MpiRuntime::is_broken() const {
  return false;
}
std::unique_ptr<Communicator> MpiRuntime::world(Watch&) {
  return nullptr;
}
void MpiRuntime::finalize() {}
void MpiRuntime::abort(int code) {
  std::_Exit(code);
}

}  // namespace kvcal

#endif
