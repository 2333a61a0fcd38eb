#include "formats/smoe/vault_tables.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <utility>

namespace moewe::formats::smoe {
namespace {

// All fields of a record, from the reader's place on.
template <typename Record>
void ReadFields(ByteReader* reader, Record* record) {
  VisitFields(*record, [&](const char* name, auto& field) {
    field = reader->Read<std::remove_reference_t<decltype(field)>>(name);
  });
}

class Parser {
 public:
  Parser(Bytes file, const std::string& path, FunctionRef<void(const Error&)> on_problem)
      : file_(file), path_(path), on_problem_(on_problem) {}

  VaultTables Run() {
    ReadHeader();
    CheckTables();
    FindArch();
    if (out_.header.data_offset > file_.size()) {
      Fail(ErrorCode::kBounds, "header.data_offset",
           fmt::format("{} is past the end of the file of {} bytes", out_.header.data_offset,
                       file_.size()));
    }
    ReadExperts();
    CheckLayers();
    CheckOverlaps();
    for (const auto& [kind, place] : warned_) {
      const auto& [index, more] = place;
      if (more > 0) out_.warnings[index] += fmt::format(" (and {} more)", more);
    }
    return std::move(out_);
  }

 private:
  [[noreturn]] void Fail(ErrorCode code, const std::string& field, const std::string& message,
                         std::optional<uint64_t> offset = {}) const {
    throw Error(code, message, {path_, field, offset});
  }
  // A fault that leaves the rest readable.
  void Report(ErrorCode code, const std::string& field, const std::string& message) {
    on_problem_(Error(code, message, {path_, field}));
  }
  // One line for each kind of field: a vault may have the same oddity in every entry.
  void Warn(const std::string& field, const std::string& message) {
    std::string kind = field;
    std::erase_if(kind, [](char c) { return c >= '0' && c <= '9'; });
    const auto [found, fresh] = warned_.try_emplace(kind, out_.warnings.size(), 0);
    if (fresh) {
      out_.warnings.push_back(field + ": " + message);
    } else {
      ++found->second.second;
    }
  }

  // --- header and arch block ---

  void ReadHeader() {
    if (file_.size() < kHeaderSize) {
      Fail(ErrorCode::kBounds, "header",
           fmt::format("the file has {} bytes, a header {}", file_.size(), kHeaderSize));
    }
    ByteReader reader(file_.first(kHeaderSize), path_);
    const Bytes magic = reader.Take(kMagic.size(), "header.magic");
    if (!std::equal(magic.begin(), magic.end(), kMagic.begin(),
                    [](uint8_t a, char b) { return a == static_cast<uint8_t>(b); })) {
      Fail(ErrorCode::kInvalidMagic, "header.magic", "is not that of a .smoe vault", 0);
    }
    Header& header = out_.header;
    ReadFields(&reader, &header);
    if (header.version != 1 && header.version != 2) {
      Fail(ErrorCode::kUnsupportedVersion, "header.version",
           fmt::format("version {}; moewe reads 1 and 2", header.version), kVersionOffset);
    }
    CheckHeader();
  }

  void CheckHeader() const {
    const Header& header = out_.header;
    const auto require = [&](bool good, const char* field, const std::string& message) {
      if (!good) Fail(ErrorCode::kParse, std::string("header.") + field, message);
    };
    require(header.num_moe_layers != 0, "num_moe_layers", "is 0");
    require(header.max_experts_per_layer != 0, "max_experts_per_layer", "is 0");
    require(header.total_experts != 0, "total_experts", "is 0");
    require(header.table_offset == kHeaderSize, "table_offset",
            fmt::format("must be {}, is {}", kHeaderSize, header.table_offset));
    require(header.data_offset % kPage == 0, "data_offset",
            fmt::format("{} is no multiple of {}", header.data_offset, kPage));
    require(header.group_size == kGroupSize, "group_size",
            fmt::format("must be {}, is {}", kGroupSize, header.group_size));
    require(header.bits == 2 || header.bits == 4, "bits",
            fmt::format("must be 2 or 4, is {}", header.bits));
    require(header.d_model != 0, "d_model", "is 0");
    require(header.vocab_size != 0, "vocab_size", "is 0");
  }

  void CheckTables() const {
    const uint64_t experts = out_.header.total_experts;
    const uint64_t end = TablesEnd(experts);
    if (end > out_.header.data_offset) {
      // One of the two is wrong: the one that the file's size contradicts.
      if (end > file_.size()) {
        Fail(ErrorCode::kBounds, "header.total_experts",
             fmt::format("the table of {} experts would end at {}, past the file's {} bytes",
                         experts, end, file_.size()));
      }
      Fail(ErrorCode::kBounds, "header.data_offset",
           fmt::format("{} lies in the tables, which end at {}", out_.header.data_offset, end));
    }
    const auto require = [&](uint64_t bytes, const char* field) {
      if (bytes <= file_.size()) return;
      Fail(ErrorCode::kBounds, field,
           fmt::format("ends at {}, the file at {}", bytes, file_.size()));
    };
    require(kHeaderSize + experts * kEntrySize, "table");
    require(end, "descriptors");
  }

  void FindArch() {
    const Header& header = out_.header;
    const uint64_t at = header.reserved_ext;
    if (header.version == 1) {
      if (at != 0) Warn("header.reserved_ext", fmt::format("is {} in a v1 vault; ignored", at));
      return;
    }
    const uint64_t tables = TablesEnd(header.total_experts);
    if (at == 0 || at % kArchAlignment != 0 || at < tables || at + kArchSize > header.data_offset) {
      Fail(ErrorCode::kParse, "header.reserved_ext",
           fmt::format("{}: a v2 vault has its arch block at a multiple of {} between its tables, "
                       "which end at {}, and data_offset {}",
                       at, kArchAlignment, tables, header.data_offset),
           kReservedExtOffset);
    }
    if (at + kArchSize > file_.size()) {
      Fail(ErrorCode::kBounds, "arch",
           fmt::format("ends at {}, the file at {}", at + kArchSize, file_.size()));
    }
    ReadArch(at);
  }

  void ReadArch(uint64_t at) {
    ByteReader reader(file_.subspan(at, kArchSize), path_, at);
    const Bytes magic = reader.Take(kArchMagic.size(), "arch.magic");
    if (!std::equal(magic.begin(), magic.end(), kArchMagic.begin())) {
      Fail(ErrorCode::kInvalidMagic, "arch.magic", "is not SARC", at);
    }
    ArchBlock arch;
    ReadFields(&reader, &arch);
    if (arch.block_version != 1) {
      Fail(ErrorCode::kUnsupportedVersion, "arch.block_version",
           fmt::format("version {}; moewe reads 1", arch.block_version));
    }
    if (arch.block_size != kArchSize) {
      Fail(ErrorCode::kParse, "arch.block_size",
           fmt::format("must be {}, is {}", kArchSize, arch.block_size));
    }
    if (arch.activation != 0) {
      Fail(ErrorCode::kUnsupported, "arch.activation",
           fmt::format("{} is unknown; 0 (SiLU) is the only one", arch.activation));
    }
    arch.model_type = ModelType(reader.Take(kModelTypeSize, "arch.model_type"));
    const Bytes reserved = reader.Take(reader.remaining(), "arch.reserved");
    if (std::any_of(reserved.begin(), reserved.end(), [](uint8_t b) { return b != 0; })) {
      Warn("arch.reserved", "is not zero; ignored");
    }
    CheckArch(arch, out_.header, path_);
    constexpr uint32_t kKnown = kNormTopk | kHasQkNorm | kHasDenseLayer0;
    if ((arch.flags & ~kKnown) != 0) {
      Warn("arch.flags", fmt::format("unknown bits {:#x}; ignored", arch.flags & ~kKnown));
    }
    out_.arch = std::move(arch);
  }

  // A name for display; all bytes count if none is NUL.
  std::string ModelType(Bytes bytes) {
    std::string name(bytes.begin(), std::find(bytes.begin(), bytes.end(), 0));
    bool replaced = false;
    for (char& c : name) {
      if (c >= ' ' && c <= '~') continue;
      c = '?';
      replaced = true;
    }
    if (replaced) Warn("arch.model_type", "holds bytes that are no printable ASCII");
    return name;
  }

  // --- experts ---

  void ReadExperts() {
    const uint32_t count = out_.header.total_experts;  // the tables lie within the file
    out_.experts.reserve(count);
    out_.by_id.reserve(count);
    for (uint32_t i = 0; i < count; ++i) {
      out_.experts.emplace_back();
      ReadEntry(i);
      ReadDescriptors(i);
    }
  }

  static std::string EntryField(uint32_t index, std::string_view name) {
    return fmt::format("table[{}].{}", index, name);
  }
  static std::string DescriptorField(uint32_t expert, size_t tensor, std::string_view name) {
    return fmt::format("descriptors[{}].{}", uint64_t{expert} * 3 + tensor, name);
  }
  // "layer 0 expert 1 down_proj: "
  std::string Name(uint32_t index, size_t tensor) const {
    const ExpertEntry& entry = out_.experts[index].entry;
    return fmt::format("layer {} expert {} {}: ", entry.layer_id, entry.expert_id,
                       kProjections.at(tensor));
  }

  void ReadEntry(uint32_t index) {
    const uint64_t at = kHeaderSize + index * kEntrySize;
    ByteReader reader(file_.subspan(at, kEntrySize), path_, at);
    ExpertEntry& entry = out_.experts[index].entry;
    ReadFields(&reader, &entry);
    if (entry.reserved != 0) Warn(EntryField(index, "reserved"), "is not zero; ignored");
    const auto report = [&](const char* field, const std::string& message) {
      Report(ErrorCode::kParse, EntryField(index, field), message);
    };
    if (entry.group_size != kGroupSize) {
      report("group_size", fmt::format("must be {}, is {}", kGroupSize, entry.group_size));
    }
    CheckPlace(index, entry);
    const uint64_t id = VaultTables::Id(entry.layer_id, entry.expert_id);
    if (!out_.by_id.emplace(id, index).second) {
      report("expert_id",
             fmt::format("layer {} expert {} is there twice", entry.layer_id, entry.expert_id));
      return;
    }
    ++out_.layers[entry.layer_id];
    if (index == 0) return;
    const ExpertEntry& before = out_.experts[index - 1].entry;
    if (id < VaultTables::Id(before.layer_id, before.expert_id)) {
      Warn(EntryField(index, "expert_id"), "the table is not sorted by layer and expert");
    }
  }

  void CheckPlace(uint32_t index, const ExpertEntry& entry) {
    const auto report = [&](ErrorCode code, const char* field, const std::string& message) {
      Report(code, EntryField(index, field), message);
    };
    if (entry.byte_offset % kPage != 0) {
      report(ErrorCode::kParse, "byte_offset",
             fmt::format("{} is no multiple of {}", entry.byte_offset, kPage));
    } else if (entry.byte_offset < out_.header.data_offset) {
      report(
          ErrorCode::kBounds, "byte_offset",
          fmt::format("{} is before data_offset {}", entry.byte_offset, out_.header.data_offset));
    }
    if (entry.padded_size % kPage != 0 || entry.padded_size == 0) {
      report(ErrorCode::kParse, "padded_size",
             fmt::format("{} is no multiple of {}", entry.padded_size, kPage));
    } else if (entry.raw_size == 0 || entry.raw_size > entry.padded_size) {
      report(ErrorCode::kBounds, "raw_size",
             fmt::format("{} bytes in a blob of {}", entry.raw_size, entry.padded_size));
    } else if (entry.padded_size - entry.raw_size >= kPage) {
      Warn(EntryField(index, "padded_size"),
           fmt::format("{} for {} bytes", entry.padded_size, entry.raw_size));
    }
    const std::optional<uint64_t> end = CheckedAdd(entry.byte_offset, entry.padded_size);
    if (!end || *end > file_.size()) {
      report(ErrorCode::kBounds, "byte_offset + padded_size",
             fmt::format("the blob at {} of {} bytes runs past the end of the file at {}",
                         entry.byte_offset, entry.padded_size, file_.size()));
    }
  }

  void ReadDescriptors(uint32_t index) {
    const uint64_t at = kHeaderSize + uint64_t{out_.header.total_experts} * kEntrySize +
                        uint64_t{index} * 3 * kDescriptorSize;
    ByteReader reader(file_.subspan(at, 3 * kDescriptorSize), path_, at);
    bool good = true;
    for (size_t t = 0; t < 3; ++t) good = ReadDescriptor(index, t, &reader) && good;
    good = good && CheckShapes(index) && CheckSizes(index);
    if (good) CheckParts(index);
  }

  bool ReadDescriptor(uint32_t index, size_t t, ByteReader* reader) {
    TensorDescriptor& tensor = out_.experts[index].tensors[t];
    ReadFields(reader, &tensor);
    if (tensor.reserved_0 != 0)
      Warn(DescriptorField(index, t, "reserved_0"), "is not zero; ignored");
    bool good = true;
    const auto require = [&](bool condition, ErrorCode code, const char* field,
                             const std::string& message) {
      if (condition || !good) return;
      good = false;
      Report(code, DescriptorField(index, t, field), Name(index, t) + message);
    };
    require(tensor.tensor_type == t, ErrorCode::kParse, "tensor_type",
            fmt::format("must be {}, is {}", t, tensor.tensor_type));
    require(tensor.ndim == 2, ErrorCode::kParse, "ndim",
            fmt::format("must be 2, is {}", tensor.ndim));
    require(tensor.rows != 0, ErrorCode::kParse, "rows", "is 0");
    require(tensor.cols != 0, ErrorCode::kParse, "cols", "is 0");
    // Not more than the file can hold, so that no later product overflows.
    const uint64_t elements = uint64_t{tensor.rows} * tensor.cols;
    require(PackedSize(elements, out_.header.bits) <= file_.size(), ErrorCode::kBounds, "rows",
            fmt::format("a matrix of {} x {} does not fit the file", tensor.rows, tensor.cols));
    return good;
  }

  // gate and up [width, d_model], down [d_model, width].
  bool CheckShapes(uint32_t index) {
    const auto& [gate, up, down] = out_.experts[index].tensors;
    const uint32_t hidden = out_.header.d_model;
    const uint32_t width = gate.rows;
    if (gate.cols == up.cols && gate.cols == down.rows && gate.cols != hidden) {
      Report(ErrorCode::kParse, "header.d_model",
             fmt::format("{}, but the experts' matrices take {}", hidden, gate.cols));
      return false;
    }
    const auto require = [&](size_t t, const char* field, uint32_t value, uint32_t expected) {
      if (value == expected) return true;
      Report(ErrorCode::kParse, DescriptorField(index, t, field),
             fmt::format("{}{} must be {}, is {}", Name(index, t), field, expected, value));
      return false;
    };
    return require(0, "cols", gate.cols, hidden) && require(1, "cols", up.cols, hidden) &&
           require(2, "rows", down.rows, hidden) && require(1, "rows", up.rows, width) &&
           require(2, "cols", down.cols, width);
  }

  bool CheckSizes(uint32_t index) {
    const Expert& expert = out_.experts[index];
    const uint32_t bits = out_.header.bits;
    uint64_t groups = 0;
    bool other_bits = true;
    for (const TensorDescriptor& tensor : expert.tensors) {
      const uint64_t elements = uint64_t{tensor.rows} * tensor.cols;
      groups += NumGroups(elements);
      other_bits = other_bits && tensor.packed_size == PackedSize(elements, 6 - bits) &&
                   tensor.packed_size != PackedSize(elements, bits);
    }
    if (other_bits) {
      Report(ErrorCode::kParse, "header.bits",
             fmt::format("is {}, but {}packed_size is that of {} bits", bits, Name(index, 0),
                         6 - bits));
      return false;
    }
    if (expert.entry.num_groups != groups) {
      Warn(EntryField(index, "num_groups"),
           fmt::format("is {}, the matrices have {}", expert.entry.num_groups, groups));
    }
    for (size_t t = 0; t < 3; ++t) {
      const TensorDescriptor& tensor = expert.tensors[t];
      const uint64_t elements = uint64_t{tensor.rows} * tensor.cols;
      const auto require = [&](const char* field, uint64_t value, uint64_t expected) {
        if (value == expected) return true;
        Report(ErrorCode::kBounds, DescriptorField(index, t, field),
               fmt::format("{}must be {}, is {}", Name(index, t), expected, value));
        return false;
      };
      if (!require("packed_size", tensor.packed_size, PackedSize(elements, bits)) ||
          !require("scales_size", tensor.scales_size, NumGroups(elements) * 2)) {
        return false;
      }
    }
    return true;
  }

  // The six parts of a blob lie within its raw_size and apart from each other.
  void CheckParts(uint32_t index) {
    struct Part {
      uint64_t begin, end;
      size_t tensor;
      bool scales;
    };
    const Expert& expert = out_.experts[index];
    std::array<Part, 6> parts{};
    for (size_t t = 0; t < 3; ++t) {
      const TensorDescriptor& tensor = expert.tensors[t];
      parts[2 * t] = {tensor.packed_offset, tensor.packed_size, t, false};
      parts[2 * t + 1] = {tensor.scales_offset, tensor.scales_size, t, true};
    }
    const auto field = [&](const Part& part) {
      return DescriptorField(index, part.tensor, part.scales ? "scales_offset" : "packed_offset");
    };
    for (Part& part : parts) {
      const std::optional<uint64_t> end = CheckedAdd(part.begin, part.end);
      if (!end || *end > expert.entry.raw_size) {
        Report(ErrorCode::kBounds, field(part),
               fmt::format("{}{} + {} bytes is past the expert's {}", Name(index, part.tensor),
                           part.begin, part.end, expert.entry.raw_size));
        return;
      }
      part.end = *end;
    }
    std::sort(parts.begin(), parts.end(),
              [](const Part& a, const Part& b) { return a.begin < b.begin; });
    for (size_t i = 1; i < parts.size(); ++i) {
      if (parts[i].begin >= parts[i - 1].end) continue;
      const Part& blamed = parts[i - 1].scales && !parts[i].scales ? parts[i - 1] : parts[i];
      Report(ErrorCode::kBounds, field(blamed),
             Name(index, blamed.tensor) + "overlaps another part of the expert");
      return;
    }
  }

  // --- the whole ---

  void CheckLayers() {
    const Header& header = out_.header;
    if (out_.layers.size() < header.num_moe_layers) {
      Report(ErrorCode::kParse, "header.num_moe_layers",
             fmt::format("is {}, the table has experts of {}", header.num_moe_layers,
                         out_.layers.size()));
    }
    if (out_.layers.size() > header.num_moe_layers) {
      Report(ErrorCode::kParse, EntryField(FirstSurplusLayer(), "layer_id"),
             fmt::format("the table has experts of {} layers, num_moe_layers is {}",
                         out_.layers.size(), header.num_moe_layers));
    }
    uint32_t most = 0;
    for (const auto& [layer, count] : out_.layers) {
      most = std::max(most, count);
      uint32_t expert = 0;
      while (expert < count && out_.by_id.contains(VaultTables::Id(layer, expert))) ++expert;
      if (expert == count) continue;
      Report(
          ErrorCode::kParse, EntryField(LastExpert(layer), "expert_id"),
          fmt::format("layer {} has {} experts, but none with expert_id {}", layer, count, expert));
    }
    if (most != header.max_experts_per_layer) {
      Report(ErrorCode::kParse, "header.max_experts_per_layer",
             fmt::format("is {}, the most that a layer has is {}", header.max_experts_per_layer,
                         most));
    }
  }

  // The entry of the highest expert_id of a layer.
  uint32_t LastExpert(uint32_t layer) const {
    uint32_t last = 0;
    uint32_t id = 0;
    for (uint32_t i = 0; i < out_.experts.size(); ++i) {
      const ExpertEntry& entry = out_.experts[i].entry;
      if (entry.layer_id != layer || entry.expert_id < id) continue;
      id = entry.expert_id;
      last = i;
    }
    return last;
  }

  // The entry that brings in one layer more than the header has.
  uint32_t FirstSurplusLayer() const {
    std::map<uint32_t, bool> seen;
    for (uint32_t i = 0; i < out_.experts.size(); ++i) {
      seen[out_.experts[i].entry.layer_id] = true;
      if (seen.size() > out_.header.num_moe_layers) return i;
    }
    return 0;
  }

  void CheckOverlaps() {
    std::vector<uint32_t> order(out_.experts.size());
    for (uint32_t i = 0; i < order.size(); ++i) order[i] = i;
    const auto entry = [&](uint32_t i) -> const ExpertEntry& { return out_.experts[i].entry; };
    std::stable_sort(order.begin(), order.end(), [&](uint32_t a, uint32_t b) {
      return entry(a).byte_offset < entry(b).byte_offset;
    });
    for (size_t i = 1; i < order.size(); ++i) {
      const ExpertEntry& before = entry(order[i - 1]);
      const ExpertEntry& after = entry(order[i]);
      if (after.byte_offset - before.byte_offset >= before.padded_size) continue;
      Report(ErrorCode::kBounds, EntryField(order[i], "byte_offset"),
             fmt::format("the blob at {} overlaps that of layer {} expert {}", after.byte_offset,
                         before.layer_id, before.expert_id));
    }
  }

  Bytes file_;
  const std::string& path_;
  FunctionRef<void(const Error&)> on_problem_;
  std::map<std::string, std::pair<size_t, uint64_t>> warned_;  // kind -> its line, how many more
  VaultTables out_;
};

}  // namespace

void CheckArch(const ArchBlock& arch, const Header& header, const std::string& path) {
  const auto require = [&](bool good, const char* field, const std::string& message) {
    if (!good) throw Error(ErrorCode::kParse, message, {path, std::string("arch.") + field});
  };
  require(std::isfinite(arch.rope_theta) && arch.rope_theta >= 1.0f, "rope_theta",
          fmt::format("{} is no base of a rotary embedding", arch.rope_theta));
  require(arch.num_heads != 0, "num_heads", "is 0");
  require(arch.num_kv_heads != 0, "num_kv_heads", "is 0");
  require(arch.num_heads % arch.num_kv_heads == 0, "num_kv_heads",
          fmt::format("{} does not divide num_heads {}", arch.num_kv_heads, arch.num_heads));
  require(arch.head_dim != 0 && arch.head_dim <= kMaxHeadDim && arch.head_dim % 2 == 0, "head_dim",
          fmt::format("must be even and at most {}, is {}", kMaxHeadDim, arch.head_dim));
  require(arch.moe_top_k != 0 && arch.moe_top_k <= kMaxTopK, "moe_top_k",
          fmt::format("must be from 1 to {}, is {}", kMaxTopK, arch.moe_top_k));
  require(arch.moe_top_k <= header.max_experts_per_layer, "moe_top_k",
          fmt::format("{} of {} experts", arch.moe_top_k, header.max_experts_per_layer));
  require(std::isfinite(arch.rms_norm_eps) && arch.rms_norm_eps >= 0 && arch.rms_norm_eps <= 1,
          "rms_norm_eps", fmt::format("must be from 0 to 1, is {}", arch.rms_norm_eps));
}

VaultTables ParseVaultTables(Bytes file, const std::string& path,
                             FunctionRef<void(const Error&)> on_problem) {
  return Parser(file, path, on_problem).Run();
}

VaultTables ParseVaultTables(Bytes file, const std::string& path) {
  return ParseVaultTables(file, path, [](const Error& error) { throw error; });
}

bool IsContiguous(const TensorDescriptor& tensor) {
  return tensor.scales_offset == tensor.packed_offset + tensor.packed_size;
}

}  // namespace moewe::formats::smoe
