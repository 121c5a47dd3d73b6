#include "examples/training/training_program.h"

#include <dlfcn.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cmath>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iomanip>
#include <iostream>
#include <map>
#include <sstream>

#include "autograd/tape.h"
#include "core/available_memory.h"
#include "core/cpu.h"
#include "core/digest.h"
#include "core/gemm/gemm.h"
#include "core/parallel.h"
#include "core/storage.h"
#include "examples/common/command_line.h"
#include "examples/common/error.h"
#include "examples/common/file.h"
#include "examples/common/settings.h"
#include "nn/distributed/process_group.h"
#include "nn/training/device_config.h"

namespace stretto::examples {
namespace {

const std::map<std::string, Float32MatmulPrecision>& precisions() {
  static const std::map<std::string, Float32MatmulPrecision> all{
      {"high", Float32MatmulPrecision::high},
      {"highest", Float32MatmulPrecision::highest},
      {"medium", Float32MatmulPrecision::medium}};
  return all;
}

// Rejects a model that cannot fit in memory. Anything that cannot be predicted throws
// OutOfMemory later, before the operating system would kill a process. `smaller` names the
// options that reduce memory.
void check_memory(double least_bytes, const std::string& smaller) {
  const int64_t available = available_memory();
  require(least_bytes <= double(available),
          "this model and batch need at least " + fixed(least_bytes / 1e9, 1) +
              " GB of memory, and " + fixed(double(available) / 1e9, 1) + " GB are free; reduce " +
              smaller);
  set_memory_limit(available);
}

// Options that may differ between hosts: paths and the number of threads.
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

// Returns the file that contains this function: the executable, or the library of the Python package.
std::string file_of_program() {
  Dl_info info{};
  ::dladdr(reinterpret_cast<const void*>(&file_of_program), &info);
  const std::string_view file = info.dli_fname ? info.dli_fname : "";
  return file.ends_with(".so") ? std::string(file) : "/proc/self/exe";
}

// Returns the options, a digest of the program's file, and whether matrix products use vector
// instructions, which round differently from portable code.
NamedTexts command_and_program(const RunOptions& o) {
  NamedTexts all = o.all->all();
  std::erase_if(all, [](const auto& entry) { return is_of_the_host(entry.first); });
  all.emplace_back("the program", digest_of_file(file_of_program()));
  all.emplace_back("the instructions", isa() == Isa::portable ? "portable" : "vector");
  return all;
}

}  // namespace

std::string fixed(double value, int digits) {
  std::ostringstream text;
  text << std::fixed << std::setprecision(digits) << value;
  return text.str();
}

TrainingProgram::Data::Data(std::string fingerprint_, std::string others_)
    : others(std::move(others_)) {
  std::promise<std::string> known;
  known.set_value(std::move(fingerprint_));
  fingerprint = known.get_future();
}

void TrainingProgram::load_model() {
  model_->to(settings_.weights());
  nn::load_checkpoint(run_.checkpoint(), *model_, nullptr);
  run_.opened.reset();
  model_->to(device_);
}

void TrainingProgram::make_trainer(std::unique_ptr<nn::Optimizer> optimizer, nn::Schedule schedule,
                                   Data data, int64_t tokens) {
  trained_data_ = std::move(data);
  optimizer_ = std::move(optimizer);
  as_usage([&] {
    trainer_.emplace(*model_, *optimizer_,
                     nn::TrainerOptions{.steps = settings_.steps,
                                        .schedule = std::move(schedule),
                                        .max_grad_norm = settings_.max_grad_norm,
                                        .sequence_parallel = run_.sequence_parallel,
                                        .shard_optimizer = run_.shard_optimizer,
                                        .cuda_graph = run_.cuda_graph,
                                        .save_frozen = false,
                                        .tokens_per_step = double(tokens)});
    int64_t& parts = trainer_->options.micro_batches = run_.micro_batches;
    if (parts == 0 && nn::started_by_mpirun())  // a power of two that divides the batch, up to 8
      for (parts = 8; settings_.batch % parts != 0;) parts /= 2;
    model_->to(device_).to(settings_.weights());
    if (!run_.resume.empty()) {
      load(run_.checkpoint());
      run_.opened.reset();
    }
    const int64_t n = trainer_->n_micro_batches();
    require(settings_.batch % n == 0, "--micro-batches: a batch of " + as_text(settings_.batch) +
                                          " rows cannot be split into " + as_text(n) +
                                          " micro-batches");
    trainer_->local_micro_batches();
  });
}

void TrainingProgram::save(const std::string& path) const {
  nn::TrainingState state{.metadata = notes_};
  state.metadata["data"] = trained_data_->fingerprint.get();
  keep(state);
  trainer_->save(path, std::move(state));
}

void TrainingProgram::load(const nn::SafetensorsFile& file) {
  const std::string& path = file.path();
  const nn::Metadata metadata = nn::load_training_state(file).metadata;
  const auto saved = metadata.find("data");
  require(saved != metadata.end() && saved->second == trained_data_->fingerprint.get(),
          path + ": was trained on other " + trained_data_->others);
  take(trainer_->load(file), path);
}

// Throws UsageError if settings, data or weights of a process differ from those of process 0.
void TrainingProgram::check_ranks_agree() {
  // The trainer compares its metadata. They are in use only here: save() writes settings itself.
  for (const auto& [name, value] : notes_) trainer().options.metadata[option_of(name)] = value;
  trainer().options.metadata["the data"] = trained_data_->fingerprint.get();
  as_usage([&] { trainer().check_ranks_agree(); });
  trainer().options.metadata.clear();
}

std::string TrainingProgram::model_and_machine() const {
  return counted(model_->parameter_count(), "parameter") + ", " + counted(num_threads(), "thread") +
         ", " + cpu_description();
}

std::string TrainingProgram::final_path(const std::string& name) const {
  return (std::filesystem::path(run_.out) / name).string();
}
std::string TrainingProgram::path(const std::string& name) const {
  return folder_ ? folder_->path(name) : final_path(name);
}

void TrainingProgram::use_device(int64_t steps, double least_bytes, const std::string& smaller) {
  require(steps == 0 || !run_.given("--minutes"),
          "--minutes: this run takes " + as_text(steps) + " steps, set by --steps");
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
}

void TrainingProgram::check_sequence_parallel(int64_t length, DType weights) const {
  const int64_t n = run_.sequence_parallel, all = nn::process_group().size();
  const std::string given = "--sequence-parallel " + as_text(n);
  require(n >= 1 && (n & (n - 1)) == 0 && all % n == 0,
          given + ": must be a power of two that divides the number of processes, " + as_text(all) +
              " (mpirun -n)");
  if (n == 1) return;
  require(device_.is_cpu() && weights == f32, given + ": needs f32 and --device cpu");
  require(length % n == 0, given + ": sequences of " + as_text(length) +
                               " positions cannot be split into equal chunks");
}

// Locks the folder right at the start if it exists, so that errors are found before any work.
void TrainingProgram::claim_folder() {
  std::error_code none;
  if (folder_ || !std::filesystem::is_directory(run_.out, none)) return;
  folder_.emplace(run_.out);
  require(!folder_->completed() || run_.resume.empty(),
          "--out: " + run_.out +
              " had a run that was interrupted while it replaced another; the replacement is "
              "complete now: start again");
  require(resumes_here() || run_.overwrite || !std::filesystem::exists(checkpoint_path(), none),
          "--out: " + run_.out + " has the checkpoint of an earlier run; --resume " +
              quoted(checkpoint_path()) +
              (run_.report_only ? " evaluates it, and --overwrite replaces its evaluation"
                                : " continues it, and --overwrite replaces it"));
}

bool TrainingProgram::resumes_here() const {
  std::error_code none;
  return !run_.resume.empty() &&
         std::filesystem::equivalent(run_.resume, checkpoint_path(), none) && !none;
}

// Returns the names of all files that the run may write in the folder.
std::vector<std::string> TrainingProgram::all_files() const {
  std::vector<std::string> names = files_;
  if (!run_.report_only)
    names.insert(names.end(), {"checkpoint.safetensors", "checkpoint.previous.safetensors",
                               "metrics.csv", "loss.svg", "report.html"});
  return names;
}

void TrainingProgram::open_folder() {
  std::error_code error;
  require(
      !std::filesystem::exists(run_.out, error) || std::filesystem::is_directory(run_.out, error),
      "--out: cannot write " + run_.out + ": it is not a folder");
  std::filesystem::create_directories(run_.out, error);
  require(!error, "--out: cannot create the folder " + run_.out + ": " + error.message());
  claim_folder();
  const std::vector<std::string> names = all_files();
  std::vector<RunInput> read = run_.all->inputs();
  if (!run_.resume.empty()) read.push_back({"--resume", run_.resume});
  const bool goes_on = resumes_here();
  std::vector<std::string> kept;
  if (goes_on) kept = {"checkpoint.safetensors", "checkpoint.previous.safetensors"};
  folder_->check(names, read, kept, run_.overwrite || (goes_on && !folder_->has_list()));
  if (!run_.report_only) {
    if (!goes_on && folder_->has_any(names)) folder_->stage();
    trainer().options.folder = folder_->where();
    trainer().options.overwrite = true;  // folder_->check() has checked that it is allowed
  }
  folder_->add_made(names);  // before the first of these files exists
  if (!run_.report_only) as_usage([&] { trainer().metrics(); });
}

// Returns the line that is printed when a signal ends the run.
std::string TrainingProgram::stopped() {
  return "Stopped at step " + std::to_string(trainer().steps_done()) +
         ". To resume, repeat the command with --resume " + quoted(checkpoint_path());
}

int TrainingProgram::run() {
  resolve();
  if (run_.parameters) {
    std::cout << count_parameters() << std::endl;
    return 0;
  }
  require(!run_.report_only || !run_.resume.empty(), "--evaluate: needs --resume FILE");
  nn::end_on_signal("Stopped before training.");
  const bool is_root = nn::process_group().is_root(), alone = nn::process_group().size() == 1;
  check_outside_inputs(run_.out, run_.all->inputs());
  if (is_root) claim_folder();
  if (!alone) {
    const auto other = nn::process_group().first_difference(command_and_program(run_));
    require(other.empty(), other);
  }
  prepare();
  if (!run_.report_only) set_trainer_options();
  if (!alone && !run_.report_only) check_ranks_agree();
  if (is_root) open_folder();
  bool done = true;
  try {
    if (!run_.report_only) trainer().start_clock();
    if (is_root) {
      begin();
      begin_page();
    }
    if (!run_.report_only) {
      trainer().options.stop = nn::stop_on_signals();
      try {
        done = trainer().run([&](int64_t i) { return loss(i); }, [&] { return validate(); });
      } catch (const Interrupted&) {
        done = false;
        if (alone) save_and_publish();  // other processes may be at another step
      }
    }
    if (is_root) finish(done);
  } catch (const std::exception& e) {
    if (!is_root) throw;
    page_.failure = plain(e);
    if (!run_.report_only) try_to_write_page(RunState::failed);
    if (dynamic_cast<const UsageError*>(&e) == nullptr) throw;
    // A UsageError would mean that nothing was changed, but the run may have written files.
    throw std::runtime_error(e.what());
  }
  if (!is_root) nn::end_on_signal("");
  return done ? 0 : nn::stop_exit_code();
}

// Called after training and after a signal has ended it; the checkpoint is saved in both cases.
void TrainingProgram::finish(bool done) {
  if (!done) {
    try_to_write_page(RunState::stopped);
    std::cout << stopped() << std::endl;
    return;
  }
  if (!run_.report_only) try_to_write_page(RunState::scoring);
  nn::end_on_signal(run_.report_only ? "Stopped." : stopped());
  say_communication();
  report();
  if (!run_.report_only) write_page(RunState::done);
}

void TrainingProgram::say_communication() {
  const int n = nn::process_group().size();
  if (run_.report_only || n == 1) return;
  const nn::Communication c = trainer().communication();
  if (c.steps == 0) return;
  const double hidden = c.seconds > 0 ? 1 - std::min(1.0, c.waited_seconds / c.seconds) : 1;
  std::cout << n << " processes; gradient communication per process and step: "
            << fixed(double(c.bytes) / double(c.steps) / 1e6, 3) << " MB sent in "
            << fixed(1e3 * c.seconds / double(c.steps), 2) << " ms, " << fixed(100 * hidden, 0)
            << " % of it overlapped with the backward pass" << std::endl;
}

void TrainingProgram::set_trainer_options() {
  nn::TrainerOptions& o = trainer().options;
  o.minutes = run_.minutes;
  o.quiet = !nn::process_group().is_root();
  o.evaluate_every = run_.evaluate_every;
  o.save_every = run_.save_every;
  o.annotate = [this](double validation) { return annotation(validation); };
  o.after_evaluation = [this] { after_evaluation(); };
  o.save = [this] { save_and_publish(); };
}

// Saves a checkpoint. The first checkpoint of a run also publishes the run, which then replaces the
// earlier run in the folder.
void TrainingProgram::save_and_publish() {
  const bool replaces = folder_ && folder_->staged();
  if (replaces) try_to_write_page(RunState::training);  // the earlier run's page is removed
  const nn::DelaySignals delay;
  save(path("checkpoint.safetensors"));
  if (!replaces) return;
  folder_->publish(all_files());
  trainer().options.folder = run_.out;
  trainer().metrics().moved_to(path("metrics.csv"));
}

std::string TrainingProgram::annotation(double validation) const {
  if (curve_.references.empty() || !std::isfinite(validation)) return "";
  double baseline = INFINITY;
  for (const ReferenceLine& line : curve_.references)
    baseline = std::min(baseline, line.y / curve_.scale);
  return ", baseline " + fixed(baseline, 4) + ": " + fixed(std::abs(validation - baseline), 4) +
         (validation < baseline ? " below" : " above");
}

// Sets the contents of the page that do not change during the run.
void TrainingProgram::begin_page() {
  if (run_.report_only) return;
  page_.program = program_name();
  page_.folder = run_.out;
  page_.about = model_and_machine();
  if (!run_.resume.empty())
    page_.commands = commands_of_page(
        (std::filesystem::path(run_.resume).parent_path() / "report.html").string());
  page_.commands.push_back(command_line());
  const auto add = [&](const std::string& option, const std::string& value) {
    page_.settings.push_back({option, value, run_.given(option)});
  };
  for (const auto& [name, value] : notes_) add(option_of(name), value);
  if (settings_.steps == 0) add("--minutes", as_text(run_.minutes));
  add("--device", run_.device);
  add("--matmul-precision", run_.matmul_precision);
  add("--micro-batches", as_text(trainer().n_micro_batches()));
  add("--threads", as_text(int64_t(num_threads())));
}

void TrainingProgram::write_page(RunState state) {
  const double begin = trainer().seconds();
  page_.state = state;
  page_.loss = curve_;
  page_.columns = trainer().metrics().columns();
  page_.rows = trainer().metrics().rows();
  write_file_atomically(path("report.html"), report_page(page_));
  page_at_ = trainer().seconds();
  page_took_ = page_at_ - begin;
}

// A page that cannot be written does not end the training.
void TrainingProgram::try_to_write_page(RunState state) {
  try {
    write_page(state);
  } catch (const std::exception& e) {
    const bool reported = std::exchange(page_failed_, true) || state == RunState::failed;
    if (!reported)
      std::cerr << "The page has not been written: " << printable(plain(e)) << std::endl;
  }
}

// Writes the page only so often that writing takes at most a fiftieth of the time.
void TrainingProgram::after_evaluation() {
  const bool due = trainer().seconds() - page_at_ >= 50 * page_took_;
  if (due && nn::process_group().is_root()) try_to_write_page(RunState::training);
  reset_peak_memory(device_);
}

void TrainingProgram::draw_curve() {
  std::vector<double> steps, train, valid;
  for (const std::vector<double>& row : trainer().metrics().rows()) {
    steps.push_back(row[0]);
    train.push_back(curve_.scale * row[2]);
    valid.push_back(curve_.scale * row[3]);
  }
  if (steps.empty()) return;
  write_file_atomically(path("loss.svg"),
                        line_chart({.title = curve_.title,
                                    .x_label = "step",
                                    .y_label = curve_.unit,
                                    .reference_lines = curve_.references},
                                   {{"training", steps, train}, {"validation", steps, valid}}));
}

void TrainingProgram::add_row(ReportTable& table, int width, const std::string& name,
                              const std::string& value, const std::string& before) {
  std::cout << "  " << std::left << std::setw(width) << before + name << value << std::endl;
  table.rows.push_back({name, value});
}

void TrainingProgram::show_losses(const std::string& title, const std::string& more,
                                  const std::vector<std::pair<std::string, double>>& losses,
                                  const std::string& before) {
  std::cout << title << more << ":\n";
  ReportTable table{title, {"", "loss"}, {}};
  size_t width = before.size() + losses.back().first.size();
  for (const auto& [name, loss] : losses) width = std::max(width, name.size());
  for (const auto& row : losses)
    add_row(table, int(width) + 2, row.first, fixed(row.second, 4),
            &row == &losses.back() ? before : "");
  show(std::move(table));
}

void TrainingProgram::list_music(const std::string& name) {
  files_.insert(files_.end(), {name + ".mid", name + ".svg"});
}

void TrainingProgram::show_chart(const std::string& name, const ReportChart& chart) {
  write_file_atomically(path(name + ".svg"), line_chart(chart.options, chart.curves));
  page_.charts.push_back(chart);
}

void TrainingProgram::show_maps(const std::string& name, const ReportMaps& maps) {
  write_file_atomically(path(name + ".svg"), heat_maps(maps.title, maps.maps));
  page_.maps.push_back(maps);
}

void TrainingProgram::show_music(const std::string& name, const std::string& title,
                                 const music::Song& song, const std::string& roll) {
  music::write_midi(path(name + ".mid"), song);
  write_file_atomically(path(name + ".svg"), roll);
  page_.music.push_back({title, name + ".mid", song});
}

}  // namespace stretto::examples
