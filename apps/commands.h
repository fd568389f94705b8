// Every command, one file each: what main.cpp puts into the program.
#pragma once

namespace CLI {
class App;
}

namespace loam {

void add_bench_commands(CLI::App& app);
void add_config_commands(CLI::App& app);
void add_convert_command(CLI::App& app);
void add_data_commands(CLI::App& app);
void add_generate_command(CLI::App& app);
void add_inspect_command(CLI::App& app);
void add_score_command(CLI::App& app);
void add_tokenizer_commands(CLI::App& app);
void add_train_command(CLI::App& app);

// Parts of `loam tokenizer`.
void add_count_command(CLI::App& group);
void add_decode_command(CLI::App& group);
void add_encode_command(CLI::App& group);
void add_tokenizer_train_command(CLI::App& group);

}  // namespace loam
