// The only file that knows libcurl.
#include "hub/http.h"

#include "core/error.h"
#include "core/interrupt.h"
#include "core/text.h"

#if KVCAL_HAS_CURL
#include <curl/curl.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <exception>
#include <list>
#include <memory>
#endif

namespace kvcal {

std::string HttpResponse::header(const std::string& name) const {
  const auto found = headers.find(name);
  return found == headers.end() ? "" : found->second;
}

#if KVCAL_HAS_CURL

namespace {

constexpr size_t kMostAtOnce = 8;
constexpr std::chrono::milliseconds kTick{100};
constexpr long kConnectSeconds = 15, kSilentSeconds = 30, kMostRedirects = 5;

bool has_libcurl() {
  static const bool kIsReady = curl_global_init(CURL_GLOBAL_DEFAULT) == CURLE_OK;
  return kIsReady;
}

/// File of the certificates that this machine trusts. A libcurl that is carried to another
/// distribution looks where its own has them. null: leaves it at that.
const char* trusted_certificates() {
  if (const char* file = std::getenv("SSL_CERT_FILE"); file && *file) return file;
  for (const char* file : {"/etc/ssl/certs/ca-certificates.crt",  // Debian, Arch, Alpine
                           "/etc/pki/tls/certs/ca-bundle.crt",    // Fedora and its kin
                           "/etc/ssl/ca-bundle.pem"})             // SUSE
    if (::access(file, R_OK) == 0) return file;
  return nullptr;
}

template <auto release>
struct Deleter {
  void operator()(auto* object) const { release(object); }
};

/// One request in progress.
struct Transfer {
  HttpJob* job = nullptr;
  std::unique_ptr<CURL, Deleter<curl_easy_cleanup>> handle;
  std::unique_ptr<curl_slist, Deleter<curl_slist_free_all>> headers;
  HttpResponse response;
  std::exception_ptr error;  ///< what the job threw among libcurl's functions

  int status() const {
    long code = 0;
    curl_easy_getinfo(handle.get(), CURLINFO_RESPONSE_CODE, &code);
    return static_cast<int>(code);
  }
};

/// Runs body among libcurl's functions, which no exception may pass.
template <class Body>
size_t guarded(Transfer& transfer, size_t size, const Body& body) {
  try {
    body();
    return size;
  } catch (...) {
    transfer.error = std::current_exception();
    return size + 1;  // ends the transfer
  }
}

size_t write_body(char* bytes, size_t one, size_t count, void* data) {
  Transfer& transfer = *static_cast<Transfer*>(data);
  const size_t size = one * count;
  return guarded(transfer, size, [&] {
    transfer.job->receive(transfer.status(), std::as_bytes(std::span(bytes, size)));
  });
}

size_t write_header(char* bytes, size_t one, size_t count, void* data) {
  Transfer& transfer = *static_cast<Transfer*>(data);
  const size_t size = one * count;
  return guarded(transfer, size, [&] {
    const std::string_view line(bytes, size);
    auto& headers = transfer.response.headers;
    if (line.starts_with("HTTP/")) headers.clear();  // of the response before a redirect
    const size_t colon = line.find(':');
    if (colon != line.npos)
      headers[ascii_lower(std::string(line.substr(0, colon)))] =
          ascii_trimmed(line.substr(colon + 1));
  });
}

void set_options(Transfer& transfer, const HttpRequest& request) {
  CURL* handle = transfer.handle.get();
  const auto set = [&](CURLoption option, auto value) {
    if (const CURLcode code = curl_easy_setopt(handle, option, value); code != CURLE_OK)
      fail("libcurl refuses option ", static_cast<int>(option), ": ", curl_easy_strerror(code));
  };
  set(CURLOPT_URL, request.url.c_str());
  set(CURLOPT_PROTOCOLS_STR, "http,https");
  set(CURLOPT_REDIR_PROTOCOLS_STR, "http,https");
  set(CURLOPT_NOSIGNAL, 1L);
  if (const char* file = trusted_certificates()) set(CURLOPT_CAINFO, file);
  set(CURLOPT_USERAGENT, "kvcal");
  set(CURLOPT_CONNECTTIMEOUT, kConnectSeconds);
  set(CURLOPT_LOW_SPEED_LIMIT, 1L);
  set(CURLOPT_LOW_SPEED_TIME, kSilentSeconds);
  set(CURLOPT_FOLLOWLOCATION, request.is_head ? 0L : 1L);
  set(CURLOPT_MAXREDIRS, kMostRedirects);
  set(CURLOPT_NOBODY, request.is_head ? 1L : 0L);
  // CURLOPT_RESUME_FROM would refuse a server that answers with the whole file.
  const uint64_t end = request.offset + request.size;
  const std::string range = std::to_string(request.offset) + "-" +
                            (request.size > 0 ? std::to_string(end - 1) : std::string());
  if (request.offset > 0 || request.size > 0) set(CURLOPT_RANGE, range.c_str());
  set(CURLOPT_WRITEFUNCTION, write_body);
  set(CURLOPT_WRITEDATA, static_cast<void*>(&transfer));
  set(CURLOPT_HEADERFUNCTION, write_header);
  set(CURLOPT_HEADERDATA, static_cast<void*>(&transfer));
  set(CURLOPT_PRIVATE, static_cast<void*>(&transfer));
  // The bytes of the file itself, whose hash and size are known.
  transfer.headers.reset(curl_slist_append(nullptr, "Accept-Encoding: identity"));
  // libcurl sends a header of this name to no other host that a redirect names.
  if (!request.token.empty()) {
    const std::string line = "Authorization: Bearer " + request.token;
    static_cast<void>(curl_slist_append(transfer.headers.get(), line.c_str()));
  }
  set(CURLOPT_HTTPHEADER, transfer.headers.get());
}

void set_error(CURLcode code, HttpResponse& response) {
  if (code == CURLE_OK) return;
  response.error = curl_easy_strerror(code);
  response.is_unreachable = code == CURLE_COULDNT_CONNECT || code == CURLE_COULDNT_RESOLVE_HOST ||
                            code == CURLE_COULDNT_RESOLVE_PROXY ||
                            code == CURLE_SSL_CONNECT_ERROR ||
                            code == CURLE_PEER_FAILED_VERIFICATION;
}

class Transfers {
 public:
  explicit Transfers(std::span<HttpJob* const> jobs) : multi_(curl_multi_init()) {
    if (!multi_) throw std::bad_alloc();
    for (HttpJob* job : jobs) waiting_.push_back({job, {}});
  }
  ~Transfers() {
    for (Transfer& transfer : active_)
      curl_multi_remove_handle(multi_.get(), transfer.handle.get());
  }
  Transfers(const Transfers&) = delete;
  Transfers& operator=(const Transfers&) = delete;

  bool is_done() const { return waiting_.empty() && active_.empty(); }

  void step() {
    start_waiting();
    int running = 0;
    check(curl_multi_perform(multi_.get(), &running));
    take_finished();
    if (is_done()) return;
    check(curl_multi_poll(multi_.get(), nullptr, 0, static_cast<int>(wait().count()), nullptr));
  }

 private:
  using Clock = HttpJob::Clock;
  struct Waiting {
    HttpJob* job;
    Clock::time_point until;
  };

  static void check(CURLMcode code) {
    if (code != CURLM_OK) fail("libcurl: ", curl_multi_strerror(code));
  }

  std::chrono::milliseconds wait() const {
    std::chrono::milliseconds least = kTick;
    if (active_.size() < kMostAtOnce)
      for (const Waiting& one : waiting_)
        least =
            std::min(least, std::chrono::ceil<std::chrono::milliseconds>(one.until - Clock::now()));
    return std::max(least, std::chrono::milliseconds(0));
  }

  void start_waiting() {
    const Clock::time_point now = Clock::now();
    for (auto one = waiting_.begin(); one != waiting_.end() && active_.size() < kMostAtOnce;) {
      if (one->until > now) {
        ++one;
        continue;
      }
      if (const auto request = one->job->request()) {
        start(*one->job, *request);
      } else if (!one->job->is_done()) {
        one->until = now + kTick;
        ++one;
        continue;
      }
      one = waiting_.erase(one);
    }
  }

  void start(HttpJob& job, const HttpRequest& request) {
    Transfer& transfer = active_.emplace_back();
    transfer.job = &job;
    transfer.handle.reset(curl_easy_init());
    if (!transfer.handle) throw std::bad_alloc();
    set_options(transfer, request);
    check(curl_multi_add_handle(multi_.get(), transfer.handle.get()));
  }

  void take_finished() {
    int left = 0;
    while (const CURLMsg* message = curl_multi_info_read(multi_.get(), &left)) {
      if (message->msg != CURLMSG_DONE) continue;
      const CURLcode code = message->data.result;
      const auto found = std::ranges::find_if(
          active_, [&](const Transfer& one) { return one.handle.get() == message->easy_handle; });
      KVCAL_CHECK(found != active_.end());
      curl_multi_remove_handle(multi_.get(), found->handle.get());
      std::list<Transfer> finished;
      finished.splice(finished.begin(), active_, found);
      finish(finished.front(), code);
    }
  }

  void finish(Transfer& transfer, CURLcode code) {
    if (transfer.error) std::rethrow_exception(transfer.error);
    transfer.response.status = transfer.status();
    set_error(code, transfer.response);
    const std::chrono::milliseconds pause = transfer.job->finish(transfer.response);
    if (!transfer.job->is_done()) waiting_.push_back({transfer.job, Clock::now() + pause});
  }

  std::unique_ptr<CURLM, Deleter<curl_multi_cleanup>> multi_;
  std::list<Transfer> active_;
  std::list<Waiting> waiting_;
};

}  // namespace

bool has_http() {
  return true;
}

void run_http_jobs(std::span<HttpJob* const> jobs, const std::function<void()>& between) {
  if (!has_libcurl()) fail("libcurl cannot be initialized");
  Transfers transfers(jobs);
  while (!transfers.is_done()) {
    throw_if_interrupted();
    transfers.step();
    between();
  }
}

#else

bool has_http() {
  return false;
}

void run_http_jobs(std::span<HttpJob* const>, const std::function<void()>&) {
  fail("this kvcal was built without libcurl and cannot download");
}

#endif

}  // namespace kvcal
