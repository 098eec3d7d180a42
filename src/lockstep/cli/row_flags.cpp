#include "lockstep/cli/row_flags.h"

#include <CLI/CLI.hpp>

#include "lockstep/cli/number_bounds.h"
#include "lockstep/session/media_environment.h"

namespace lockstep {

void add_row_flags(CLI::App& app, RowFlags& flags) {
  app.add_option("--max_length", flags.given.max_length, "tokens of a row; 0: as many as the model has positions")
      ->check(whole_number(0))
      ->capture_default_str()
      ->group("Data");
  app.add_option("--truncation_strategy", flags.truncation_strategy,
                 "of longer rows: delete | right | left; images are never cut")
      ->check(CLI::IsMember({"delete", "right", "left"}))
      ->capture_default_str()
      ->group("Data");
  app.add_option("--system", flags.given.system, "system message of a chat, and of rows that have none")->group("Data");
  app.add_option(
         "--loss_scale", flags.loss_scale,
         "which tokens are learnt: default (answers) | last_round | all; ignore_empty_think, also behind a plus")
      ->capture_default_str()
      ->group("Data");
  app.add_option("--max_pixels", flags.given.media.shrink_to_pixels,
                 "scale larger images down to so many pixels before the model's own processor sees them; 0: never")
      ->check(whole_number(0))
      ->capture_default_str()
      ->group("Data");
  app.add_option("--strict", flags.given.strict, "stop at the first row that cannot be used, instead of skipping it")
      ->capture_default_str()
      ->group("Data");
  app.add_option("--seed", flags.given.seed, "of the data order and of sampling")
      ->check(seed_number())
      ->capture_default_str()
      ->group("Data");
  app.add_option("--dataloader_num_workers", flags.given.num_workers, "threads that prepare rows; 0: none")
      ->check(whole_number(0, 256))
      ->capture_default_str()
      ->group("Data");
}

RowOptions RowFlags::options(const Env& env) const {
  RowOptions out = given;
  out.taught = Taught::from_flag(loss_scale);
  if (truncation_strategy == "right") out.truncation = Truncation::kRight;
  if (truncation_strategy == "left") out.truncation = Truncation::kLeft;
  out.root_image_dir = env.text("ROOT_IMAGE_DIR").value_or("");
  read_media_environment(env, out.media);
  return out;
}

}  // namespace lockstep
