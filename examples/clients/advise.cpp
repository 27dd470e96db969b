// Ask a running `magus serve` which schedule to use, with libcurl:
//   c++ -std=c++17 advise.cpp -lcurl -o advise && ./advise [URL]

#include <curl/curl.h>

#include <iostream>
#include <memory>
#include <string>

namespace {

constexpr long kTimeoutSeconds = 60;
const char* const kQuestion =
    R"({"pattern": "AG+GEMM", "m": 8192, "n": 3584, "k": 8192, "gpu": "NVIDIA H100 80GB HBM3",)"
    R"( "ranks": 8, "simulate": false})";

std::size_t Append(char* data, std::size_t size, std::size_t count, void* text) {
  static_cast<std::string*>(text)->append(data, size * count);
  return size * count;
}

}  // namespace

int main(int argc, char** argv) {
  const std::string url = (argc > 1 ? argv[1] : "http://127.0.0.1:8377") + std::string("/v1/recommend");
  std::unique_ptr<CURL, decltype(&curl_easy_cleanup)> curl(curl_easy_init(), curl_easy_cleanup);
  std::unique_ptr<curl_slist, decltype(&curl_slist_free_all)> headers(
      curl_slist_append(nullptr, "Content-Type: application/json"), curl_slist_free_all);
  std::string answer;
  curl_easy_setopt(curl.get(), CURLOPT_URL, url.c_str());
  curl_easy_setopt(curl.get(), CURLOPT_HTTPHEADER, headers.get());
  curl_easy_setopt(curl.get(), CURLOPT_POSTFIELDS, kQuestion);
  curl_easy_setopt(curl.get(), CURLOPT_TIMEOUT, kTimeoutSeconds);
  curl_easy_setopt(curl.get(), CURLOPT_WRITEFUNCTION, Append);
  curl_easy_setopt(curl.get(), CURLOPT_WRITEDATA, &answer);
  if (const CURLcode code = curl_easy_perform(curl.get()); code != CURLE_OK) {
    std::cerr << curl_easy_strerror(code) << "\n";
    return 1;
  }
  long status = 0;
  curl_easy_getinfo(curl.get(), CURLINFO_RESPONSE_CODE, &status);
  std::cout << answer << "\n";  // JSON: "schedule", "chunks", "copy_engines", "copy_sms", "gain", ...
  return status == 200 ? 0 : 1;
}
