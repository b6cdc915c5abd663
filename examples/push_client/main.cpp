// A made-up engine that pushes its steps: prefills its requests, then decodes until all are done.
//   push_engine HOST PORT TOKEN_FILE [REQUESTS [TOKENS [STEP_MS [QUEUE]]]]
// Prints one JSON line with what it did, so that it can be compared with what the sidecar says.
#include <algorithm>
#include <fstream>
#include <iostream>

#include "rooflens_push.hpp"

namespace {

const char* const kFacts = R"({
  "engine_version": "0.1", "model_name": "made-up-8b", "weight_dtype": "bfloat16", "kv_dtype": "bfloat16",
  "block_tokens": 16, "kv_blocks": 4096, "max_sequences": 64, "device": "cuda",
  "model_config": {
    "model_type": "llama", "hidden_size": 4096, "num_hidden_layers": 32, "num_attention_heads": 32,
    "num_key_value_heads": 8, "intermediate_size": 14336, "vocab_size": 128256, "hidden_act": "silu"
  }
})";

struct Request {
  uint32_t prompt_tokens, cached_tokens, tokens_left;
};

std::string first_line(const char* path) {
  std::ifstream file(path);
  std::string line;
  std::getline(file, line);
  return line;
}

}  // namespace

int main(int argc, char** argv) {
  if (argc < 4) {
    std::cerr << "usage: push_engine HOST PORT TOKEN_FILE [REQUESTS [TOKENS [STEP_MS [QUEUE]]]]\n";
    return 2;
  }
  const int count = argc > 4 ? std::atoi(argv[4]) : 8;
  const int tokens = argc > 5 ? std::atoi(argv[5]) : 200;
  const int step_ms = argc > 6 ? std::atoi(argv[6]) : 10;
  rooflens::Settings settings;
  settings.host = argv[1];
  settings.port = std::atoi(argv[2]);
  settings.token = first_line(argv[3]);
  settings.engine = "push-example";
  settings.facts = kFacts;
  if (argc > 7) settings.most_steps = static_cast<size_t>(std::atoi(argv[7]));

  std::vector<Request> requests;
  for (uint32_t at = 0; at < static_cast<uint32_t>(count); ++at) {
    requests.push_back({100 + 10 * at, 0, static_cast<uint32_t>(tokens)});
  }
  uint64_t steps = 0, generated = 0, contexts = 0, prefilled = 0;
  double slowest_s = 0;  // call of the client: what it costs the engine's loop
  rooflens::Push push(settings);
  while (!requests.empty()) {
    rooflens::Step step;
    for (const Request& request : requests) {
      step.contexts.push_back(request.cached_tokens);
      step.queries.push_back(request.cached_tokens ? 1 : request.prompt_tokens);
      contexts += request.cached_tokens;
      prefilled += request.cached_tokens ? 0 : request.prompt_tokens;
    }
    step.running = static_cast<int64_t>(requests.size());
    step.waiting = step.deferred = 0;
    step.kv_blocks_used = static_cast<int64_t>(requests.size()) * 20;
    step.generated_tokens = static_cast<int64_t>(requests.size());
    const std::vector<uint32_t> queries = step.queries;
    double began_s = rooflens::now_s();
    push.begin(step);
    slowest_s = std::max(slowest_s, rooflens::now_s() - began_s);
    std::this_thread::sleep_for(std::chrono::milliseconds(step_ms));  // where a model would run
    began_s = rooflens::now_s();
    push.end(std::move(step));
    slowest_s = std::max(slowest_s, rooflens::now_s() - began_s);
    ++steps;
    generated += requests.size();
    for (size_t at = 0; at < requests.size(); ++at) {
      requests[at].cached_tokens += queries[at];
      --requests[at].tokens_left;
    }
    requests.erase(std::remove_if(requests.begin(), requests.end(), [](const Request& r) { return !r.tokens_left; }),
                   requests.end());
  }
  push.close();
  const rooflens::Counts counts = push.counts();
  std::printf("{\"steps\":%llu,\"generated\":%llu,\"contexts\":%llu,\"prefilled\":%llu,\"taken\":%llu,\"dropped\":%llu,"
              "\"failed\":%llu,\"slowest_call_s\":%.6f}\n",
              static_cast<unsigned long long>(steps), static_cast<unsigned long long>(generated),
              static_cast<unsigned long long>(contexts), static_cast<unsigned long long>(prefilled),
              static_cast<unsigned long long>(counts.taken), static_cast<unsigned long long>(counts.dropped),
              static_cast<unsigned long long>(counts.failed), slowest_s);
  if (!counts.problem.empty()) std::cerr << "push_engine: " << counts.problem << "\n";
  return counts.taken == steps ? 0 : 1;
}
