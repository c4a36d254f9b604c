#include <cmath>
#include <limits>

#include "python_commands.h"

namespace kvcal {
namespace {

constexpr int64_t kMostTogether = int64_t{1} << 16;

/// Ids of a list; place: for messages.
std::vector<TokenId> ids_of(const Json& list, const std::string& place) {
  constexpr const char* kWanted = "a list of token ids";
  if (!list.is_array()) fail_kind(place, kWanted, list);
  std::vector<TokenId> ids;
  for (const Json& id : list) {
    if (!id.is_number_integer()) fail_kind(place, kWanted, id);
    const auto value = id.get<int64_t>();
    if (value < 0 || value > std::numeric_limits<TokenId>::max())
      fail(place, ": found ", value, ", expected a token id");
    ids.push_back(static_cast<TokenId>(value));
  }
  return ids;
}

/// Items of a list in the arguments, and their places.
template <class Make>
auto items_of(Arguments& arguments, const std::string& name, const Make& make) {
  const Json list = arguments.read_json(name);
  if (!list.is_array()) fail_kind(name, "a list", list);
  std::vector<decltype(make(list, name))> items;
  for (const Json& item : list)
    items.push_back(make(item, name + "[" + std::to_string(items.size()) + "]"));
  return items;
}

/// [context, continuation].
ContinuationIds continuation_of(const Json& pair, const std::string& place) {
  if (!pair.is_array() || pair.size() != 2)
    fail_kind(place, "a context and a continuation, each a list of token ids", pair);
  return {ids_of(pair[0], place + "[0]"), ids_of(pair[1], place + "[1]")};
}

/// [ids, number of new tokens].
BatchPrompt prompt_of(const Json& pair, const std::string& place) {
  if (!pair.is_array() || pair.size() != 2 || !pair[1].is_number_integer())
    fail_kind(place, "a list of token ids and a number of new tokens", pair);
  const auto count = pair[1].get<int64_t>();
  if (count < 0 || count > std::numeric_limits<int32_t>::max())
    fail(place, ": found ", count, " new tokens, expected 0 or more");
  return {ids_of(pair[0], place + "[0]"), count};
}

int64_t batch_size_of(Arguments& arguments) {
  int64_t batch_size = 0;
  arguments.read("batch_size", batch_size, 0, kMostTogether);
  return batch_size;
}

}  // namespace

std::unique_ptr<ModelSession> open_session(Arguments& arguments, Diagnostics& diagnostics) {
  SessionOptions options;
  const FamilyArgument family(arguments, options.family);
  read_model(arguments, "model", options.model, diagnostics);
  read_cache(arguments, options.cache, diagnostics);
  read_device(arguments, options.device);
  arguments.read("inputs", options.device.inputs);
  arguments.expect_all_read();
  return std::make_unique<ModelSession>(options, diagnostics);
}

Json session_info(ModelSession& session, Arguments& arguments, Diagnostics&) {
  arguments.expect_all_read();
  return to_json(session);
}

Json session_encode(ModelSession& session, Arguments& arguments, Diagnostics&) {
  const Json text = arguments.read_json("text");
  if (!text.is_string()) fail_kind("text", "a string", text);
  std::optional<bool> add_bos_token;
  arguments.read("add_bos_token", add_bos_token);
  arguments.expect_all_read();
  return {{"ids", session.encode(text.get<std::string>(), add_bos_token)}};
}

Json session_decode(ModelSession& session, Arguments& arguments, Diagnostics&) {
  const std::vector<TokenId> ids = ids_of(arguments.read_json("ids"), "ids");
  bool skip_special_tokens = true;
  arguments.read("skip_special_tokens", skip_special_tokens);
  arguments.expect_all_read();
  return {{"text", session.model().tokenizer->decode(ids, skip_special_tokens)}};
}

Json session_chat(ModelSession& session, Arguments& arguments, Diagnostics&) {
  const Json messages = arguments.read_json("messages"),
             variables = arguments.read_json("variables");
  bool add_generation_prompt = true;
  arguments.read("add_generation_prompt", add_generation_prompt);
  arguments.expect_all_read();
  if (!messages.is_array()) fail_kind("messages", "a list", messages);
  if (!session.chat()) fail(session.model().path, ": has no chat template");
  return {{"text", session.chat()->render_as_given(messages, add_generation_prompt, variables)}};
}

Json session_score(ModelSession& session, Arguments& arguments, Diagnostics&) {
  const auto texts = items_of(arguments, "texts", continuation_of);
  const int64_t batch_size = batch_size_of(arguments);
  arguments.expect_all_read();
  Json scores = Json::array();
  for (const ContinuationScore& score : session.score(texts, batch_size))
    scores.push_back(Json::array({score.log_probability, score.is_greedy}));
  return {{"scores", std::move(scores)}};
}

Json session_generate(ModelSession& session, Arguments& arguments, Diagnostics& diagnostics) {
  const auto prompts = items_of(arguments, "prompts", prompt_of);
  ContinueOptions options{.batch_size = batch_size_of(arguments)};
  std::optional<double> penalty;
  arguments.read("stop", options.stops);
  arguments.read("repetition_penalty", penalty, 1e-6, 1e6);
  arguments.read("temperature", options.sampling.temperature, 0.0, 1e6);
  arguments.read("top_p", options.sampling.top_p, 1e-9, 1.0);
  arguments.read("top_k", options.sampling.top_k);
  arguments.read("seed", options.sampling.seed, 0, int64_t{1} << 62);
  arguments.expect_all_read();
  if (penalty) options.repetition_penalty = static_cast<float>(*penalty);
  return {{"texts", session.continue_texts(prompts, options, diagnostics)}};
}

}  // namespace kvcal
