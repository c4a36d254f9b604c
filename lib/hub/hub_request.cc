#include "hub/hub_request.h"

#include <algorithm>
#include <charconv>

namespace kvcal {
namespace {

using std::chrono::milliseconds;
constexpr int kMostFaults = 5;
constexpr milliseconds kFirstPause{200}, kLongestPause{300'000};

/// text with all but unreserved characters, and those of kept, as %XX.
std::string escaped(std::string_view text, std::string_view kept = "") {
  constexpr std::string_view kDigits = "0123456789ABCDEF";
  std::string result;
  for (const char c : text) {
    const bool is_plain = (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') ||
                          (c >= '0' && c <= '9') ||
                          std::string_view("-._~").find(c) != std::string_view::npos ||
                          kept.find(c) != std::string_view::npos;
    if (is_plain) {
      result += c;
      continue;
    }
    const auto code = static_cast<unsigned char>(c);
    result += '%';
    result += kDigits[code >> 4];
    result += kDigits[code & 15];
  }
  return result;
}

std::string page_of(const HubSettings& settings, const HubId& id) {
  return settings.endpoint + (id.repo == HubRepo::kDataset ? "/datasets/" : "/") + id.name;
}

bool is_passing(int status) {
  return status == 408 || status == 429 || status == 500 || status == 502 || status == 503 ||
         status == 504;
}

/// Retry-After in seconds; a date counts as absent.
std::optional<milliseconds> asked_pause(const HttpResponse& response) {
  const std::string text = response.header("retry-after");
  int64_t seconds = 0;
  const auto result = std::from_chars(text.data(), text.data() + text.size(), seconds);
  if (text.empty() || result.ec != std::errc{} || result.ptr != text.data() + text.size() ||
      seconds < 0)
    return std::nullopt;
  return milliseconds(1000 * std::min<int64_t>(seconds, 1'000'000));
}

std::string advice(const HubSettings& settings, const HubId& id, const HttpResponse& response) {
  const std::string code = response.header("x-error-code");
  const std::string page = page_of(settings, id);
  const bool has_token = !settings.token.empty();
  const std::string give_token = "set HF_TOKEN or run hf auth login";
  if (code == "GatedRepo" || response.status == 403)
    return "it is gated: accept its terms at " + page +
           (has_token ? " with the account of the token" : ", and " + give_token);
  if (code == "RevisionNotFound")
    return "it has no revision '" + id.revision + "'; " + page + "/tree/main lists them";
  if (code == "EntryNotFound") return "it has no such file at this revision";
  if (response.status == 401 || code == "RepoNotFound")
    return "there is no such repository, or it is private" +
           (has_token ? std::string(" and the token may not read it") : ": " + give_token);
  if (response.status == 404) return "there is no such repository or revision";
  if (response.status == 429)
    return std::string("too many requests: wait a few minutes") +
           (has_token ? "" : ", or " + give_token);
  if (response.status >= 500) return "the hub has a fault: try again later";
  return "expected a file";
}

}  // namespace

std::string revision_url(const HubSettings& settings, const HubId& id) {
  return settings.endpoint + (id.repo == HubRepo::kDataset ? "/api/datasets/" : "/api/models/") +
         id.name + "/revision/" + escaped(id.revision);
}

std::string file_url(const HubSettings& settings, const HubId& id, const std::string& commit,
                     const std::string& file) {
  return page_of(settings, id) + "/resolve/" + commit + "/" + escaped(file, "/");
}

void fail_response(const HubSettings& settings, const HubId& id, const std::string& file,
                   const HttpResponse& response) {
  const std::string where = id.text() + (file.empty() ? "" : ": " + file);
  if (response.is_unreachable)
    throw HubUnreachable(where + ": cannot reach " + settings.endpoint + ": " + response.error +
                         "; HF_ENDPOINT names another hub, https_proxy a proxy, and with "
                         "HF_HUB_OFFLINE=1 only the cache " +
                         settings.cache.string() + " is used");
  if (!response.error.empty() && (response.status == 0 || response.status < 400))
    fail(where, ": the connection to ", settings.endpoint, " broke (", response.error,
         "): run the command again, it goes on from there");
  const std::string said = response.header("x-error-message");
  fail(where, ": HTTP ", response.status, " of ", settings.endpoint,
       said.empty() ? "" : " (" + said + ")", ": ", advice(settings, id, response));
}

std::optional<milliseconds> Retries::pause_after(const HttpResponse& response) {
  const bool is_broken = !response.error.empty() && !response.is_unreachable;
  if (!is_broken && !is_passing(response.status)) return std::nullopt;
  if (count_ == kMostFaults) return std::nullopt;
  const milliseconds own = kFirstPause * (1 << count_++);
  const milliseconds pause = asked_pause(response).value_or(own);
  return pause <= kLongestPause ? std::optional(pause) : std::nullopt;
}

std::optional<HttpRequest> SimpleRequest::request() {
  body_.clear();
  return HttpRequest{.url = url_,
                     .token = settings_.token,
                     .offset = range_.offset,
                     .size = range_.size,
                     .is_head = is_head_};
}

void SimpleRequest::receive(int status, std::span<const std::byte> bytes) {
  constexpr size_t kMostBytes = size_t{128} << 20;
  // Files have hundreds of gigabytes: the first piece of a whole one is the end.
  if (range_.size > 0 && status == 200 && body_.size() + bytes.size() > range_.size)
    fail(id_.text(), ": ", file_, ": ", settings_.endpoint, " was asked for ", range_.size,
         " bytes and sends the whole file; hf download ", id_.name,
         " fetches it, then give its folder");
  if (body_.size() + bytes.size() > kMostBytes)
    fail(id_.text(), ": ", url_, " has more than ", kMostBytes, " bytes");
  body_.append(reinterpret_cast<const char*>(bytes.data()), bytes.size());
}

bool SimpleRequest::follow(const HttpResponse& response) {
  constexpr int kMostRedirects = 5;
  const std::string location = response.header("location");
  const bool is_redirect = response.status >= 301 && response.status <= 308;
  if (!is_head_ || !is_redirect || !response.header("x-linked-etag").empty()) return false;
  const bool is_here = location.starts_with('/') && !location.starts_with("//");
  if (!is_here && !location.starts_with(settings_.endpoint + "/")) return false;
  if (++redirects_ > kMostRedirects)
    fail(id_.text(), ": ", file_, ": the hub redirects in circles");
  if (!is_here) {
    url_ = location;
    return true;
  }
  const size_t host = settings_.endpoint.find("://") + 3;
  url_ = settings_.endpoint.substr(0, settings_.endpoint.find('/', host)) + location;
  return true;
}

void SimpleRequest::check_range(const HttpResponse& response) const {
  const std::string sent = response.header("content-range");  // "bytes 8-15/1000"
  const std::string wanted = "bytes " + std::to_string(range_.offset) + "-" +
                             std::to_string(range_.offset + range_.size - 1) + "/";
  const bool is_whole_file = response.status == 200 && range_.offset == 0;
  if (body_.size() != range_.size || (!is_whole_file && !sent.starts_with(wanted)))
    fail(id_.text(), ": ", file_, ": ", settings_.endpoint, " sends ", body_.size(), " bytes",
         sent.empty() ? "" : " (" + sent + ")", ", asked was for ", range_.size, " from ",
         range_.offset);
}

milliseconds SimpleRequest::finish(const HttpResponse& response) {
  if (const auto pause = retries_.pause_after(response)) return *pause;
  if (follow(response)) return milliseconds(0);
  const bool is_success =
      response.error.empty() && response.status >= 200 && response.status < (is_head_ ? 400 : 300);
  if (!is_success) fail_response(settings_, id_, file_, response);
  if (range_.size > 0) check_range(response);
  response_ = response;
  is_done_ = true;
  return milliseconds(0);
}

}  // namespace kvcal
