#include "examples/training/training_run.h"

#include <unistd.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cerrno>
#include <cmath>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iomanip>
#include <iostream>
#include <map>
#include <nlohmann/json.hpp>
#include <sstream>

#include "autograd/tape.h"
#include "core/available_memory.h"
#include "core/cpu.h"
#include "core/digest.h"
#include "core/gemm/gemm.h"
#include "core/parallel.h"
#include "core/storage.h"
#include "examples/common/command_line.h"
#include "examples/common/file.h"
#include "examples/common/interrupt.h"
#include "examples/common/settings.h"
#include "nn/distributed/process_group.h"
#include "nn/training/place.h"

namespace stretto::examples {
namespace {

const std::map<std::string, Float32MatmulPrecision>& precisions() {
  static const std::map<std::string, Float32MatmulPrecision> all{
      {"high", Float32MatmulPrecision::high},
      {"highest", Float32MatmulPrecision::highest},
      {"medium", Float32MatmulPrecision::medium}};
  return all;
}

void check(const RunOptions& o, int64_t steps) {
  require_range("--threads", o.threads, 0, 256);
  require_range("--parts", o.parts, 0, 1 << 16);
  require_range("--save-every", o.save_every, 1, INT64_MAX);
  require_range("--evaluate-every", o.evaluate_every, 0, INT64_MAX);
  require_positive("--minutes", o.minutes);
  require(steps == 0 || !o.given("--minutes"),
          "--minutes: this run takes " + as_text(steps) + " steps, by --steps");
}

// A model that no memory can hold is refused here; what cannot be foreseen throws OutOfMemory
// later, before the system would end a program at random. `smaller` names options that help.
void check_memory(double least_bytes, const std::string& smaller) {
  const int64_t available = available_memory();
  require(least_bytes <= double(available),
          "this model and batch need at least " + fixed(least_bytes / 1e9, 1) +
              " GB of memory, and " + fixed(double(available) / 1e9, 1) + " GB are free; make " +
              smaller + " smaller");
  set_memory_limit(available);
}

// What may differ between hosts: paths, and the threads of each.
bool is_of_the_host(const std::string& option) {
  return option == "--out" || option == "--resume" || option == "--data" || option == "--threads";
}

std::string digest_of_file(const std::string& path) {
  Digest digest;
  std::ifstream file(path, std::ios::binary);
  std::vector<char> block(1 << 20);
  while (file.read(block.data(), int64_t(block.size())) || file.gcount() > 0)
    digest.add(block.data(), file.gcount());
  return digest.text();
}

// The options, the executable, and whether matrix products are those of vector instructions, which
// round otherwise than portable code.
NamedTexts command_and_program(const RunOptions& o) {
  NamedTexts all = o.all();
  std::erase_if(all, [](const auto& entry) { return is_of_the_host(entry.first); });
  all.emplace_back("the program", digest_of_file("/proc/self/exe"));
  all.emplace_back("the instructions", isa() == Isa::portable ? "portable" : "of vectors");
  return all;
}

}  // namespace

void describe(CLI::App& app, RunOptions& o) {
  o.given = [&app](const std::string& option) { return app.count(option) > 0; };
  o.all = [&app] {
    NamedTexts all;
    for (const CLI::Option* option : app.get_options())
      all.emplace_back(option->get_name(),
                       option->count() > 0 ? joined(option->results()) : option->get_default_str());
    return all;
  };
  app.add_option("--out", o.out, "Folder for everything that is made")->option_text("DIR=" + o.out);
  app.add_option("--resume", o.resume, "Continue from a checkpoint, with its settings")
      ->option_text("FILE");
  app.add_flag("--overwrite", o.overwrite,
               "Replace an earlier run in --out, with the first checkpoint of this one, and files "
               "that no run made");
  app.add_option("--minutes", o.minutes, "Train this long; the learning rate follows the clock");
  app.add_option("--threads", o.threads, "Threads (0: all cores, or the share of a process)");
  app.add_option(
      "--parts", o.parts,
      "Cut each batch into so many parts, which mpirun's processes share out (0: 8 under "
      "mpirun, or what divides --batch; else 1)");
  app.add_flag("--shard-optimizer", o.shard_optimizer,
               "Each of mpirun's processes keeps its share of the optimiser's state");
  app.add_option("--device", o.device, "cpu, cuda or cuda:N");
  app.add_flag("--cuda-graph", o.cuda_graph, "On a GPU: each step as one launch");
  app.add_option("--matmul-precision", o.matmul_precision,
                 "On a CPU, of products of f32: highest, or high or medium, which AMX makes of two "
                 "numbers of bf16 or of one (medium: AVX-512 with bf16 too)");
  app.add_option("--save-every", o.save_every, "Steps between checkpoints");
  app.add_option("--evaluate-every", o.evaluate_every,
                 "Steps between evaluations (0: twenty in all)");
  app.add_flag("--anomaly", o.anomaly, "Find the op that first makes NaN or infinity (slow)");
  app.add_flag("--parameters", o.parameters,
               "Print the number of trainable parameters, last, and stop");
}

void describe_sequence_parallel(CLI::App& app, RunOptions& o) {
  app.add_option(
      "--sequence-parallel", o.sequence_parallel,
      "So many of mpirun's processes share each sequence: memory falls with their number "
      "(f32 on a CPU)");
}

void describe_steps_and_seed(CLI::App& app, int64_t& steps, uint64_t& seed) {
  app.add_option("--steps", steps,
                 "Train this many steps instead: repeatable to the last bit (0: not set); with "
                 "--resume, more than before or fewer");
  app.add_option("--seed", seed, "Of everything that is drawn");
}

std::string fixed(double value, int digits) {
  std::ostringstream text;
  text << std::fixed << std::setprecision(digits) << value;
  return text.str();
}

void check_same_settings(const nn::Metadata& saved, const nn::Metadata& asked,
                         const RunOptions& options, const std::string& path) {
  for (const auto& [name, value] : saved) {
    const std::string option = option_of(name);
    require(!options.given(option) || asked.at(name) == value,
            option + " " + asked.at(name) + ": the run of " + path + " has " +
                (value.empty() ? "none" : value) + "; it can only go on with that");
  }
}

std::string TrainingRun::final_path(const std::string& name) const {
  return (std::filesystem::path(run_.out) / name).string();
}
std::string TrainingRun::path(const std::string& name) const {
  return folder_ ? folder_->path(name) : final_path(name);
}

Device TrainingRun::use_device(int64_t steps, double least_bytes, const std::string& smaller) {
  check(run_, steps);
  device_ = as_usage([&] { return nn::take_device("--device", run_.device); });
  require(!run_.cuda_graph || device_.is_cuda(), "--cuda-graph: needs --device cuda");
  if (device_.is_cpu()) check_memory(least_bytes, smaller);
  const int others = nn::process_group().local_size();
  if (run_.threads > 0) {
    set_num_threads(int(run_.threads));
  } else if (others > 1) {
    set_num_threads(std::max(1, num_threads() / others));
  }
  set_float32_matmul_precision(
      find_name(precisions(), "--matmul-precision", run_.matmul_precision));
  set_anomaly_detection(run_.anomaly);
  return device_;
}

void TrainingRun::check_sequence_parallel(int64_t length, DType weights) const {
  const int64_t n = run_.sequence_parallel, all = nn::process_group().size();
  const std::string given = "--sequence-parallel " + as_text(n);
  require(n >= 1 && (n & (n - 1)) == 0 && all % n == 0,
          given + ": must be a power of two that divides the number of processes, " + as_text(all) +
              " (mpirun -n)");
  if (n == 1) return;
  require(device_.is_cpu() && weights == f32, given + ": needs f32 and --device cpu");
  require(length % n == 0, given + ": sequences of " + as_text(length) +
                               " positions cannot be cut into pieces of one length");
}

// From the start, where the folder is there, so that nothing is done in vain.
void TrainingRun::claim_folder() {
  std::error_code none;
  if (folder_ || !std::filesystem::is_directory(run_.out, none)) return;
  folder_.emplace(run_.out);
  require(!folder_->completed() || run_.resume.empty(),
          "--out: " + run_.out +
              " held a run that was cut off while it replaced another; it is complete now: start "
              "again");
  require(run_.report_only || resumes_here() || run_.overwrite ||
              !std::filesystem::exists(checkpoint(), none),
          "--out: " + run_.out + " holds the checkpoint of an earlier run; --resume " +
              quoted(checkpoint()) + " goes on with it, and --overwrite replaces it");
}

bool TrainingRun::resumes_here() const {
  std::error_code none;
  return !run_.resume.empty() && std::filesystem::equivalent(run_.resume, checkpoint(), none) &&
         !none;
}

// Every name that the run may write in the folder.
std::vector<std::string> TrainingRun::all_files() const {
  std::vector<std::string> names = files();
  if (!run_.report_only)
    names.insert(names.end(),
                 {"checkpoint.safetensors", "metrics.csv", "loss.svg", "loss.png", "report.html"});
  return names;
}

void TrainingRun::open_folder() {
  std::error_code error;
  require(
      !std::filesystem::exists(run_.out, error) || std::filesystem::is_directory(run_.out, error),
      "--out: cannot write " + run_.out + ": it is not a folder");
  std::filesystem::create_directories(run_.out, error);
  require(!error, "--out: cannot make the folder " + run_.out + ": " + error.message());
  claim_folder();
  const std::vector<std::string> names = all_files();
  std::vector<RunInput> read = inputs();
  if (!run_.resume.empty()) read.push_back({"--resume", run_.resume});
  const bool goes_on = resumes_here();
  folder_->check(names, read, goes_on ? "checkpoint.safetensors" : "",
                 run_.overwrite || (goes_on && !folder_->has_list()));
  if (!run_.report_only) {
    if (!goes_on && folder_->has_any(names)) folder_->stage();
    trainer().options.folder = folder_->where();
    trainer().options.overwrite = true;  // what is there was asked for
    as_usage([&] { trainer().metrics(); });
  }
  folder_->add_made(names);
}

// What is said when a signal ends the run.
std::string TrainingRun::stopped() {
  return "Stopped at step " + std::to_string(trainer().steps_done()) +
         ". To go on, repeat the command with --resume " + quoted(checkpoint());
}

int TrainingRun::operator()() {
  require(!run_.report_only || !run_.resume.empty(), "--evaluate: needs --resume FILE");
  install_interrupt_handlers();
  end_on_signal("Stopped before training.");
  const bool leads = nn::process_group().leads();
  check_outside_inputs(run_.out, inputs());
  if (leads) claim_folder();
  if (nn::process_group().size() > 1) check_same_on_all(command_and_program(run_));
  prepare();
  if (!run_.report_only) check_same_on_all(identity());
  if (!leads) return follow();
  open_folder();
  try {
    if (!run_.report_only) trainer().start_clock();
    begin();
    begin_page();
    if (!run_.report_only) {
      ask_on_signal();
      if (!train()) {
        try_to_write_page(RunState::stopped);
        std::cout << stopped() << std::endl;
        return interrupted_exit_code();
      }
      try_to_write_page(RunState::scoring);
    }
    end_on_signal(run_.report_only ? "Stopped." : stopped());
    say_communication();
    report();
    if (!run_.report_only) write_page(RunState::done);
  } catch (const std::exception& e) {
    page_.failure = plain(e);
    if (!run_.report_only) try_to_write_page(RunState::failed);
    if (dynamic_cast<const UsageError*>(&e) == nullptr) throw;
    throw std::runtime_error(e.what());  // too late for "nothing was changed"
  }
  return 0;
}

// Of a process that is not the first: its part of the training, and nothing to see of it.
int TrainingRun::follow() {
  if (run_.report_only) return 0;
  trainer().start_clock();
  ask_on_signal();
  const bool done = train();
  end_on_signal("");
  return done ? 0 : interrupted_exit_code();
}

// Throws UsageError if a process has another text under a name than the first process.
void TrainingRun::check_same_on_all(const NamedTexts& mine) {
  nn::ProcessGroup& group = nn::process_group();
  if (group.size() == 1) return;
  const std::vector<std::string> all = group.all_gather(nlohmann::json(mine).dump());
  const NamedTexts first = nlohmann::json::parse(all[0]);
  for (size_t i = 1; i < all.size(); ++i) {
    const NamedTexts theirs = nlohmann::json::parse(all[i]);
    const auto shown = [](const std::string& text) { return text.empty() ? "none" : text; };
    for (size_t k = 0; k < first.size(); ++k)
      require(k < theirs.size() && theirs[k] == first[k],
              str("process ", int64_t(i), " does not agree with process 0: ", first[k].first, " ",
                  k < theirs.size() ? shown(theirs[k].second) : "none", ", not ",
                  shown(first[k].second)));
  }
}

void TrainingRun::say_communication() {
  const int n = nn::process_group().size();
  if (run_.report_only || n == 1) return;
  const nn::Communication c = trainer().communication();
  if (c.steps == 0) return;
  const double hidden = c.seconds > 0 ? 1 - std::min(1.0, c.waited_seconds / c.seconds) : 1;
  std::cout << n << " processes; of gradients each sent "
            << fixed(double(c.bytes) / double(c.steps) / 1e6, 3) << " MB a step, in "
            << fixed(1e3 * c.seconds / double(c.steps), 2) << " ms, " << fixed(100 * hidden, 0)
            << " % of them behind the backward pass" << std::endl;
}

// False where a signal has ended it; it is saved in any case.
bool TrainingRun::train() {
  nn::TrainerOptions& o = trainer().options;
  o.minutes = run_.minutes;
  o.cuda_graph = run_.cuda_graph;
  o.quiet = !nn::process_group().leads();
  o.evaluate_every = run_.evaluate_every;
  o.save_every = run_.save_every;
  o.stop = interrupted;
  o.remark = [this](double validation) { return beside_counting(validation); };
  o.after_evaluation = [this] { after_evaluation(); };
  o.save = [this] { save_and_publish(); };
  const bool alone = nn::process_group().size() == 1;
  try {
    return trainer().run([&](int64_t step) { return loss(step); }, [&] { return validate(); });
  } catch (const Interrupted&) {
    if (alone) o.save();  // others are elsewhere
    return false;
  }
}

// With the first checkpoint a run takes the place of the one it replaces.
void TrainingRun::save_and_publish() {
  const bool replaces = folder_ && folder_->staged();
  if (replaces) try_to_write_page(RunState::training);  // that of the other run goes
  const auto lock = finish_files();
  save();
  if (!replaces) return;
  folder_->publish(all_files());
  trainer().options.folder = run_.out;
  trainer().metrics().moved_to(path("metrics.csv"));
}

// ", counting 0.9038: 0.1252 below"; nothing where nothing was counted.
std::string TrainingRun::beside_counting(double validation) {
  const LossCurve curve = loss_curve();
  if (curve.references.empty() || !std::isfinite(validation)) return "";
  double counting = INFINITY;
  for (const ReferenceLine& line : curve.references)
    counting = std::min(counting, line.y / curve.scale);
  return ", counting " + fixed(counting, 4) + ": " + fixed(std::abs(validation - counting), 4) +
         (validation < counting ? " below" : " above");
}

// What is the same whenever the page is written.
void TrainingRun::begin_page() {
  if (run_.report_only) return;
  page_.program = program_name();
  page_.folder = run_.out;
  page_.about = about();
  if (!run_.resume.empty())
    page_.commands = commands_of_page(
        (std::filesystem::path(run_.resume).parent_path() / "report.html").string());
  page_.commands.push_back(command_line());
  const auto add = [&](const std::string& option, const std::string& value) {
    page_.settings.push_back({option, value, run_.given(option)});
  };
  const nn::Metadata settings = notes();
  for (const auto& [name, value] : settings) add(option_of(name), value);
  if (settings.contains("steps") && settings.at("steps") == "0")
    add("--minutes", as_text(run_.minutes));
  add("--device", run_.device);
  add("--matmul-precision", run_.matmul_precision);
  add("--parts", as_text(trainer().parts()));
  add("--threads", as_text(int64_t(num_threads())));
}

void TrainingRun::write_page(RunState state) {
  const double begin = trainer().seconds();
  page_.state = state;
  page_.loss = loss_curve();
  page_.columns = trainer().metrics().columns();
  page_.rows = trainer().metrics().rows();
  write_file_atomically(path("report.html"), report_page(page_));
  page_at_ = trainer().seconds();
  page_took_ = page_at_ - begin;
}

// No training ends because its page cannot be written.
void TrainingRun::try_to_write_page(RunState state) {
  try {
    write_page(state);
  } catch (const std::exception& e) {
    const bool told = std::exchange(page_failed_, true) || state == RunState::failed;
    if (!told) std::cerr << "No page yet: " << printable(plain(e)) << std::endl;
  }
}

// The page takes no more than a fiftieth of the time.
void TrainingRun::after_evaluation() {
  const bool due = trainer().seconds() - page_at_ >= 50 * page_took_;
  if (due && nn::process_group().leads()) try_to_write_page(RunState::training);
  reset_peak_memory(device_);
}

void TrainingRun::draw_curve() {
  const LossCurve curve = loss_curve();
  std::vector<double> steps, train, valid;
  for (const std::vector<double>& row : trainer().metrics().rows()) {
    steps.push_back(row[0]);
    train.push_back(curve.scale * row[2]);
    valid.push_back(curve.scale * row[3]);
  }
  if (steps.empty()) return;
  write_picture(path("loss"),
                line_chart({.title = curve.title,
                            .x_label = "step",
                            .y_label = curve.unit,
                            .reference_lines = curve.references},
                           {{"training", steps, train}, {"validation", steps, valid}}));
}

void TrainingRun::show_chart(const std::string& name, const ReportChart& chart) {
  write_picture(path(name), line_chart(chart.options, chart.curves));
  page_.charts.push_back(chart);
}

void TrainingRun::show_maps(const std::string& name, const ReportMaps& maps) {
  const double gamma = maps.gamma > 0 ? maps.gamma : heat_gamma(maps.maps);
  write_picture(path(name), heat_maps(maps.title, maps.maps, gamma));
  page_.maps.push_back(maps);
}

void TrainingRun::show_music(const std::string& name, const std::string& title, const Song& song,
                             const Picture& roll) {
  write_midi(path(name + ".mid"), song);
  write_picture(path(name), roll);
  page_.music.push_back({title, name + ".mid", song});
}

}  // namespace stretto::examples
