#include "ranks/rank_session.h"

#include <charconv>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <sstream>
#include <string_view>
#include <thread>
#include <utility>

#include <sys/resource.h>

#include "core/interrupt.h"
#include "core/process.h"
#include "ranks/communicator.h"

namespace kvcal {
namespace {

/// Environment variables of a process manager: rank is set in its processes, size is their number.
struct Manager {
  const char* name;
  const char* rank;
  const char* size;  ///< null: told elsewhere
};

constexpr Manager kManagers[] = {
    {"mpirun", "OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE"},
    {"mpiexec (PMI)", "PMI_RANK", "PMI_SIZE"},
    // Slurm sets its own size for every process of a job, and PMIX_RANK where srun started it.
    {"srun (PMIx)", "PMIX_RANK", "SLURM_NTASKS"},
};

int number_of(const char* text) {
  int number = 0;
  if (text) {
    const std::string_view all(text);
    const auto [end, error] = std::from_chars(all.data(), all.data() + all.size(), number);
    if (error != std::errc() || end != all.data() + all.size()) return 0;
  }
  return number;
}

}  // namespace

std::optional<Launch> find_launch(const std::function<const char*(const char* name)>& read) {
  for (const Manager& manager : kManagers)
    if (read(manager.rank)) {
      // srun's steps may have fewer tasks than the job.
      const char* step = read("SLURM_STEP_NUM_TASKS");
      const bool is_step = std::string_view(manager.rank) == "PMIX_RANK" && step;
      return Launch{.by = manager.name,
                    .ranks = number_of(is_step ? step : read(manager.size)),
                    .rank = number_of(read(manager.rank))};
    }
  return std::nullopt;
}

namespace {

using std::chrono::milliseconds;

/// Time for a rank to release unfinished outputs and devices before it must end.
constexpr milliseconds kReleaseTime{3000};
/// Time for news: a launcher that sees a process die may interrupt the others before we know why.
constexpr milliseconds kNewsTime{300};
/// Time for every other rank, until rank 0 has ended all.
constexpr milliseconds kOthersTime{5000};
/// Waits until is_met, at most so long.
template <class Condition>
void wait_until(const Condition& is_met, milliseconds most) {
  const auto end = std::chrono::steady_clock::now() + most;
  while (!is_met() && std::chrono::steady_clock::now() < end)
    std::this_thread::sleep_for(milliseconds(5));
}

/// When rank 0 is gone, each rank waits for the ranks before it to report and to end all.
constexpr milliseconds kTurn = kReleaseTime + milliseconds(1000);

}  // namespace

RankSession::RankSession(RankOptions options)
    : options_(std::move(options)), watch_(options_.timeout) {
  const auto launch = find_launch([](const char* name) { return std::getenv(name); });
  if (!launch || options_.ignores_launcher || (launch->ranks == 1 && !MpiRuntime::is_built_in())) {
    ranks_ = std::make_unique<SingleCommunicator>(host_name(), watch_);
    return;
  }
  calls_ = std::make_unique<CallWatch>(watch_, [this, rank = launch->rank] { on_stuck(rank); });
  mpi_ = std::make_unique<MpiRuntime>(*calls_);
  is_started_ = true;
  ranks_ = mpi_->world(watch_);
  if (launch->ranks > 1 && ranks_->size() == 1)
    fail("started by ", launch->by, " as one of ", launch->ranks,
         " processes, but this program's MPI sees no other; expected a launcher of the same MPI");
  if (is_alone()) return;
  lifeline_ = std::make_unique<Lifeline>(
      *ranks_, LifelineEvents{.died = [this](int rank) { on_died(rank); },
                              .failed = [this](const std::string& text) { on_failed(text); },
                              .interrupted = [] { request_interrupt(); },
                              .ended = [this] { on_ended(); }});
}

RankSession::~RankSession() {
  if (is_over_ || !mpi_) return;
  if (!is_alone()) abort_failed();
  mpi_->finalize();
}

void RankSession::say_once(const std::string& message) {
  const std::lock_guard lock(mutex_);
  if (!std::exchange(has_said_, true) && options_.say) options_.say(message);
}

void RankSession::wait_for_end(milliseconds time) const {
  wait_until([&] { return is_ending_ || has_lost_; }, time);
}

void RankSession::wait_for_news() const {
  wait_for_end(kNewsTime);
  const uint64_t question = lifeline_->ask_for_news();
  while (!is_ending_ && !has_lost_ && !lifeline_->is_answered(question))
    std::this_thread::sleep_for(milliseconds(5));
}

void RankSession::abort_failed() {
  mpi_->abort(kFailedStatus);
}

void RankSession::end_all(const std::string& message) {
  if (is_ending_.exchange(true)) return;
  say_once(message);
  if (is_first()) lifeline_->tell_end();
  request_interrupt();
  wait_until([&] { return is_released_.load(); }, kReleaseTime);
  abort_failed();
}

void RankSession::on_died(int rank) {
  if (is_ending_) return;
  has_lost_ = true;
  const std::string message = ranks_->name_of(rank) + " died in " + watch_.stage();
  // Rank 0 is gone: the first remaining rank reports it.
  wait_until([&] { return is_first() || is_ending_; }, kTurn * (ranks_->rank() - 1));
  end_all(message);
}

void RankSession::on_failed(const std::string& message) {
  end_all(message);
}

void RankSession::on_stuck(int rank) {
  // Several ranks may be stuck; the first one reports it, and ends the others.
  wait_until([&] { return is_ending_.load(); }, kTurn * rank);
  std::ostringstream message;
  message << "a rank has not answered for " << watch_.timeout().count() << " s in "
          << watch_.stage() << ", and MPI waits for it";
  if (!is_ending_) say_once(message.str());
  if (is_started_) abort_failed();
  std::_Exit(kFailedStatus);
}

void RankSession::on_ended() {
  if (is_ending_.exchange(true)) return;
  request_interrupt();
  std::this_thread::sleep_for(kOthersTime);
  abort_failed();
}

void RankSession::finish() {
  is_over_ = true;
  if (lifeline_) lifeline_->close();
  ranks_ = nullptr;
  if (mpi_) mpi_->finalize();
}

void RankSession::done() {
  // The last step of rank 0, writing the output, may take any time; the lifeline detects its death.
  watch_.wait_forever();
  if (!is_alone()) ranks_->barrier();
  finish();
}

int RankSession::failed(const Error& error) {
  is_released_ = true;
  if (is_alone() || dynamic_cast<const SharedError*>(&error)) {
    if (is_first()) say_once(error.message());
    if (!mpi_ || !mpi_->is_broken()) finish();
    if (!is_over_) abort_failed();
    return kFailedStatus;
  }
  // Rank 0 reports an error of all ranks, such as a missing model, as a single process does.
  if (is_first()) end_all(error.message());
  wait_for_news();
  if (is_ending_) std::this_thread::sleep_for(kOthersTime);  // and is ended meanwhile
  const std::string own = ranks_->name_of(ranks_->rank()) + ", " + watch_.stage() + ": ";
  const std::string message =
      dynamic_cast<const LostRank*>(&error) ? error.message() : own + error.message();
  if (lifeline_->tell_failure(message)) wait_for_end(kReleaseTime);
  if (is_ending_) std::this_thread::sleep_for(kOthersTime);
  end_all(message);
  abort_failed();
}

int RankSession::interrupted() {
  is_released_ = true;
  if (is_alone()) {
    finish();
    return kInterruptedStatus;
  }
  if (lifeline_->is_connected()) wait_for_news();
  if (is_ending_ || has_lost_) {  // and that is said, and all are ended meanwhile
    std::this_thread::sleep_for(is_first() ? kReleaseTime : kOthersTime);
    abort_failed();
  }
  lifeline_->tell_interrupt();
  if (!mpi_->is_broken()) {
    finish();
    return kInterruptedStatus;
  }
  lifeline_->close();
  // Rank 0 may still have an unfinished output to remove.
  if (!is_first()) std::this_thread::sleep_for(milliseconds(1000));
  mpi_->abort(kInterruptedStatus);
}

namespace {

double seconds(const timeval& time) {
  return static_cast<double>(time.tv_sec) + 1e-6 * static_cast<double>(time.tv_usec);
}

/// Bytes read from storage for mapped files and preads, with read-ahead, without pages already in
/// memory.
uint64_t fetched_bytes() {
  std::ifstream io("/proc/self/io");
  std::string key;
  uint64_t value = 0;
  while (io >> key >> value)
    if (key == "read_bytes:") return value;
  return 0;
}

}  // namespace

RankWork process_work() {
  rusage used{};
  ::getrusage(RUSAGE_SELF, &used);
  return {.storage_bytes = fetched_bytes(),
          .processor_seconds = seconds(used.ru_utime) + seconds(used.ru_stime),
          .peak_bytes = peak_resident_bytes()};
}

std::vector<RankWork> gather_work(Communicator& ranks, const RankWork& own) {
  return gather_values(ranks, own);  // of the same program: ranks compare their fingerprints
}

}  // namespace kvcal
