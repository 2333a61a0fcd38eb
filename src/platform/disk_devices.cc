#include "platform/disk_devices.h"

#include <sys/stat.h>
#include <sys/sysmacros.h>

#include <algorithm>
#include <cctype>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <nlohmann/json.hpp>
#include <vector>

#include "moewe/error.h"
#include "platform/atomic_file.h"
#include "platform/disk_methods.h"
#include "platform/file_io.h"

namespace moewe {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;

constexpr uint64_t kLargestFile = uint64_t{1} << 20;
constexpr size_t kMostDevices = 1000;
constexpr int kVersion = 2;  // 1 counted large reads as one

// The file's first line without blanks around it; empty if there is none.
std::string FirstLine(const fs::path& path) {
  std::ifstream in(path);
  std::string line;
  std::getline(in, line);
  const auto blank = [](char c) { return std::isspace(static_cast<unsigned char>(c)) != 0; };
  while (!line.empty() && blank(line.back())) line.pop_back();
  line.erase(line.begin(), std::find_if_not(line.begin(), line.end(), blank));
  return line;
}

// Empty: no folder that could be meant.
std::string CacheFile() {
  const char* cache = std::getenv("XDG_CACHE_HOME");
  // "All paths must be absolute; relative ones are to be ignored" (XDG base directories).
  if (cache != nullptr && cache[0] == '/') return std::string(cache) + "/moewe/disks.json";
  const char* home = std::getenv("HOME");
  if (home != nullptr && home[0] == '/') return std::string(home) + "/.cache/moewe/disks.json";
  return "";
}

// Always an object with an object "devices".
json ReadCache(const std::string& path) {
  json cache;
  std::error_code unknown;
  try {
    if (!fs::is_regular_file(path, unknown))
      throw Error(ErrorCode::kIo, "is not a file", {path, ""});
    const std::vector<uint8_t> text = ReadWholeFile(path, kLargestFile);
    cache = json::parse(text.begin(), text.end(), nullptr, /*allow_exceptions=*/false);
  } catch (const Error&) {
    // No memory.
  }
  if (!cache.is_object() || cache.value("version", json()) != kVersion ||
      !cache.contains("devices") || !cache["devices"].is_object()) {
    return {{"version", kVersion}, {"devices", json::object()}};
  }
  return cache;
}

}  // namespace

std::string DiskDevice(const std::string& file) {
  struct stat status = {};
  if (stat(file.c_str(), &status) != 0) return "";
  std::error_code error;
  fs::path folder = fs::canonical("/sys/dev/block/" + std::to_string(major(status.st_dev)) + ":" +
                                      std::to_string(minor(status.st_dev)),
                                  error);
  if (error) return "";
  // A partition is as fast as its disk.
  if (fs::exists(folder / "partition", error)) folder = folder.parent_path();
  for (const char* name :
       {"serial", "device/serial", "wwid", "device/wwid", "dm/uuid", "md/uuid"}) {
    const std::string id = FirstLine(folder / name);
    if (!id.empty()) return std::string(name) + ":" + id;
  }
  const std::string sectors = FirstLine(folder / "size");
  return sectors.empty() ? "" : "name:" + folder.filename().string() + ":" + sectors;
}

std::optional<DiskHabit> RememberedHabit(const std::string& device) {
  const std::string path = CacheFile();
  if (device.empty() || path.empty()) return std::nullopt;
  const json cache = ReadCache(path);
  const auto entry = cache["devices"].find(device);
  if (entry == cache["devices"].end() || !entry->is_object()) return std::nullopt;
  const json method = entry->value("method", json());
  const json depth = entry->value("depth", json());
  const json direct = entry->value("direct", json());
  if (!method.is_string() || (method != "io_uring" && method != "pread")) return std::nullopt;
  if (!depth.is_number_unsigned() || !direct.is_boolean()) return std::nullopt;
  const auto number = depth.get<uint64_t>();
  if (number < 1 || number > kMostDiskDepth) return std::nullopt;
  return DiskHabit{method.get<std::string>(), static_cast<uint32_t>(number), direct.get<bool>()};
}

void RememberHabit(const std::string& device, const DiskHabit& habit) {
  const std::string path = CacheFile();
  if (device.empty() || path.empty()) return;
  try {
    fs::create_directories(fs::path(path).parent_path());
    json cache = ReadCache(path);
    json& devices = cache["devices"];
    // Nobody has so many; somebody's containers may have had.
    if (devices.size() >= kMostDevices) devices = json::object();
    devices[device] = {{"method", habit.method}, {"depth", habit.depth}, {"direct", habit.direct}};
    AtomicFile out(path);
    out.Write(cache.dump(2, ' ', false, json::error_handler_t::replace) + "\n");
    out.Commit();
  } catch (const std::exception&) {
    // No memory of it, then.
  }
}

}  // namespace moewe
