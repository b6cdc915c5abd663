// Pushes an engine's steps to a rooflens sidecar. C++17 and POSIX sockets, nothing else; the format is docs/push.md.
//
//   rooflens::Push push({"127.0.0.1", 9980, token, "my-engine", R"({"model_name":"m","block_tokens":16})"});
//   while (requests) {
//     rooflens::Step step;
//     step.contexts = ...;                 // tokens of each sequence that are in the KV cache before the step
//     push.begin(step);                    // once scheduling is done: stamps the time
//     run(requests);                       // the forward pass
//     step.generated_tokens = ...;
//     push.end(std::move(step));           // stamps the time and hands over; never blocks, never throws
//   }
//
// begin() and end() take a lock that is held for a few pointer moves, and nothing else: a thread of this client writes
// the JSON and talks to the sidecar. Where the sidecar is slow or gone, steps wait in a bounded queue; when it is full
// the oldest is dropped, and the sidecar counts the gap in the numbers as lost steps.
#pragma once

#include <fcntl.h>
#include <netdb.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cmath>
#include <condition_variable>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <deque>
#include <mutex>
#include <random>
#include <string>
#include <thread>
#include <utility>
#include <vector>

namespace rooflens {

// What is not said (-1) is not known; the names are those of docs/push.md.
struct Step {
  double submit_s = 0, output_s = 0;
  std::vector<uint32_t> contexts;
  std::vector<uint32_t> queries;   // empty: one token each, and its drafts
  std::vector<uint32_t> drafts;    // speculative tokens that each verifies; empty: none
  std::vector<uint32_t> rejected;  // of these
  int64_t generated_tokens = -1;
  int64_t running = -1, waiting = -1, deferred = -1, preempted = -1, kv_blocks_used = -1;
  double schedule_s = -1;
};

struct Settings {
  std::string host;  // an address or a name
  int port = 9980;
  std::string token;
  std::string engine;
  std::string facts = "{}";        // a JSON object: fields of EngineInfo
  size_t most_steps = 8192;        // that wait; beyond them the oldest is dropped
  size_t most_steps_in_body = 1024;
  double period_s = 0.5;           // between two bodies; the sidecar takes 15 s of silence for trouble
  double timeout_s = 5;            // of one attempt
};

// What became of the steps so far.
struct Counts {
  uint64_t recorded = 0, taken = 0, dropped = 0, refused = 0, bodies = 0, failed = 0;
  std::string problem;  // the last one, empty when the last body was taken
};

inline double now_s() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

// A word of its own for this run: a retry is told from a new step by it.
inline std::string new_instance() {
  std::random_device random;
  char text[33];
  std::snprintf(text, sizeof text, "%08x%08x", random(), random());
  return text;
}

class Push {
 public:
  explicit Push(Settings settings)
      : settings_(std::move(settings)), instance_(new_instance()), thread_([this] { run(); }) {}

  Push(const Push&) = delete;
  Push& operator=(const Push&) = delete;

  // Sends what is left and that the run has ended, for as long as one attempt may take.
  ~Push() { close(); }

  // A step is handed to the device.
  void begin(Step& step) noexcept {
    step.submit_s = now_s();
    uint64_t tokens = 0;
    if (step.queries.empty()) tokens = step.contexts.size();
    for (uint32_t query : step.queries) tokens += query;
    std::lock_guard<std::mutex> held(mutex_);
    open_ = true;
    open_submit_s_ = step.submit_s;
    open_tokens_ = tokens;
    open_requests_ = step.contexts.size();
  }

  // Its output is there.
  void end(Step step) noexcept {
    step.output_s = now_s();
    try {
      Step oldest;  // freed after the lock
      std::lock_guard<std::mutex> held(mutex_);
      open_ = false;
      ++counts_.recorded;
      if (queue_.size() >= settings_.most_steps) {
        oldest = std::move(queue_.front());
        queue_.pop_front();
        ++first_;
        ++counts_.dropped;
      }
      queue_.push_back(std::move(step));
    } catch (...) {  // no memory: the step is lost, the engine goes on
    }
  }

  Counts counts() const {
    std::lock_guard<std::mutex> held(mutex_);
    return counts_;
  }

  void close() {
    {
      std::lock_guard<std::mutex> held(mutex_);
      ended_ = true;
    }
    woken_.notify_all();
    if (thread_.joinable()) thread_.join();
  }

 private:
  void run() noexcept {
    try {
      double wait_s = settings_.period_s;
      for (;;) {
        bool last, more;
        {
          std::unique_lock<std::mutex> held(mutex_);
          woken_.wait_for(held, std::chrono::duration<double>(wait_s), [this] { return ended_; });
          last = ended_;
        }
        wait_s = send(last, more) ? (more ? 0 : settings_.period_s) : std::min(wait_s * 2 + 0.1, 10.0);
        if (last && !(more && wait_s == 0)) return;
      }
    } catch (...) {  // no memory: nothing is sent any more, steps are dropped and counted
    }
  }

  // One body: those steps that were not taken yet, at most most_steps_in_body. Whether the sidecar took it.
  bool send(bool last, bool& more) {
    if (pending_.empty()) {
      std::lock_guard<std::mutex> held(mutex_);
      pending_first_ = first_;
      while (!queue_.empty() && pending_.size() < settings_.most_steps_in_body) {
        pending_.push_back(std::move(queue_.front()));
        queue_.pop_front();
        ++first_;
      }
    }
    Waiting waiting = look();
    more = waiting.steps > 0;
    std::string answer;
    int status = post(body(last && !more, waiting), answer);
    std::lock_guard<std::mutex> held(mutex_);
    ++counts_.bodies;
    if (status == 200) {
      // What was taken before came with a body whose answer was lost.
      const uint64_t taken = number(answer, "\"steps\":") + number(answer, "\"already_taken\":");
      counts_.taken += taken;
      counts_.refused += pending_.size() - taken;
      counts_.problem = taken < pending_.size() ? answer : "";
      pending_.clear();
      return true;
    }
    ++counts_.failed;
    counts_.problem = status ? std::to_string(status) + " " + answer : answer;
    if (status == 422 || status == 413 || status == 415) {  // it will never be taken
      counts_.dropped += pending_.size();
      pending_.clear();
    }
    return false;
  }

  struct Waiting {
    size_t steps;
    bool open;
    double open_submit_s;
    uint64_t open_tokens, open_requests;
  };

  Waiting look() {
    std::lock_guard<std::mutex> held(mutex_);
    return {queue_.size(), open_, open_submit_s_, open_tokens_, open_requests_};
  }

  std::string body(bool last, const Waiting& waiting) {
    std::string out = "{\"version\":1,\"instance\":\"" + instance_ + "\",\"engine\":";
    text(out, settings_.engine);
    out += ",\"facts\":" + settings_.facts + ",\"first_sequence\":" + std::to_string(pending_first_) + ",\"steps\":[";
    for (size_t at = 0; at < pending_.size(); ++at) {
      if (at) out += ',';
      write(out, pending_[at]);
    }
    out += ']';
    if (waiting.open) {
      out += ",\"in_flight\":{\"submit_s\":";
      seconds(out, waiting.open_submit_s);
      out += ",\"tokens\":" + std::to_string(waiting.open_tokens);
      out += ",\"requests\":" + std::to_string(waiting.open_requests) + '}';
    }
    if (last) out += ",\"ended\":true";
    out += ",\"sent_s\":";
    seconds(out, now_s());  // last: nothing above is later
    return out + '}';
  }

  static void write(std::string& out, const Step& step) {
    out += "{\"submit_s\":";
    seconds(out, step.submit_s);
    out += ",\"output_s\":";
    seconds(out, step.output_s);
    out += ",\"contexts\":";
    list(out, step.contexts);
    if (!step.queries.empty()) list(out += ",\"queries\":", step.queries);
    if (!step.drafts.empty()) list(out += ",\"drafts\":", step.drafts);
    if (!step.rejected.empty()) list(out += ",\"rejected\":", step.rejected);
    count(out, "generated_tokens", step.generated_tokens);
    count(out, "running", step.running);
    count(out, "waiting", step.waiting);
    count(out, "deferred", step.deferred);
    count(out, "preempted", step.preempted);
    count(out, "kv_blocks_used", step.kv_blocks_used);
    if (step.schedule_s >= 0) seconds(out += ",\"schedule_s\":", step.schedule_s);
    out += '}';
  }

  static void list(std::string& out, const std::vector<uint32_t>& values) {
    out += '[';
    for (size_t at = 0; at < values.size(); ++at) {
      if (at) out += ',';
      out += std::to_string(values[at]);
    }
    out += ']';
  }

  static void count(std::string& out, const char* name, int64_t value) {
    if (value >= 0) ((out += ",\"") += name) += "\":" + std::to_string(value);
  }

  // Nanoseconds as whole numbers: no locale writes a comma into them.
  static void seconds(std::string& out, double value) {
    const auto nanos = static_cast<uint64_t>(std::llround(value * 1e9));
    char digits[40];
    std::snprintf(digits, sizeof digits, "%llu.%09llu", static_cast<unsigned long long>(nanos / 1000000000),
                  static_cast<unsigned long long>(nanos % 1000000000));
    out += digits;
  }

  static void text(std::string& out, const std::string& value) {
    out += '"';
    for (unsigned char c : value) {
      char escaped[8];
      if (c == '"' || c == '\\') {
        out += '\\';
        out += static_cast<char>(c);
      } else if (c < 0x20) {
        std::snprintf(escaped, sizeof escaped, "\\u%04x", c);
        out += escaped;
      } else {
        out += static_cast<char>(c);
      }
    }
    out += '"';
  }

  static uint64_t number(const std::string& answer, const char* name) {
    const size_t at = answer.find(name);
    return at == std::string::npos ? 0 : std::strtoull(answer.c_str() + at + std::strlen(name), nullptr, 10);
  }

  // The status and the body of the answer; 0 and a reason where there was none.
  int post(const std::string& content, std::string& answer) {
    const double until_s = now_s() + settings_.timeout_s;
    int fd = connected(until_s, answer);
    if (fd < 0) return 0;
    std::string request = "POST /api/v1/push HTTP/1.1\r\nHost: " + settings_.host + "\r\nAuthorization: Bearer " +
                          settings_.token + "\r\nContent-Type: application/json\r\nContent-Length: " +
                          std::to_string(content.size()) + "\r\nConnection: close\r\n\r\n" + content;
    size_t done = 0;
    while (done < request.size() && ready(fd, POLLOUT, until_s)) {
      ssize_t sent = ::send(fd, request.data() + done, request.size() - done, MSG_NOSIGNAL);
      if (sent > 0) done += static_cast<size_t>(sent);
      if (sent < 0 && errno != EAGAIN && errno != EINTR) break;  // refused before all was sent: the answer says why
    }
    std::string response;
    char part[4096];
    while (response.size() < 65536 && ready(fd, POLLIN, until_s)) {
      ssize_t got = ::recv(fd, part, sizeof part, 0);
      if (got < 0 && (errno == EAGAIN || errno == EINTR)) continue;
      if (got <= 0) break;
      response.append(part, static_cast<size_t>(got));
    }
    ::close(fd);
    const size_t head = response.find("\r\n\r\n");
    if (response.compare(0, 9, "HTTP/1.1 ") != 0 || head == std::string::npos) {
      answer = "no answer within " + std::to_string(static_cast<int>(settings_.timeout_s)) + " s";
      return 0;
    }
    answer = response.substr(head + 4);
    while (!answer.empty() && answer.back() == '\n') answer.pop_back();
    return std::atoi(response.c_str() + 9);
  }

  int connected(double until_s, std::string& why) {
    addrinfo hints{}, *found = nullptr;
    hints.ai_socktype = SOCK_STREAM;
    if (int error = ::getaddrinfo(settings_.host.c_str(), std::to_string(settings_.port).c_str(), &hints, &found)) {
      why = gai_strerror(error);
      return -1;
    }
    int fd = -1;
    for (addrinfo* each = found; each && fd < 0; each = each->ai_next) {
      fd = ::socket(each->ai_family, each->ai_socktype, each->ai_protocol);
      if (fd < 0) continue;
      ::fcntl(fd, F_SETFD, FD_CLOEXEC);
      ::fcntl(fd, F_SETFL, O_NONBLOCK);
      int error = ::connect(fd, each->ai_addr, each->ai_addrlen) == 0 ? 0 : errno;
      if (error == EINPROGRESS && ready(fd, POLLOUT, until_s)) {
        socklen_t size = sizeof error;
        ::getsockopt(fd, SOL_SOCKET, SO_ERROR, &error, &size);
      }
      if (error) {
        why = std::strerror(error);
        ::close(fd);
        fd = -1;
      }
    }
    ::freeaddrinfo(found);
    return fd;
  }

  static bool ready(int fd, short what, double until_s) {
    for (;;) {
      const double left_s = until_s - now_s();
      if (left_s <= 0) return false;
      pollfd asked{fd, what, 0};
      const int got = ::poll(&asked, 1, static_cast<int>(std::ceil(left_s * 1000)));
      if (got > 0) return true;
      if (got == 0 || errno != EINTR) return false;
    }
  }

  const Settings settings_;
  const std::string instance_;
  mutable std::mutex mutex_;  // for all up to the thread's own
  std::condition_variable woken_;
  std::deque<Step> queue_;
  uint64_t first_ = 1;  // the number of the first in the queue
  bool open_ = false, ended_ = false;
  double open_submit_s_ = 0;
  uint64_t open_tokens_ = 0, open_requests_ = 0;
  Counts counts_;
  std::vector<Step> pending_;  // the thread's own: taken out of the queue, not taken by the sidecar yet
  uint64_t pending_first_ = 1;
  std::thread thread_;  // last: it uses all of the above
};

}  // namespace rooflens
