#include "pretrained/files/pytorch/pickle_globals.h"

#include <string_view>

namespace stretto::nn::files {
namespace {

struct Named {
  std::string_view name;
  PickleGlobal kind;
};
constexpr Named globals[] = {
    {"collections.OrderedDict", PickleGlobal::ordered_dict},
    {"__builtin__.set", PickleGlobal::set},
    {"builtins.set", PickleGlobal::set},
    {"_codecs.encode", PickleGlobal::encode},
    {"torch.Size", PickleGlobal::size},
    {"torch.device", PickleGlobal::device},
    {"torch.storage.UntypedStorage", PickleGlobal::untyped_storage},
    {"torch.UntypedStorage", PickleGlobal::untyped_storage},
    {"torch.Tensor", PickleGlobal::tensor_class},
    {"torch.nn.parameter.Parameter", PickleGlobal::tensor_class},
    {"torch.nn.parameter.Buffer", PickleGlobal::tensor_class},
    {"torch._utils._rebuild_tensor", PickleGlobal::rebuild_tensor},
    {"torch._utils._rebuild_tensor_v2", PickleGlobal::rebuild_tensor_v2},
    {"torch._utils._rebuild_tensor_v3", PickleGlobal::rebuild_tensor_v3},
    {"torch._utils._rebuild_parameter", PickleGlobal::rebuild_parameter},
    {"torch._utils._rebuild_parameter_with_state", PickleGlobal::rebuild_parameter_with_state},
    {"torch._tensor._rebuild_from_type_v2", PickleGlobal::rebuild_from_type},
};

// The dtypes "torch.…", and the storages "torch.…Storage" or "torch.cuda.…Storage" of the older
// ones.
struct TorchDType {
  std::string_view dtype, storage, format;
};
constexpr TorchDType dtypes[] = {
    {"float32", "FloatStorage", "F32"},
    {"float64", "DoubleStorage", "F64"},
    {"float16", "HalfStorage", "F16"},
    {"bfloat16", "BFloat16Storage", "BF16"},
    {"int64", "LongStorage", "I64"},
    {"int32", "IntStorage", "I32"},
    {"int16", "ShortStorage", "I16"},
    {"int8", "CharStorage", "I8"},
    {"uint8", "ByteStorage", "U8"},
    {"bool", "BoolStorage", "BOOL"},
    {"complex64", "ComplexFloatStorage", "C64"},
    {"complex128", "ComplexDoubleStorage", "C128"},
    {"complex32", "", "C32"},
    {"uint16", "", "U16"},
    {"uint32", "", "U32"},
    {"uint64", "", "U64"},
    {"float8_e4m3fn", "", "F8_E4M3"},
    {"float8_e5m2", "", "F8_E5M2"},
    {"float8_e4m3fnuz", "", "F8_E4M3FNUZ"},
    {"float8_e5m2fnuz", "", "F8_E5M2FNUZ"},
    {"float8_e8m0fnu", "", "F8_E8M0"},
};

// The opcodes that are known but not supported, for errors.
struct Opcode {
  uint8_t code;
  const char* name;
};
constexpr Opcode refused[] = {{'I', "INT"},
                              {'L', "LONG"},
                              {'F', "FLOAT"},
                              {'S', "STRING"},
                              {'V', "UNICODE"},
                              {'P', "PERSID"},
                              {'g', "GET"},
                              {'p', "PUT"},
                              {'i', "INST"},
                              {'o', "OBJ"},
                              {0x81, "NEWOBJ"},
                              {0x92, "NEWOBJ_EX"},
                              {0x82, "EXT1"},
                              {0x83, "EXT2"},
                              {0x84, "EXT4"},
                              {'l', "LIST"},
                              {'d', "DICT"},
                              {0x97, "NEXT_BUFFER"},
                              {0x98, "READONLY_BUFFER"}};

}  // namespace

const char* refused_opcode(uint8_t code) {
  for (const Opcode& known : refused)
    if (known.code == code) return known.name;
  return nullptr;
}

KnownGlobal find_global(const std::string& name) {
  for (const Named& g : globals)
    if (g.name == name) return {g.kind};
  std::string_view rest = name;
  if (!rest.starts_with("torch.")) return {};
  rest.remove_prefix(6);
  for (const TorchDType& d : dtypes)
    if (rest == d.dtype) return {PickleGlobal::dtype, find_format(d.format)};
  if (rest.starts_with("cuda.")) rest.remove_prefix(5);
  for (const TorchDType& d : dtypes)
    if (!d.storage.empty() && rest == d.storage)
      return {PickleGlobal::storage, find_format(d.format)};
  return {};
}

}  // namespace stretto::nn::files
