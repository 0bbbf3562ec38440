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
|* threads may call any function at once, also on the same kernel. The only exception is
|* flashattnKernelFree, which must not run at the same time as another call on its kernel.
|*
|* Most structures begin with their size. The Init function or the caller sets the size. New fields
|* can therefore be added at the end, and a program that was built with an older header still works.
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
  /** An argument of the call is NULL, out of range, or a structure of unknown size. */
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
  /** The tensors of a launch do not match the kernel or each other in number, type, rank, size,
      stride or alignment; or an output shares memory with another tensor. */
  FLASHATTN_ERROR_TENSOR = 7
};

/** Returns the message of the last call that failed on this thread, or "" if no call has failed.
    The message is in lower case, if possible in the form "expected … but got …". Each diagnostic is
    on its own line. The string is valid until the next call that fails on this thread. */
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
  /** A model of the GPU `chip`. It runs the GPU's kernels on the host, thread by thread, and finds
      races, deadlocks and accesses out of bounds. Tensors are in host memory. */
  FLASHATTN_DEVICE_MODEL = -3
};

/** Properties of a device. */
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
  /** 10 * major + minor of the newest PTX version that the driver supports; 0 for the CPU. */
  int32_t maxPTXVersion;
} FlashAttnDeviceInfo;

/** Writes the number of CUDA devices to `count`. Errors, with `count` set to 0: DEVICE, with the
    reason: driver library missing, driver too old, no device. */
FLASHATTN_EXPORT int32_t flashattnGetDeviceCount(int32_t *count);

/** Writes the properties of CUDA device `device`, or of the CPU for FLASHATTN_DEVICE_CPU, to
    `info`. Creates no CUDA context. */
FLASHATTN_EXPORT int32_t flashattnGetDeviceInfo(int32_t device, FlashAttnDeviceInfo *info);

/*===----------------------------------------------------------------------===*\
|* Compilation
\*===----------------------------------------------------------------------===*/

/** A compiled function; NULL means no kernel. */
typedef struct FlashAttnKernelHandle *FlashAttnKernel;

/** Severity of a diagnostic. */
enum FlashAttnSeverity {
  /** A note, which belongs to the preceding diagnostic. */
  FLASHATTN_NOTE = 0,
  FLASHATTN_REMARK = 1,
  FLASHATTN_WARNING = 2,
  FLASHATTN_ERROR = 3
};

/** A callback for each diagnostic and each of its notes. The library calls it on the thread that
    compiles. `severity` is a FlashAttnSeverity. `line` and `column` count from 1. If the location
    is unknown, both are 0 and `file` is "". The strings are valid during the call. */
typedef void (*FlashAttnDiagnosticCallback)(void *user, int32_t severity, const char *file,
                                            int32_t line, int32_t column, const char *message);

/** Options of flashattnCompile. */
typedef struct FlashAttnCompileOptions {
  size_t size; /**< set by flashattnCompileOptionsInit */
  /** "cpu", or a GPU such as "sm_80" or "sm_90a". NULL selects the chip of `device`; a model
      requires a chip. If the device does not exist or cannot run kernels of the chip, the kernel's
      texts are available but the kernel cannot be launched. */
  const char *chip;
  /** The number of a CUDA device, FLASHATTN_DEVICE_AUTO (the default), FLASHATTN_DEVICE_CPU or
      FLASHATTN_DEVICE_MODEL. */
  int32_t device;
  /** CPU: f32 lanes of a vector register; 0 (the default): the host's. */
  int32_t vectorWidth;
  /** Fields of the schedule to pin, in the syntax of flashattn-select-schedule; NULL or "": pin no
      fields. */
  const char *schedule;
  /** The function to compile; NULL: the only public function. */
  const char *function;
  /** Called for each diagnostic; NULL: no callback. flashattnGetLastError returns the errors in any
      case. */
  FlashAttnDiagnosticCallback diagnostic;
  void *diagnosticUser; /**< the callback's `user` */
  /** Nonzero (the default): tuned schedules take precedence over built-in schedules. */
  int32_t useTuned;
  /** Nonzero: rejects a module that is more than one function around one attention op, or around
      one backward attention op. Set it for untrusted text, because a module is a program that can
      read and write any memory. */
  int32_t attentionOnly;
} FlashAttnCompileOptions;

/** Sets the size and the defaults of `options`. */
FLASHATTN_EXPORT int32_t flashattnCompileOptionsInit(FlashAttnCompileOptions *options);

/** Compiles a function of the module in `mlir`, `length` bytes of text that need not be
    zero-terminated, and writes the kernel to `kernel`. `options` may be NULL for the defaults. A
    function can be launched if it has no results and its arguments are memrefs of rank 0 to 4 and
    scalars (index, integers or f32). For other functions, such as functions on tensors, only texts
    are available. Errors, with `*kernel` set to NULL: INVALID_MODULE, UNSUPPORTED, COMPILE,
    DEVICE. */
FLASHATTN_EXPORT int32_t flashattnCompile(const char *mlir, size_t length,
                                          const FlashAttnCompileOptions *options,
                                          FlashAttnKernel *kernel);

/** Checks the text, the module and the schedule, pinned or chosen, without generating code. Takes a
    hundredth of the time of flashattnCompile, and returns the same errors. */
FLASHATTN_EXPORT int32_t flashattnCheck(const char *mlir, size_t length,
                                        const FlashAttnCompileOptions *options);

/** Checks that `text` is a mask attribute, such as "#flashattn.window<left = 3>". Errors:
    INVALID_ARGUMENT, with the reason. */
FLASHATTN_EXPORT int32_t flashattnCheckMask(const char *text);

/** Checks that `text` is the block of a score_mod: ops of arith and math, and `flashattn.yield`.
    Errors: INVALID_ARGUMENT, with the reason. */
FLASHATTN_EXPORT int32_t flashattnCheckScoreMod(const char *text);

struct FlashAttnTensor;

/** The same for a score_mod that also loads elements of `numTensors` tensors, `%aux0`, `%aux1` and
    so on, which it declares as memrefs of any sizes: `memref.load %aux0[%b, %h] : memref<?x?xf32>`.
    Reads only the element type and the rank, 0 to 2, of each tensor. In a module, they are
    arguments of the function, in any place, and `flashattnLaunch` checks that a dimension whose
    index is the batch or the head has the batch size or the head count. The caller is responsible
    for other indices; with FlashAttnCompileOptions::attentionOnly, they are errors. `tensors` may
    be NULL if there are none. Errors: INVALID_ARGUMENT, with the reason. */
FLASHATTN_EXPORT int32_t flashattnCheckScoreModWithAux(const char *text,
                                                       const struct FlashAttnTensor *tensors,
                                                       int32_t numTensors);

/** Frees a kernel's host memory and the strings that it owns. Launched work continues. If no other
    kernel uses the same code on a GPU, the call waits for all work submitted to the context and
    unloads the code. Code that was captured into a graph stays loaded until the process ends. NULL
    is allowed. Errors: INVALID_HANDLE for a kernel that was already freed. */
FLASHATTN_EXPORT int32_t flashattnKernelFree(FlashAttnKernel kernel);

/*===----------------------------------------------------------------------===*\
|* Queries; the kernel owns the returned strings
\*===----------------------------------------------------------------------===*/

/** Properties of a kernel. */
typedef struct FlashAttnKernelInfo {
  size_t size; /**< sizeof(FlashAttnKernelInfo), set by the caller */
  const char *function;
  const char *chip;
  /** The number of the CUDA device on which the kernel runs, FLASHATTN_DEVICE_CPU,
      FLASHATTN_DEVICE_MODEL, or FLASHATTN_DEVICE_AUTO if the kernel runs on no device. */
  int32_t device;
  int32_t isLaunchable;
  const char *notLaunchableReason; /**< "" if the kernel is launchable */
  int32_t numArguments;
  int32_t numStages; /**< number of stages for flashattnKernelGetStage */
  /** Bytes of GPU memory that a launch needs in addition to its arguments; -1 if the number depends
      on the arguments (see flashattnKernelGetWorkspace); 0 on the CPU. */
  int64_t workspaceBytes;
  /** The key of tuned schedules: chip, D, Dv, element type and shape of the mask, as in
      "sm_90a/128/128/f16/triangular". The suffix is "/decode" for up to 16 queries, "/backward" for
      a backward pass, and "/backward/deterministic" for a deterministic backward pass. "" for a
      function without an attention op, or with several. For a function with a forward and a
      backward op, the key of the forward op. */
  const char *tuningKey;
  /** Bytes of host memory that the kernel occupies: its texts, its code for the CPU and, for a GPU,
      the image that the driver loads, without the code that the driver compiles from the image. */
  int64_t hostBytes;
} FlashAttnKernelInfo;

/** Writes the properties of `kernel` to `info`. */
FLASHATTN_EXPORT int32_t flashattnKernelGetInfo(FlashAttnKernel kernel, FlashAttnKernelInfo *info);

/** Maximum rank of a tensor argument: that of the partial outputs of `flashattn.combine`. */
enum { FLASHATTN_MAX_RANK = 5 };

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
  FLASHATTN_INDEX = 9,     /**< 64 bits */
  FLASHATTN_F8E4M3FN = 10, /**< one byte each: 4 bits of exponent, no infinities, at most 448 */
  FLASHATTN_F8E5M2 = 11    /**< the upper byte of an f16 */
};

/** Bits of FlashAttnArgumentInfo::direction. */
enum FlashAttnDirection { FLASHATTN_INPUT = 1, FLASHATTN_OUTPUT = 2 };

/** Properties of an argument of a kernel. */
typedef struct FlashAttnArgumentInfo {
  size_t size;         /**< sizeof(FlashAttnArgumentInfo), set by the caller */
  int32_t kind;        /**< FlashAttnArgumentKind */
  int32_t elementType; /**< FlashAttnElementType */
  int32_t elementBytes;
  int32_t rank;      /**< 0 for scalars */
  int32_t direction; /**< FlashAttnDirection bits; 0 if the argument is not accessed */
  /** Nonzero: the attribute `flashattn.aligned_rows` promises that rows start at multiples of 16
      bytes, and a launch checks the address and every stride except the last. On sm_90a, wgmma and
      TMA require that q, k and v are dense or have this attribute; otherwise the kernel uses
      mma.sync. */
  int32_t alignedRows;
  int64_t sizes[FLASHATTN_MAX_RANK];   /**< -1 if any size is allowed */
  int64_t strides[FLASHATTN_MAX_RANK]; /**< in elements; -1 if any stride is allowed */
  /** The name of the corresponding operand, as in flashattnGetOperand, if the function has exactly
      one attention, backward attention, combine or project op; "" if there is no such operand. */
  const char *role;
} FlashAttnArgumentInfo;

/** Writes the properties of argument `index` of `kernel` to `info`. */
FLASHATTN_EXPORT int32_t flashattnKernelGetArgument(FlashAttnKernel kernel, int32_t index,
                                                    FlashAttnArgumentInfo *info);

/** Properties of an operand of an op. */
typedef struct FlashAttnOperandInfo {
  size_t size;         /**< sizeof(FlashAttnOperandInfo), set by the caller */
  int32_t numOperands; /**< number of operands of the op, including optional operands */
  int32_t kind;        /**< FlashAttnArgumentKind */
  int32_t direction;   /**< FLASHATTN_INPUT or FLASHATTN_OUTPUT */
  int32_t isOptional;
  /** Nonzero: any dimension may have size 1, and is then broadcast. */
  int32_t broadcasts;
  /** Nonzero: with `layout(bshd)`, the second and third dimension are swapped. */
  int32_t followsLayout;
  /** The allowed element types, a bit mask of 1 << FlashAttnElementType. */
  int32_t elementTypes;
  /** Restricts the element type: 1: the type of the op's first operand; 2: that type, or f32, or any
      allowed type if the first operand has 8 bits; 3: the type of the first operand, or f8E4M3FN,
      f8E5M2 or i8; 0: any allowed type. */
  int32_t likeFirst;
  /** Such as "q" or "kv_len"; see FlashAttnArgumentInfo::role. The clause `offset` has two
      operands, "offset", a number, and "offsets", a number for each batch. */
  const char *name;
  /** A letter for each dimension: B batches, H query heads, G key/value heads, N queries, K keys, D
      elements of a query or key row, V elements of a value or output row, E elements of a projected
      row, S splits of the keys, X and Y scales of a row of "k" and of "v". Dimensions with the same
      letter have the same size. C is the number of starts of packed sequences, B + 1: with
      "cu_seqlens_q", dimension B of the operands with queries has size 1, and with "cu_seqlens_k"
      that of the operands with keys. R are the rows of all packed sequences in the outputs of
      "combine", and N if none are packed. T is the number of pages of a sequence: with
      "page_table", dimension B of "k", "v" and their scales counts the pages of a pool, and K the
      rows of a page. If dimension K of "k_scale" or "v_scale" has static size 1, its dimension B
      counts sequences in any case. "" for scalars. */
  const char *dims;
  /** Nonzero: the op has any number of such operands, each with its number in its role:
      "per_query0", "per_query1" and so on. */
  int32_t isVariadic;
} FlashAttnOperandInfo;

/** Writes the properties of operand `index` of the op "attention", "attention_backward", "combine"
    or "project" to `info`. The strings are valid as long as the library is loaded. */
FLASHATTN_EXPORT int32_t flashattnGetOperand(const char *op, int32_t index,
                                             FlashAttnOperandInfo *info);

/** Writes the name of stage `index` to `name`: "mlir" (the text passed by the caller), "schedule"
    (the selected schedules, one per line), "tiled" (tile programs, in which only the schedules
    depend on the chip), "lowered" (the LLVM dialect) and, for GPUs, "ptx". */
FLASHATTN_EXPORT int32_t flashattnKernelGetStage(FlashAttnKernel kernel, int32_t index,
                                                 const char **name);

/** Writes the zero-terminated text of a stage to `text` and its length in bytes, without the zero,
    to `length`, which may be NULL. Long texts are generated when one of them is first requested,
    which takes as long as compilation. Errors: an unknown stage. */
FLASHATTN_EXPORT int32_t flashattnKernelGetText(FlashAttnKernel kernel, const char *stage,
                                                const char **text, size_t *length);

/*===----------------------------------------------------------------------===*\
|* Compiled code on disk
\*===----------------------------------------------------------------------===*/

/** The disk cache. flashattnCompile stores compiled code in files of the user. A later compilation
    reuses the code if the text, the options, the tuned schedules of its shapes, the chip, and the
    builds of the library and of LLVM are the same; for the CPU and for a model, also the processor
    and FLASHATTN_OPTIMIZE_CPU. FLASHATTN_CACHE is the path of the folder, or switches the cache off
    with 0 or off. */
typedef struct FlashAttnCacheInfo {
  size_t size;           /**< sizeof(FlashAttnCacheInfo), set by the caller */
  const char *folder;    /**< "" if there is none */
  const char *offReason; /**< reason why the cache is off; "" if it is on */
  int64_t files, bytes;  /**< current number and total size of the files */
  int64_t maxBytes;      /**< limit above which the least recently read files are removed */
  int64_t found;         /**< compilations of this process that found code in the cache */
  int64_t made;          /**< compilations of this process that generated code */
  /** The archive of kernels compiled ahead of time (docs/environment.md); "" if there is none. */
  const char *archiveFile;
  const char *archiveOffReason; /**< reason why the archive is not used; "" if it was read */
  int64_t archiveMembers;       /**< number of members: code of kernels, and cubins */
  int64_t archiveFound;         /**< number of members that this process has found */
} FlashAttnCacheInfo;

/** Writes the state of the cache and the archive to `info`. Creates no file. The strings are valid
    until the thread's next call of this function. */
FLASHATTN_EXPORT int32_t flashattnGetCacheInfo(FlashAttnCacheInfo *info);

/*===----------------------------------------------------------------------===*\
|* Schedules as text
\*===----------------------------------------------------------------------===*/

/** Completes the fields of a schedule and writes them to `text`, for operands of `elementType`
    (FLASHATTN_F16, BF16 or F32) on a GPU, or on the CPU if `onCPU` is nonzero. For example,
    "tile_n = 80, hopper = <consumers = 3>" is completed by the rows, warps and registers of three
    consumer warpgroups. The result can be used as FlashAttnCompileOptions::schedule. The text is
    valid until the thread's next call of this function, flashattnGetTrials, flashattnTunedGetPath
    or flashattnTunedLoad, which share one buffer per thread. Errors: INVALID_ARGUMENT for unknown
    or missing fields, and for values that are not numbers. Only flashattnCompile checks whether a
    kernel can be compiled with the schedule. */
FLASHATTN_EXPORT int32_t flashattnScheduleComplete(const char *fields, int32_t elementType,
                                                   int32_t onCPU, const char **text);

/** Values to try. If `count` is 0, the library tries its default values. */
typedef struct FlashAttnNumbers {
  const int64_t *values;
  size_t count;
} FlashAttnNumbers;

/** Options of flashattnGetTrials. */
typedef struct FlashAttnTrialOptions {
  size_t size;         /**< sizeof(FlashAttnTrialOptions), set by the caller */
  const char *chip;    /**< as in FlashAttnCompileOptions, not NULL */
  int32_t elementType; /**< FLASHATTN_F16, BF16 or F32 */
  int32_t vectorWidth; /**< as in FlashAttnCompileOptions */
  int64_t group;       /**< query heads per key/value head; 1 if unknown */
  /** Nonzero: packed heads may be faster, because of a short window or few queries. */
  int32_t packs;
  FlashAttnNumbers tileM, tileN, warps, stages;
  /** Values in any of these lists restrict the trials to schedules with warp specialization. */
  FlashAttnNumbers consumers, registers, blocksPerSM, pack;
  /** Nonzero: schedules of flashattn.attention_backward. Structures of older callers end before
      this field. */
  int32_t gradients;
} FlashAttnTrialOptions;

/** Writes the schedules that are worth timing to `text`, one per line, in the syntax of
    flashattnScheduleComplete; the text is valid as long as the text of that function.
    flashattnCompile rejects some of the schedules, with the reason. */
FLASHATTN_EXPORT int32_t flashattnGetTrials(const FlashAttnTrialOptions *options,
                                            const char **text);

/** Writes the path of the user's file of tuned schedules to `path`. Compilations with `useTuned`
    read the file unless FLASHATTN_TUNED is 0. The file is schedules.json in
    $XDG_CACHE_HOME/flashattn, or in ~/.cache/flashattn if XDG_CACHE_HOME is unset or not an
    absolute path. "" if there is no such folder. `path` is valid as long as the text of
    flashattnScheduleComplete. */
FLASHATTN_EXPORT int32_t flashattnTunedGetPath(const char **path);

/** Writes the tuned schedules in `file` (NULL: the user's file) to `json`: an object that maps each
    tuning key (FlashAttnKernelInfo::tuningKey) to an object with the fastest `schedule` and its
    time `ms`; {} if there is no file. `json` is valid as long as the text of
    flashattnScheduleComplete. Errors: INVALID_ARGUMENT for a file of another format. */
FLASHATTN_EXPORT int32_t flashattnTunedLoad(const char *file, const char **json);

/** Stores `finding`, a JSON object, under `key` in `file` (NULL: the user's file). The object must
    have a string `schedule`, which is the only check; the tuner also writes `ms`. The file is
    replaced atomically. If `finding` is NULL, the call only checks whether a finding could be
    stored: it creates the folder and writes no file. Errors: INVALID_ARGUMENT. */
FLASHATTN_EXPORT int32_t flashattnTunedStore(const char *file, const char *key,
                                             const char *finding);

/*===----------------------------------------------------------------------===*\
|* Launch
\*===----------------------------------------------------------------------===*/

/** The value of one argument. */
typedef struct FlashAttnTensor {
  /** Address of the first element, in device memory on CUDA, and in host memory on the CPU and on a
      model. A tensor that the kernel writes must not share a byte with another argument of the
      launch, because the kernel computes some rows while it writes other rows. Views with
      interleaved elements, such as slices of one packed array, share no bytes. */
  void *data;
  int64_t sizes[FLASHATTN_MAX_RANK];
  int64_t strides[FLASHATTN_MAX_RANK]; /**< in elements, not negative */
  int64_t scalar;      /**< value of a scalar argument (the 32 bits of an f32); the other fields are
                          then ignored */
  int32_t elementType; /**< FlashAttnElementType */
  int32_t rank;
} FlashAttnTensor;

/** Launches the kernel on `stream`, a CUstream or cudaStream_t of the kernel's device (NULL: the
    legacy default stream). On the CPU, `stream` is ignored and the call returns when all work is
    done.
    On CUDA, the call enqueues kernel launches on the stream. A kernel that needs workspace, such as
    split-KV, also enqueues a stream-ordered allocation (CUDA 11.2), which is freed after the
    launches. The call copies no data and does not wait, so it may be captured into a graph. On the
    first launch of a kernel, also in a capture, the driver loads the kernel, and compiles its PTX
    if the driver has not cached the code. Any context may be current; the kernel uses the device's
    primary context.
    On a model, `stream` is ignored too. The first launch of a kernel runs interleaving 1, and each
    later launch runs the next interleaving. An error in an interleaving is a DEVICE error with the
    model's report.
    Errors: TENSOR, also for an output that shares memory with another argument; DEVICE; UNSUPPORTED
    for a kernel that cannot be launched. */
FLASHATTN_EXPORT int32_t flashattnLaunch(FlashAttnKernel kernel, void *stream,
                                         const FlashAttnTensor *tensors, int32_t numTensors);

/** Writes the peak GPU memory in bytes that a launch with these arguments allocates, before the
    driver rounds it up, to `bytes`; 0 on the CPU. Does not allocate or launch, and ignores `data`.
    Errors: those of flashattnLaunch. */
FLASHATTN_EXPORT int32_t flashattnKernelGetWorkspace(FlashAttnKernel kernel,
                                                     const FlashAttnTensor *tensors,
                                                     int32_t numTensors, int64_t *bytes);

/** Maximum number of tensors of a packed launch, which is sufficient for every op with all its
    operands. */
enum { FLASHATTN_MAX_PACKED = 64 };

/** The arguments of a launch in one structure, for foreign function interfaces, which pack words
    faster than they convert arguments. */
typedef struct FlashAttnPackedLaunch {
  FlashAttnKernel kernel;
  /** The tensors, as for flashattnLaunch, except for their addresses. The same tensors can be used
      by many launches, also on several threads. */
  const FlashAttnTensor *tensors;
  int64_t numTensors; /**< at most FLASHATTN_MAX_PACKED */
  /** A nonzero result of flashattnMatchPythonTensors, or 0. If it is nonzero, the launch uses the
      stream of the match instead of `stream`, and the addresses of the match for elements of `data`
      that are NULL. */
  int64_t match;
  void *stream;
  /** Replaces tensors[i].data or, for a scalar, the 64 bits of tensors[i].scalar. Only the first
      `numTensors` elements are read. */
  void *data[FLASHATTN_MAX_PACKED];
} FlashAttnPackedLaunch;

/** Runs flashattnLaunch with the packed arguments, with the same checks and errors. */
FLASHATTN_EXPORT int32_t flashattnLaunchPacked(const FlashAttnPackedLaunch *launch);

/** Number of operands: q, k, v, o, lse. */
enum { FLASHATTN_MAX_OPERANDS = 5 };

/** Python tensors of one type, and the expected tensors. */
typedef struct FlashAttnPythonTensors {
  /** The DLPackExchangeAPI (DLPack 1.3) of the type, from its `__dlpack_c_exchange_api__`. */
  const void *exchange;
  const FlashAttnTensor *tensors; /**< the expected tensors */
  /** The expected CUDA device of the tensors, or FLASHATTN_DEVICE_CPU. */
  int32_t device;
  /** Whether q, k, v and o are all expected to begin at multiples of 16 bytes. */
  int32_t isAligned;
  /** `PyObject *` of q, k, v, o and lse; NULL for o and lse if they do not exist yet. */
  void *objects[FLASHATTN_MAX_OPERANDS];
} FlashAttnPythonTensors;

/** Compares Python tensors with the expected tensors. Returns a positive number if the objects
    have the element types, sizes and strides of `tensors`, the device and the alignment; 0 if they
    do not match, or if `exchange` does not provide the information. Addresses in `tensors` and
    strides of dimensions of size 1 are ignored. As FlashAttnPackedLaunch::match on this thread,
    the number represents the objects' addresses and the current stream of their type; it is valid
    until 16 further matches on the thread. The call runs no Python code and creates no object. The
    calling thread must hold the interpreter's lock. An exception that the type raises stays set. */
FLASHATTN_EXPORT int32_t flashattnMatchPythonTensors(const FlashAttnPythonTensors *match);

/*===----------------------------------------------------------------------===*\
|* XLA
\*===----------------------------------------------------------------------===*/

/** Handlers of XLA's typed FFI, version 0.3, for the platforms "cpu" and "CUDA". Each takes an
    XLA_FFI_CallFrame and returns an XLA_FFI_Error, or NULL on success. A call runs the function of
    a module. The call's arguments are the buffers that the function reads, and the call's results
    are the buffers that the function writes, both dense and in the order of the function's
    arguments. Everything else is passed in attributes. Four attributes are strings:
    - `module`, the text of the module;
    - `schedule`, as in FlashAttnCompileOptions;
    - `model`, empty, or the chip whose model runs the call on the host;
    - `version`, which must equal the result of flashattnGetVersion.
    Each scalar has an attribute named after its role: `scale` of type f32, all others of type i64.
    The first call of a kind compiles the kernel; on "cpu", the stage "instantiate" compiles it. On
    CUDA, the kernel runs on the stream and the device of the call. Errors: those of
    flashattnCompile and flashattnLaunch. */
FLASHATTN_EXPORT void *flashattnXLACallCPU(void *callFrame);
FLASHATTN_EXPORT void *flashattnXLACallCUDA(void *callFrame);

/** Returns the number of kernels that are cached for calls from XLA. If there are more than
    FLASHATTN_CACHE_KERNELS, 256 by default, the least recently used kernel is removed, and the next
    call that needs it compiles it again. */
FLASHATTN_EXPORT int64_t flashattnXLAGetKernelCount(void);

#ifdef __cplusplus
} /* extern "C" */
#endif

#endif /* FLASHATTN_C_FLASHATTN_H */
