#include "quant/damage_verdict.h"

#include <cmath>

#include "support/catch.h"

using namespace kvcal;

namespace {

CacheDamage damage(double kl, double kl_stderr, double increase = 0, double increase_stderr = 0) {
  return {.kl_mean = kl,
          .kl_stderr = kl_stderr,
          .perplexity_increase = increase,
          .increase_stderr = increase_stderr,
          .num_tokens = 5000};
}

Damage found(const CacheDamage& damage) {
  return judge(damage).damage;
}

}  // namespace

TEST_CASE("damage verdict: means decide, by the worse of KL and perplexity") {
  struct Row {
    double kl, increase;
    Damage wanted;
  };
  for (const auto& [kl, increase, wanted] :
       {Row{0, 0, Damage::kFine}, Row{0.02, 0.01, Damage::kFine}, Row{0.0055, -0.3, Damage::kFine},
        Row{0.0201, 0, Damage::kNoticeable}, Row{0, 0.0101, Damage::kNoticeable},
        Row{0.1, 0.05, Damage::kNoticeable}, Row{0.1001, 0, Damage::kDoNotServe},
        Row{0, 0.0501, Damage::kDoNotServe}, Row{0.3712, 0.34, Damage::kDoNotServe},
        Row{std::nan(""), 0, Damage::kDoNotServe}, Row{0, std::nan(""), Damage::kDoNotServe},
        Row{INFINITY, 0, Damage::kDoNotServe}}) {
    CAPTURE(kl, increase);
    // Errors of any size change nothing about it.
    for (const double error : {0.0, 0.001, 10.0}) {
      CAPTURE(error);
      CHECK(found(damage(kl, error, increase, error)) == wanted);
    }
  }
}

TEST_CASE("damage verdict: errors that reach over a limit, and few tokens, ask for more text") {
  CHECK_FALSE(judge(damage(0.019, 0.0004)).needs_more_text);
  CHECK(judge(damage(0.019, 0.0006)).needs_more_text);
  CHECK_FALSE(judge(damage(0.0216, 0.0007)).needs_more_text);
  CHECK(judge(damage(0.0216, 0.0009)).needs_more_text);
  CHECK(judge(damage(0.12, 0.011)).needs_more_text);
  CHECK_FALSE(judge(damage(0.37, 0.01, 0.34, 0.02)).needs_more_text);
  CHECK_FALSE(judge(damage(0.005, 0, 0.007, 0.001)).needs_more_text);
  CHECK(judge(damage(0.005, 0, 0.007, 0.002)).needs_more_text);
  CacheDamage few = damage(0.001, 0);
  few.num_tokens = 99;
  CHECK(judge(few) == DamageVerdict{.damage = Damage::kFine, .needs_more_text = true});
  few.perplexity_increase = 0.3;  // of few tokens, luck
  CHECK(found(few) == Damage::kFine);
  CHECK(verdict_text(few) == "fine: KL 0.0010 (fine up to 0.02); measure more text to be sure");
  few.is_predicted = true;
  CHECK_FALSE(judge(few).needs_more_text);
}

TEST_CASE("damage verdict: a cache that clips is not fine, whatever it costs on one text") {
  CacheDamage clipping = damage(0.001, 0);
  clipping.clipped = kFineClipped;
  CHECK(found(clipping) == Damage::kFine);
  clipping.clipped = 0.003;
  CHECK(found(clipping) == Damage::kNoticeable);
  CHECK(verdict_text(clipping) ==
        "noticeable: KL 0.0010, perplexity +0.00 % (fine up to 0.02, +1 %), clips 0.3 %");
  clipping.kl_mean = 0.2;
  CHECK(found(clipping) == Damage::kDoNotServe);
}

TEST_CASE("damage verdict: words have the numbers and their limits") {
  CHECK(verdict_text(damage(0.0055, 0.0002, 0.0072, 0.001)) ==
        "fine: KL 0.0055, perplexity +0.72 % (fine up to 0.02, +1 %)");
  CHECK(verdict_text(damage(0.3712, 0.01, 0.341, 0.01)) ==
        "do not serve so: KL 0.3712, perplexity +34.10 % (limits: 0.1, +5 %)");
  CHECK(verdict_text(damage(0.12, 0.05)) ==
        "do not serve so: KL 0.1200, perplexity +0.00 % (limits: 0.1, +5 %); measure more text to "
        "be sure");
  CHECK(verdict_text({.kl_mean = 0.25, .is_predicted = true}) ==
        "do not serve so: predicted KL 0.2500 (limits: 0.1); --measure measures it");
  CHECK(verdict_text({.kl_mean = 0.006, .is_predicted = true}) ==
        "fine: predicted KL 0.0060 (fine up to 0.02)");
}

TEST_CASE("damage verdict: JSON gives the damage back") {
  CacheDamage written = damage(0.03, 0.001, 0.02, 0.002);
  written.clipped = 0.25;
  Json json = {{"kl_mean", 0.03}, {"kl_stderr", 0.001}, {"perplexity_increase", 0.02}};
  add_verdict(written, json);
  CHECK(json.at("verdict") == "noticeable");
  CHECK(json.at("needs_more_text") == false);
  CHECK(verdict_text(read_damage(json, 5000)) == verdict_text(written));
  CHECK(judge(read_damage(json, 5000)) == judge(written));
  CHECK(found(read_damage(Json::object(), 5000)) == Damage::kDoNotServe);
  CHECK_THROWS_AS(read_damage(Json("fine"), 1), Error);
  CHECK_THROWS_AS(read_damage(Json{{"kl_mean", "0"}}, 1), Error);
}
