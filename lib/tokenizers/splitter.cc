#include "tokenizers/pattern.h"

namespace kvcal::tokenizers {

void Splitter::flush() {
  if (has_pending_) out_(pending_);
  has_pending_ = false;
}

void Splitter::add(Span part, bool is_match) {
  bool joins = false;  // the part belongs to the pending one
  switch (behaviour_) {
    case Behaviour::kRemoved:
      if (!is_match) out_(part);
      return;
    case Behaviour::kIsolated:
      out_(part);
      return;
    case Behaviour::kContiguous:
      joins = is_match == previous_;
      break;
    case Behaviour::kMergedWithPrevious:
      joins = is_match && !previous_;
      break;
    case Behaviour::kMergedWithNext:
      joins = !is_match && previous_;
      break;
  }
  previous_ = is_match;
  if (joins && has_pending_) {
    pending_.end = part.end;
    return;
  }
  flush();
  pending_ = part;
  has_pending_ = true;
}

void Splitter::finish() {
  flush();
}

void split_at(std::string_view text, const Pattern& pattern, bool invert, Behaviour behaviour,
              Visitor<Span> out) {
  Splitter splitter(behaviour, out);
  size_t at = 0;
  pattern.for_each(text, [&](Span match) {
    if (match.begin > at) splitter.add({at, match.begin}, invert);
    splitter.add(match, !invert);
    at = match.end;
  });
  if (at < text.size()) splitter.add({at, text.size()}, invert);
  splitter.finish();
}

}  // namespace kvcal::tokenizers
