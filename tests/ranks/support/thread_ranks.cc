#include "ranks/support/thread_ranks.h"

#include <cstring>
#include <deque>
#include <mutex>
#include <thread>

namespace kvcal::test {
namespace {

/// Messages between the ranks of one group, in the order they were sent.
struct Mail {
  explicit Mail(size_t ranks) : queues(ranks * ranks), ranks(ranks) {}
  std::deque<std::vector<std::byte>>& between(size_t from, size_t to) {
    return queues[from * ranks + to];
  }
  std::mutex mutex;
  std::vector<std::deque<std::vector<std::byte>>> queues;
  size_t ranks;
};

class ThreadCommunicator : public Communicator {
 public:
  ThreadCommunicator(int rank, std::vector<std::string> hosts, Watch& watch,
                     std::shared_ptr<Mail> mail, OnWait on_wait = {})
      : Communicator(rank, std::move(hosts), watch),
        mail_(std::move(mail)),
        on_wait_(std::move(on_wait)) {}

  std::unique_ptr<Communicator> split(bool member) override {
    // The mail of the new group is made by its first rank and goes around as an address.
    const auto flags = all_gather(std::as_bytes(std::span(&member, 1)));
    std::vector<std::string> hosts;
    int own = 0, first = -1;
    for (int i = 0; i < size(); ++i) {
      if (flags[static_cast<size_t>(i)][0] == std::byte{0}) continue;
      if (first < 0) first = i;
      if (i < rank()) ++own;
      hosts.push_back(this->hosts()[static_cast<size_t>(i)]);
    }
    std::shared_ptr<Mail> mail;
    if (rank() == first) mail = std::make_shared<Mail>(hosts.size());
    const std::shared_ptr<Mail>* address = &mail;
    const auto addresses = all_gather(std::as_bytes(std::span(&address, 1)));
    if (member && rank() != first) {
      std::memcpy(&address, addresses[static_cast<size_t>(first)].data(), sizeof address);
      mail = *address;
    }
    barrier();
    if (!member) return nullptr;
    return std::make_unique<ThreadCommunicator>(own, std::move(hosts), watch(), std::move(mail));
  }

 protected:
  void transfer(std::span<const std::span<const std::byte>> to,
                std::span<const std::span<std::byte>> from) override {
    const auto own = static_cast<size_t>(rank());
    {
      const std::lock_guard lock(mail_->mutex);
      for (size_t i = 0; i < to.size(); ++i)
        if (i != own) mail_->between(own, i).emplace_back(to[i].begin(), to[i].end());
    }
    std::vector<int> missing;
    for (int i = 0; i < size(); ++i)
      if (i != rank()) missing.push_back(i);
    Wait wait(*this);
    while (true) {
      {
        const std::lock_guard lock(mail_->mutex);
        std::erase_if(missing, [&](int i) {
          auto& queue = mail_->between(static_cast<size_t>(i), own);
          if (queue.empty()) return false;
          const auto into = from[static_cast<size_t>(i)];
          KVCAL_CHECK(queue.front().size() == into.size());
          std::copy(queue.front().begin(), queue.front().end(), into.begin());
          queue.pop_front();
          return true;
        });
      }
      if (missing.empty()) return;
      if (on_wait_) on_wait_(rank(), missing);
      wait.pause(missing);
    }
  }

 private:
  std::shared_ptr<Mail> mail_;
  OnWait on_wait_;
};

}  // namespace

std::vector<std::exception_ptr> run_ranks(const std::vector<std::string>& hosts, Watch& watch,
                                          const std::function<void(Communicator&)>& body,
                                          const OnWait& on_wait) {
  const auto mail = std::make_shared<Mail>(hosts.size());
  std::vector<std::exception_ptr> errors(hosts.size());
  std::vector<std::thread> threads;
  for (size_t i = 0; i < hosts.size(); ++i)
    threads.emplace_back([&, i] {
      try {
        ThreadCommunicator communicator(static_cast<int>(i), hosts, watch, mail, on_wait);
        body(communicator);
      } catch (...) {
        errors[i] = std::current_exception();
      }
    });
  for (std::thread& thread : threads) thread.join();
  return errors;
}

void run_ranks(int count, const std::function<void(Communicator&)>& body) {
  std::vector<std::string> hosts;
  for (int i = 0; i < count; ++i) hosts.push_back("n" + std::to_string(i));
  Watch watch(std::chrono::minutes(10));
  for (const std::exception_ptr& error : run_ranks(hosts, watch, body))
    if (error) std::rethrow_exception(error);
}

std::string message_of(const std::exception_ptr& error) {
  if (!error) return "";
  try {
    std::rethrow_exception(error);
  } catch (const Error& known) {
    return known.message();
  } catch (const std::exception& other) {
    return other.what();
  }
}

}  // namespace kvcal::test
