#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <span>
#include <string>

namespace kvcal {

struct HttpRequest {
  std::string url;
  std::string token = {};  ///< sent to the host of url alone, not to those it redirects to
  uint64_t offset = 0;     ///< first byte wanted of the file
  uint64_t size = 0;       ///< bytes wanted from there; 0: all
  bool is_head = false;    ///< no body; redirects are not followed
};

struct HttpResponse {
  int status = 0;                              ///< 0: there was no whole response
  std::map<std::string, std::string> headers;  ///< of the last response, names in lower case
  std::string error;            ///< why the transfer failed; empty where it came to its end
  bool is_unreachable = false;  ///< it failed before a connection stood

  /// A header's value; empty where it is absent.
  std::string header(const std::string& name) const;
};

/// One transfer, which may take several requests.
class HttpJob {
 public:
  using Clock = std::chrono::steady_clock;
  virtual ~HttpJob() = default;
  /// The request to make; nullopt: not now, ask again soon, unless is_done().
  virtual std::optional<HttpRequest> request() = 0;
  virtual bool is_done() const = 0;
  /// A piece of the body of a response with this status; never that of a redirect.
  virtual void receive(int status, std::span<const std::byte> bytes) = 0;
  /// The end of the request: the job is done, or the time to wait before the next request.
  virtual std::chrono::milliseconds finish(const HttpResponse& response) = 0;
};

/// Whether this build can transfer anything (libcurl).
bool has_http();

/// Runs jobs in this thread, some at a time, until all are done. between is called about ten times
/// a second. Throws what jobs throw, and Interrupted; the other transfers are then given up.
/// Proxies are those of the environment (http_proxy, https_proxy, no_proxy). Throws Error in a
/// build without libcurl.
void run_http_jobs(std::span<HttpJob* const> jobs, const std::function<void()>& between);

}  // namespace kvcal
