#include "lockstep/cli/embed_flags.h"

#include <CLI/CLI.hpp>

#include "lockstep/base/error.h"
#include "lockstep/cli/batch_flags.h"
#include "lockstep/cli/flags.h"
#include "lockstep/cli/verbs.h"

namespace lockstep {

void add_embedding_flags(CLI::App& app, EmbedFlags& f) {
  add_row_flags(app, f.rows);
  const char* group = "Embedding";
  app.add_option(
         "--stage", f.stage,
         "hidden: states after the last layer, pooled to one vector a row; inputs: the embeddings that enter the "
         "first layer, image features in their places, one vector a token")
      ->check(CLI::IsMember({"hidden", "inputs"}))
      ->capture_default_str()
      ->group(group);
  app.add_option("--pooling", f.pooling, "mean of a row's tokens, its last, or its first (cls)")
      ->check(CLI::IsMember({"mean", "last", "cls"}))
      ->capture_default_str()
      ->group(group);
  app.add_option("--normalize", f.given.embedding.normalize, "scale each vector to length 1")
      ->capture_default_str()
      ->group(group);
  add_batch_flags(app, "--batch_size",
                  "rows on one rank at a time; the last bits of a vector depend on it, never on the number of ranks",
                  group, f.given.batch);
}

void check_embedding_flags(const CLI::App& app, const EmbedFlags& f) {
  if (f.stage == "inputs" && app.count("--pooling") > 0) {
    throw usage_error("--pooling makes one vector of a row, and --stage inputs gives one a token",
                      "leave out --pooling, or take --stage hidden");
  }
}

std::optional<EmbedFlags> parse_embed_flags(const std::vector<std::string>& args) {
  EmbedFlags f;
  CLI::App app(embed_summary, "lockstep embed");
  app.footer(
      "A row is what the model sees before it answers: its messages up to the last answer, in the chat template, with "
      "its pictures.\nA run that was cut short goes on where it stopped when the same command is given again.\n\n"
      "Examples:\n"
      "  lockstep embed --model my-model --dataset rows.jsonl --output out --nproc 4 --deepspeed zero3\n"
      "  lockstep embed --model my-model --dataset rows.jsonl --output out --pooling last --normalize true --format "
      "safetensors\n"
      "  lockstep embed --model my-model --dataset rows.jsonl --output out --stage inputs     image features merged "
      "into "
      "the text embeddings");
  add_run_flags(app, f.run);
  app.add_option("--dataset,--val_dataset", f.given.dataset, std::string("rows to embed: ") + kRowFiles)
      ->required()
      ->group("Data");
  add_embedding_flags(app, f);
  app.add_option("--output,--output_dir", f.given.output, "folder for the embeddings")->required()->group("Output");
  app.add_option("--format", f.format, "jsonl, or safetensors with rows.jsonl beside it")
      ->check(CLI::IsMember({"jsonl", "safetensors"}))
      ->capture_default_str()
      ->group("Output");
  app.add_option("--overwrite", f.given.overwrite, "begin anew where the folder holds embeddings already")
      ->capture_default_str()
      ->group("Output");
  const UsualFlags usual = {"model",      "dataset", "output",    "format",      "stage",      "pooling",  "normalize",
                            "batch_size", "nproc",   "deepspeed", "torch_dtype", "max_length", "overwrite"};
  if (!parse_flags(app, args, usual)) return std::nullopt;
  check_embedding_flags(app, f);
  (void)f.options(Env());
  return f;
}

EmbeddingOptions EmbedFlags::options(const Env& env) const {
  EmbeddingOptions out = embedding(env);
  out.run = run.options(run.with_variables(env));
  out.safetensors = format == "safetensors";
  return out;
}

EmbeddingOptions EmbedFlags::embedding(const Env& env) const {
  EmbeddingOptions out = given;
  out.rows = rows.options(run.with_variables(env));
  if (stage == "inputs") out.embedding.extent = Extent::kInputs;
  if (pooling == "last") out.embedding.pooling = Pooling::kLast;
  if (pooling == "cls") out.embedding.pooling = Pooling::kCls;
  return out;
}

}  // namespace lockstep
