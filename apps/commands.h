// Every command, one file each: what main.cpp puts into the program.
#pragma once

namespace loam {

class Command;

void add_bench_commands(Command& program);
void add_config_commands(Command& program);
void add_convert_command(Command& program);
void add_data_commands(Command& program);
void add_generate_command(Command& program);
void add_inspect_command(Command& program);
void add_plot_command(Command& program);
void add_runs_commands(Command& program);
void add_score_command(Command& program);
void add_tokenizer_commands(Command& program);
void add_train_command(Command& program);

// A part of `loam data`.
void add_import_command(Command& group);

// Parts of `loam tokenizer`.
void add_compare_command(Command& group);
void add_count_command(Command& group);
void add_decode_command(Command& group);
void add_encode_command(Command& group);
void add_tokenizer_convert_command(Command& group);
void add_tokenizer_train_command(Command& group);

}  // namespace loam
