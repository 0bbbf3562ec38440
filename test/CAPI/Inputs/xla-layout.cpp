// Compares the declarations of XLA's interface in lib/CAPI/XLACallFrame.h with the header that
// jaxlib installs.

#include "XLACallFrame.h"
#include "xla/ffi/api/c_api.h"

using namespace mlir::flashattn;

#define SAME(ours, field, theirs, name)                                                            \
  static_assert(offsetof(xla::ours, field) == offsetof(theirs, name), #ours "." #field);           \
  static_assert(sizeof(xla::ours::field) == sizeof(theirs::name), #ours "." #field)
#define SIZE(ours, theirs) static_assert(sizeof(xla::ours) == sizeof(theirs), #ours)

static_assert(xla::kMajorVersion == XLA_FFI_API_MAJOR && xla::kMinorVersion <= XLA_FFI_API_MINOR);

SAME(Extension, size, XLA_FFI_Extension_Base, struct_size);
SAME(Extension, type, XLA_FFI_Extension_Base, type);
SAME(Extension, next, XLA_FFI_Extension_Base, next);
SAME(ApiVersion, major, XLA_FFI_Api_Version, major_version);
SAME(ApiVersion, minor, XLA_FFI_Api_Version, minor_version);
SAME(Metadata, version, XLA_FFI_Metadata, api_version);
SAME(Metadata, traits, XLA_FFI_Metadata, traits);
SAME(Metadata, stateType, XLA_FFI_Metadata, state_type_id);
SIZE(Metadata, XLA_FFI_Metadata);
SAME(MetadataExtension, metadata, XLA_FFI_Metadata_Extension, metadata);
static_assert(int(xla::MetadataExtension::kType) == XLA_FFI_Extension_Metadata);

SAME(CreateErrorArgs, message, XLA_FFI_Error_Create_Args, message);
SAME(CreateErrorArgs, code, XLA_FFI_Error_Create_Args, errc);
SAME(GetStreamArgs, context, XLA_FFI_Stream_Get_Args, ctx);
SAME(GetStreamArgs, stream, XLA_FFI_Stream_Get_Args, stream);
SAME(GetDeviceOrdinalArgs, context, XLA_FFI_DeviceOrdinal_Get_Args, ctx);
SAME(GetDeviceOrdinalArgs, ordinal, XLA_FFI_DeviceOrdinal_Get_Args, device_ordinal);
SAME(Api, version, XLA_FFI_Api, api_version);
SAME(Api, createError, XLA_FFI_Api, XLA_FFI_Error_Create);
SAME(Api, getStream, XLA_FFI_Api, XLA_FFI_Stream_Get);
SAME(Api, getDeviceOrdinal, XLA_FFI_Api, XLA_FFI_DeviceOrdinal_Get);
static_assert(int(xla::kInvalidArgument) == XLA_FFI_Error_Code_INVALID_ARGUMENT);
static_assert(int(xla::kUnimplemented) == XLA_FFI_Error_Code_UNIMPLEMENTED);
static_assert(int(xla::kInternal) == XLA_FFI_Error_Code_INTERNAL);

static_assert(int(xla::kPred) == XLA_FFI_DataType_PRED && int(xla::kS32) == XLA_FFI_DataType_S32);
static_assert(int(xla::kS64) == XLA_FFI_DataType_S64 && int(xla::kF16) == XLA_FFI_DataType_F16);
static_assert(int(xla::kF32) == XLA_FFI_DataType_F32 && int(xla::kF64) == XLA_FFI_DataType_F64);
static_assert(int(xla::kBF16) == XLA_FFI_DataType_BF16 && int(xla::kS8) == XLA_FFI_DataType_S8);
static_assert(int(xla::kF8E5M2) == XLA_FFI_DataType_F8E5M2);
static_assert(int(xla::kF8E4M3FN) == XLA_FFI_DataType_F8E4M3FN);
SAME(Buffer, type, XLA_FFI_Buffer, dtype);
SAME(Buffer, data, XLA_FFI_Buffer, data);
SAME(Buffer, rank, XLA_FFI_Buffer, rank);
SAME(Buffer, sizes, XLA_FFI_Buffer, dims);
SAME(Span, data, XLA_FFI_ByteSpan, ptr);
SAME(Span, size, XLA_FFI_ByteSpan, len);
SAME(Scalar, type, XLA_FFI_Scalar, dtype);
SAME(Scalar, value, XLA_FFI_Scalar, value);
SAME(Buffers, count, XLA_FFI_Args, size);
SAME(Buffers, types, XLA_FFI_Args, types);
SAME(Buffers, buffers, XLA_FFI_Args, args);
SIZE(Buffers, XLA_FFI_Args);
SAME(Buffers, count, XLA_FFI_Rets, size);
SAME(Buffers, types, XLA_FFI_Rets, types);
SAME(Buffers, buffers, XLA_FFI_Rets, rets);
SIZE(Buffers, XLA_FFI_Rets);
static_assert(int(xla::Buffers::kBuffer) == XLA_FFI_ArgType_BUFFER);
static_assert(int(xla::Buffers::kBuffer) == XLA_FFI_RetType_BUFFER);
SAME(Attributes, count, XLA_FFI_Attrs, size);
SAME(Attributes, types, XLA_FFI_Attrs, types);
SAME(Attributes, names, XLA_FFI_Attrs, names);
SAME(Attributes, values, XLA_FFI_Attrs, attrs);
SIZE(Attributes, XLA_FFI_Attrs);
static_assert(int(xla::Attributes::kScalar) == XLA_FFI_AttrType_SCALAR);
static_assert(int(xla::Attributes::kString) == XLA_FFI_AttrType_STRING);
SAME(CallFrame, extensions, XLA_FFI_CallFrame, extension_start);
SAME(CallFrame, api, XLA_FFI_CallFrame, api);
SAME(CallFrame, context, XLA_FFI_CallFrame, ctx);
SAME(CallFrame, stage, XLA_FFI_CallFrame, stage);
SAME(CallFrame, arguments, XLA_FFI_CallFrame, args);
SAME(CallFrame, results, XLA_FFI_CallFrame, rets);
SAME(CallFrame, attributes, XLA_FFI_CallFrame, attrs);
static_assert(int(xla::kExecute) == XLA_FFI_ExecutionStage_EXECUTE);
