/*===- FlashAttn.h - compile and launch attention from C -------------------===*\
|*
|* One shared library, libFlashAttnC.so. It compiles the text of an MLIR module to a kernel,
|* which can be launched on a CUDA stream or on the CPU.
|*
|*   FlashAttnCompileOptions options;
|*   flashattnCompileOptionsInit(&options);
|*   FlashAttnKernel kernel;
|*   if (flashattnCompile(text, strlen(text), &options, &kernel) != FLASHATTN_OK)
|*     fputs(flashattnGetLastError(), stderr);
|*   flashattnLaunch(kernel, stream, tensors, 4);
|*   flashattnKernelFree(kernel);
|*
|* Every function that can fail returns a FlashAttnStatus. No function throws or prints. Several
|* threads may call any function at once, on the same kernel too. The one exception is
|* flashattnKernelFree, which must not run at the same time as another call on its kernel.
|*
|* A structure begins with its size. The Init function sets the size, or the caller does if the
|* library fills in the structure. So new fields can be added at the end, and a program that was
|* built with an older header keeps working.
|*
\*===----------------------------------------------------------------------===*/

#ifndef FLASHATTN_C_FLASHATTN_H
#define FLASHATTN_C_FLASHATTN_H

#include <stddef.h>
#include <stdint.h>

#if defined(__GNUC__)
#define FLASHATTN_EXPORT __attribute__((visibility("default")))
#else
#define FLASHATTN_EXPORT
#endif

#ifdef __cplusplus
extern "C" {
#endif

/*===----------------------------------------------------------------------===*\
|* Status
\*===----------------------------------------------------------------------===*/

/** The result of a function. */
enum FlashAttnStatus {
  FLASHATTN_OK = 0,
  /** An argument of the call is null, out of range, or a structure of unknown size. */
  FLASHATTN_ERROR_INVALID_ARGUMENT = 1,
  /** The kernel is NULL, was freed, or is not a kernel. */
  FLASHATTN_ERROR_INVALID_HANDLE = 2,
  /** The text does not parse, or the module breaks a rule of its dialects. */
  FLASHATTN_ERROR_INVALID_MODULE = 3,
  /** The module is valid, but the chip cannot compute it, or the function cannot be launched. */
  FLASHATTN_ERROR_UNSUPPORTED = 4,
  /** A pass or the code generator failed. */
  FLASHATTN_ERROR_COMPILE = 5,
  /** There is no device or no driver, the driver is too old, or a launch failed. */
  FLASHATTN_ERROR_DEVICE = 6,
  /** The tensors of a launch do not fit the kernel or each other: in number, type, rank, size,
      stride or alignment; or an output shares memory with another tensor. */
  FLASHATTN_ERROR_TENSOR = 7
};

/** Returns the message of the last call that failed on this thread; "" if none has failed. The
    message is in lower case, "expected … but got …" if that form applies. Each diagnostic is on its
    own line. The string is valid until the next call that fails on this thread. */
FLASHATTN_EXPORT const char *flashattnGetLastError(void);

/** Returns the library's version, such as "0.1.0". */
FLASHATTN_EXPORT const char *flashattnGetVersion(void);

/*===----------------------------------------------------------------------===*\
|* Devices
\*===----------------------------------------------------------------------===*/

enum {
  /** The first CUDA device, or the CPU if there is none. */
  FLASHATTN_DEVICE_AUTO = -1,
  FLASHATTN_DEVICE_CPU = -2,
  /** A model of the GPU that `chip` names. It runs the GPU's kernels on the host, thread by thread,
      and finds races, deadlocks and accesses out of bounds. Tensors are in host memory. */
  FLASHATTN_DEVICE_MODEL = -3
};

typedef struct FlashAttnDeviceInfo {
  size_t size; /**< sizeof(FlashAttnDeviceInfo), set by the caller */
  char name[256];
  char chip[16];        /**< as in FlashAttnCompileOptions: "sm_80", "cpu" */
  int32_t computeUnits; /**< multiprocessors of a GPU, or threads of the CPU */
  /** f32 lanes of a vector register of the CPU; 0 for a GPU. */
  int32_t vectorWidth;
  int64_t memoryBytes;          /**< 0 for the CPU */
  int64_t sharedMemoryPerBlock; /**< opt-in maximum in bytes; 0 for the CPU */
  /** 1000 * major + 10 * minor of the driver's CUDA version; 0 for the CPU. */
  int32_t driverVersion;
  /** 10 * major + minor of the newest PTX version that the driver takes; 0 for the CPU. */
  int32_t maxPTXVersion;
} FlashAttnDeviceInfo;

/** Writes the number of CUDA devices to `count`. Errors (`count` is 0 then): DEVICE with the reason
    that there is none: driver library missing, driver too old, no device. */
FLASHATTN_EXPORT int32_t flashattnGetDeviceCount(int32_t *count);

/** Describes CUDA device `device`, or the CPU for FLASHATTN_DEVICE_CPU. Creates no CUDA context. */
FLASHATTN_EXPORT int32_t flashattnGetDeviceInfo(int32_t device, FlashAttnDeviceInfo *info);

/*===----------------------------------------------------------------------===*\
|* Compilation
\*===----------------------------------------------------------------------===*/

/** A compiled function; NULL means no kernel. */
typedef struct FlashAttnKernelHandle *FlashAttnKernel;

enum FlashAttnSeverity {
  /** A note belongs to the diagnostic before it. */
  FLASHATTN_NOTE = 0,
  FLASHATTN_REMARK = 1,
  FLASHATTN_WARNING = 2,
  FLASHATTN_ERROR = 3
};

/** A callback for each diagnostic and each of its notes. The library calls it on the thread that
    compiles. If the location is unknown, `file` is "" and `line` and `column` are 0; otherwise they
    count from 1. The strings are valid during the call. */
typedef void (*FlashAttnDiagnosticCallback)(void *user, int32_t severity, const char *file,
                                            int32_t line, int32_t column, const char *message);

typedef struct FlashAttnCompileOptions {
  size_t size; /**< set by flashattnCompileOptionsInit */
  /** "cpu", or a GPU such as "sm_80" and "sm_90a". NULL selects the chip of `device`; a model needs
      a chip. If the device does not run kernels of the chip, or there is no such device, the kernel
      has its texts but cannot be launched. */
  const char *chip;
  /** The number of a CUDA device, FLASHATTN_DEVICE_AUTO (the default), FLASHATTN_DEVICE_CPU or
      FLASHATTN_DEVICE_MODEL. */
  int32_t device;
  /** CPU: f32 lanes of a vector register; 0 (the default): the host's. */
  int32_t vectorWidth;
  /** Fields of the schedule to pin, in the syntax of flashattn-select-schedule; NULL or "":
      none. */
  const char *schedule;
  /** The function to compile; NULL: the only public one. */
  const char *function;
  /** Called for each diagnostic; NULL: no callback. flashattnGetLastError has the errors in any
      case. */
  FlashAttnDiagnosticCallback diagnostic;
  void *diagnosticUser;
  /** Nonzero (the default): schedules that the tuner found take precedence over built-in ones. */
  int32_t useTuned;
  /** Nonzero: refuses a module that is more than one function around one attention, or around its
      gradients. Set it for a text that others have written or that was read from a file, because a
      module is a program that can read and write any memory. */
  int32_t attentionOnly;
} FlashAttnCompileOptions;

/** Sets the size and the defaults. */
FLASHATTN_EXPORT int32_t flashattnCompileOptionsInit(FlashAttnCompileOptions *options);

/** Compiles a function of the module in `mlir`, `length` bytes of text that need not end with a
    zero. `options` may be NULL for the defaults. A function can be launched if it has no results
    and takes only memrefs of rank 0 to 4, index and integers. Other functions, such as functions on
    tensors, have texts only. Errors: INVALID_MODULE, UNSUPPORTED, COMPILE, DEVICE; `*kernel` is
    NULL then. */
FLASHATTN_EXPORT int32_t flashattnCompile(const char *mlir, size_t length,
                                          const FlashAttnCompileOptions *options,
                                          FlashAttnKernel *kernel);

/** Checks all that flashattnCompile checks before it makes code: the text, the module and the
    schedule, pinned or chosen. Takes a hundredth of the time of flashattnCompile, and returns the
    same errors. */
FLASHATTN_EXPORT int32_t flashattnCheck(const char *mlir, size_t length,
                                        const FlashAttnCompileOptions *options);

/** Checks that `text` is a mask attribute, such as "#flashattn.window<left = 3>". Errors:
    INVALID_ARGUMENT, with the reason. */
FLASHATTN_EXPORT int32_t flashattnCheckMask(const char *text);

/** Checks that `text` is the block of a score_mod: ops of arith and math, and `flashattn.yield`.
    Errors: INVALID_ARGUMENT, with the reason. */
FLASHATTN_EXPORT int32_t flashattnCheckScoreMod(const char *text);

/** Frees a kernel's memory on the host and the strings that it returned. Launched work goes on. If
    no other kernel has the same code on a GPU, the call waits for all work submitted to the context
    and unloads the code. Code that was captured into a graph stays loaded until the process ends.
    NULL is allowed; a kernel that was freed before is INVALID_HANDLE. */
FLASHATTN_EXPORT int32_t flashattnKernelFree(FlashAttnKernel kernel);

/*===----------------------------------------------------------------------===*\
|* Queries; the kernel owns the returned strings
\*===----------------------------------------------------------------------===*/

typedef struct FlashAttnKernelInfo {
  size_t size; /**< sizeof(FlashAttnKernelInfo), set by the caller */
  const char *function;
  const char *chip;
  /** The CUDA device that the kernel runs on, FLASHATTN_DEVICE_CPU, FLASHATTN_DEVICE_MODEL, or
      FLASHATTN_DEVICE_AUTO if it runs on none. */
  int32_t device;
  int32_t isLaunchable;
  const char *notLaunchableReason; /**< "" if it is launchable */
  int32_t numArguments;
  int32_t numStages; /**< number of stages for flashattnKernelGetStage */
  /** Bytes of GPU memory that a launch needs in addition to its arguments; -1 if the number depends
      on the arguments (see flashattnKernelGetWorkspace); 0 on the CPU. */
  int64_t workspaceBytes;
  /** The key of tuned schedules: chip, D, Dv, element type and shape of the mask, as in
      "sm_90a/128/128/f16/triangular". The suffix is "/decode" for up to 16 queries, "/backward" for
      gradients, and "/backward/deterministic" for deterministic gradients. "" for a function
      without an attention, or with several. For a function with an attention and gradients, the key
      of the attention. */
  const char *tuningKey;
  /** Bytes of host memory that the kernel keeps: its texts, its code for the CPU and, for a GPU,
      the image that the driver loads. Does not count the code that the driver makes from the
      image. */
  int64_t hostBytes;
} FlashAttnKernelInfo;

FLASHATTN_EXPORT int32_t flashattnKernelGetInfo(FlashAttnKernel kernel, FlashAttnKernelInfo *info);

enum { FLASHATTN_MAX_RANK = 4 };

enum FlashAttnArgumentKind { FLASHATTN_ARGUMENT_MEMREF = 0, FLASHATTN_ARGUMENT_SCALAR = 1 };

enum FlashAttnElementType {
  FLASHATTN_F16 = 1,
  FLASHATTN_BF16 = 2,
  FLASHATTN_F32 = 3,
  FLASHATTN_F64 = 4,
  FLASHATTN_I1 = 5, /**< one byte each, 0 or 1 */
  FLASHATTN_I8 = 6,
  FLASHATTN_I32 = 7,
  FLASHATTN_I64 = 8,
  FLASHATTN_INDEX = 9 /**< 64 bits */
};

/** Bits of FlashAttnArgumentInfo::direction. */
enum FlashAttnDirection { FLASHATTN_INPUT = 1, FLASHATTN_OUTPUT = 2 };

typedef struct FlashAttnArgumentInfo {
  size_t size;         /**< sizeof(FlashAttnArgumentInfo), set by the caller */
  int32_t kind;        /**< FlashAttnArgumentKind */
  int32_t elementType; /**< FlashAttnElementType */
  int32_t elementBytes;
  int32_t rank;      /**< 0 for scalars */
  int32_t direction; /**< FlashAttnDirection bits; 0 if it is neither read nor written */
  /** Nonzero: the attribute `flashattn.aligned_rows` promises that rows start at multiples of 16
      bytes, and a launch checks the address and every stride except the last. On sm_90a, wgmma and
      TMA need q, k and v that are dense or have this promise; other operands use mma.sync. */
  int32_t alignedRows;
  int64_t sizes[FLASHATTN_MAX_RANK];   /**< -1 if any size is allowed */
  int64_t strides[FLASHATTN_MAX_RANK]; /**< in elements; -1 if any stride is allowed */
  /** The argument's role in the function's only attention, backward attention, projection or
      combination, as a name from flashattnGetOperand; "" if it has no role. */
  const char *role;
} FlashAttnArgumentInfo;

FLASHATTN_EXPORT int32_t flashattnKernelGetArgument(FlashAttnKernel kernel, int32_t index,
                                                    FlashAttnArgumentInfo *info);

typedef struct FlashAttnOperandInfo {
  size_t size;         /**< sizeof(FlashAttnOperandInfo), set by the caller */
  int32_t numOperands; /**< operands of the op, optional ones included */
  int32_t kind;        /**< FlashAttnArgumentKind */
  int32_t direction;   /**< FLASHATTN_INPUT or FLASHATTN_OUTPUT */
  int32_t isOptional;
  /** Nonzero: any dimension may have size 1, and is then broadcast. */
  int32_t broadcasts;
  /** Nonzero: with `layout(bshd)`, the second and third dimension are swapped. */
  int32_t followsLayout;
  /** The allowed element types: bit 1 << FlashAttnElementType is set for each of them. */
  int32_t elementTypes;
  /** Which allowed type the operand has. 1: the type of the op's first operand; 2: that type, or
      f32; 0: any allowed type. */
  int32_t likeFirst;
  const char *name; /**< such as "q" or "kv_len"; see FlashAttnArgumentInfo::role */
  /** What each dimension counts, a letter each: B batches, H query heads, G key/value heads, N
      queries, K keys, D elements of a query or key row, V elements of a value or output row, E
      elements of a projected row, S parts of the keys. Dimensions with the same letter have the
      same size. "" for scalars. */
  const char *dims;
} FlashAttnOperandInfo;

/** Describes operand `index` of the op "attention", "attention_backward", "combine" or "project".
    The strings are valid as long as the library is loaded. */
FLASHATTN_EXPORT int32_t flashattnGetOperand(const char *op, int32_t index,
                                             FlashAttnOperandInfo *info);

/** Returns the name of text `index`: "mlir" (the text as given), "schedule" (the chosen schedules,
    a line each), "tiled" (tile programs, in which only the schedules depend on the chip), "lowered"
    (the LLVM dialect) and, for GPUs, "ptx". */
FLASHATTN_EXPORT int32_t flashattnKernelGetStage(FlashAttnKernel kernel, int32_t index,
                                                 const char **name);

/** Returns the text of a stage. It ends with a zero, which `length` does not count; `length` may be
    NULL. The library makes long texts when one of them is first requested, which takes as long as
    compilation. Errors: an unknown name. */
FLASHATTN_EXPORT int32_t flashattnKernelGetText(FlashAttnKernel kernel, const char *stage,
                                                const char **text, size_t *length);

/*===----------------------------------------------------------------------===*\
|* Compiled code on disk
\*===----------------------------------------------------------------------===*/

/** The cache on disk. flashattnCompile keeps compiled code in the user's files. Every later
    compilation finds it if the text, the options, the tuned schedules of its shapes, the chip, and
    the builds of the library and of LLVM are the same; for the CPU and for a model, also the
    processor and FLASHATTN_OPTIMIZE_CPU. FLASHATTN_CACHE names the folder, or switches the cache
    off with 0 or off. */
typedef struct FlashAttnCacheInfo {
  size_t size;           /**< sizeof(FlashAttnCacheInfo), set by the caller */
  const char *folder;    /**< "" if there is none */
  const char *offReason; /**< why the cache is off; "" if it is on */
  int64_t files, bytes;  /**< files in the cache now, and their bytes */
  int64_t maxBytes;      /**< limit; beyond it, the least recently read files are removed */
  int64_t found;         /**< compilations of this process that found code in it */
  int64_t made;          /**< compilations of this process that made code */
  /** The archive of kernels compiled ahead of time (docs/environment.md); "" if there is none. */
  const char *archiveFile;
  const char *archiveOffReason; /**< why the archive is not used; "" if it was read */
  int64_t archiveMembers;       /**< code of kernels, and machine code of groups of kernels */
  int64_t archiveFound;         /**< how many of these this process found there */
} FlashAttnCacheInfo;

/** Describes the cache and creates no file. The strings are valid until the thread's next call of
    this function. */
FLASHATTN_EXPORT int32_t flashattnGetCacheInfo(FlashAttnCacheInfo *info);

/*===----------------------------------------------------------------------===*\
|* Schedules as text
\*===----------------------------------------------------------------------===*/

/** Completes the fields of a schedule and writes them to `text`, for operands of `elementType`
    (FLASHATTN_F16, BF16 or F32) on a GPU, or on the CPU if `onCPU` is nonzero. For example,
    "tile_n = 80, hopper = <consumers = 3>" gets the rows, warps and registers of three warpgroups.
    FlashAttnCompileOptions::schedule takes the result. The text is valid until the thread's next
    call of this function, flashattnGetTrials, flashattnTunedGetPath or flashattnTunedLoad, which
    share one buffer per thread. Errors: INVALID_ARGUMENT for fields that are
    unknown or missing, and for values that are not numbers. flashattnCompile decides whether a
    kernel can have this schedule. */
FLASHATTN_EXPORT int32_t flashattnScheduleComplete(const char *fields, int32_t elementType,
                                                   int32_t onCPU, const char **text);

/** Values to try. If `count` is 0, the library tries its own values. */
typedef struct FlashAttnNumbers {
  const int64_t *values;
  size_t count;
} FlashAttnNumbers;

typedef struct FlashAttnTrialOptions {
  size_t size;         /**< sizeof(FlashAttnTrialOptions), set by the caller */
  const char *chip;    /**< as in FlashAttnCompileOptions, not NULL */
  int32_t elementType; /**< FLASHATTN_F16, BF16 or F32 */
  int32_t vectorWidth; /**< as in FlashAttnCompileOptions */
  int64_t group;       /**< query heads per key/value head; 1 if unknown */
  /** Nonzero: tiles with several heads may be faster, because a window is short or the queries are
      few. */
  int32_t packs;
  FlashAttnNumbers tileM, tileN, warps, stages;
  /** Values in any of these lists restrict the trials to schedules with warp specialization. */
  FlashAttnNumbers consumers, registers, blocksPerSM, pack;
  /** Nonzero: schedules of flashattn.attention_backward. Older callers' structures end before this
      field. */
  int32_t gradients;
} FlashAttnTrialOptions;

/** Writes to `text` the schedules that are worth timing, a line each. Their syntax, and the time
    for which the text is valid, are those of flashattnScheduleComplete. flashattnCompile refuses
    some of them and states the reason. */
FLASHATTN_EXPORT int32_t flashattnGetTrials(const FlashAttnTrialOptions *options,
                                            const char **text);

/** Writes to `path` the file of this user's tuned schedules. Compilations with `useTuned` read it
    unless FLASHATTN_TUNED is 0. The file is schedules.json in $XDG_CACHE_HOME/flashattn, or in
    ~/.cache/flashattn if XDG_CACHE_HOME is unset or not an absolute path. "" if there is no such
    folder. `path` is valid as long as the text of flashattnScheduleComplete. */
FLASHATTN_EXPORT int32_t flashattnTunedGetPath(const char **path);

/** Writes to `json` the tuned schedules in `file` (NULL: the user's file): an object that maps each
    tuning key (FlashAttnKernelInfo::tuningKey) to an object with the fastest `schedule` and its
    `ms`; {} if there is no file. `json` is valid as long as the text of flashattnScheduleComplete.
    Errors: INVALID_ARGUMENT for a file that holds no tuned schedules. */
FLASHATTN_EXPORT int32_t flashattnTunedLoad(const char *file, const char **json);

/** Stores `finding`, a JSON object, under `key` in `file` (NULL: the user's file). The object must
    have a text `schedule`, which is all that this function checks; the tuner also writes `ms`. The
    file is replaced whole or not at all. If `finding` is NULL, the call only checks whether one
    could be stored: it creates the folder and writes nothing. Errors: INVALID_ARGUMENT. */
FLASHATTN_EXPORT int32_t flashattnTunedStore(const char *file, const char *key,
                                             const char *finding);

/*===----------------------------------------------------------------------===*\
|* Launch
\*===----------------------------------------------------------------------===*/

/** The value of one argument. */
typedef struct FlashAttnTensor {
  /** Address of the first element, in device memory on CUDA, and in host memory on the CPU and on a
      model. No byte of a tensor that the kernel writes may belong to another argument of the
      launch, because the kernel computes the softmax of some rows while it writes others. Views
      whose elements alternate in memory, such as slices of one packed array, share no bytes. */
  void *data;
  int64_t sizes[FLASHATTN_MAX_RANK];
  int64_t strides[FLASHATTN_MAX_RANK]; /**< in elements, not negative */
  int64_t scalar;      /**< value of a scalar argument, for an f32 its 32 bits; the other fields are
                          ignored then */
  int32_t elementType; /**< FlashAttnElementType */
  int32_t rank;
} FlashAttnTensor;

/** Starts the kernel on `stream`, a CUstream or cudaStream_t of the kernel's device (NULL: the
    legacy default stream). On the CPU, `stream` is ignored and the call returns when all work is
    done.
    On CUDA, the call enqueues kernel launches on the stream. If the keys of few queries are read in
    parts, it also enqueues an allocation in the stream's order (CUDA 11.2), which is freed after
    them. The call copies nothing and does not wait, so it may be captured into a graph. The first
    launch of a kernel makes the driver load it, in a capture too, and compile its PTX if the driver
    has not cached the code. Any context may be current; the kernel uses the device's primary
    context.
    On a model, `stream` is ignored too. The first launch of a kernel runs interleaving 1, and each
    later launch runs the next one. An error in an interleaving is a DEVICE error with the model's
    report.
    Errors: TENSOR, also for an output that shares memory with another argument; DEVICE; UNSUPPORTED
    for a kernel that cannot be launched. */
FLASHATTN_EXPORT int32_t flashattnLaunch(FlashAttnKernel kernel, void *stream,
                                         const FlashAttnTensor *tensors, int32_t numTensors);

/** Writes to `bytes` the GPU memory that a launch needs in addition to these arguments: the most
    bytes that it holds at any time, before the driver rounds them up; 0 on the CPU. Allocates and
    starts nothing, and ignores `data`. Errors: as for flashattnLaunch. */
FLASHATTN_EXPORT int32_t flashattnKernelGetWorkspace(FlashAttnKernel kernel,
                                                     const FlashAttnTensor *tensors,
                                                     int32_t numTensors, int64_t *bytes);

enum { FLASHATTN_MAX_PACKED = 24 };

/** A launch that is passed by one pointer. It is for callers that pay for each argument: a foreign
    function interface packs words faster than it converts arguments. */
typedef struct FlashAttnPackedLaunch {
  FlashAttnKernel kernel;
  /** The tensors, as for flashattnLaunch, except for their addresses. They can be written once and
      used by many launches, on several threads too. */
  const FlashAttnTensor *tensors;
  int64_t numTensors; /**< at most FLASHATTN_MAX_PACKED */
  /** The result of flashattnMatchPythonTensors, or 0. If it is not 0, the launch uses the stream of
      the match, and takes from the match the addresses that are NULL in `data`. */
  int64_t match;
  void *stream;
  /** Replaces tensors[i].data, and also tensors[i].scalar, whose 64 bits are stored here. Only the
      first `numTensors` elements are read. */
  void *data[FLASHATTN_MAX_PACKED];
} FlashAttnPackedLaunch;

/** Runs flashattnLaunch on the packed arguments, with the same checks and errors. */
FLASHATTN_EXPORT int32_t flashattnLaunchPacked(const FlashAttnPackedLaunch *launch);

/** Number of operands: q, k, v, o, lse. */
enum { FLASHATTN_MAX_OPERANDS = 5 };

/** Python tensors of one type, and the expected tensors to compare them with. */
typedef struct FlashAttnPythonTensors {
  /** The DLPackExchangeAPI (DLPack 1.3) of the type, from its `__dlpack_c_exchange_api__`. */
  const void *exchange;
  const FlashAttnTensor *tensors;
  /** The expected CUDA device of the tensors, or FLASHATTN_DEVICE_CPU. */
  int32_t device;
  /** Whether q, k, v and o are all expected to begin at multiples of 16 bytes. */
  int32_t isAligned;
  /** `PyObject *` of q, k, v, o and lse; NULL for o and lse if they do not exist yet. */
  void *objects[FLASHATTN_MAX_OPERANDS];
} FlashAttnPythonTensors;

/** Compares Python tensors with the expected ones. Returns a number above 0 if the objects have the
    element types, sizes and strides of `tensors`, the device and the alignment; 0 if not, or if
    `exchange` cannot tell. Addresses in `tensors` and strides of dimensions with one element are
    ignored. In a launch on this thread, the number stands for the objects' addresses and the
    current stream of their type; it is valid until 16 further matches on the thread. The call runs
    no Python code and makes no object. The calling thread must hold the interpreter's lock. An
    exception that the type raises is left set. */
FLASHATTN_EXPORT int32_t flashattnMatchPythonTensors(const FlashAttnPythonTensors *match);

/*===----------------------------------------------------------------------===*\
|* XLA
\*===----------------------------------------------------------------------===*/

/** Foreign functions of XLA (its typed FFI, version 0.3), for the platforms "cpu" and "CUDA". They
    take an XLA_FFI_CallFrame and return an XLA_FFI_Error, or NULL on success. A call computes the
    function of a module. The call's arguments are the buffers that the function reads, and its
    results are the buffers that the function writes, each in the order of the function's arguments
    and dense. Attributes hold everything else. Four attributes are texts:
    - `module`;
    - `schedule`, as in FlashAttnCompileOptions;
    - `model`, empty, or a chip whose model runs the call on the host;
    - `version`, which must equal flashattnGetVersion's result.
    Each scalar has an attribute named after its role: `scale` of type f32, all others of type i64.
    The first call of a kind compiles the kernel; on "cpu", the stage "instantiate" does. On CUDA,
    the kernel runs on the stream and the device of the call. Errors: as for flashattnCompile and
    flashattnLaunch. */
FLASHATTN_EXPORT void *flashattnXLACallCPU(void *callFrame);
FLASHATTN_EXPORT void *flashattnXLACallCUDA(void *callFrame);

/** Returns how many kernels are kept for calls from XLA. If there are more than
    FLASHATTN_CACHE_KERNELS, 256 by default, the least recently used kernel is dropped, and its next
    call compiles it again. */
FLASHATTN_EXPORT int64_t flashattnXLAGetKernelCount(void);

#ifdef __cplusplus
} /* extern "C" */
#endif

#endif /* FLASHATTN_C_FLASHATTN_H */
