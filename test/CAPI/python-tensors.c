/* Tensors that a Python type exchanges with C: which of them match, and launches of matches. The
   test creates the objects and the function table, without Python.

   REQUIRES: capi
   RUN: capi-python-tensors | FileCheck %s
   CHECK: PASS
*/

#include "Inputs/Testing.h"

/* Declared as in DLPack, with its names, because calls go through pointers of these types. */
typedef enum DLDeviceType { kDLCPU = 1, kDLCUDA = 2 } DLDeviceType;

typedef struct DLTensor {
  void *data;
  int32_t deviceType, device, rank;
  uint8_t code, bits;
  uint16_t lanes;
  int64_t *sizes, *strides;
  uint64_t byteOffset;
} DLTensor;

typedef struct DLPackExchangeAPI {
  uint32_t major, minor;
  void *unused[4];
  int (*describe)(void *object, DLTensor *tensor);
  int (*getStream)(DLDeviceType deviceType, int32_t device, void **stream);
} DLPackExchangeAPI;

static int describeObject(void *object, DLTensor *tensor) {
  *tensor = *(DLTensor *)object;
  return tensor->rank < 0 ? -1 : 0;
}

static int numStreams = 0;
static int getStream(DLDeviceType deviceType, int32_t device, void **stream) {
  CHECK(deviceType == kDLCUDA && device == 3);
  ++numStreams;
  *stream = NULL;
  return 0;
}

static DLPackExchangeAPI exchange = {1, 3, {0}, describeObject, getStream};

enum { kInt = 0, kUInt = 1, kFloat = 2, kBFloat = 4, kE4M3FN = 10, kE4M3FNUZ = 11, kE5M2 = 12 };

static FlashAttnTensor tensors[5];
static DLTensor objects[5];
static FlashAttnPythonTensors question;

/* Restores matching tensors, so that a test can change one property. */
static void reset(void) {
  question = (FlashAttnPythonTensors){&exchange, tensors, FLASHATTN_DEVICE_CPU, 1, {0}};
  for (int i = 0; i < 5; ++i) {
    objects[i] =
        (DLTensor){tensors[i].data,    kDLCPU, 0, tensors[i].rank, kFloat, 32, 1, tensors[i].sizes,
                   tensors[i].strides, 0};
    question.objects[i] = &objects[i];
  }
}

#define MATCHES(change)                                                                            \
  do {                                                                                             \
    reset();                                                                                       \
    change;                                                                                        \
    CHECK(flashattnMatchPythonTensors(&question) > 0);                                             \
  } while (0)
#define DIFFERS(change)                                                                            \
  do {                                                                                             \
    reset();                                                                                       \
    change;                                                                                        \
    CHECK(flashattnMatchPythonTensors(&question) == 0);                                            \
  } while (0)

static void checkMatches(void) {
  int64_t other[4] = {1, 2, 7, 16}, anyBatch[4] = {99, 128, 16, 1}, wide[4] = {256, 128, 17, 1};
  char *q = objects[0].data;
  MATCHES((void)0);
  MATCHES(question.objects[4] = NULL);
  MATCHES(question.objects[3] = NULL);
  MATCHES(objects[1].strides = NULL);
  MATCHES(objects[0].strides = anyBatch); /* stride of a single batch */
  MATCHES((objects[0].data = q - 4, objects[0].byteOffset = 4));
  MATCHES((objects[0].data = q + 4, question.isAligned = 0));
  MATCHES(objects[4].data = (char *)objects[4].data + 4);
  DIFFERS(objects[0].data = q + 4);
  DIFFERS(objects[3].byteOffset = 4);
  DIFFERS(question.isAligned = 0);
  DIFFERS(objects[2].code = kBFloat);
  DIFFERS(objects[2].bits = 16);
  DIFFERS(objects[2].lanes = 2);
  DIFFERS(objects[1].rank = 3);
  DIFFERS(objects[3].sizes = other);
  DIFFERS(objects[4].strides = other);
  DIFFERS(objects[0].strides = wide);
  DIFFERS(objects[0].deviceType = kDLCUDA);
  DIFFERS(objects[0].rank = -1); /* cannot be described */
  DIFFERS(question.objects[2] = NULL);
  DIFFERS(question.exchange = NULL);
  DIFFERS(question.tensors = NULL);
  CHECK(flashattnMatchPythonTensors(NULL) == 0);
  exchange.major = 2;
  DIFFERS((void)0);
  exchange.major = 1;
  exchange.describe = NULL;
  DIFFERS((void)0);
  exchange.describe = describeObject;
  tensors[1].elementType = FLASHATTN_BF16;
  MATCHES((objects[1].code = kBFloat, objects[1].bits = 16));
  DIFFERS((objects[1].code = kFloat, objects[1].bits = 16));
  /* Elements of 8 bits are no elements of 16. */
  tensors[1].elementType = FLASHATTN_F16;
  MATCHES(objects[1].bits = 16);
  DIFFERS(objects[1].bits = 32);
  DIFFERS((objects[1].code = kE5M2, objects[1].bits = 8));
  DIFFERS((objects[1].code = kInt, objects[1].bits = 16));
  tensors[1].elementType = FLASHATTN_F8E4M3FN;
  MATCHES((objects[1].code = kE4M3FN, objects[1].bits = 8));
  DIFFERS((objects[1].code = kE4M3FNUZ, objects[1].bits = 8));
  DIFFERS((objects[1].code = kE5M2, objects[1].bits = 8));
  DIFFERS((objects[1].code = kUInt, objects[1].bits = 8));
  DIFFERS(objects[1].bits = 16);
  DIFFERS((objects[1].code = kE4M3FN, objects[1].bits = 8, objects[1].lanes = 4));
  tensors[1].elementType = FLASHATTN_F8E5M2;
  MATCHES((objects[1].code = kE5M2, objects[1].bits = 8));
  DIFFERS((objects[1].code = kE4M3FN, objects[1].bits = 8));
  tensors[1].elementType = FLASHATTN_I8;
  MATCHES((objects[1].code = kInt, objects[1].bits = 8));
  DIFFERS((objects[1].code = kUInt, objects[1].bits = 8));
  tensors[1].elementType = 99;
  DIFFERS((void)0);
  tensors[1].elementType = FLASHATTN_F32;

  CHECK(numStreams == 0);
  reset();
  question.device = 3;
  for (int i = 0; i < 5; ++i)
    objects[i].deviceType = kDLCUDA, objects[i].device = 3;
  CHECK(flashattnMatchPythonTensors(&question) > 0 && numStreams == 1);
  objects[2].device = 1;
  CHECK(flashattnMatchPythonTensors(&question) == 0 && numStreams == 1);
}

/* A launch of an earlier match uses the addresses of that match. */
static void checkLaunches(FlashAttnKernel kernel) {
  enum { kNumMatches = 16 };
  FlashAttnTensor outputs[kNumMatches][2];
  int64_t numbers[kNumMatches];
  for (int i = 0; i < kNumMatches; ++i) {
    reset();
    outputs[i][0] = makeTensor(4, tensors[3].sizes, 0);
    outputs[i][1] = makeTensor(3, tensors[4].sizes, 0);
    objects[3].data = outputs[i][0].data;
    objects[4].data = outputs[i][1].data;
    question.objects[4] = i % 2 ? question.objects[4] : NULL;
    numbers[i] = flashattnMatchPythonTensors(&question);
    CHECK(numbers[i] > 0);
  }
  for (int i = kNumMatches; i-- > 0;) {
    FlashAttnPackedLaunch packed = {kernel, tensors, 5, numbers[i], NULL, {0}};
    packed.data[4] = i % 2 ? NULL : outputs[i][1].data;
    CHECK(flashattnLaunchPacked(&packed) == FLASHATTN_OK);
    CHECK(compareAttention(&tensors[0], &tensors[1], &tensors[2], &outputs[i][0], &outputs[i][1],
                           0) < 1e-5);
    free(outputs[i][0].data);
    free(outputs[i][1].data);
  }
}

int main(void) {
  FlashAttnKernel kernel =
      compileFor("cpu", attentionText("memref<?x?x?x16xf32>", "", "", "memref<?x?x?xf32>"));
  int64_t q[4] = {1, 2, 8, 16};
  for (int i = 0; i < 5; ++i)
    tensors[i] = makeTensor(i == 4 ? 3 : 4, q, (uint32_t)(i < 3 ? i + 1 : 0));
  reset();
  checkMatches();
  checkLaunches(kernel);
  for (int i = 0; i < 5; ++i)
    free(tensors[i].data);
  CHECK(flashattnKernelFree(kernel) == FLASHATTN_OK);
  return finish();
}
