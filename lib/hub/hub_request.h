#pragma once

#include <chrono>
#include <optional>
#include <string>

#include "core/error.h"
#include "hub/http.h"
#include "hub/hub_id.h"

namespace kvcal {

/// Addresses of the hub.
std::string revision_url(const HubSettings& settings, const HubId& id);
std::string file_url(const HubSettings& settings, const HubId& id, const std::string& commit,
                     const std::string& file);

/// Throws Error for a response that is no success: id, file, status, what the hub says of it, and
/// what to do (a token, terms to accept, another revision, to wait). file: may be empty.
[[noreturn]] void fail_response(const HubSettings& settings, const HubId& id,
                                const std::string& file, const HttpResponse& response);

/// Thrown instead where the hub could not be reached, so that a caller may use what it has.
class HubUnreachable : public Error {
  using Error::Error;
};

/// Repeated requests after faults that pass: 429, 5xx, a broken connection.
class Retries {
 public:
  /// The time to wait before the next request: what the server asks for (Retry-After), or twice the
  /// last one. nullopt: the response is no such fault, or there were too many in a row.
  std::optional<std::chrono::milliseconds> pause_after(const HttpResponse& response);
  /// Something arrived: faults count anew.
  void forget() { count_ = 0; }

 private:
  int count_ = 0;
};

/// Bytes of a file.
struct ByteRange {
  uint64_t offset = 0, size = 0;
};

/// A request whose body, or whose headers, are wanted. A redirect of a HEAD request to the hub
/// itself (a repository with a new name) is followed, any other is its answer.
class SimpleRequest : public HttpJob {
 public:
  enum class Wants : uint8_t { kHeaders, kBody };
  /// range: the bytes that are wanted, which the file has; finish throws Error where the server
  /// sends others.
  SimpleRequest(const HubSettings& settings, const HubId& id, std::string url, std::string file,
                Wants wants, ByteRange range = {})
      : settings_(settings),
        id_(id),
        url_(std::move(url)),
        file_(std::move(file)),
        is_head_(wants == Wants::kHeaders),
        range_(range) {}
  std::optional<HttpRequest> request() override;
  bool is_done() const override { return is_done_; }
  void receive(int status, std::span<const std::byte> bytes) override;
  std::chrono::milliseconds finish(const HttpResponse& response) override;

  const std::string& body() const { return body_; }
  const HttpResponse& response() const { return response_; }

 private:
  bool follow(const HttpResponse& response);
  /// Throws Error where a server that was asked for a range sends something else.
  void check_range(const HttpResponse& response) const;

  const HubSettings& settings_;
  const HubId& id_;
  std::string url_, file_, body_;
  bool is_head_ = false, is_done_ = false;
  ByteRange range_;  ///< without bytes: the whole file is wanted
  int redirects_ = 0;
  HttpResponse response_;
  Retries retries_;
};

}  // namespace kvcal
