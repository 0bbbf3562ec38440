/*===- FlashAttn.h - compile and launch attention from C -------------------===*\
|*
|* One shared library, libFlashAttnC.so. The text of an MLIR module goes in, a kernel comes
|* out that can be launched on a CUDA stream or on the CPU.
|*
|*   FlashAttnCompileOptions options;
|*   flashattnCompileOptionsInit(&options);
|*   FlashAttnKernel kernel;
|*   if (flashattnCompile(text, strlen(text), &options, &kernel) != FLASHATTN_OK)
|*     fputs(flashattnGetLastError(), stderr);
|*   flashattnLaunch(kernel, stream, tensors, 4);
|*   flashattnKernelFree(kernel);
|*
|* Every function that can fail returns a FlashAttnStatus. Nothing is thrown, nothing is
|* printed. All functions may be called from several threads at once, on the same kernel
|* too; only flashattnKernelFree must not run beside another call on its kernel.
|*
|* Structures start with their size, which the Init functions (or the caller, for what is
|* filled in by the library) set, so that fields can be added at the end: a program built with
|* an older header keeps working.
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

/** What a function returns. */
enum FlashAttnStatus {
  FLASHATTN_OK = 0,
  /** An argument of the call: null, out of range, a structure of unknown size. */
  FLASHATTN_ERROR_INVALID_ARGUMENT = 1,
  /** A kernel that is NULL, freed, or never was one. */
  FLASHATTN_ERROR_INVALID_HANDLE = 2,
  /** The text does not parse, or the module breaks a rule of its dialects. */
  FLASHATTN_ERROR_INVALID_MODULE = 3,
  /** A valid module that the chip cannot compute, or a function that cannot be launched. */
  FLASHATTN_ERROR_UNSUPPORTED = 4,
  /** A pass or the code generator failed. */
  FLASHATTN_ERROR_COMPILE = 5,
  /** No device, no driver, a driver too old, a launch that failed. */
  FLASHATTN_ERROR_DEVICE = 6,
  /** Tensors of a launch that do not fit the kernel or each other: number, type, rank, size,
      stride, alignment; outputs that share memory with another tensor. */
  FLASHATTN_ERROR_TENSOR = 7
};

/** The message of the last call on this thread that failed; "" before any did. Lower case,
    "expected … but got …" where that applies; several diagnostics stand on lines of their own.
    Valid until the next call on this thread that fails. */
FLASHATTN_EXPORT const char *flashattnGetLastError(void);

/** The library's version, as "0.1.0". */
FLASHATTN_EXPORT const char *flashattnGetVersion(void);

/*===----------------------------------------------------------------------===*\
|* Devices
\*===----------------------------------------------------------------------===*/

enum {
  /** The first CUDA device, or the CPU where there is none. */
  FLASHATTN_DEVICE_AUTO = -1,
  FLASHATTN_DEVICE_CPU = -2,
  /** A model of the GPU that `chip` names, on the host: runs its kernels thread by thread and finds
      races, deadlocks and accesses out of bounds. Tensors lie in host memory. */
  FLASHATTN_DEVICE_MODEL = -3
};

typedef struct FlashAttnDeviceInfo {
  size_t size; /**< sizeof(FlashAttnDeviceInfo), set by the caller */
  char name[256];
  char chip[16];        /**< as of FlashAttnCompileOptions: "sm_80", "cpu" */
  int32_t computeUnits; /**< multiprocessors, or threads of the CPU */
  /** f32 lanes of a vector register of the CPU, otherwise 0. */
  int32_t vectorWidth;
  int64_t memoryBytes;          /**< 0 for the CPU */
  int64_t sharedMemoryPerBlock; /**< opt-in maximum in bytes, 0 for the CPU */
  /** 1000 * major + 10 * minor of the CUDA version that the driver has, 0 for the CPU. */
  int32_t driverVersion;
  /** 10 * major + minor of the newest PTX that the driver takes, 0 for the CPU. */
  int32_t maxPTXVersion;
} FlashAttnDeviceInfo;

/** The number of CUDA devices. Errors (count is 0 then): DEVICE with the reason that there is
    none: driver library missing, driver too old, no device. */
FLASHATTN_EXPORT int32_t flashattnGetDeviceCount(int32_t *count);

/** What is known of CUDA device `device`, or of the CPU for FLASHATTN_DEVICE_CPU. Makes no
    context. */
FLASHATTN_EXPORT int32_t flashattnGetDeviceInfo(int32_t device, FlashAttnDeviceInfo *info);

/*===----------------------------------------------------------------------===*\
|* Compilation
\*===----------------------------------------------------------------------===*/

/** A compiled function. NULL is none. */
typedef struct FlashAttnKernelHandle *FlashAttnKernel;

enum FlashAttnSeverity {
  /** Belongs to the diagnostic before it. */
  FLASHATTN_NOTE = 0,
  FLASHATTN_REMARK = 1,
  FLASHATTN_WARNING = 2,
  FLASHATTN_ERROR = 3
};

/** Is called, on the thread that compiles, for each diagnostic and for each of its notes. `file`
    is "" and the others 0 where the location is unknown; line and column count from 1. The
    strings live as long as the call. */
typedef void (*FlashAttnDiagnosticCallback)(void *user, int32_t severity, const char *file,
                                            int32_t line, int32_t column, const char *message);

typedef struct FlashAttnCompileOptions {
  size_t size; /**< set by flashattnCompileOptionsInit */
  /** "cpu", or a GPU such as "sm_80" and "sm_90a"; NULL: that of `device`, but for a model. A chip whose kernels the device does not run, or
     that has no device here, still gives the texts; the kernel cannot be launched then. */
  const char *chip;
  /** A CUDA device's number, FLASHATTN_DEVICE_AUTO (the default), FLASHATTN_DEVICE_CPU or
     FLASHATTN_DEVICE_MODEL. */
  int32_t device;
  /** CPU: f32 lanes of a vector register; 0 (the default): the host's. */
  int32_t vectorWidth;
  /** Fields of the schedule to pin, as of flashattn-select-schedule; NULL or "": none. */
  const char *schedule;
  /** The function to compile; NULL: the only public one. */
  const char *function;
  /** NULL: none. Errors are in flashattnGetLastError in any case. */
  FlashAttnDiagnosticCallback diagnostic;
  void *diagnosticUser;
  /** Nonzero (the default): schedules that the tuner found come before the built-in ones. */
  int32_t useTuned;
  /** Nonzero: a module that is more than one function around one attention, or its gradients, is
     refused. For a text that others have made, or that lay in a file: a module is a program, which
     reads and writes what it likes. */
  int32_t attentionOnly;
} FlashAttnCompileOptions;

FLASHATTN_EXPORT int32_t flashattnCompileOptionsInit(FlashAttnCompileOptions *options);

/** Compiles a function of the module in `mlir`, `length` bytes of text (no zero needed at the
    end). `options` may be NULL: the defaults. To be launched, the function must have no results
    and take memrefs of rank 0 to 4, index and integers; tensors of other functions give texts
    only. Errors: INVALID_MODULE, UNSUPPORTED, COMPILE, DEVICE; `*kernel` is NULL then. */
FLASHATTN_EXPORT int32_t flashattnCompile(const char *mlir, size_t length,
                                          const FlashAttnCompileOptions *options,
                                          FlashAttnKernel *kernel);

/** What flashattnCompile of the same arguments refuses before it makes code: the text, the module
    and the schedule, pinned or chosen. A hundredth of its time. Errors: as of flashattnCompile. */
FLASHATTN_EXPORT int32_t flashattnCheck(const char *mlir, size_t length,
                                        const FlashAttnCompileOptions *options);

/** Whether `text` is a mask attribute, as in "#flashattn.window<left = 3>". Errors:
    INVALID_ARGUMENT, with the reason. */
FLASHATTN_EXPORT int32_t flashattnCheckMask(const char *text);

/** Whether `text` is the block of a score_mod: ops of arith and math, and `flashattn.yield`. Errors:
    INVALID_ARGUMENT, with the reason. */
FLASHATTN_EXPORT int32_t flashattnCheckScoreMod(const char *text);

/** Frees what a kernel holds on the host and the strings it gave out. Work that was launched goes
    on: code on a GPU that no other kernel has is unloaded once all work that the context was given
    is done, for which the call waits. What a capture made part of a graph stays until the process
    ends. NULL is fine; a kernel freed before is INVALID_HANDLE. */
FLASHATTN_EXPORT int32_t flashattnKernelFree(FlashAttnKernel kernel);

/*===----------------------------------------------------------------------===*\
|* Queries; strings belong to the kernel
\*===----------------------------------------------------------------------===*/

typedef struct FlashAttnKernelInfo {
  size_t size; /**< sizeof(FlashAttnKernelInfo), set by the caller */
  const char *function;
  const char *chip;
  /** The CUDA device that it runs on, FLASHATTN_DEVICE_CPU, FLASHATTN_DEVICE_MODEL, or
     FLASHATTN_DEVICE_AUTO for none. */
  int32_t device;
  int32_t isLaunchable;
  const char *notLaunchableReason; /**< "" where it is launchable */
  int32_t numArguments;
  int32_t numStages; /**< of flashattnKernelGetStage */
  /** Memory of a GPU that a launch needs besides its arguments, in bytes; -1 where that depends on
     the arguments: see flashattnKernelGetWorkspace. On the CPU 0. */
  int64_t workspaceBytes;
  /** What tuned schedules are kept by: chip, D, Dv, element type and shape of the mask, as in
      "sm_90a/128/128/f16/triangular", with "/decode" behind it for up to 16 queries, "/backward"
     for gradients and "/backward/deterministic"; "" for a function without an attention, or with
      several. Of a function with both that of the attention. */
  const char *tuningKey;
  /** Bytes of host memory that the kernel keeps: its texts, its code for the CPU and, for a GPU,
     the image that the driver was given. Not what the driver makes of that. */
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
  FLASHATTN_I1 = 5, /**< a byte each, 0 or 1 */
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
  int32_t direction; /**< FlashAttnDirection bits; what is never read nor written: 0 */
  /** Nonzero: the kernel was promised (`flashattn.aligned_rows`) rows that start at multiples of
      16 bytes, and a launch checks it: the address and every stride but the last. On sm_90a wgmma
      and TMA are for q, k and v so promised, or dense; others go through mma.sync. */
  int32_t alignedRows;
  int64_t sizes[FLASHATTN_MAX_RANK];   /**< -1 where any will do */
  int64_t strides[FLASHATTN_MAX_RANK]; /**< in elements, -1 where any will do */
  /** What it is to the function's only attention, backward attention, projection or combination: a
      name of flashattnGetOperand; or "". */
  const char *role;
} FlashAttnArgumentInfo;

FLASHATTN_EXPORT int32_t flashattnKernelGetArgument(FlashAttnKernel kernel, int32_t index,
                                                    FlashAttnArgumentInfo *info);

typedef struct FlashAttnOperandInfo {
  size_t size;         /**< sizeof(FlashAttnOperandInfo), set by the caller */
  int32_t numOperands; /**< of the op, with those that may be left out */
  int32_t kind;        /**< FlashAttnArgumentKind */
  int32_t direction;   /**< FLASHATTN_INPUT or FLASHATTN_OUTPUT */
  int32_t isOptional;
  /** Nonzero: any dimension may have size 1 and is the same along what it stands for then. */
  int32_t broadcasts;
  /** Nonzero: with `layout(bshd)` the second and third dimension change places. */
  int32_t followsLayout;
  /** Bit 1 << FlashAttnElementType of each type that it may have. */
  int32_t elementTypes;
  /** 1: of these it has that of the op's first operand; 2: that, or f32; 0: any. */
  int32_t likeFirst;
  const char *name; /**< "q", "kv_len"; as of FlashAttnArgumentInfo::role */
  /** What each dimension counts: B batches, H query heads, G key/value heads, N queries, K keys, D
      elements of a query or key row, V those of a value or output row, E those of a projected row,
      S parts of the keys. Sizes of one letter are the same. "" for scalars. */
  const char *dims;
} FlashAttnOperandInfo;

/** Operand `index` of an op: "attention", "attention_backward", "combine" or "project". Strings
   live as long as the library. */
FLASHATTN_EXPORT int32_t flashattnGetOperand(const char *op, int32_t index,
                                             FlashAttnOperandInfo *info);

/** The name of text `index`: "mlir" (as given), "schedule" (the chosen ones, a line each), "tiled"
    (tile programs, of the chip only their schedules), "lowered" (LLVM dialect) and, for GPUs,
    "ptx". */
FLASHATTN_EXPORT int32_t flashattnKernelGetStage(FlashAttnKernel kernel, int32_t index,
                                                 const char **name);

/** The text of a stage, which ends with a zero; `length` (may be NULL) does not count it. Long ones
   are made when one is first asked for, which takes as long as to compile. Errors: another name. */
FLASHATTN_EXPORT int32_t flashattnKernelGetText(FlashAttnKernel kernel, const char *stage,
                                                const char **text, size_t *length);

/*===----------------------------------------------------------------------===*\
|* Compiled code on disk
\*===----------------------------------------------------------------------===*/

/** What flashattnCompile has made is kept in files of the user's, and found by every later
    compilation of the same text, with the same options, for the same chip and driver, by the same
    build of the library. FLASHATTN_CACHE names their folder, or stops this with 0 or off. */
typedef struct FlashAttnCacheInfo {
  size_t size;           /**< sizeof(FlashAttnCacheInfo), set by the caller */
  const char *folder;    /**< "" where there is none */
  const char *offReason; /**< why nothing is read or kept; "" where it is */
  int64_t files, bytes;  /**< that are kept now */
  int64_t maxBytes;      /**< of all files; beyond it those go that nobody read for longest */
  int64_t found;         /**< compilations of this process whose code was kept */
  int64_t made;          /**< compilations of this process that made code */
  /** The archive of kernels made ahead (docs/environment.md); "" where there is none. */
  const char *archiveFile;
  const char *archiveOffReason; /**< why nothing is found in it; "" where it was read */
  int64_t archiveMembers;       /**< kernels' code, and machine code of groups of these */
  int64_t archiveFound;         /**< of those, the ones that this process found there */
} FlashAttnCacheInfo;

/** Makes nothing. The strings are the thread's until its next call of this function. */
FLASHATTN_EXPORT int32_t flashattnGetCacheInfo(FlashAttnCacheInfo *info);

/*===----------------------------------------------------------------------===*\
|* Schedules as text
\*===----------------------------------------------------------------------===*/

/** Writes to `text` the fields of a schedule with what `fields` leaves out, for operands of
    `elementType` (FLASHATTN_F16, BF16 or F32) on a GPU, or with `onCPU` nonzero on the CPU:
    "tile_n = 80, roles = <consumers = 3>" has the rows, warps and registers of three warpgroups
   then. FlashAttnCompileOptions takes it. The text is the thread's until its next call of this
   function or of flashattnGetTrials. Errors: INVALID_ARGUMENT for fields that are unknown or
   missing and values that are no numbers; whether a kernel can have them is what flashattnCompile
   says. */
FLASHATTN_EXPORT int32_t flashattnScheduleComplete(const char *fields, int32_t elementType,
                                                   int32_t onCPU, const char **text);

/** Numbers to try; none: the library's own. */
typedef struct FlashAttnNumbers {
  const int64_t *values;
  size_t count;
} FlashAttnNumbers;

typedef struct FlashAttnTrialOptions {
  size_t size;         /**< sizeof(FlashAttnTrialOptions), set by the caller */
  const char *chip;    /**< as of FlashAttnCompileOptions, not NULL */
  int32_t elementType; /**< FLASHATTN_F16, BF16 or F32 */
  int32_t vectorWidth; /**< as of FlashAttnCompileOptions */
  int64_t group;       /**< query heads of a key/value head, 1 where that is unknown */
  /** Nonzero: tiles of several heads may pay, since a window is short or the queries are few. */
  int32_t packs;
  FlashAttnNumbers tileM, tileN, warps, stages;
  /** Numbers of these ask for schedules with roles alone. */
  FlashAttnNumbers consumers, registers, blocks, pack;
  /** Nonzero: schedules of flashattn.attention_backward. Callers of before it leave it out. */
  int32_t gradients;
} FlashAttnTrialOptions;

/** Writes to `text` the schedules that are worth timing, a line each, as of
    flashattnScheduleComplete and as long. Some will be refused by flashattnCompile, which says why.
 */
FLASHATTN_EXPORT int32_t flashattnGetTrials(const FlashAttnTrialOptions *options,
                                            const char **text);

/** Writes to `path` where tuned schedules of this user are kept, which compilations with `useTuned`
    read unless FLASHATTN_TUNED is 0: schedules.json in $XDG_CACHE_HOME/flashattn or, where that is
    not set or no absolute path, in ~/.cache/flashattn. "" where there is no such folder. `path`
    stays valid as of flashattnScheduleComplete. */
FLASHATTN_EXPORT int32_t flashattnTunedGetPath(const char **path);

/** Writes to `json` the findings of `file` (NULL: the user's), an object of objects by tuning key
    (FlashAttnKernelInfo), each with the `schedule` that was fastest and its `ms`; {} where there is
    no file. Errors: INVALID_ARGUMENT for a file that holds none. */
FLASHATTN_EXPORT int32_t flashattnTunedLoad(const char *file, const char **json);

/** Adds a finding, a JSON object with `schedule` and `ms` at least, to `file` (NULL: the user's),
    which is replaced whole or not at all. With NULL as finding only says whether one could be
    stored: makes the folder and writes nothing. Errors: INVALID_ARGUMENT. */
FLASHATTN_EXPORT int32_t flashattnTunedStore(const char *file, const char *key,
                                             const char *finding);

/*===----------------------------------------------------------------------===*\
|* Launch
\*===----------------------------------------------------------------------===*/

/** The value of one argument. */
typedef struct FlashAttnTensor {
  /** The first element: device memory on CUDA, host memory on the CPU and on a model. No byte of a tensor that
      the kernel writes may belong to another argument of the launch: the softmax of a row is
      computed while others are written. Views that lie between each other, as slices of one packed
      array do, share none. */
  void *data;
  int64_t sizes[FLASHATTN_MAX_RANK];
  int64_t strides[FLASHATTN_MAX_RANK]; /**< in elements, not negative */
  int64_t scalar;      /**< the value of a scalar argument, the 32 bits of an f32; nothing else
                          counts then */
  int32_t elementType; /**< FlashAttnElementType */
  int32_t rank;
} FlashAttnTensor;

/** Starts the kernel on `stream`, a CUstream or cudaStream_t of the kernel's device (NULL: the
    legacy default stream); on the CPU `stream` is ignored and the call returns when all is done.
    On CUDA kernel launches are given to the stream, and where the keys of few queries are read in
    parts, an allocation in the stream's order (CUDA 11.2) that is freed behind them: nothing is
    copied or waited for, so the call may be captured into a graph. The first launch of a kernel has
    the driver load it, in a capture too, and compile its PTX where it has not kept that. Any
    context may be current; the kernel's is the device's primary context.
    On a model `stream` is ignored too; the first launch of a kernel runs interleaving 1, and each
    that follows the next one. What is wrong in one is a DEVICE error with the model's report.
    Errors: TENSOR, also for an output that shares memory with another argument; DEVICE;
    UNSUPPORTED for a kernel that cannot be launched. */
FLASHATTN_EXPORT int32_t flashattnLaunch(FlashAttnKernel kernel, void *stream,
                                         const FlashAttnTensor *tensors, int32_t numTensors);

/** The memory of a GPU that a launch of these arguments needs besides them: the most bytes that it
    has allocated at any time, before the driver rounds them up; 0 on the CPU. Nothing is allocated
    or started, and `data` does not count. Errors: as of flashattnLaunch. */
FLASHATTN_EXPORT int32_t flashattnKernelGetWorkspace(FlashAttnKernel kernel,
                                                     const FlashAttnTensor *tensors,
                                                     int32_t numTensors, int64_t *bytes);

enum { FLASHATTN_MAX_PACKED = 24 };

/** A launch behind one pointer, for callers that pay for each argument: a foreign function
    interface packs words faster than it converts arguments. */
typedef struct FlashAttnPackedLaunch {
  FlashAttnKernel kernel;
  /** As of flashattnLaunch, but for their addresses: written once, and used by many launches, of
      several threads too. */
  const FlashAttnTensor *tensors;
  int64_t numTensors; /**< at most FLASHATTN_MAX_PACKED */
  /** What flashattnMatchPythonTensors returned, or 0. The stream is that of the match then, and so
      are the addresses that are NULL here. */
  int64_t match;
  void *stream;
  /** In place of tensors[i].data, and of tensors[i].scalar, whose 64 bits stand here. Only the
      first `numTensors` are read. */
  void *data[FLASHATTN_MAX_PACKED];
} FlashAttnPackedLaunch;

/** flashattnLaunch of what is packed, with its checks and errors. */
FLASHATTN_EXPORT int32_t flashattnLaunchPacked(const FlashAttnPackedLaunch *launch);

/** q, k, v, o, lse. */
enum { FLASHATTN_MAX_OPERANDS = 5 };

/** Tensors of Python, of one type, and what they are compared to. */
typedef struct FlashAttnPythonTensors {
  /** The DLPackExchangeAPI (DLPack 1.3) of the type, from its `__dlpack_c_exchange_api__`. */
  const void *exchange;
  const FlashAttnTensor *tensors;
  /** The CUDA device that they lie on, or FLASHATTN_DEVICE_CPU. */
  int32_t device;
  /** Whether q, k, v and o all begin at multiples of 16 bytes. */
  int32_t isAligned;
  /** `PyObject *` of q, k, v, o and lse; NULL for o and lse where they are not made yet. */
  void *objects[FLASHATTN_MAX_OPERANDS];
} FlashAttnPythonTensors;

/** A number above 0 if the objects have the element types, sizes and strides of `tensors` (whose
    addresses do not count, nor do strides of dimensions of one element) and lie as said; 0 if not,
    or where `exchange` cannot tell. The number stands for the objects' addresses and the current
    stream of their type in a launch of this thread, until 16 further matches of it. Runs no Python
    code and makes no object. The calling thread holds the interpreter's lock; an exception that
    the type raises is left set. */
FLASHATTN_EXPORT int32_t flashattnMatchPythonTensors(const FlashAttnPythonTensors *match);

/*===----------------------------------------------------------------------===*\
|* XLA
\*===----------------------------------------------------------------------===*/

/** Foreign functions of XLA (its typed FFI, version 0.3), for the platforms "cpu" and "CUDA": they
    take an XLA_FFI_CallFrame and return an XLA_FFI_Error, NULL where all went well. A call computes
    the function of a module. Its arguments are what that function reads, its results what it
    writes, each in the order of the function's arguments, dense. Attributes say the rest. These are
    texts: `module`; `schedule`, as of FlashAttnCompileOptions; `model`, empty, or a chip whose
    model runs the call on the host; `version`, which has to be flashattnGetVersion's. And there is
    one for each scalar, named as its role: `scale` of type f32, others of i64. The kernel is
    compiled at the first call of its kind or, on "cpu", at the stage "instantiate"; on CUDA it runs
    on the stream and the device of the call. Errors: as of flashattnCompile and flashattnLaunch. */
FLASHATTN_EXPORT void *flashattnXLACallCPU(void *callFrame);
FLASHATTN_EXPORT void *flashattnXLACallCUDA(void *callFrame);

/** How many kernels are kept for calls of XLA. Beyond FLASHATTN_CACHE_KERNELS of them, 256 by
    default, the one goes that was not used for longest; its next call compiles it anew. */
FLASHATTN_EXPORT int64_t flashattnXLAGetKernelCount(void);

#ifdef __cplusplus
} /* extern "C" */
#endif

#endif /* FLASHATTN_C_FLASHATTN_H */
