#include "export/checkpoint_copy.h"

#include "core/file.h"
#include "support/catch.h"
#include "support/folders.h"
#include "support/scratch_folder.h"

using namespace kvcal;

namespace {

/// A model with these files, each of which holds its name.
void make_source(const fs::path& folder, const std::vector<std::string>& names) {
  fs::copy(test::tests_folder() / "fixtures" / "models" / "llama", folder,
           fs::copy_options::recursive);
  for (const std::string& name : names) write_text_file(folder / name, name);
}

}  // namespace

TEST_CASE("sidecar files: those of another quantization are kept by another name") {
  const test::ScratchFolder source, target;
  const std::vector<std::string> misleading{"vllm.yaml", "kv_cache_scales.json",
                                            "hf_quant_config.json"};
  make_source(source.path(), {"recipe.yaml", "README.md", "generation_config.json"});
  for (const std::string& name : misleading) write_text_file(source / name, name);
  copy_sidecar_files(ModelDir(source.path()), {}, target.path());
  for (const char* name : {"recipe.yaml", "generation_config.json"})
    CHECK(read_text(target / name) == name);
  for (const std::string& name : misleading) {
    CHECK_FALSE(fs::exists(target / name));
    CHECK(read_text(target / ("source_" + name)) == name);
  }
  CHECK_FALSE(fs::exists(target / "README.md"));  // the output's card holds it
  CHECK_FALSE(fs::exists(target / "source_README.md"));
}

TEST_CASE("sidecar files: a taken name is kept once, that of the first source") {
  const test::ScratchFolder source, first, second;
  make_source(source.path(), {"recipe.yaml"});
  copy_sidecar_files(ModelDir(source.path()), {"recipe.yaml"}, first.path());
  CHECK_FALSE(fs::exists(first / "recipe.yaml"));
  CHECK(read_text(first / "source_recipe.yaml") == "recipe.yaml");

  for (const char* name : {"config.json", "model.safetensors"})
    fs::copy(source / name, first / name);
  write_text_file(first / "recipe.yaml", "ours");
  copy_sidecar_files(ModelDir(first.path()), {"recipe.yaml"}, second.path());
  CHECK_FALSE(fs::exists(second / "recipe.yaml"));
  CHECK_FALSE(fs::exists(second / "source_source_recipe.yaml"));
  CHECK(read_text(second / "source_recipe.yaml") == "recipe.yaml");
}

TEST_CASE("sidecar files: descriptions of an output of ours stay behind") {
  const std::vector<std::string> described{"kvcal_manifest.json", "hf_quant_config.json",
                                           "vllm.yaml"};
  const test::ScratchFolder source, target, target_of_format;
  make_source(source.path(), described);
  copy_sidecar_files(ModelDir(source.path()), {}, target.path());
  // Of several formats, the manifest lies in another folder: the card tells.
  fs::remove(source / "kvcal_manifest.json");
  write_text_file(source / "README.md",
                  "---\ntags: [kvcal]\n---\n<!-- kvcal: begin -->\n# x\n"
                  "<!-- kvcal: end -->\n");
  copy_sidecar_files(ModelDir(source.path()), {}, target_of_format.path());
  for (const auto* folder : {&target, &target_of_format})
    for (const std::string& name : described) {
      CHECK_FALSE(fs::exists(*folder / name));
      CHECK_FALSE(fs::exists(*folder / ("source_" + name)));
    }
}

TEST_CASE("sidecar files: a card that is no text is kept as a file") {
  const test::ScratchFolder source, target;
  make_source(source.path(), {});
  write_text_file(source / "README.md", "\xff\xfe");
  copy_sidecar_files(ModelDir(source.path()), {}, target.path());
  CHECK(read_text(target / "source_README.md") == "\xff\xfe");
}
