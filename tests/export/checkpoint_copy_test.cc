#include "export/checkpoint_copy.h"

#include "core/file.h"
#include "support/catch.h"
#include "support/folders.h"
#include "support/scratch_folder.h"

using namespace kvcal;

TEST_CASE("sidecar files: what a run wrote for another checkpoint stays behind") {
  const test::ScratchFolder source, target;
  fs::copy(test::tests_folder() / "fixtures" / "models" / "llama", source.path(),
           fs::copy_options::recursive);
  for (const char* name : {"recipe.yaml", "vllm.yaml", "kv_cache_scales.json",
                           "hf_quant_config.json", "kvcal_manifest.json", "generation_config.json"})
    write_text_file(source / name, "{}");
  copy_sidecar_files(ModelDir(source.path()), target.path());
  CHECK(fs::exists(target / "generation_config.json"));
  for (const char* name : {"recipe.yaml", "vllm.yaml", "kv_cache_scales.json",
                           "hf_quant_config.json", "kvcal_manifest.json"})
    CHECK_FALSE(fs::exists(target / name));
}
