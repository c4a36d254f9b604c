#include "session.h"

#include <limits>

#include "core/error.h"
#include "core/registry.h"
#include "shared_options.h"

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

/// A value that the arguments no longer have then; null: there was none.
Json taken(Json& arguments, const std::string& name) {
  Json value = arguments.contains(name) ? arguments.at(name) : Json(nullptr);
  arguments.erase(name);
  return value;
}

/// Items of a list, made with their places.
template <class Make>
auto items_of(const Json& list, const std::string& name, const Make& make) {
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

void declare_batch_size(Options& options, int64_t& batch_size) {
  options.number("--batch-size", batch_size, "Texts that are run together", 0, kMostTogether);
}

Json info(ModelSession& session, Json& arguments, Diagnostics&) {
  Options().read(arguments);
  return to_json(session);
}

Json encode(ModelSession& session, Json& arguments, Diagnostics&) {
  const Json text = taken(arguments, "text");
  if (!text.is_string()) fail_kind("text", "a string", text);
  std::optional<bool> add_bos_token;
  Options options;
  options.boolean("--add-bos-token", add_bos_token, "Behind bos_token");
  options.read(arguments);
  return {{"ids", session.encode(text.get<std::string>(), add_bos_token)}};
}

Json decode(ModelSession& session, Json& arguments, Diagnostics&) {
  const std::vector<TokenId> ids = ids_of(taken(arguments, "ids"), "ids");
  bool skip_special_tokens = true;
  Options options;
  options.flag("--skip-special-tokens", skip_special_tokens, "Leave them out");
  options.read(arguments);
  return {{"text", session.model().tokenizer->decode(ids, skip_special_tokens)}};
}

Json chat(ModelSession& session, Json& arguments, Diagnostics&) {
  const Json messages = taken(arguments, "messages"), variables = taken(arguments, "variables");
  bool add_generation_prompt = true;
  Options options;
  options.flag("--add-generation-prompt", add_generation_prompt, "For an answer");
  options.read(arguments);
  if (!messages.is_array()) fail_kind("messages", "a list", messages);
  if (!session.chat()) fail(session.model().path, ": has no chat template");
  return {{"text", session.chat()->render_as_given(messages, add_generation_prompt, variables)}};
}

Json score(ModelSession& session, Json& arguments, Diagnostics&) {
  const auto texts = items_of(taken(arguments, "texts"), "texts", continuation_of);
  int64_t batch_size = 0;
  Options options;
  declare_batch_size(options, batch_size);
  options.read(arguments);
  Json scores = Json::array();
  for (const ContinuationScore& score : session.score(texts, batch_size))
    scores.push_back(Json::array({score.log_probability, score.is_greedy}));
  return {{"scores", std::move(scores)}};
}

Json generate(ModelSession& session, Json& arguments, Diagnostics& diagnostics) {
  const auto prompts = items_of(taken(arguments, "prompts"), "prompts", prompt_of);
  ContinueOptions continued;
  std::optional<double> penalty;
  Options options;
  declare_batch_size(options, continued.batch_size);
  declare_sampling(options, continued.sampling);
  options.list("--stop", continued.stops, "Ends a text, and is cut off");
  options.number("--repetition-penalty", penalty, "As transformers has it", 1e-6, 1e6);
  options.read(arguments);
  if (penalty) continued.repetition_penalty = static_cast<float>(*penalty);
  return {{"texts", session.continue_texts(prompts, continued, diagnostics)}};
}

using Answer = Json(ModelSession& session, Json& arguments, Diagnostics& diagnostics);
const Registry<Answer*> kAnswers{"command",
                                 {{"info", info},
                                  {"encode", encode},
                                  {"decode", decode},
                                  {"chat", chat},
                                  {"score", score},
                                  {"generate", generate}}};

}  // namespace

std::unique_ptr<ModelSession> open_session(const Json& arguments, Diagnostics& diagnostics) {
  SessionOptions session;
  Options options;
  declare_model(options, "model", session.model, "A folder, or an id of the hub").required();
  declare_cache(options, session.cache);
  declare_family(options, session.family);
  declare_device(options, session.device, true);
  options.read(arguments);
  options.fetch(diagnostics);
  return std::make_unique<ModelSession>(session, diagnostics);
}

Json ask_session(ModelSession& session, const std::string& question, Json arguments,
                 Diagnostics& diagnostics) {
  return kAnswers.at(question)(session, arguments, diagnostics);
}

}  // namespace kvcal
